"""Secrets of a configuration: as systemd hands them over, as 'service install' has written them, in an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.config.loading import load_config

URL = '[store]\nurl = "postgresql://rkllm:${PASSWORD}@db.lan/rkllm"\n'


@pytest.mark.parametrize(
    ("password", "written"), [("plain", "plain"), ("the password", "the%20password"), ("a@b/c%", "a%40b%2Fc%25")]
)
def test_a_password_with_any_characters_is_one_part_of_the_address(tmp_path: Path, password: str, written: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(URL, "utf-8")
    config = load_config(file, env={"PASSWORD": password})
    assert config.store.url == f"postgresql://rkllm:{written}@db.lan/rkllm"
    # A variable that is the whole address stays as it is.
    file.write_text('[store]\nurl = "${ADDRESS}"\n', "utf-8")
    whole = "postgresql://me:a%40b@db.lan/x"
    assert load_config(file, env={"ADDRESS": whole}).store.url == whole


def test_what_service_install_has_written_is_read_by_the_commands_of_the_owner(tmp_path: Path) -> None:
    file, folder, handed = tmp_path / "config.toml", tmp_path / "credentials", tmp_path / "systemd"
    file.write_text(URL, "utf-8")
    for each, secret in ((folder, "saved\n"), (handed, "handed\n")):
        each.mkdir()
        (each / "PASSWORD").write_text(secret, "utf-8")
    urls = [load_config(file, env=env).store.url for env in ({}, {"CREDENTIALS_DIRECTORY": str(handed)})]
    assert urls == [f"postgresql://rkllm:{secret}@db.lan/rkllm" for secret in ("saved", "handed")]
    assert load_config(file, env={"PASSWORD": "given"}).store.url == "postgresql://rkllm:given@db.lan/rkllm"
