"""Questions wait for a person, and for nobody for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import anyio
import pytest

from rkllm_mcp.agent.pending_requests import PendingRequests, StreamApprover, without_secrets
from rkllm_mcp.events import Approval, Elicitation, Event, QuestionAnswered
from rkllm_mcp.protocols import Decision, ElicitationAnswer
from tests.support.turn_events import FunctionSink

DELETE = Approval("call_1", "delete", {"path": "a"}, "it deletes")
NAME = Elicitation("", "desk", "Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})


class Stream:
    """Takes events, and answers a question as soon as it sees it."""

    def __init__(self, questions: PendingRequests, decision: Decision | None = None) -> None:
        self.questions = questions
        self.decision: Decision | None = decision
        self.events: list[Event] = []

    def take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Approval) and self.decision:
            assert self.questions.respond(event.id, self.decision)
        if isinstance(event, Elicitation) and self.decision:
            assert self.questions.respond(event.id, ElicitationAnswer("accept", {"name": "Hana"}))


@pytest.mark.anyio
async def test_an_answer_by_id_reaches_the_caller_with_that_question() -> None:
    questions = PendingRequests()
    stream = Stream(questions, "conversation")
    asker = StreamApprover(questions, FunctionSink(stream.take))
    with anyio.fail_after(60):
        assert await asker.approve(DELETE) == "conversation"
        assert await asker.elicit(NAME) == ElicitationAnswer("accept", {"name": "Hana"})
    asked, decided, form, filled = stream.events
    assert isinstance(asked, Approval)
    assert isinstance(form, Elicitation)
    assert (asked, form) == (replace(DELETE, id=asked.id), replace(NAME, id=form.id))
    assert isinstance(decided, QuestionAnswered)
    assert isinstance(filled, QuestionAnswered)
    assert (decided.id, decided.call, decided.action) == (asked.id, "call_1", "conversation")
    assert (filled.id, filled.call, filled.action, filled.content) == (form.id, "", "accept", {"name": "Hana"})
    assert questions.open() == ()


@pytest.mark.anyio
async def test_a_question_without_an_answer_is_refused() -> None:
    questions = PendingRequests(patience_s=0.01)
    stream = Stream(questions)
    asker = StreamApprover(questions, FunctionSink(stream.take))
    with anyio.fail_after(60):
        assert await asker.approve(DELETE) is None
        assert (await asker.elicit(NAME)).action == "cancel"
    asked, refused, form, cancelled = stream.events
    assert isinstance(asked, Approval)
    assert isinstance(form, Elicitation)
    late = [(event.id, event.action) for event in (refused, cancelled) if isinstance(event, QuestionAnswered)]
    assert late == [(asked.id, "late"), (form.id, "late")]
    # The answer to a question of before a restart, or of another board, is none to this one.
    assert len({asked.id, form.id}) == 2
    assert not questions.respond("question_1", "once")


def test_secrets_of_a_form_are_not_repeated() -> None:
    properties = {
        "name": {"type": "string"},
        "pin": {"type": "string", "format": "password"},
        "key": {"type": "string", "writeOnly": True},
        "field": {"type": "string", "title": "API key"},
        "max_tokens": {"type": "integer"},
    }
    content = {"name": "Hana", "pin": "1", "key": "2", "field": "3", "max_tokens": 4}
    question = replace(NAME, schema={"type": "object", "properties": properties})
    assert without_secrets(question, ElicitationAnswer("accept", content)) == {"name": "Hana", "max_tokens": 4}


@pytest.mark.anyio
async def test_a_question_whose_answer_was_stopped_is_forgotten() -> None:
    questions, names = PendingRequests(), list[str]()
    asked = anyio.Event()

    @FunctionSink
    def sink(event: Event) -> None:
        del event
        asked.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(StreamApprover(questions, sink).approve, DELETE)
            await asked.wait()
            names += [question.id for question in questions.open()]
            group.cancel_scope.cancel()
    assert (len(names), questions.open()) == (1, ())
    assert not questions.respond(names[0], "once")


@pytest.mark.anyio
async def test_an_answer_of_the_wrong_kind_is_not_taken() -> None:
    questions = PendingRequests(patience_s=0.01)
    refused: list[bool] = []

    @FunctionSink
    def sink(event: Event) -> None:
        if isinstance(event, Approval):
            refused.append(questions.respond(event.id, ElicitationAnswer("accept")))

    with anyio.fail_after(60):
        assert await StreamApprover(questions, sink).approve(DELETE) is None
    assert refused == [False]


@pytest.mark.anyio
async def test_a_request_is_not_open_between_its_response_and_the_caller_that_goes_on() -> None:
    questions = PendingRequests()
    seen: list[object] = []

    @FunctionSink
    def sink(event: Event) -> None:
        if isinstance(event, Approval):
            seen.extend((len(questions.open()), questions.respond(event.id, "deny"), questions.open()))
            seen.append(questions.respond(event.id, "once"))

    with anyio.fail_after(60):
        assert await StreamApprover(questions, sink).approve(DELETE) == "deny"
    assert seen == [1, True, (), False]


@pytest.mark.anyio
async def test_the_surface_that_shows_a_question_learns_when_it_no_longer_waits() -> None:
    questions = PendingRequests()
    with anyio.fail_after(60):
        # One that never was, or is over already, is not waited for.
        await questions.wait_until_settled("question_0")
        async with anyio.create_task_group() as tasks:

            @FunctionSink
            def sink(event: Event) -> None:
                if isinstance(event, QuestionAnswered):
                    return
                assert isinstance(event, Approval)
                tasks.start_soon(questions.wait_until_settled, event.id)
                tasks.start_soon(questions.wait_until_settled, event.id)
                asyncio.get_running_loop().call_later(0.01, questions.respond, event.id, "once")

            assert await StreamApprover(questions, sink).approve(DELETE) == "once"


@pytest.mark.anyio
async def test_a_question_that_a_server_still_asks_when_its_answer_is_over_is_forgotten() -> None:
    questions = PendingRequests()
    answers: list[object] = []
    stream = Stream(questions)
    asker = StreamApprover(questions, FunctionSink(stream.take))
    with anyio.fail_after(60):
        # The task is the server's connection, which lives on.
        async with anyio.create_task_group() as connection:
            with asker:

                async def ask() -> None:
                    answers.append(await asker.elicit(NAME))

                connection.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                assert len(questions.open()) == 1
    assert [answer == ElicitationAnswer("cancel") for answer in answers] == [True]
    assert questions.open() == ()
    with anyio.fail_after(60):
        assert await asker.approve(DELETE) is None
    assert len(stream.events) == 1
