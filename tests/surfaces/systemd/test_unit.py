"""The unit that ``service install`` writes, judged by systemd itself where it is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rkllm_mcp.surfaces.cli.service import UnitOptions, unit_text
from tests.support.demo_app import Demo, make_demo

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
# What systemd 252 calls "exposure": 10 is everything open.
MOST_EXPOSURE = 2.0
BOARD = UnitOptions(
    program=("/bin/true",),
    config=Path("/etc/rkllm-mcp/config.toml"),
    start_s=120,
    drain_s=30,
    devices=("/dev/dri/renderD129", "/dev/dri/card1", "/dev/dma_heap/system"),
    groups=("render", "video"),
    readable=(Path("/home/orange/models/qwen 3"), Path("/opt/models")),
    writable=(Path("/home/orange/notes"), Path("/srv/notes")),
    credentials=(("API_KEY", Path("/etc/rkllm-mcp/api.key")),),
)

OWNED = replace(BOARD, user="orange", environment=(("XDG_DATA_HOME", "/home/orange/.local/share"),))


def analyzed(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    file = folder / "rkllm-mcp.service"
    file.write_text(text, "utf-8")
    return subprocess.run(
        ["systemd-analyze", *words, str(file)], check=False, capture_output=True, text=True, timeout=60
    )


@needs_systemd
@pytest.mark.parametrize("is_user", [False, True])
def test_systemd_understands_every_line(tmp_path: Path, is_user: bool) -> None:
    done = analyzed(tmp_path, unit_text(BOARD, is_user=is_user), "verify", "--man=no")
    assert done.stderr == ""
    assert done.returncode == 0


@needs_systemd
@pytest.mark.parametrize("options", [BOARD, OWNED], ids=["own account", "a person's"])
def test_systemd_rates_it_two_or_better(tmp_path: Path, options: UnitOptions) -> None:
    done = analyzed(tmp_path, unit_text(options, is_user=False), "security", "--offline=yes", "--no-pager")
    rating = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert rating is not None, done.stdout + done.stderr
    assert float(rating[1]) <= MOST_EXPOSURE


def test_the_npu_and_nothing_else_of_dev_is_open() -> None:
    lines = unit_text(BOARD, is_user=False).splitlines()
    assert "DevicePolicy=closed" in lines
    assert [line for line in lines if line.startswith("DeviceAllow=")] == [
        "DeviceAllow=/dev/dri/renderD129 rw",
        "DeviceAllow=/dev/dri/card1 rw",
        "DeviceAllow=/dev/dma_heap/system rw",
    ]
    assert "SupplementaryGroups=render video" in lines


@pytest.mark.parametrize("is_user", [False, True])
def test_a_service_may_open_the_thousands_of_buffers_of_a_model(is_user: bool) -> None:
    assert "LimitNOFILE=102400" in unit_text(BOARD, is_user=is_user).splitlines()


def test_of_home_only_the_necessary_parts_are_seen() -> None:
    lines = unit_text(BOARD, is_user=False).splitlines()
    assert 'BindReadOnlyPaths="/home/orange/models/qwen 3"' in lines
    assert "BindPaths=/home/orange/notes" in lines
    assert "ReadWritePaths=/srv/notes" in lines
    assert not any("/opt/models" in line for line in lines)


def test_a_persons_configuration_is_read_as_that_person() -> None:
    lines = unit_text(OWNED, is_user=False).splitlines()
    assert {"User=orange", "Environment=XDG_DATA_HOME=/home/orange/.local/share"} <= set(lines)
    # What is the person's otherwise is not removed with the service.
    assert not {"DynamicUser=yes", "RemoveIPC=yes"} & set(lines)
    assert {"DynamicUser=yes", "RemoveIPC=yes"} <= set(unit_text(BOARD, is_user=False).splitlines())


def test_a_folder_inside_a_writable_one_is_not_a_separate_mount() -> None:
    options = replace(BOARD, readable=(Path("/home/orange/notes/2026"), Path("/home/orange/notes2")))
    lines = unit_text(options, is_user=False).splitlines()
    assert "BindReadOnlyPaths=/home/orange/notes2" in lines
    assert not any("2026" in line for line in lines)


def test_the_unit_waits_for_the_model_and_for_answers() -> None:
    lines = unit_text(BOARD, is_user=False).splitlines()
    assert {"Type=notify", "TimeoutStartSec=180", "TimeoutStopSec=90", "WatchdogSec=60"} <= set(lines)
    assert "LoadCredential=API_KEY:/etc/rkllm-mcp/api.key" in lines
    assert "ExecStart=/bin/true --config /etc/rkllm-mcp/config.toml serve" in lines


@pytest.mark.parametrize("is_user", [False, True])
def test_it_is_started_again_after_a_failure_and_given_up_after_five_starts_in_ten_minutes(
    is_user: bool,
) -> None:
    lines = unit_text(BOARD, is_user=is_user).splitlines()
    assert {"StartLimitIntervalSec=600", "StartLimitBurst=5"} <= set(lines[: lines.index("[Service]")])
    # Exit code 3, of a model that is not loaded again, is not one of those that end the restarts.
    assert {"Restart=on-failure", "RestartPreventExitStatus=2"} <= set(lines)


def test_a_sandbox_may_make_namespaces() -> None:
    lines = unit_text(replace(BOARD, namespaces=True), is_user=False).splitlines()
    assert "RestrictNamespaces=yes" not in lines
    assert "SystemCallFilter=@system-service @mount" in lines


def test_a_word_is_written_as_it_is() -> None:
    odd = Path("/srv/50% $HOME/it's.toml")
    assert '--config "/srv/50%% $$HOME/it\'s.toml" serve' in unit_text(replace(BOARD, config=odd), is_user=False)


@needs_systemd
def test_the_printed_unit_is_for_the_configuration_in_use(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [])
    done = demo.run_here("service", "install", "--print")
    assert done.returncode == 0, done.stderr
    assert f"--config {demo.config} serve" in done.stdout
    folder = tmp_path / "unit"
    folder.mkdir()
    assert analyzed(folder, done.stdout, "verify", "--man=no").returncode == 0


def test_a_credential_is_a_variable_of_the_configuration(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [], extra='[service]\napi_keys = ["${BOARD_KEY}"]\n')
    secret = tmp_path / "key"
    secret.write_text("s3cret\n", "utf-8")
    assert "BOARD_KEY" in demo.run_here("service", "install", "--print").stderr
    done = demo.run_here("service", "install", "--print", "--credential", f"BOARD_KEY={secret}")
    assert f"LoadCredential=BOARD_KEY:{secret}" in done.stdout, done.stderr
    assert "s3cret" not in done.stdout
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    secret.rename(credentials / "BOARD_KEY")
    checked = demo.run_here("config", "check", environment={"CREDENTIALS_DIRECTORY": str(credentials)})
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("credential", ["KEY", "KEY=/nowhere/at/all", "a key=/etc/hostname", "=x"])
def test_a_credential_that_is_not_one_is_refused(tmp_path: Path, credential: str) -> None:
    done = make_demo(tmp_path, []).run_here("service", "install", "--print", "--credential", credential)
    assert done.returncode == 2
    assert "is not NAME=FILE" in done.stderr


def test_without_a_configuration_file_no_service_is_installed(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [])
    demo.config.unlink()
    done = Demo(tmp_path, demo.environment).run_here("service", "install", "--print")
    assert done.returncode == 2
