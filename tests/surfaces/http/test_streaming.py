"""Answers that take their time: records, heartbeats, failures, clients that leave, and clients that take nothing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp.events import to_json
from rkllm_mcp.surfaces.http import streaming
from rkllm_mcp.surfaces.http.errors import ClientGoneError, HTTPError
from rkllm_mcp.surfaces.http.route import NDJSON
from rkllm_mcp.surfaces.http.streaming import EventStream, records, while_connected
from tests.support.http_app import Connection

pytestmark = pytest.mark.anyio

DONE = b"data: [DONE]\n\n"


class Work:
    """An answer of these steps, and what became of it."""

    def __init__(self, *steps: bytes | float | Exception | Callable[[], Awaitable[None]]) -> None:
        self.steps = steps
        self.made = 0
        self.is_over = False

    async def __call__(self, stream: EventStream) -> None:
        try:
            for step in self.steps:
                if isinstance(step, bytes):
                    self.made += 1
                    await stream.write(step)
                elif isinstance(step, Exception):
                    raise step
                elif callable(step):
                    await step()
                else:
                    await anyio.sleep(step)
        finally:
            # What stops the NPU takes a moment, and the answer is over when it has.
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            self.is_over = True


FOREVER = float("inf")


def record(value: Any) -> bytes:
    return records([to_json(value)])


async def answered(response: Response, connection: Connection) -> None:
    with anyio.fail_after(60):
        await response({"type": "http"}, connection.receive, connection.send)


async def test_records_go_out_one_by_one_and_the_end_is_sent() -> None:
    work, connection = Work(record({"a": "日本"}), record(2), DONE), Connection()
    await answered(EventStream(work, headers={"X-Conversation-Id": "c"}), connection)
    start, *bodies, end = connection.sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert headers == {
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
        "x-conversation-id": "c",
        "content-type": "text/event-stream; charset=utf-8",
    }
    assert [body["body"].decode() for body in bodies] == ['data: {"a":"日本"}\n\n', "data: 2\n\n", "data: [DONE]\n\n"]
    assert end == {"type": "http.response.body", "body": b"", "more_body": False}
    assert work.is_over


async def test_records_of_one_batch_leave_in_one_send() -> None:
    connection = Connection()
    await answered(EventStream(Work(record(1) + record(2), DONE)), connection)
    assert [message.get("body") for message in connection.sent] == [None, record(1) + record(2), DONE, b""]


async def test_half_a_surrogate_pair_of_a_model_does_not_end_the_stream() -> None:
    assert record("\ud83d") == b'data: "?"\n\n'


async def test_a_silent_stream_has_a_heartbeat() -> None:
    work, connection = Work(FOREVER), Connection()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answered, EventStream(work, heartbeat_s=0.01), connection)
        await connection.until(": heartbeat\n\n" * 3)
        connection.left.set()
    assert connection.text.replace(": heartbeat\n\n", "") == ""
    assert work.is_over


async def test_heartbeats_of_many_streams_are_due_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, due, is_over = [0.0], set[float](), anyio.Event()

    async def sleep(delay: float) -> None:
        if delay <= streaming.FIRST_HEARTBEAT_S:
            await anyio.lowlevel.checkpoint()
            return
        due.add(round(clock[0] + delay, 6))
        await is_over.wait()

    monkeypatch.setattr(streaming, "monotonic", lambda: clock[0])
    monkeypatch.setattr(anyio, "sleep", sleep)
    async with anyio.create_task_group() as tasks:
        for clock[0] in (100.01, 100.1, 100.49):
            tasks.start_soon(answered, EventStream(Work(record(1), is_over.wait)), Connection())
            await anyio.wait_all_tasks_blocked()
        is_over.set()
    assert due == {105.0}


async def test_lines_have_no_heartbeat_between_them() -> None:
    connection = Connection()
    lines = Work(b'{"a":1}\n', 0.05, b'{"b":2}\n')
    await answered(EventStream(lines, media=NDJSON, heartbeat=b""), connection)
    assert connection.text == '{"a":1}\n{"b":2}\n'


async def test_what_fails_before_the_first_record_is_its_own_status() -> None:
    connection = Connection()
    with pytest.raises(HTTPError, match="too long"):
        await answered(EventStream(Work(HTTPError(400, "too long"))), connection)
    assert connection.sent == []


async def test_what_fails_later_is_the_last_record() -> None:
    connection = Connection()
    await answered(EventStream(Work(record(1), HTTPError(503, "gone"))), connection)
    *_, last, end = connection.text.split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "gone"
    assert end == ""
    assert connection.sent[-1]["more_body"] is False
    lines = Connection()
    work = Work(b"1\n", HTTPError(503, "gone"))
    await answered(EventStream(work, media=NDJSON, failure=lambda problem: b"%b\n" % str(problem).encode()), lines)
    assert lines.text == "1\ngone\n"


async def test_a_failure_after_a_heartbeat_is_reported_in_the_stream() -> None:
    connection = Connection()
    heartbeat = partial(connection.until, ": heartbeat")
    await answered(EventStream(Work(heartbeat, HTTPError(500, "late")), heartbeat_s=0.01), connection)
    assert connection.status == 200
    assert '"message":"late"' in connection.text


async def test_a_client_that_leaves_ends_the_work_and_only_its_own() -> None:
    leaving, staying = Connection(), Connection()
    is_alone = anyio.Event()
    mine, theirs = Work(record(1), FOREVER), Work(record(1), is_alone.wait, record(2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answered, EventStream(theirs), staying)
        async with anyio.create_task_group() as ours:
            ours.start_soon(answered, EventStream(mine), leaving)
            await leaving.until("data: 1\n\n")
            leaving.left.set()
        assert mine.is_over
        is_alone.set()
    assert staying.text == "data: 1\n\ndata: 2\n\n"


async def test_a_client_that_leaves_before_anything_came_ends_the_work_as_well() -> None:
    work, connection = Work(FOREVER), Connection()
    connection.left.set()
    await answered(EventStream(work), connection)
    assert connection.sent == []


async def test_a_connection_that_breaks_under_a_record_ends_the_work() -> None:
    work = Work(*[record(number) for number in range(1000)])

    class Broken(Connection):
        async def send(self, message: Any) -> None:
            if len(self.sent) == 3:
                raise OSError("broken pipe")
            self.sent.append(message)

    await answered(EventStream(work), Broken())
    assert work.is_over
    assert work.made < 10


async def test_the_work_is_never_far_ahead_of_a_client_that_is_slow() -> None:
    work, connection = Work(*[record(number) for number in range(1000)]), Connection(is_stuck=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answered, EventStream(work), connection)
        await anyio.wait_all_tasks_blocked()
        assert work.made <= 3
        connection.left.set()
    assert work.is_over


async def test_a_client_that_takes_nothing_for_long_counts_as_gone() -> None:
    work, connection = Work(*[record(number) for number in range(1000)]), Connection(is_stuck=True)
    await answered(EventStream(work, stall_s=0.01), connection)
    assert work.is_over
    assert work.made <= 3


async def test_a_client_that_does_not_take_a_heartbeat_counts_as_gone_as_well() -> None:
    work, connection = Work(FOREVER), Connection(is_stuck=True)
    await answered(EventStream(work, heartbeat_s=0.01, stall_s=0.01), connection)
    assert (work.is_over, connection.sent) == (True, [])


async def asked(connection: Connection) -> Request:
    request = Request({"type": "http", "method": "POST", "headers": []}, connection.receive)
    await request.body()
    return request


async def test_an_answer_in_one_piece_is_given_up_when_the_client_leaves() -> None:
    connection, is_over = Connection(), anyio.Event()

    async def work() -> str:
        try:
            connection.left.set()
            await anyio.sleep_forever()
            return "never"
        finally:
            is_over.set()

    with anyio.fail_after(60), pytest.raises(ClientGoneError):
        await while_connected(await asked(connection), work)
    assert is_over.is_set()


async def test_an_answer_in_one_piece_comes_back_and_so_does_its_failure() -> None:
    async def work() -> str:
        return "done"

    async def failing() -> str:
        raise HTTPError(400, "no")

    assert await while_connected(await asked(Connection()), work) == "done"
    with pytest.raises(HTTPError, match="no"):
        await while_connected(await asked(Connection()), failing)


def test_silence_and_stalls_have_limits_that_proxies_and_people_bear() -> None:
    assert 0 < streaming.HEARTBEAT_S <= 15
    assert streaming.STALL_S > streaming.HEARTBEAT_S
