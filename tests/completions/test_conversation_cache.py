"""Which conversation a request goes on with, and what of it the NPU has to read again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest

from rkllm_mcp.completions.conversation_cache import CachedConversation, ConversationCache, Owner
from rkllm_mcp.events import Text, ToolCallDetected
from rkllm_mcp.generation import common_prefix
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from tests.support.demo_model import demo_vocabulary
from tests.support.scripted_engine import ScriptedEngine
from tests.support.scripted_world import END, WEATHER, called
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio
SYSTEM = Message("system", "Be brief. " * 20)


class Program:
    """A program that keeps what it said and saw, and sends all of it each time; and the model behind it."""

    def __init__(self, template: str = "qwen3", kept: int = 64) -> None:
        self.engine = ScriptedEngine(demo_vocabulary(), [])
        form = TEMPLATES[template]
        self.model = RkllmModel(self.engine, ModelForm(demo_vocabulary(), form, form.tool_form.syntaxes, "auto"))
        self.cache = ConversationCache(kept)
        self.owner = Owner(self.model, "", (WEATHER,))

    def branch(self, *messages: Message, owner: Owner | None = None) -> CachedConversation:
        branch = self.cache.branch(owner or self.owner, messages, 0)
        branch.conversation.add(messages[-1])
        return branch

    async def answered(self, branch: CachedConversation, answer: str, *, kept: bool = True) -> Message:
        """Have a request answered; what its program sees."""
        self.engine.answers.append(answer)
        conversation, asked_at = branch.conversation, len(branch.conversation.messages)
        text, calls = "", list[ToolCall]()
        async with aclosing(events_of(self.model, conversation, branch.owner.tools or ())) as events:
            async for event in events:
                if isinstance(event, Text):
                    text += event.text
                elif isinstance(event, ToolCallDetected):
                    calls.append(ToolCall(event.id, event.name, event.arguments))
        seen = Message("assistant", text, calls=tuple(calls))
        if kept:
            self.cache.keep(branch, seen, asked_at=asked_at)
        else:
            self.cache.drop(branch)
        return seen

    async def ask(self, messages: Sequence[Message], answer: str) -> Message:
        return await self.answered(self.branch(*messages), answer)

    def distinct(self) -> int:
        """Every token evaluated one time at its place: the floor of what could be prefilled."""
        seen: list[list[int]] = []
        total = 0
        for prompt, evaluated in zip(self.engine.prompts, self.engine.evaluated, strict=True):
            total += len(prompt) - max((common_prefix(prompt, other) for other in seen), default=0)
            seen.append(evaluated)
        return total


@pytest.mark.parametrize("template", ["qwen3", "qwen2.5", "gemma3", "llama3.2"])
async def test_ten_turns_of_a_program_that_sends_everything_prefill_each_token_once(template: str) -> None:
    program = Program(template)
    said = [SYSTEM]
    for turn in range(10):
        said.append(Message("user", f"And the weather in city number {turn}?"))
        if turn % 2:
            spoken = f"<think>\nHm, {turn}.\n</think>\n\n" if template == "qwen3" else ""
            call = f"{spoken}Let me see.\n{called(f'City {turn}')}{END}"
            seen = await program.ask(said, call if template.startswith("qwen") else f"I shall see, {turn}.{END}")
            # Programs strip, and write JSON in their own way.
            said.append(replace(seen, text=seen.text.strip()))
            if seen.calls:
                said.append(Message("tool", results=(ToolResult(seen.calls[0].id, "get_weather", "sunny " * 9),)))
            else:
                said.append(Message("user", "Please."))
        said.append(await program.ask(said, f"It is {turn} degrees. {END}"))
    assert len(program.cache) == 1
    assert sum(program.engine.prefilled) <= 1.02 * program.distinct()
    assert program.engine.prefilled[-1] < 60


async def test_another_answer_to_the_same_question_and_an_edit_begin_where_they_differ() -> None:
    program = Program()
    first = [SYSTEM, Message("user", "One?")]
    said = [*first, await program.ask(first, f"First.{END}"), Message("user", "Two?")]
    await program.ask(said, f"Second.{END}")
    await program.ask(said, f"Another second.{END}")
    edited = [*said[:-1], Message("user", "Two, but otherwise?")]
    await program.ask(edited, f"Third.{END}")
    regenerated, edit = program.engine.prompts[2:4]
    assert regenerated == program.engine.prompts[1]
    assert program.engine.prefilled[2] == 1
    assert edit[: len(regenerated) - 20] == regenerated[: len(regenerated) - 20]
    assert program.engine.prefilled[3] < 30


async def test_going_back_to_the_text_of_another_branch_finds_its_very_tokens() -> None:
    program = Program()
    question = [Message("user", "One?")]
    # A thought is in the ids alone: whoever renders the turn again leaves it out.
    seen = await program.ask(question, f"<think>\nHm.\n</think>\n\nFirst.{END}")
    left = [*question, seen, Message("user", "Left?")]
    right = [*question, seen, Message("user", "Right?")]
    await program.ask(left, f"L.{END}")
    await program.ask(right, f"R.{END}")
    answer = await program.ask(left, f"L again.{END}")
    await program.ask([*left, answer, Message("user", "On?")], f"Yes.{END}")
    prompts = program.engine.prompts
    assert prompts[3] == prompts[1]
    assert prompts[4][: len(prompts[3])] == prompts[3]
    assert "Hm." in demo_vocabulary().decode(prompts[4])


async def test_of_two_conversations_that_share_as_much_the_latest_is_continued() -> None:
    program = Program()
    question = [Message("user", "One?")]
    said = [*question, await program.ask(question, f"First.{END}")]
    for text in ("Left", "Right"):
        branch = program.branch(*said, Message("user", f"{text}?"))
        branch.conversation.revealed_tools[text] = WEATHER
        await program.answered(branch, f"{text}.{END}")
    assert list(program.branch(*said, Message("user", "On?")).conversation.revealed_tools) == ["Left", "Right"]


async def test_two_answers_under_way_never_share_a_conversation() -> None:
    program = Program()
    question = [Message("user", "One?")]
    said = [*question, await program.ask(question, f"First.{END}"), Message("user", "Two?")]
    left, right = program.branch(*said), program.branch(*said)
    assert left.conversation is not right.conversation
    assert left.conversation.id != right.conversation.id
    await program.answered(left, f"Left.{END}")
    await program.answered(right, f"Right.{END}")
    assert [m.text for m in left.conversation.messages][-1] == "Left."
    assert [m.text for m in right.conversation.messages][-1] == "Right."
    assert program.engine.prompts[1] == program.engine.prompts[2]
    # What both grew from is held by each of them.
    assert len(program.cache) == 2


async def test_an_answer_that_was_not_read_leaves_the_earlier_threads() -> None:
    program = Program()
    question = [Message("user", "One?")]
    said = [*question, await program.ask(question, f"First.{END}"), Message("user", "Two?")]
    await program.answered(program.branch(*said), "Half of an", kept=False)
    assert len(program.cache) == 1
    branch = program.branch(*said)
    assert [message.text for message in branch.conversation.messages] == ["One?", "First.", "Two?"]


async def test_an_answer_replaces_no_conversation_of_another_tenant() -> None:
    program = Program()
    question = [Message("user", "One?")]
    await program.ask(question, f"First.{END}")
    bob = program.branch(*question, owner=replace(program.owner, tenant="bob"))
    await program.answered(bob, f"First.{END}")
    assert len(program.cache) == 2


async def test_another_tenant_other_tools_or_another_system_text_find_nothing() -> None:
    program = Program()
    question = [SYSTEM, Message("user", "One?")]
    thought = f"<think>\nHm.\n</think>\n\nFirst.{END}"
    said = [*question, await program.ask(question, thought), Message("user", "Two?")]
    others = (
        replace(program.owner, tenant="bob"),
        replace(program.owner, tools=()),
        replace(program.owner, tools=None),
    )
    for owner in others:
        branch = program.cache.branch(owner, said, 0)
        branch.conversation.add(said[-1])
        await program.answered(branch, f"Second.{END}", kept=False)
        # Nothing that the model wrote for somebody else is in it.
        assert "Hm." not in demo_vocabulary().decode(program.engine.prompts[-1])
    await program.ask(said, f"Second.{END}")
    assert "Hm." in demo_vocabulary().decode(program.engine.prompts[-1])


async def test_what_the_model_did_not_say_here_is_read_from_the_request() -> None:
    program = Program()
    foreign = Message("assistant", "Said elsewhere.", calls=(ToolCall("call_4", "get_weather", {"location": "Oslo"}),))
    told = [Message("user", "One?"), foreign, Message("tool", results=(ToolResult("call_4", "get_weather", "sun"),))]
    branch = program.cache.branch(program.owner, told, 4)
    branch.conversation.add(told[-1])
    seen = await program.answered(branch, f"{called('Rome')}{END}")
    assert [call.id for call in seen.calls] == ["call_5"]


async def test_the_number_of_threads_is_limited_and_recently_used_ones_stay() -> None:
    program = Program(kept=2)
    said: dict[str, list[Message]] = {}
    for name in ("a", "b"):
        question = [Message("user", name)]
        answer = await program.ask(question, f"<think>\nHm {name}.\n</think>\n\nYes.{END}")
        said[name] = [*question, answer, Message("user", "on")]
    program.cache.branch(program.owner, said["a"], 0)
    await program.ask([Message("user", "c")], f"Yes.{END}")
    assert len(program.cache) == 2
    for name in ("a", "b"):
        await program.ask(said[name], f"More.{END}")
    kept, lost = map(demo_vocabulary().decode, program.engine.prompts[-2:])
    assert "Hm a." in kept
    assert "Hm b." not in lost


async def test_a_conversation_that_has_its_own_system_text_takes_the_requests_instead() -> None:
    program = Program()

    def new() -> Conversation:
        return Conversation(messages=[Message("system", "The owner's.")])

    own = program.cache.branch(program.owner, [SYSTEM, Message("user", "Hi")], 0, new)
    assert own.conversation.messages == [SYSTEM]
    default = program.cache.branch(program.owner, [Message("user", "Hi")], 0, new)
    assert default.conversation.messages == [Message("system", "The owner's.")]


async def test_the_stored_characters_are_limited() -> None:
    program = Program()
    program.cache = ConversationCache(characters=500)
    for name in ("a", "b", "c"):
        await program.ask([Message("user", name * 200)], f"Yes.{END}")
    assert len(program.cache) == 2
    await program.ask([Message("user", "d" * 600)], f"Yes.{END}")
    assert len(program.cache) == 0


@pytest.mark.parametrize("limit", [{"most_threads": 3}, {"characters": 1000}])
async def test_at_the_limit_the_tenant_with_the_most_threads_loses_one(limit: dict[str, int]) -> None:
    program = Program()
    program.cache = ConversationCache(**limit)
    ann, bob = (replace(program.owner, tenant=name) for name in ("ann", "bob"))
    for number, owner in enumerate((bob, ann, ann, ann, ann)):
        branch = program.branch(Message("user", f"{number} " * 150), owner=owner)
        await program.answered(branch, f"<think>\nHm.\n</think>\n\nYes.{END}")
    assert len(program.cache) == 3
    thoughts: list[str] = []
    for number, owner in enumerate((bob, ann, ann, ann, ann)):
        told = [Message("user", f"{number} " * 150), Message("assistant", "Yes."), Message("user", "And?")]
        # A program sends back no thinking: it is there where the conversation is.
        thoughts.append(program.cache.branch(owner, told, 0).conversation.messages[1].thinking.strip())
    assert thoughts == ["Hm.", "", "", "Hm.", "Hm."]
