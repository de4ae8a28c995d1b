"""A database that cannot be used does not turn a refusal into a permission."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from rkllm_mcp.errors import StoreError
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT
from rkllm_mcp.records import StoredApproval, Switch
from rkllm_mcp.store import Store, open_store
from rkllm_mcp.store.database import MIGRATIONS
from rkllm_mcp.tools.approvals import Approvals
from tests.support.mcp_servers.specs import local_server

pytestmark = pytest.mark.anyio

SERVER = local_server("files", command="files-server", approve="never")
LOOK = ToolSpec("look", "Looks.", server="files", wire_name="look", read_only=True)
READ = ToolSpec("read", "Reads.", server="files", wire_name="read", read_only=True)
SWITCH = Switch("files", "read", False)


async def fill(path: Path) -> str:
    """Store a refusal, a switch and the key of a phone, and return the key."""
    async with open_store(path=path, on_problem=pytest.fail) as store:
        store.grants.keep("files", "look", StoredApproval("never", "any"))
        store.switches.keep([SWITCH])
        linked = await store.devices.exchange(await store.devices.new_code(), "phone")
        await store.flush()
    assert linked is not None
    return linked[1]


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def overwrite(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def make_newer(path: Path) -> None:
    execute(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}", "ALTER TABLE grants ADD COLUMN reason TEXT")


def drop_history(path: Path) -> None:
    execute(path, "PRAGMA foreign_keys = OFF", "DROP TABLE calls")


def drop_grants(path: Path) -> None:
    execute(path, "DROP TABLE grants")


async def ruling_of(approvals: Approvals, tool: ToolSpec) -> str:
    return (await approvals.rule(SERVER, tool, ToolCall("call_1", tool.name, {}), NO_CONTEXT)).ruling


async def rulings(store: Store) -> list[str]:
    """The rulings on the refused tool and on the other one."""
    approvals = Approvals(store.grants)
    return [await ruling_of(approvals, tool) for tool in (LOOK, READ)]


@asynccontextmanager
async def open_damaged(path: Path) -> AsyncGenerator[Store]:
    """Open a store whose damage is reported once."""
    problems: list[str] = []
    async with open_store(path=path, on_problem=problems.append) as store:
        yield store
    assert len(problems) == 1


@pytest.mark.parametrize("harm", [make_newer, drop_history])
async def test_refusals_switches_and_phones_survive_a_file_whose_small_tables_are_readable(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "state.db"
    key = await fill(path)
    harm(path)
    async with open_damaged(path) as store:
        assert await rulings(store) == ["never", "free"]
        assert await store.switches.all() == [SWITCH]
        assert await store.devices.find(key) is not None


@pytest.mark.parametrize("harm", [overwrite, truncate, drop_grants])
async def test_every_call_asks_if_refusals_cannot_be_read(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "state.db"
    await fill(path)
    harm(path)
    async with open_damaged(path) as store:
        assert await rulings(store) == ["refused", "refused"]


async def test_without_a_file_nothing_could_be_lost(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    problems: list[str] = []
    async with open_store(path=tmp_path / "file" / "state.db", on_problem=problems.append) as store:
        assert await ruling_of(Approvals(store.grants), READ) == "free"
    assert len(problems) == 1


async def test_a_table_that_disappears_while_the_file_is_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(path=path, on_problem=pytest.fail) as store:
        assert await store.database.missing_tables() == []
        execute(path, "DROP TABLE grants")
        assert await store.database.missing_tables() == ["grants"]
        assert await ruling_of(Approvals(store.grants), READ) == "refused"
    with pytest.raises(StoreError, match="no table grants"):
        async with open_store(path=path, on_problem=pytest.fail, required=True):
            raise AssertionError
