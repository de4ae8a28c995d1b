"""A day of conversations with tools, edits, thoughts and a restart prefills each token once."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.generation import FeedTokens, GenerationOptions, Input, RunStats, Token, common_prefix
from rkllm_mcp.messages import Conversation, Message, ToolResult
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from tests.support.demo_model import demo_vocabulary
from tests.support.household import SYSTEM, TOOLS
from tests.support.prefix_tree import PrefixTree
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio

TEMPLATE = TEMPLATES["qwen3"]
FORECAST = '{"location":"東京地方","days":[{"date":"2026-11-21","weather":"晴れ 昼過ぎ から くもり","high":16}]}'
BILLS = "SELECT month, yen FROM bills ORDER BY month DESC LIMIT 2"
ROWS = '[{"month":"2026-10","yen":8420},{"month":"2026-09","yen":11960}]'


@dataclass(frozen=True)
class Turn:
    """A question, rounds of calls (tool, arguments, result), and the answer; an edit replaces the question before."""

    question: str
    answer: str
    rounds: Sequence[Sequence[tuple[str, dict[str, object], str]]] = ()
    thought: str = ""
    is_edit: bool = False

    def written(self, round_index: int) -> str:
        """What the model writes in a round: its calls, or its answer."""
        text = f"<think>\n{self.thought}\n</think>\n\n" if self.thought and not round_index else ""
        if round_index == len(self.rounds):
            return f"{text}{self.answer}{TEMPLATE.end_of_turn}"
        calls = [{"name": tool, "arguments": arguments} for tool, arguments, _ in self.rounds[round_index]]
        blocks = (f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls)
        return text + "\n".join(blocks) + TEMPLATE.end_of_turn


DAY: Sequence[Sequence[Turn]] = (
    (
        Turn(
            "おはよう。今日の東京の天気は？",
            "晴れ、最高16度です。",
            [[("get_weather", {"location": "東京"}, FORECAST)]],
        ),
        Turn("傘はいる？", "なくても大丈夫そうです。"),
        Turn(
            "Make it 20 degrees in the office and switch the light on.",
            "The office is set to 20 °C and its light is on.",
            [
                [
                    ("set_heating", {"room": "office", "celsius": 20}, '{"ok":true,"from":17.8}'),
                    ("set_light", {"room": "office", "state": "on"}, '{"ok":true}'),
                ]
            ],
        ),
        Turn(
            "Make it 19 degrees in the office.",
            "The office is set to 19 °C.",
            [[("set_heating", {"room": "office", "celsius": 19}, '{"ok":true,"from":17.9}')]],
            is_edit=True,
        ),
        Turn("Thanks.", "You're welcome."),
    ),
    (
        Turn(
            "先月の電気代はいくらだった？その前の月と比べて。",
            "10月は8,420円、9月は11,960円でした。3,540円下がっています。",
            [
                [("list_tables", {}, '[{"table":"bills","columns":["month","kind","yen"]}]')],
                [
                    (
                        "query_database",
                        {"query": BILLS},
                        '[{"month":"2026-10","yen":8420},{"month":"2026-09","yen":11960}]',
                    )
                ],
                [("calculate", {"expression": "11960-8420"}, "3540")],
            ],
            thought="まず表の名前を確かめてから、電気の行を二か月分読む。差は計算機に任せる。",
        ),
        Turn("なぜ下がったと思う？", "9月はまだ冷房を使っていた時期なので、その分だと考えられます。"),
    ),
    (
        Turn("What is a good way to keep basil alive in winter?", "Light, warmth above 15 °C, and little water."),
        Turn("Which window?", "South, away from cold glass at night."),
        Turn("Which window, and how often water?", "South; water when the top of the soil is dry.", is_edit=True),
        Turn("And in summer?", "The basil likes the light on the balcony, and water every evening. " * 14),
        Turn("Put a lamp on the list.", "It is on it.", [[("add_to_list", {"items": "lamp"}, '{"ok":true}')]]),
    ),
)
RESTART_BEFORE = 2


@dataclass
class CountedGeneration:
    """See ``generation.Generation``: all tokens arrive one at a time, at once."""

    tokens: list[Token]
    figures: RunStats
    expected_prefill: int = 0

    async def deliver(self, feed: FeedTokens) -> None:
        while self.tokens:
            feed([self.tokens.pop(0)])

    def finish_early(self) -> None:
        self.tokens.clear()

    def stats(self) -> RunStats:
        return self.figures


@dataclass
class CountingRuntime:
    """An engine that says what it is given and counts the tokens that its cache, one sequence, does not hold."""

    vocabulary: ModelTokenizer
    context_tokens: int = 16_384
    says: str = ""
    prefilled: int = 0
    once: int = 0
    seen: PrefixTree = field(default_factory=PrefixTree)
    cache: list[int] = field(default_factory=list[int])

    async def ready(self) -> None:
        """Nothing has to be loaded."""

    def expect(self, tokens: Sequence[int]) -> None:
        """No other run waits."""

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        """No other run waits."""

    def uncached(self, tokens: Sequence[int], _owner: str | None = "", /) -> int:
        return max(1, len(tokens) - common_prefix(tokens, self.cache))

    @asynccontextmanager
    async def generation(
        self, prompt: Input | Sequence[int], /, options: GenerationOptions | None = None
    ) -> AsyncGenerator[CountedGeneration, None]:
        del options
        assert isinstance(prompt, Sequence)
        tokens = prompt
        new = self.uncached(tokens)
        ids = self.vocabulary.encode([ControlText(self.says)])
        self.prefilled += new
        self.once += self.seen.add(tokens)
        # The last token is sampled and not evaluated.
        self.cache = [*tokens, *ids[:-1]]
        self.seen.add(self.cache)
        stats = RunStats("stop", new, 0.0, 0.0, len(ids), 0.0, cold=False)
        yield CountedGeneration([Token(token_id, self.vocabulary.decode([token_id])) for token_id in ids], stats)


async def answer(model: RkllmModel, runtime: CountingRuntime, conversation: Conversation, turn: Turn) -> None:
    conversation.add(Message("user", turn.question))
    for round_index in range(len(turn.rounds) + 1):
        runtime.says = turn.written(round_index)
        async with aclosing(events_of(model, conversation, TOOLS)) as events:
            detected = [event async for event in events if isinstance(event, ToolCallDetected)]
        if round_index < len(turn.rounds):
            calls = zip(detected, turn.rounds[round_index], strict=True)
            results = tuple(ToolResult(event.id, event.name, result) for event, (_, _, result) in calls)
            conversation.add(Message("tool", results=results))


async def test_a_day_of_conversations_prefills_each_token_once() -> None:
    runtime = CountingRuntime(demo_vocabulary())
    form = ModelForm(runtime.vocabulary, TEMPLATE, TEMPLATE.tool_form.syntaxes, thinking="auto", max_new_tokens=4096)
    head = runtime.vocabulary.encode(TEMPLATE.head(SYSTEM, TOOLS, thinking=False))
    model = RkllmModel(runtime, form)
    cold_start = 0
    for index, turns in enumerate(DAY):
        before = runtime.prefilled
        if index == RESTART_BEFORE:
            model, runtime.cache = RkllmModel(runtime, form), list(head)  # the saved prefix is loaded
        conversation = Conversation(messages=[Message("system", SYSTEM)])
        start = 1
        for turn in turns:
            if turn.is_edit:
                conversation.replace(conversation.messages[:start])
            start = len(conversation.messages)
            await answer(model, runtime, conversation, turn)
            if index == RESTART_BEFORE and not cold_start:
                cold_start = runtime.prefilled - before
    assert len(head) < runtime.prefilled <= 1.02 * runtime.once
    assert 0 < cold_start < 0.05 * len(head)
