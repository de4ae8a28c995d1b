"""What one day of conversations prefills under five ways of feeding the NPU: tokens, and seconds at published speeds.

    python -m bench.prefill_economy [--json] [--template qwen3] [--tokenizer tokenizer.json]

The day (``working_day``): twelve conversations one after the other, twenty tools, tool rounds, edits and two restarts.
Every way gets the same words; a model of the runtime's cache, which matches a prompt from its first token on, counts
what each run evaluates. ``once`` is the floor: every token that the model did not write itself evaluated one time, at
its place behind the same tokens, for the whole day. The ways:

* ours: the ids that went in and came out, kept; the head saved on disk and loaded after a restart
* cleared: everything sent, the cache cleared after each run
* last message: only the newest message is sent behind the head; cheap, and the model forgets the conversation
* re-templated: everything sent, rendered from the messages each time, old thoughts left out as templates do
* no tools: history kept between answers, and cleared whenever a tool took part

The seconds are the tokens at speeds that others published, not a measurement of an NPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.working_day import DAY, RESTARTS_BEFORE, SYSTEM, TOOLS, Edit, Turn
from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.generation import GenerationOptions, RunStats, TakeTokens, Token, common_prefix
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult
from rkllm_mcp.prompt.conversation import ConversationPrompt
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from tests.support.turn_events import events_of

REPOSITORY = Path(__file__).resolve().parents[1]
CONTEXT_TOKENS = 16384
# Prefill, tokens per second: 128 over the published time to the first token (rknn-llm benchmark 1.3.0, by Rockchip),
# and 4096 tokens in 71 s (rkllama issue 169).
PUBLISHED = {"Qwen3-0.6B": 643.0, "Qwen2.5-1.5B": 338.0, "Qwen3-1.7B, 4k": 58.0, "Qwen3.5-4B": 62.0}


class PrefixTree:
    """Token sequences joined at what they share, to count what is new in one."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}

    def add(self, ids: Sequence[int]) -> int:
        """Add a sequence; returns how many of its tokens stood at no such place before."""
        before, node = len(self._children), 0
        for token_id in ids:
            node = self._children.setdefault((node, token_id), len(self._children) + 1)
        return len(self._children) - before


@dataclass
class CountedGeneration:
    """See ``generation.Generation``: all tokens arrive one at a time, at once."""

    tokens: list[Token]
    figures: RunStats
    expected_prefill: int = 0

    async def deliver(self, take: TakeTokens) -> None:
        """Pass on one token after the other."""
        while self.tokens:
            await take([self.tokens.pop(0)])

    def finish_early(self) -> None:
        """Nothing more comes."""
        self.tokens.clear()

    def stats(self) -> RunStats:
        """The figures of the run."""
        return self.figures


@dataclass
class CountingRuntime:
    """An engine that says what it is told to and counts what its cache does not hold.

    Args:
        vocabulary: the tokenizer.
        cleared: forgets after every run.
    """

    vocabulary: ModelTokenizer
    cleared: bool = False
    context_tokens: int = CONTEXT_TOKENS
    says: str = ""
    prefilled: int = 0
    once: int = 0
    runs: int = 0
    seen: PrefixTree = field(default_factory=PrefixTree)
    cache: list[int] = field(default_factory=list[int])

    def run(self, prompt: Sequence[int]) -> list[int]:
        """One run: the ids that come out."""
        self.runs += 1
        self.prefilled += self.uncached(prompt)
        ids = self.vocabulary.encode([ControlText(self.says)])
        self.once += self.seen.add(prompt)
        self.seen.add([*prompt, *ids[:-1]])
        # The last token is sampled and not evaluated.
        self.cache = [] if self.cleared else [*prompt, *ids[:-1]]
        return ids

    async def ready(self) -> None:
        """Nothing has to be loaded."""

    def expect(self, tokens: Sequence[int]) -> None:
        """Nobody else waits here."""

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        """Nobody else waits here."""

    def uncached(self, tokens: Sequence[int], _owner: str | None = "", /) -> int:
        """See ``generation.Generator``."""
        return max(1, len(tokens) - common_prefix(tokens, self.cache))

    @asynccontextmanager
    async def generation(
        self, tokens: Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[CountedGeneration, None]:
        """See ``generation.Generator``."""
        del options
        before = self.prefilled
        ids = self.run(tokens)
        stats = RunStats("stop", self.prefilled - before, 0.0, 0.0, len(ids), 0.0, cold=self.runs == 1)
        yield CountedGeneration([Token(token_id, self.vocabulary.decode([token_id])) for token_id in ids], stats)


@dataclass(frozen=True)
class Way:
    """One way's day."""

    name: str
    prefilled: int
    over_once: float
    over_ours: float
    remembers: bool
    seconds: dict[str, float]


@dataclass(frozen=True)
class Setting:
    """What all ways share."""

    vocabulary: ModelTokenizer
    template: ChatTemplate

    def head(self) -> list[int]:
        """System text and tools as ids."""
        head = self.template.head(SYSTEM, TOOLS, thinking=False)
        return self.vocabulary.encode(head)

    def spoken(self, turn: Turn, round_index: int) -> str:
        """What the model writes in one round of a turn, as a model would: its calls, or its answer."""
        thought = f"<think>\n{turn.thought}\n</think>\n\n" if turn.thought and not round_index else ""
        if round_index == len(turn.rounds):
            return f"{thought}{turn.answer}{self.template.end_of_turn}"
        calls = (
            json.dumps({"name": call.tool, "arguments": call.arguments}, ensure_ascii=False)
            for call in turn.rounds[round_index]
        )
        written = "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)
        return f"{thought}{written}{self.template.end_of_turn}"


async def ours(setting: Setting) -> tuple[CountingRuntime, int]:
    """The product's own provider; returns its runtime, and the tokens of the first answer after the last restart."""
    runtime = CountingRuntime(setting.vocabulary)
    form = ModelForm(
        setting.vocabulary, setting.template, setting.template.tool_form.syntaxes, thinking="auto", max_new_tokens=4096
    )
    model = RkllmModel(runtime, form)
    cold_start = 0
    for index, steps in enumerate(DAY):
        before = runtime.prefilled
        if index in RESTARTS_BEFORE:
            model = RkllmModel(runtime, form)
            runtime.cache = setting.head()  # the saved prefix is loaded
        conversation = Conversation(messages=[Message("system", SYSTEM)])
        start = 1
        for step in steps:
            if isinstance(step, Edit):
                conversation.replace(conversation.messages[:start])
            start = len(conversation.messages)
            turn = step.turn if isinstance(step, Edit) else step
            await _answer(setting, runtime, model, conversation, turn)
            if index == RESTARTS_BEFORE[-1] and not cold_start:
                cold_start = runtime.prefilled - before
    return runtime, cold_start


async def _answer(
    setting: Setting, runtime: CountingRuntime, model: RkllmModel, conversation: Conversation, turn: Turn
) -> None:
    conversation.add(Message("user", turn.question))
    for round_index in range(len(turn.rounds) + 1):
        runtime.says = setting.spoken(turn, round_index)
        found: list[ToolCallDetected] = []
        async with aclosing(events_of(model, conversation, TOOLS)) as events:
            found = [event async for event in events if isinstance(event, ToolCallDetected)]
        if round_index < len(turn.rounds):
            calls = turn.rounds[round_index]
            results = [ToolResult(event.id, event.name, call.result) for event, call in zip(found, calls, strict=True)]
            conversation.add(Message("tool", results=tuple(results)))


def messages_of(turn: Turn, rounds: int) -> list[Message]:
    """A turn's messages up to its round ``rounds``, for the ways that render from messages."""
    messages = [Message("user", turn.question)]
    for calls in turn.rounds[:rounds]:
        made = tuple(ToolCall(f"call_{i}", call.tool, call.arguments) for i, call in enumerate(calls))
        messages.append(Message("assistant", calls=made, thinking=turn.thought))
        messages.append(
            Message("tool", results=tuple(ToolResult(m.id, m.name, c.result) for m, c in zip(made, calls, strict=True)))
        )
    return messages


# The messages before this turn, the turn, the round: the messages to send, and whether the cache is lost before it.
Sending = Callable[[list[Message], Turn, int], "tuple[list[Message], bool]"]


def everything(history: list[Message], turn: Turn, round_index: int) -> tuple[list[Message], bool]:
    """All messages; what is lost is up to the runtime."""
    return [*history, *messages_of(turn, round_index)], False


def last_message(history: list[Message], turn: Turn, round_index: int) -> tuple[list[Message], bool]:
    """The newest message alone."""
    del history
    return messages_of(turn, round_index)[-1:], False


def lost_with_tools(history: list[Message], turn: Turn, round_index: int) -> tuple[list[Message], bool]:
    """All messages, and no cache once a tool takes part."""
    return [*history, *messages_of(turn, round_index)], round_index > 0


def rendered(setting: Setting, sending: Sending, *, cleared: bool = False) -> int:
    """A host that renders its prompts from messages; returns tokens prefilled."""
    runtime = CountingRuntime(setting.vocabulary, cleared)
    for index, steps in enumerate(DAY):
        if index in RESTARTS_BEFORE:
            runtime.cache = []
        history: list[list[Message]] = []
        for step in steps:
            if isinstance(step, Edit):
                history.pop()
            turn = step.turn if isinstance(step, Edit) else step
            before = [message for messages in history for message in messages]
            for round_index in range(len(turn.rounds) + 1):
                messages, is_lost = sending(before, turn, round_index)
                if is_lost:
                    runtime.cache = []
                prompt = ConversationPrompt(setting.vocabulary, setting.template)
                parts = prompt.parts([Message("system", SYSTEM), *messages], TOOLS)
                runtime.says = setting.spoken(turn, round_index)
                runtime.run([token for part in parts for token in part.ids])
            history.append([*messages_of(turn, len(turn.rounds)), Message("assistant", turn.answer)])
    return runtime.prefilled


def measure(setting: Setting) -> tuple[list[Way], int, float]:
    """Every way's day, the floor, and the share of the head that a cold start prefills."""
    runtime, cold_start = asyncio.run(ours(setting))
    own, once = runtime.prefilled, runtime.once
    counted = {
        "ours": (own, True),
        "cleared": (rendered(setting, everything, cleared=True), True),
        "last message": (rendered(setting, last_message), False),
        "re-templated": (rendered(setting, everything), True),
        "no tools": (rendered(setting, lost_with_tools), True),
    }
    ways = [
        Way(
            name,
            tokens,
            round(tokens / once, 3),
            round(tokens / own, 2),
            remembers,
            {model: round(tokens / speed, 1) for model, speed in PUBLISHED.items()},
        )
        for name, (tokens, remembers) in counted.items()
    ]
    return ways, once, round(cold_start / len(setting.head()), 3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--tokenizer", type=Path, default=REPOSITORY / "models" / "demo" / "tokenizer.json")
    parser.add_argument("--template", choices=list(TEMPLATES), default="qwen3")
    arguments = parser.parse_args()
    setting = Setting(ModelTokenizer(arguments.tokenizer.read_text("utf-8")), TEMPLATES[arguments.template])
    ways, once, cold_start = measure(setting)
    if arguments.json:
        rows = [asdict(way) for way in ways]
        print(json.dumps({"once": once, "cold_start_share": cold_start, "ways": rows}))
        return
    print(f"every token once: {once}; a cold start with a saved head prefills {100 * cold_start:.1f} % of the head\n")
    widths = [max(len(model), 8) for model in PUBLISHED]
    header = "  ".join(f"{model:>{width}}" for model, width in zip(PUBLISHED, widths, strict=True))
    print(f"{'way':14}{'tokens':>8}{'/ once':>9}{'/ ours':>8}  {header}")
    for way in ways:
        seconds = "  ".join(f"{math.ceil(s):>{w - 2}} s" for s, w in zip(way.seconds.values(), widths, strict=True))
        note = "" if way.remembers else "   (forgets)"
        print(f"{way.name:14}{way.prefilled:>8}{way.over_once:>9.3f}{way.over_ours:>8.2f}  {seconds}{note}")


if __name__ == "__main__":
    main()
