"""What is remembered about tools, as people see it; nothing here starts a server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.records import CallRecord, StoredApproval
from rkllm_mcp.store import open_store
from rkllm_mcp.store.database import state_file
from rkllm_mcp.surfaces.cli.main import main

Typed = Callable[..., tuple[int, str, str]]
CONFIG = '[[servers]]\nname = "files"\ncommand = "no-such-program"\n'
CALLS = (
    CallRecord(1_800_000_000.0, "files", "write_file", '{"path":"a.txt","content":"' + "x" * 90, "once", seconds=0.26),
    CallRecord(1_800_000_001.0, "files", "delete_file", "{}", "refused", is_error=True, error="'delete_file' was not"),
)


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """``rkllm-mcp`` in a folder with one server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    (tmp_path / "mcp_config.toml").write_text(CONFIG, encoding="utf-8")

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(words)
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run


def remember(*calls: CallRecord, grants: tuple[tuple[str, str, StoredApproval], ...] = ()) -> None:
    async def work() -> None:
        async with open_store(path=state_file(os.environ), required=True) as memory:
            for call in calls:
                memory.calls.record(call)
            for server, tool, grant in grants:
                memory.grants.keep(server, tool, grant)

    anyio.run(work)


def test_the_history_is_a_table_newest_first(typed: Typed) -> None:
    assert typed("tools", "history") == (0, "", "No calls are recorded.\n")
    remember(*CALLS)
    code, out, _ = typed("tools", "history")
    assert code == 0
    head, latest, first = out.splitlines()
    assert head.split() == ["TIME", "SERVER", "TOOL", "DECISION", "SECONDS", "RESULT", "ARGUMENTS"]
    assert latest.split(maxsplit=2)[2].split("  ")[0] == "files"
    assert "refused" in latest
    assert "Error: 'delete_file' was not" in latest
    assert first.split("  ")[-1].startswith('{"path":"a.txt","content":"xxx')
    assert first.endswith("x…")
    assert json.loads(typed("tools", "history", "--json", "--limit", "1")[1])[0]["tool"] == "delete_file"
    assert json.loads(typed("tools", "history", "--json", "--server", "none")[1]) == []


def test_approvals_are_listed_and_taken_back(typed: Typed) -> None:
    assert typed("tools", "approvals")[2] == "Nothing is allowed or refused for good.\n"
    remember(
        grants=(("files", "write_file", StoredApproval("always", "x")), ("files", "rm", StoredApproval("never", "y")))
    )
    assert (
        typed("tools", "approvals")[1] == "DECISION  SERVER  TOOL\nnever     files   rm\nalways    files   write_file\n"
    )
    assert typed("tools", "approvals", "--forget", "rm") == (
        0,
        "",
        "Removed the decision about 'rm' of server 'files'; it asks again.\n",
    )
    assert json.loads(typed("tools", "approvals", "--json")[1]) == [
        {"decision": "always", "server": "files", "tool": "write_file"}
    ]
    assert typed("tools", "approvals", "--forget", "mcp__files__write_file")[0] == 0
    assert typed("tools", "approvals", "--forget", "write_file")[::2] == (
        2,
        "Error: nothing is remembered about 'write_file'; 'rkllm-mcp tools approvals' lists what is\n",
    )


def test_a_server_is_switched_without_being_started(typed: Typed) -> None:
    assert typed("tools", "disable", "files") == (0, "", "Server 'files' is disabled.\n")
    assert typed("tools", "enable", "files") == (0, "", "Server 'files' is enabled.\n")
