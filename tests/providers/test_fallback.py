"""The second model takes over by the owner's rules and by nothing else; nothing is said or called twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from rkllm_mcp.config.sections import Occasion
from rkllm_mcp.errors import GenerationError, PromptTooLongError, RunRejectedError, ServiceError
from rkllm_mcp.events import Status, Text, ToolCallDetected
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.providers.fallback import GO_ON, FallbackModel
from tests.support.chat_service import ChatService, Reply, openai_call, openai_reply, openai_stream, refusal
from tests.support.remote_models import WEATHER, asked, question, round_of, without_usage
from tests.support.scripted_model import Round, ScriptedModel
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio
EVERY: tuple[Occasion, ...] = ("failed", "too_long", "no_answer", "busy")


class LastingScript(ScriptedModel):
    """A scripted model as the first of two."""

    def over(self, conversation_id: str) -> None:
        """Nothing is kept."""

    def forget(self, conversation_id: str) -> None:
        """Nothing is kept."""

    def branch(self, conversation_id: str, new_id: str) -> None:
        """Nothing is kept."""


@asynccontextmanager
async def both(
    first: list[Round], service: ChatService, rules: Collection[Occasion]
) -> AsyncGenerator[tuple[FallbackModel, LastingScript]]:
    with service, anyio.fail_after(60):
        script = LastingScript(first)
        async with asked(service) as second:
            yield FallbackModel(script, second, rules), script


def handing_over(service: ChatService, because: str) -> Status:
    return Status(f"[Model: handing over to 'model-x' at {service.host} because {because}]")


async def test_an_answer_of_the_first_is_left_as_it_is() -> None:
    service, conversation = ChatService(), question()
    async with both([Round([Text("Mine.")])], service, EVERY) as (model, _):
        assert await round_of(model, conversation) == [Text("Mine.")]
    assert service.requests == []
    assert conversation.messages[-1] == Message("assistant", "Mine.")


OCCASIONS: tuple[tuple[Occasion, Round, str], ...] = (
    ("failed", Round([], RunRejectedError("no")), "the runtime failed this answer: no"),
    (
        "too_long",
        Round([], PromptTooLongError(9, 5)),
        "the prompt has 9 tokens, 4 more than the 5 that fit with the answer",
    ),
    ("no_answer", Round([Text(" \n")]), "the first model gave no answer"),
)


@pytest.mark.parametrize(("rule", "first", "because"), OCCASIONS, ids=[rule for rule, _, _ in OCCASIONS])
async def test_each_rule_hands_over_on_its_occasion_and_says_why(rule: Occasion, first: Round, because: str) -> None:
    service, conversation = ChatService(openai_reply("Theirs.")), question()
    async with both([first], service, [rule]) as (model, _):
        events = without_usage(await round_of(model, conversation))
    assert events[-2:] == [handing_over(service, because), Text("Theirs.")]
    assert [message.role for message in conversation.messages] == ["system", "user", "assistant"]
    assert conversation.messages[-1].text.strip() == "Theirs."


@pytest.mark.parametrize(("rule", "first", "_because"), OCCASIONS[:2], ids=[rule for rule, _, _ in OCCASIONS[:2]])
async def test_without_its_rule_nothing_is_handed_over(rule: Occasion, first: Round, _because: str) -> None:
    service, conversation = ChatService(openai_reply("Theirs.")), question()
    others: list[Occasion] = [other for other in EVERY if other != rule]
    async with both([first], service, others) as (model, _):
        with pytest.raises(GenerationError):
            await round_of(model, conversation)
    assert service.requests == []


async def test_silence_stays_silence_without_its_rule() -> None:
    service = ChatService(openai_reply("Theirs."))
    async with both([Round([])], service, ["failed"]) as (model, _):
        assert await round_of(model, question()) == []
    assert service.requests == []


@pytest.mark.parametrize(
    "second", ["kyo.", "It is sunny in Tokyo.", "It is"], ids=["goes on", "begins again", "only repeats"]
)
async def test_shown_text_is_not_repeated_and_both_parts_are_one_turn(second: str) -> None:
    service, conversation = ChatService(openai_reply(second)), question()
    first = Round([Text("It is sunny "), Text("in To")], RunRejectedError("no"))
    async with both([first], service, ["failed"]) as (model, _):
        events = await round_of(model, conversation)
    shown = "".join(event.text for event in events if isinstance(event, Text))
    expected = "It is sunny in To" if second == "It is" else "It is sunny in Tokyo."
    assert shown == expected
    assert conversation.messages[2:] == [Message("assistant", expected)]
    assert service.bodies[0]["messages"][-2:] == [
        {"role": "assistant", "content": "It is sunny in To"},
        {"role": "user", "content": GO_ON},
    ]


async def test_after_a_call_nothing_is_handed_over() -> None:
    service = ChatService(openai_reply("Theirs."))
    first = Round([ToolCallDetected("get_weather", {"location": "A"})], RunRejectedError("no"))
    async with both([first], service, EVERY) as (model, _):
        with pytest.raises(RunRejectedError):
            await round_of(model, question(), [WEATHER])
    assert service.requests == []


async def test_the_second_makes_the_rest_of_the_answer_and_the_first_the_next_one() -> None:
    call = openai_stream(openai_call("get_weather", '{"location": "A"}'), finish="tool_calls")
    service, conversation = ChatService(Reply(pieces=call), openai_reply("Sunny.")), question()
    rounds = [Round([], RunRejectedError("no")), Round([Text("Mine.")])]
    async with both(rounds, service, ["failed"]) as (model, script):
        first = await round_of(model, conversation, [WEATHER])
        (made,) = [event for event in first if isinstance(event, ToolCallDetected)]
        assert made.id == conversation.messages[-1].calls[0].id == "call_1"
        conversation.add(Message("tool", "Go on."))
        assert without_usage(await round_of(model, conversation, [WEATHER])) == [Text("Sunny.")]
        assert len(script.asked) == 1
        model.over(conversation.id)
        conversation.add(Message("user", "And now?"))
        assert await round_of(model, conversation, [WEATHER]) == [Text("Mine.")]
    assert conversation.next_call_id() == "call_2"


async def test_while_the_first_model_answers_the_second_answers_others_if_configured() -> None:
    service = ChatService(openai_reply("Theirs."))
    rounds = [Round([Text("Slow")], never_ends=True), Round([Text("Mine.")])]
    async with both(rounds, service, ["busy"]) as (model, _):
        async with aclosing(events_of(model, question(), ())) as slow:
            assert await anext(slow) == Text("Slow")
            events = without_usage(await round_of(model, question()))
        assert events == [handing_over(service, "the first model is busy with another answer"), Text("Theirs.")]
        assert await round_of(model, question()) == [Text("Mine.")]


async def test_where_both_fail_the_seconds_error_is_the_answers() -> None:
    service, conversation = ChatService(refusal(401, "bad key")), question()
    async with both([Round([Text("It ")], RunRejectedError("no"))], service, ["failed"]) as (model, _):
        with pytest.raises(ServiceError, match="rejects the key"):
            await round_of(model, conversation)
    assert conversation.messages[2:] == [Message("assistant", "It ")]


async def test_a_conversation_that_is_left_while_the_second_answers_keeps_one_turn() -> None:
    stream = openai_stream({"content": "rains"}, finish=None, done=False)
    service, conversation = ChatService(Reply(pieces=stream, ending="hang")), Conversation()
    conversation.add(Message("user", "?"))
    async with both([Round([Text("It ")], RunRejectedError("no"))], service, ["failed"]) as (model, _):
        async with aclosing(events_of(model, conversation, ())) as events:
            shown = [await anext(events) for _ in range(3)]
        assert await anyio.to_thread.run_sync(service.left.wait, 5)
    assert shown[::2] == [Text("It "), Text("rains")]
    assert conversation.messages == [Message("user", "?"), Message("assistant", "It rains")]
