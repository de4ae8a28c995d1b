"""Admission of bodies, uploads and work: limits for each key and in total, and turns of keys."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

from rkllm_mcp.errors import QueueFullError
from rkllm_mcp.surfaces.http.admission import (
    BODIES,
    BODIES_PER_KEY,
    UNCOUNTED_BYTES,
    UPLOADS_PER_KEY,
    WAITING_PER_KEY,
    Admission,
    Room,
)

pytestmark = pytest.mark.anyio
LIMIT = 2**20


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def test_a_key_holds_two_long_bodies_and_the_third_waits_for_one_of_them_while_another_key_goes_on() -> None:
    admission, held = Admission(), list[str]()

    async def hold(name: str) -> None:
        await admission.hold("a", LIMIT, LIMIT)
        held.append(name)

    first = await admission.hold("a", LIMIT, LIMIT)
    await admission.hold("a", LIMIT, LIMIT)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold, "third")
            await settled()
            assert held == []
            await admission.hold("b", LIMIT, LIMIT)
            first.shrink(0)
            first.shrink(0)
    assert held == ["third"]
    assert dict(admission.bodies.taken) == {"a": BODIES_PER_KEY * LIMIT, "b": LIMIT}


async def test_all_keys_together_hold_a_number_of_long_bodies_and_short_ones_are_not_counted() -> None:
    admission = Admission()
    for key in range(BODIES // BODIES_PER_KEY):
        for _ in range(BODIES_PER_KEY):
            await admission.hold(f"key {key}", LIMIT, LIMIT)
    for _ in range(1000):
        await admission.hold("late", UNCOUNTED_BYTES, LIMIT)
    with anyio.move_on_after(0) as waiting:
        await admission.hold("late", UNCOUNTED_BYTES + 1, LIMIT)
    assert waiting.cancelled_caught
    assert admission.bodies.taken.total() == BODIES * LIMIT


async def test_a_body_of_unknown_length_gives_back_its_unused_reservation() -> None:
    admission = Admission()
    long, short = await admission.hold("a", LIMIT, LIMIT), await admission.hold("b", LIMIT, LIMIT)
    long.shrink(UNCOUNTED_BYTES + 1)
    short.shrink(10)
    assert dict(admission.bodies.taken) == {"a": UNCOUNTED_BYTES + 1}
    long.shrink(0)
    assert dict(admission.bodies.taken) == {}


async def test_who_waits_too_long_or_after_too_many_is_refused() -> None:
    room, refused = Room(), list[int]()

    async def take() -> None:
        await room.take("a", 1, 1, 1)

    await take()
    with pytest.raises(QueueFullError):
        await room.take("a", 1, 1, 1, wait_s=0)
    async with anyio.create_task_group() as tasks:
        for _ in range(WAITING_PER_KEY):
            tasks.start_soon(take)
        await settled()
        try:
            await take()
        except QueueFullError as error:
            refused.append(error.waiting)
        tasks.cancel_scope.cancel()
    assert refused == [WAITING_PER_KEY]
    room.give_back("a", 1)
    await take()


async def test_one_piece_of_work_runs_at_a_time_and_keys_take_turns_with_any_queue() -> None:
    admission, order = Admission(), list[str]()
    running, begin = threading.Lock(), threading.Event()

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            assert running.acquire(blocking=False)
            begin.wait(60)
            order.append(name)
            running.release()

        return run

    async def run(key: str, name: str) -> None:
        await admission.run(key, work(name))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(run, "a", f"a{number}")
                await settled()
            for key in ("b", "c"):
                tasks.start_soon(run, key, f"{key}0")
                await settled()
            begin.set()
    assert order == ["a0", "a1", "b0", "c0", "a2", "a3"]


async def test_the_owners_work_goes_before_all_other_that_waits() -> None:
    admission, order, begin = Admission(), list[str](), threading.Event()

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            begin.wait(60)
            order.append(name)

        return run

    async def run(key: str, name: str) -> None:
        await admission.run(key, work(name), is_owners=key == "owner 0")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for key in ("a", "a", "b", "a", "owner 0", "owner 0", "b"):
                tasks.start_soon(run, key, key)
                await settled()
            begin.set()
    assert order == ["a", "owner 0", "owner 0", "a", "b", "a", "b"]


async def test_work_that_is_cancelled_while_it_waits_does_not_run_and_passes_its_turn_on() -> None:
    admission, order = Admission(), list[str]()
    begin = threading.Event()

    def first() -> None:
        begin.wait(60)
        order.append("first")

    async def run(function: Callable[[], None]) -> None:
        await admission.run("a", function)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, first)
            await settled()
            with anyio.move_on_after(0):
                await run(lambda: order.append("cancelled"))
            begin.set()
        await run(lambda: order.append("next"))
    assert order == ["first", "next"]


async def test_work_that_fails_passes_its_turn_on() -> None:
    admission = Admission()

    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await admission.run("a", fail)
    result, seconds = await admission.run("b", lambda: 7)
    assert (result, seconds >= 0) == (7, True)


async def test_a_key_sends_two_files_at_a_time_and_none_without_space() -> None:
    admission = Admission()
    with pytest.raises(OSError, match="No space left on device"):
        async with admission.receiving("a", 2**60):
            pass
    async with admission.receiving("a", 1), admission.receiving("a", 1):
        assert dict(admission.uploads.taken) == {"a": UPLOADS_PER_KEY}
        with anyio.move_on_after(0) as waiting:
            async with admission.receiving("a", 1):
                pass
        assert waiting.cancelled_caught
        async with admission.receiving("b", 1):
            pass
    assert dict(admission.uploads.taken) == {}


async def test_an_upload_leaves_room_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc")  # a file system without free space
    with pytest.raises(OSError, match="No space left on device"):
        async with Admission().receiving("a", 0):
            pass
