"""A full disk: answers go on, and what is not stored is reported once, without a path of the machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rkllm_mcp.store.database import Transaction
from tests.support.demo_app import make_demo
from tests.support.http_app import in_house

pytestmark = pytest.mark.anyio
CAUSE = "database or disk is full; make room on that disk"


def pages(limit: int) -> Callable[[Transaction], object]:
    return lambda connection: connection.execute(f"PRAGMA max_page_count = {limit}").fetchone()


def read_only(connection: Transaction) -> object:
    return connection.execute("PRAGMA query_only = 1").fetchone()


async def test_answers_go_on_when_the_disk_is_full_and_the_service_says_that_nothing_is_stored(tmp_path: Path) -> None:
    lines: list[str] = []
    async with in_house(make_demo(tmp_path, ()), lines.append) as (house, client):
        database = house.tenant("").app.store.database

        async def answered(message: str) -> list[str]:
            """The kinds of events, and the texts of those that speak of the store."""
            reply = await client.post("/v1/execute", json={"message": message, "stream": False})
            events = reply.json()["events"]
            assert events[-1]["reason"] == "answered"
            return [event["text"] for event in events if "Memory" in event.get("text", "")]

        assert await answered("Hello") == []
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        (kept,) = (await client.get("/v1/conversations")).json()["conversations"]
        await database.ask(pages(1))
        long = "Hello " * 900
        assert await answered(long) == [f"[Memory: this answer was not kept: {CAUSE}]"]
        assert await answered(long) == []
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ok", "storage": CAUSE})
        assert (await client.get("/v1/me")).json()["storage"] == CAUSE
        renamed = await client.patch(f"/v1/conversations/{kept['id']}", json={"title": "x" * 200})
        deleted = await client.delete(f"/v1/conversations/{kept['id']}")
        for refused in (renamed, deleted):
            # A change that needs no new page succeeds.
            assert refused.status_code in (200, 204, 500)
            assert str(tmp_path) not in refused.text
        await database.ask(pages(4294967294))
        assert await answered("Hello") == []
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        assert (await client.get("/v1/me")).json()["storage"] == ""
        await database.ask(lambda connection: connection.execute("DROP TABLE grants"))
        assert (await client.get("/readyz")).json() == {
            "status": "ok",
            "storage": "the database has no table grants",
        }
    problem = f"{database.path} cannot be used (database or disk is full); make room on that disk"
    about = [line for line in lines if line.startswith("[State: ")]
    assert about == [
        f"[State: {problem}. The assistant continues without saving data.]",
        "[State: data is saved again.]",
    ]


async def test_a_failed_deletion_is_reported_without_a_path(tmp_path: Path) -> None:
    async with in_house(make_demo(tmp_path, ())) as (house, client):
        reply = await client.post("/v1/execute", json={"message": "Hello", "stream": False})
        path = f"/v1/conversations/{reply.json()['conversation']}"
        await house.tenant("").app.store.database.ask(read_only)
        refused = await client.delete(path)
    assert refused.status_code == 500
    error = json.loads(refused.text)["error"]
    assert error["code"] == "storage"
    assert error["message"].startswith("what is stored cannot be read or changed: attempt to write a readonly database")
    assert str(tmp_path) not in refused.text
