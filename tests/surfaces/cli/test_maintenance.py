"""``rkllm-mcp status``, ``update`` and ``uninstall`` where nothing runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from rkllm_base.installation import extras, installed_extras
from rkllm_mcp.__main__ import spare_owner
from rkllm_mcp.messages import StoredTurn
from rkllm_mcp.records import StoredConversation
from rkllm_mcp.store import open_store
from rkllm_mcp.surfaces.cli.maintenance import installer_command
from tests.support.outcome import Command

CONFIG = '[service]\nport = 9\n[model]\nname = "demo"\n[[servers]]\nname = "clock"\ncommand = "false"\n'


@pytest.fixture
def home(tmp_path: Path, command: Command) -> Path:
    """The home of ``command``, with a configuration and a stored conversation."""
    del command
    config = tmp_path / ".config/rkllm-mcp/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG, "utf-8")

    async def store() -> None:
        async with open_store(path=tmp_path / ".local/state/rkllm-mcp/state.db", required=True) as opened:
            turns = (StoredTurn("user", "Hello"), StoredTurn("assistant", "Hello.", ending="answered"))
            await opened.conversations.add("", StoredConversation("abc", "Hello", 1.0, 2.0, turns))

    anyio.run(store)
    return tmp_path


def test_status_shows_what_is_here_and_how_it_is_started(home: Path, command: Command) -> None:
    shown = command("status", "--json")
    values = json.loads(shown.out)
    assert shown.code == 1
    assert values.pop("version")
    assert values == {
        "running": False,
        "state": "not running",
        "address": "http://127.0.0.1:9",
        "service": "not installed",
        "model": "demo",
        "servers": ["clock"],
        "configuration": str(home / ".config/rkllm-mcp/config.toml"),
        "store": str(home / ".local/state/rkllm-mcp/state.db"),
        "conversations": 1,
        "start": "rkllm-mcp serve",
    }
    rows = [line.split() for line in command("status").out.splitlines()]
    assert ["running", "no"] in rows
    assert not [row for row in rows if row[0] == "state"], "said once"


def test_a_checkout_is_updated_with_git(home: Path, command: Command) -> None:
    assert installer_command("upgrade") is None
    refused = command("update")
    assert (refused.code, "git pull && scripts/setup" in refused.err) == (2, True)


def test_install_shows_the_optional_parts_and_refuses_what_there_is_not(command: Command) -> None:
    shown = json.loads(command("install", "--json").out)
    assert [row["name"] for row in shown] == sorted(extras())
    assert [row["name"] for row in shown if row["installed"]] == installed_extras()
    refused = command("install", "postgre")
    assert (refused.code, "'postgre'; choose from anthropic, " in refused.err) == (2, True)


def test_uninstall_asks_first_and_keeps_the_data_unless_all_is_said(home: Path, command: Command) -> None:
    asked = command("uninstall")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    kept = command("uninstall", "--yes")
    assert (kept.code, "delete its folder" in kept.err) == (0, True)
    assert (home / ".config/rkllm-mcp/config.toml").is_file()
    assert command("uninstall", "--yes", "--all").code == 0
    assert not list(home.glob(".*/**/rkllm-mcp"))


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "logs"])
def test_a_service_that_is_not_installed_is_not_controlled(command: Command, verb: str) -> None:
    refused = command("service", verb)
    assert refused.code == 2
    assert "rkllm-mcp service install" in refused.err or "systemd does not run on this machine; " in refused.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_sudo_leaves_no_bytecode_of_roots_in_the_environment_of_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    spare_owner()
    assert not sys.dont_write_bytecode
    os.chown(tmp_path, 1000, -1)
    spare_owner()
    assert sys.dont_write_bytecode
