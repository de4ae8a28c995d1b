"""Keys of requests, the same with a file and on a real PostgreSQL: each request is claimed by one board."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rkllm_mcp.records import KeyedRequest
from rkllm_mcp.store.boards import LEASE_S, Leases
from rkllm_mcp.store.database import Database, Transaction, open_database
from rkllm_mcp.store.postgres import open_postgres
from rkllm_mcp.store.request_keys import REMEMBERED_S, RequestKeys

pytestmark = pytest.mark.anyio
HI = KeyedRequest("digest of Hi", "c1", 2)


class Clock:
    """The time of the boards."""

    now = 1000.0

    def __call__(self, _: Transaction) -> float:
        return self.now


@dataclass
class World:
    """Two boards and their clock."""

    clock: Clock
    leases: dict[str, Leases]
    keys: dict[str, RequestKeys]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World, None]:
    opening: Callable[[], AbstractAsyncContextManager[Database]]
    if request.param == "sqlite":
        opening = lambda: open_database(tmp_path / "shared.db", on_problem=pytest.fail)  # noqa: E731
    else:
        url = request.getfixturevalue("postgres").new_database()
        opening = lambda: open_postgres(url, "", on_problem=pytest.fail, required=True)  # noqa: E731
    clock = Clock()
    async with AsyncExitStack() as stack:
        databases = {name: await stack.enter_async_context(opening()) for name in ("one", "two")}
        leases = {name: Leases(database, name, clock) for name, database in databases.items()}
        for each in leases.values():
            await each.renew()
        yield World(clock, leases, {name: RequestKeys(each, clock, name) for name, each in databases.items()})


async def test_a_request_is_claimed_once_and_its_answer_is_found_at_every_board(world: World) -> None:
    one, two = world.keys["one"], world.keys["two"]
    assert await two.find("k") is None
    claimed = await one.claim("k", HI)
    assert claimed is not None
    assert claimed == replace(HI, board="one")
    assert [await keys.claim("k", HI) for keys in (one, two)] == [None, None]
    assert [await keys.find("k") for keys in (one, two)] == [(claimed, True), (claimed, True)]
    await one.finish("k", claimed, "resp_1")
    over = replace(claimed, is_over=True, response="resp_1")
    assert [await keys.find("k") for keys in (one, two)] == [(over, False), (over, False)]


async def test_what_was_refused_is_forgotten_and_what_a_dead_board_began_is_taken_over(world: World) -> None:
    one, two = world.keys["one"], world.keys["two"]
    claimed = await one.claim("k", HI)
    assert claimed is not None
    await one.forget("k", claimed)
    assert await two.find("k") is None
    claimed = await one.claim("k", HI)
    world.clock.now += LEASE_S + 1
    await world.leases["two"].renew()
    assert await two.find("k") == (claimed, False)
    taken = await two.claim("k", HI, claimed)
    assert taken == replace(HI, board="two")
    # The first one comes too late, whatever it wants.
    assert await one.claim("k", HI, claimed) is None
    assert await one.find("k") == (taken, True)


async def test_a_key_is_remembered_for_a_day(world: World) -> None:
    one, two = world.keys["one"], world.keys["two"]
    claimed = await one.claim("k", HI)
    assert claimed is not None
    await one.finish("k", claimed)
    world.clock.now += REMEMBERED_S + 1
    assert await two.find("k") is None
    other = KeyedRequest("digest of something else")
    assert await two.claim("k", other) == replace(other, board="two")
