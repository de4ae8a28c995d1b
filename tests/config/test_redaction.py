from __future__ import annotations

import io
import logging
import stat
from pathlib import Path

import pytest

from rkllm_mcp.config.editing import add_servers
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.secrets import (
    hash_key,
    is_secret_name,
    readable_secrets,
    redacted_text,
    secret_places,
    secrets_in_address,
)
from rkllm_mcp.surfaces.http.server import log_to
from tests.support.processor_time import processor_time_limit

CONFIG = """
[service]
api_keys = ["k1", "k2"]
[provider]
api_key = "sk-0123456789abcdef"
base_url = "https://user:password@host/v1?token=abc&region=eu"
[[servers]]
name = "a"
command = "run"
args = ["--token", "abc", "--api-key=abc", "--region", "eu", "ghp_0123456789abcdefghij"]
env = {GITHUB_TOKEN = "abc", PLAIN = "shown", DATABASE = "postgres://u:p@h/db"}
[[servers]]
name = "b"
url = "https://h/mcp"
headers_template = {Authorization = "Bearer ${servicenow}", "X-Region" = "eu"}
[[tenants]]
name = "t"
api_key = "abc"
daily_tokens = 1000
"""


def test_secrets_are_not_shown_and_everything_else_is(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG)
    shown = load_config(tmp_path / "c.toml", env={}).dump_redacted()
    hidden = "[REDACTED]"
    assert shown["service"]["api_keys"] == [hidden, hidden]
    assert shown["provider"]["api_key"] == hidden
    assert shown["provider"]["base_url"] == f"https://user:{hidden}@host/v1?token={hidden}&region=eu"
    assert shown["servers"][0]["args"] == ["--token", hidden, f"--api-key={hidden}", "--region", "eu", hidden]
    assert shown["servers"][0]["env"] == {
        "GITHUB_TOKEN": hidden,
        "PLAIN": "shown",
        "DATABASE": f"postgres://u:{hidden}@h/db",
    }
    assert shown["servers"][1]["headers_template"] == {"Authorization": hidden, "X-Region": hidden}
    assert shown["tenants"][0] == {
        "name": "t",
        "api_key": hidden,
        "servers": None,
        "tools": None,
        "system_prompt": None,
        "approve": None,
        "may_approve": None,
        "may_write": False,
        "documents": "shared",
        "mcp": None,
        "daily_tokens": 1000,
        "daily_audio_s": None,
    }
    assert "abc" not in str(shown)


def test_ordinary_text_is_left_alone() -> None:
    for text in (
        "task-force",
        "keyboard",
        "a=b",
        "https://host/path?page=2",
        "--verbose",
        "東京",
        "a basic introduction, x=1",
    ):
        assert redacted_text(text) == text


def test_secrets_are_found_in_the_middle_of_what_people_say() -> None:
    said = (
        "compare https://ann:abc@h/x?api_key=abc&n=1 and http://g/?token=abc, set DB_PASSWORD=abc, send Bearer abcd-abc"
    )
    hidden = "[REDACTED]"
    assert redacted_text(said) == (
        f"compare https://ann:{hidden}@h/x?api_key={hidden}&n=1 and http://g/?token={hidden} "
        f"set DB_PASSWORD={hidden} send Bearer {hidden}"
    )


@pytest.mark.parametrize(
    "part", ["x", "x.", "aB", "--a", "eyJ", "eyJabcdefgh-", "hf-", "sk-", "://", "a=", "https://h/x", "https://h/?a=1&"]
)
def test_the_time_for_a_text_of_two_hundred_thousand_characters_does_not_grow_with_its_square(part: str) -> None:
    # It would be minutes.
    with processor_time_limit(30):
        for text in (part * (200_000 // len(part)), "https://h/" + part * (200_000 // len(part))):
            assert len(redacted_text(text)) > 0


@pytest.mark.parametrize(
    ("address", "shown", "secrets"),
    [
        ("https://ann:p4ssw0rd@h/mcp", "https://ann:[REDACTED]@h/mcp", ("p4ssw0rd",)),
        (
            "https://mcp.tavily.com/mcp/?tavilyApiKey=tvly-dev-0123",
            "https://mcp.tavily.com/mcp/?tavilyApiKey=[REDACTED]",
            ("tvly-dev-0123",),
        ),
        (
            "https://h/mcp?api%5Fkey=a%2Fbcdefghij",
            "https://h/mcp?api%5Fkey=[REDACTED]",
            ("a%2Fbcdefghij", "a/bcdefghij"),
        ),
        (
            "https://h/mcp?firecrawlapikey=12345678&page=2",
            "https://h/mcp?firecrawlapikey=[REDACTED]&page=2",
            ("12345678",),
        ),
        ("wss://0a1b2c3d4e5f6a7b8c9d@h/", "wss://[REDACTED]@h/", ("0a1b2c3d4e5f6a7b8c9d",)),
        (
            "https://mcp.zapier.com/api/mcp/s/NzE5ZjQ0YTctN2E4Zi00YzE2/mcp",
            "https://mcp.zapier.com/api/mcp/s/[REDACTED]/mcp",
            ("NzE5ZjQ0YTctN2E4Zi00YzE2",),
        ),
        ("https://h/#access_token=12345678", "https://h/#access_token=[REDACTED]", ("12345678",)),
        ("https://h/mcp?sig=short", "https://h/mcp?sig=[REDACTED]", ()),
        ("https://h/descriptions/api.github.com.2022-11-28.yaml?max_tokens=3", None, ()),
        ("https://api.githubcopilot.com/mcp/x/pull_requests/readonly", None, ()),
    ],
)
def test_the_secrets_of_an_address_are_not_shown(address: str, shown: str | None, secrets: tuple[str, ...]) -> None:
    assert redacted_text(f"{address} cannot be used: no answer") == f"{shown or address} cannot be used: no answer"
    assert secrets_in_address(address) == secrets


@pytest.mark.parametrize("name", ["exaApiKey", "apikey", "accessToken", "X-Subscription-Key", "DB_PASSWORD", "sig"])
def test_a_name_of_a_secret_is_recognised_in_every_spelling(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["maxTokens", "daily_tokens", "keyboard", "monkey", "author", "tokenizer", "signal"])
def test_a_name_that_only_contains_a_word_like_that_is_not_matched(name: str) -> None:
    assert not is_secret_name(name)


def test_a_log_line_and_its_traceback_have_no_secret() -> None:
    stream = io.StringIO()
    handler = log_to(stream, "text")
    error = ConnectionError("no answer from https://ann:p4ssw0rd@h/?apiKey=abcdefgh")
    try:
        logging.getLogger("rkllm_mcp.test").error("asked %s", "https://h/?token=abcdefgh", exc_info=error)
    finally:
        logging.getLogger().removeHandler(handler)
    assert "no answer from https://ann:[REDACTED]@h/?apiKey=[REDACTED]" in stream.getvalue()
    assert "p4ssw0rd" not in stream.getvalue()
    assert "abcdefgh" not in stream.getvalue()


def test_the_places_of_secrets_in_a_file_are_named() -> None:
    file = {
        "service": {"api_keys": [hash_key("k" * 20), "${KEY}", "plain"]},
        "servers": [{"name": "a", "url": "https://h/?apiKey=1", "headers_template": {"Authorization": "Bearer x"}}],
    }
    assert secret_places(file) == [
        "service.api_keys[2]",
        "servers[0].url",
        "servers[0].headers_template.Authorization",
    ]


def test_a_file_with_secrets_that_others_may_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch(0o644)
    file = {"provider": {"api_key": "secret"}}
    assert readable_secrets(path, file).endswith(f"can read it: chmod 600 {path}")
    path.chmod(0o600)
    assert readable_secrets(path, file) == ""


def test_a_file_that_gets_a_secret_is_for_its_owner_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    add_servers(path, [{"name": "a", "url": "https://h/mcp"}])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    add_servers(path, [{"name": "b", "url": "https://h/mcp"}])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    add_servers(path, [{"name": "c", "url": "https://h/mcp", "headers_template": {"X-Api-Key": "k"}}])
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0
