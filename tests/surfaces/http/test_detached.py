"""Answers that go on when their reader leaves, and what is in the store while an answer waits or runs."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.agent.pending_requests import PendingRequests, StreamApprover
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import Approval, End, Event, QuestionAnswered, Text
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.running_answers import (
    DETACHED_APPROVAL_S,
    DETACHED_S,
    EVENTS_KEPT,
    RunningAnswer,
    RunningAnswers,
)
from tests.support.demo_app import make_demo
from tests.support.execute import Json, client_of, reading, text_of
from tests.support.served import SLOW, Served, scripted_model, served
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
WORDS = "one two three four five six seven eight nine ten"
RULES = f"""
rule
  user for ever
  say {" ".join(map(str, range(2500)))}

rule
  user at length
  say {WORDS}
"""
KEYS = 'api_keys = ["a", "b"]\n'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service that lets one answer in; its model says forty tokens in a second."""
    folder = tmp_path_factory.mktemp("detached")
    model = scripted_model(folder / "model", RULES, speed=SLOW)
    limits = f"[service]\nparallel = 1\n{KEYS}"
    with served(folder / "home", model, extra=limits, speed="") as it:
        yield it


def question(text: str, **more: Any) -> Json:
    return {"message": text, "max_tokens": 2500, **more}


async def test_a_detached_answer_goes_on_without_its_reader_and_is_read_on_after_any_number(service: Served) -> None:
    async with client_of(service.url, "a") as client:
        async with reading(client, body=question("at length", detached=True)) as first:
            begun = [await first.next_record("text")]
        path = f"/v1/conversations/{first.conversation}/stream"
        async with reading(client, f"{path}?after={begun[-1][0]}") as second:
            rest = await second.rest()
        assert text_of(event for _, event in begun + rest) == WORDS
        assert rest[-1][1] == {"kind": "end", "reason": "answered", "error": None}
        for after in (0, begun[-1][0], rest[-3][0]):
            async with reading(client, f"{path}?after={after}") as again:
                whole = await again.rest()
            # It begins after the number, and ends with the same record.
            assert ([number for number, _ in whole], whole[-1]) == (list(range(after + 1, rest[-1][0] + 1)), rest[-1])
        stored = (await client.get(f"/v1/conversations/{first.conversation}")).json()["messages"]
        assert [(turn["text"], turn["ending"]) for turn in stored] == [("at length", ""), (WORDS, "answered")]


async def test_a_key_has_two_detached_answers_which_no_other_key_reads_and_cancel_stops_each(service: Served) -> None:
    detached = question("for ever", detached=True)
    async with client_of(service.url, "a") as client, client_of(service.url, "b") as other:
        async with reading(client, body=detached) as running:
            await running.next("text")
        async with reading(client, body=detached) as waiting:
            assert await waiting.next("queued") == {"kind": "queued", "position": 1}
        refused = await client.post("/v1/execute", json=detached)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_detached")
        in_the_same = await client.post("/v1/execute", json={"message": "x", "conversation": running.conversation})
        assert (in_the_same.status_code, in_the_same.json()["error"]["code"]) == (409, "answer_under_way")
        for conversation in (running.conversation, waiting.conversation):
            assert (await other.get(f"/v1/conversations/{conversation}/stream")).status_code == 404
            # What waits is stored as well, and both are said to be under way.
            stored = (await client.get(f"/v1/conversations/{conversation}")).json()["messages"]
            assert [turn["ending"] for turn in stored] == ["", "running"]
        for each in (waiting, running):
            path = f"/v1/conversations/{each.conversation}"
            assert (await client.post(f"{path}/cancel")).json() == {"cancelled": True}
            async with reading(client, f"{path}/stream") as told:
                assert (await told.rest())[-1][1] == {"kind": "end", "reason": "cancelled", "error": None}
            assert (await client.post(f"{path}/cancel")).json() == {"cancelled": False}
            stored = (await client.get(path)).json()["messages"]
            assert (stored[0]["text"], stored[-1]["ending"]) == ("for ever", "cancelled")
        async with reading(client, body=question("at length", detached=True)) as free:
            assert await free.whole() == WORDS


@pytest.mark.parametrize("is_detached", [False, True])
async def test_a_conversation_is_deleted_with_its_answer_whether_that_runs_or_waits(
    service: Served, *, is_detached: bool
) -> None:
    body = question("for ever", detached=is_detached)
    async with (
        client_of(service.url, "a") as client,
        reading(client, body=body) as running,
        reading(client, body=body) as waiting,
    ):
        await running.next("text")
        await waiting.next("queued")
        for each in (waiting, running):
            path = f"/v1/conversations/{each.conversation}"
            assert (await client.delete(path)).status_code == 204
            await each.rest()
            assert (await client.get(path)).status_code == 404
            assert (await client.get(f"{path}/stream")).status_code == 404
        async with reading(client, body=question("at length")) as later:
            await later.rest()
        kept = {each["id"] for each in (await client.get("/v1/conversations")).json()["conversations"]}
        assert kept & {running.conversation, waiting.conversation, later.conversation} == {later.conversation}


async def test_a_detached_answer_needs_a_stream_and_a_history(service: Served, tmp_path: Path) -> None:
    asked = question("at length", detached=True)
    model = scripted_model(tmp_path / "model", RULES)
    with served(tmp_path, model, extra=f"[service]\nhistory = false\n{KEYS}") as forgetful:
        for url, body in ((service.url, {**asked, "stream": False}), (forgetful.url, asked)):
            async with client_of(url, "a") as client:
                refused = await client.post("/v1/execute", json=body)
                assert (refused.status_code, refused.json()["error"]["param"]) == (422, "detached")


async def read(answer: RunningAnswer, after: int) -> list[tuple[int, Json]]:
    read: list[tuple[int, Json]] = []

    async def write(content: bytes) -> None:
        for record in content.decode().split("\n\n")[:-1]:
            number, event = record.split("\n")
            read.append((int(number.removeprefix("id: ")), json.loads(event.removeprefix("data: "))))

    await answer.read(after, write)
    return read


@pytest.mark.parametrize("size", [1, 7, EVENTS_KEPT, 3 * EVENTS_KEPT])
async def test_a_reader_whose_number_is_too_old_gets_the_whole_text(size: int) -> None:
    answer = RunningAnswer("c1", "", "", is_detached=True)
    events: list[Event] = [*(Text(f"{number} ") for number in range(1, 2 * EVENTS_KEPT + 1)), End("answered")]
    for start in range(0, len(events), size):
        answer.feed(events[start : start + size])
    answer.finish()
    whole = "".join(event.text for event in events if isinstance(event, Text))
    last = len(events)
    for after in (0, 1, last - EVENTS_KEPT - 1):
        assert await read(answer, after) == [(last, {"kind": "text", "text": whole, "whole": True})]
    assert [number for number, _ in await read(answer, last - EVENTS_KEPT)] == [
        *range(last - EVENTS_KEPT + 1, last + 1)
    ]
    assert await read(answer, last) == []


async def test_an_answer_that_was_refused_says_so_to_its_readers() -> None:
    answers, answer = RunningAnswers(), RunningAnswer("c1", "", "a", is_detached=True)
    with pytest.raises(HTTPError, match="busy"), answers.running(answer):
        answer.failure = HTTPError(503, "busy")
        raise answer.failure
    assert answers.find("", "c1") is None
    with pytest.raises(HTTPError, match="busy"):
        await read(answer, 0)


async def test_a_detached_approval_without_an_answer_in_time_is_refused() -> None:
    asked: list[Event] = []
    sink = FunctionSink(asked.append)
    with StreamApprover(PendingRequests(patience_s=3600.0), sink, limit_s=0.001) as approver:
        assert await approver.approve(Approval("", "delete_file", {}, "deletes")) is None
    assert [type(event) for event in asked] == [Approval, QuestionAnswered]
    assert (DETACHED_APPROVAL_S, DETACHED_S) == (300.0, 1800.0)


async def test_an_answer_is_stopped_by_the_assistant_that_has_it_and_not_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = make_demo(tmp_path, [])
    for name, value in demo.environment.items():
        monkeypatch.setenv(name, value)
    async with open_app(load_config(demo.config)) as earlier, open_app(load_config(demo.config)) as app:
        answers, answer = RunningAnswers(), RunningAnswer("c1", app.tenant, "")
        assert not answers.cancel(app, "c1")
        with answers.running(answer):
            answer.assistant = earlier
            assert not answers.cancel(app, "c1")
            assert not answer.scope.cancel_called
            answer.assistant = None
            assert answers.cancel(app, "c1")
            assert answer.scope.cancel_called
