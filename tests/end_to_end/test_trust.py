"""Calls that change something, from the shell: refused where nobody says yes, run where somebody did, all recorded."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from tests.support.demo_app import Demo, PythonServer, events_of, make_demo, text_of
from tests.support.fake_jma import FakeAgency
from tests.support.shared import REPOSITORY

NOTEBOOK: PythonServer = ("files", ("-m", "tests.support.mcp_servers.notebook"), {"PYTHONPATH": str(REPOSITORY)})
QUESTION = "大阪の天気を notes.txt に保存して"
REFUSAL = (
    "'write_file' was not run: it changes something, and no user could approve it. Tell the user. It can be "
    "allowed with 'rkllm-mcp run --yes', or for good with always_allow in the configuration."
)


def history(demo: Demo, *options: str) -> list[dict[str, object]]:
    return json.loads(demo.run("tools", "history", "--json", *options).stdout)


def test_a_run_that_nobody_watches_writes_nothing_and_says_why_until_it_is_told_yes(tmp_path: Path) -> None:
    with FakeAgency() as agency:
        weather = ("weather", ("-m", "mcp_servers.weather"), agency.environment(tmp_path / "cache"))
        demo = make_demo(tmp_path, [weather, NOTEBOOK])
        refused = demo.run("run", "--json", QUESTION)
        assert refused.returncode == 0, refused.stderr
        events = events_of(refused.stdout)
        (result,) = [event for event in events if event["kind"] == "tool_result" and event["name"] == "write_file"]
        assert (result["is_error"], result["text"]) == (True, REFUSAL)
        assert text_of(events) == f"天気は取得しましたが、ファイルに保存できませんでした。理由: {REFUSAL}"
        assert not (tmp_path / "notes.txt").exists()
        explicit = demo.run("run", "--no-approve", QUESTION)
        assert "保存できませんでした" in explicit.stdout
        both = demo.run("run", "--yes", "--no-approve", QUESTION)
        assert (both.returncode, both.stdout) == (2, "")
        allowed = demo.run("run", "--yes", QUESTION)
        assert allowed.stdout == "◆ 天気情報を取得し、notes.txt に保存しました。\n", allowed.stderr
    assert "大阪府の今日" in (tmp_path / "notes.txt").read_text(encoding="utf-8")

    calls = history(demo)
    assert [(call["tool"], call["ruling"], call["is_error"]) for call in calls] == [
        ("write_file", "granted", False),
        ("get_weather", "free", False),
        ("write_file", "refused", True),
        ("get_weather", "free", False),
        ("write_file", "refused", True),
        ("get_weather", "free", False),
    ]
    assert calls[1]["arguments"] == '{"location":"大阪"}'
    assert calls[0]["conversation"] == calls[1]["conversation"] != calls[2]["conversation"]
    assert [call["tool"] for call in history(demo, "--errors", "--server", "files", "--limit", "1")] == ["write_file"]
    state = tmp_path / ".local" / "state" / "rkllm-mcp" / "state.db"
    assert stat.S_IMODE(state.stat().st_mode) == 0o600


def test_a_tool_that_is_called_by_hand_needs_a_yes_as_well_and_switches_last(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [NOTEBOOK])
    words = ("tools", "call", "delete_file", "path=a.txt")
    (tmp_path / "a.txt").touch()
    refused = demo.run(*words)
    assert refused.returncode == 1
    assert refused.stderr.endswith(
        "Error: it was not run, because it may change something and no user could approve it. Say --yes to allow it.\n"
    )
    assert (tmp_path / "a.txt").exists()
    assert demo.run(*words, "--yes").stdout == "deleted a.txt\n"
    assert not (tmp_path / "a.txt").exists()

    off = demo.run("tools", "disable", "delete_file")
    assert off.stderr.endswith("Tool 'delete_file' of server 'files' is disabled.\n"), off.stderr
    listed = demo.run("tools", "list")
    assert "delete_file" not in listed.stdout
    assert listed.stderr.endswith("Switched off: delete_file; 'rkllm-mcp tools enable NAME' switches one on.\n")
    assert "Tool 'delete_file' is switched off" in demo.run(*words, "--yes").stderr
    # A server is known by its name alone, and is not started for it.
    on = demo.run("tools", "enable", "files")
    assert (on.returncode, on.stderr) == (0, "Server 'files' is enabled.\n")
    assert "delete_file" in demo.run("tools", "list").stdout


def test_a_memory_that_cannot_be_used_costs_no_answer_but_cannot_be_asked(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [NOTEBOOK])
    state = tmp_path / ".local" / "state" / "rkllm-mcp" / "state.db"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"this is no database" * 100)
    done = demo.run("tools", "call", "write_file", "path=a.txt", "content=x", "--yes")
    assert (done.returncode, done.stdout) == (0, "wrote a.txt\n")
    sentence = f"{state} cannot be used (file is not a database); move it away; a new one is made"
    assert f"[State: {sentence}. The assistant continues without saving data.]" in done.stderr
    for words in (("tools", "history"), ("tools", "disable", "files"), ("tools", "approvals")):
        asked = demo.run(*words)
        assert (asked.returncode, asked.stderr) == (1, f"Error: {sentence}\n")
