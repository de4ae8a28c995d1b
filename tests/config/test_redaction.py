from __future__ import annotations

from pathlib import Path

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.secrets import redacted_text

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
    shown = load_config(tmp_path / "c.toml", env={}).redacted()
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
        "mcp": None,
        "daily_tokens": 1000,
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
