"""What several conversations that share one NPU prefill: in the order asked, and preferring what the cache holds.

    python -m bench.switching [--json] [--conversations 4] [--questions 6] [--patience N]

Some conversations ask side by side, on the emulated runtime, which is fifty times as fast as an RK3588: each asks its
next question as soon as the answer to its last one has come, and every question takes a tool or two, whose results go
to the NPU after a quarter of a second (of a board's time). One KV cache serves all of them, so a run of another
conversation costs all that lies behind the common front. ``order asked`` is a plain queue; ``preferring`` is what the
engine does (``rkllm_mcp.runtime.scheduler``). ``over_once`` is against the floor: every token evaluated one time.

``longest wait`` counts the runs of others that began between a run's asking and its beginning; ``overtaken`` those of
them that had been asked later, which is bounded by the patience of the queue. The seconds are the tokens at a published
speed, not a measurement of an NPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.scheduler import MAX_SKIPS
from rkllm_mcp.runtime.settings import EngineSettings

# Qwen3-0.6B on an RK3588, tokens per second (rknn-llm benchmark 1.3.0, published by Rockchip).
PUBLISHED_PREFILL, PUBLISHED_DECODE = 643.0, 32.9
_IM_START, _IM_END = 257, 258
_SCRIPT = """RKLLM-EMULATOR 1
vocabulary bytes
control <|endoftext|> <|im_start|> <|im_end|>
eos <|im_end|>
context 16384
speed prefill {prefill} decode {decode}
rule
user (.+)
say So you say: $1
"""
# A board's times are divided by this, so that a day passes in minutes.
HASTE = 50.0
TOOL_S = 0.25
_HEAD = [_IM_START, *b"system\n", *b"You are an assistant with twenty tools. " * 25, _IM_END, *b"\n"]


@dataclass(frozen=True)
class Sharing:
    """What sharing cost.

    Args:
        order: how the runs were ordered.
        runs: how many there were.
        prefilled: tokens evaluated.
        over_once: the same over the floor.
        seconds: what they cost at the published speed.
        longest_wait: the most runs that anyone waited for.
        most_overtaken: the most runs that were asked later and went first.
    """

    order: str
    runs: int
    prefilled: int
    over_once: float
    seconds: float
    longest_wait: int
    most_overtaken: int


@dataclass
class _Turns:
    """Who asked when, and who began when."""

    asked: list[int] = field(default_factory=list[int])
    begun: list[int] = field(default_factory=list[int])
    started_when_asked: list[int] = field(default_factory=list[int])
    figures: list[RunStats] = field(default_factory=list[RunStats])

    def ask(self) -> int:
        number = len(self.asked)
        self.asked.append(number)
        self.started_when_asked.append(len(self.begun))
        return number

    def waits(self) -> list[int]:
        return [self.begun.index(number) - self.started_when_asked[number] for number in self.asked]

    def overtaken(self) -> list[int]:
        place = {number: index for index, number in enumerate(self.begun)}
        return [sum(later > number and place[later] < place[number] for later in self.begun) for number in self.asked]


async def _converse(engine: Engine, name: int, questions: int, turns: _Turns, tool_s: float) -> list[int]:
    """One conversation; returns its tokens, the answers' own among them."""
    ids = list(_HEAD)
    options = GenerationOptions(max_new_tokens=256, stop_ids=frozenset({_IM_END}))
    for question in range(questions):
        texts = [f"user\nThis is question {question} of conversation {name}, and a long one it is."]
        texts += [f"user\nThe tool says {'something ' * 8}to {name}."] * (1 + question % 2)
        for index, text in enumerate(texts):
            if index and tool_s:
                await asyncio.sleep(tool_s)
            ids += [_IM_START, *text.encode(), _IM_END, *b"\n", _IM_START, *b"assistant\n"]
            number = turns.ask()
            async with aclosing(engine.generate(ids, options)) as run:
                has_begun = False
                async for item in run:
                    if not has_begun:
                        turns.begun.append(number)
                        has_begun = True
                    if isinstance(item, Token):
                        ids.append(item.id)
                    else:
                        turns.figures.append(item)
            if index + 1 < len(texts):
                engine.expect(ids)
            ids += b"\n"
    return ids


async def play(
    conversations: int,
    questions: int,
    max_skips: int,
    folder: Path,
    *,
    haste: float = HASTE,
    tool_s: float = TOOL_S,
) -> Sharing:
    """Let the conversations talk.

    Args:
        conversations: how many share the NPU.
        questions: that each asks.
        max_skips: how often a run may be overtaken; 0 keeps the order asked.
        folder: for the script.
        haste: how many times as fast as a board everything is.
        tool_s: what a tool takes, seconds of a board's time.
    """
    model = folder / "sharing.rkllm"
    script = _SCRIPT.format(prefill=PUBLISHED_PREFILL * haste, decode=PUBLISHED_DECODE * haste)
    model.write_text(script, encoding="utf-8")
    settings = EngineSettings(model, emulator_library(), context_tokens=16384, max_skips=max_skips)
    turns = _Turns()
    async with open_engine(settings) as engine:
        await engine.ready()
        work = (_converse(engine, name, questions, turns, tool_s / haste) for name in range(conversations))
        histories = await asyncio.gather(*work)
    prefilled = sum(stats.prefilled_tokens or 0 for stats in turns.figures)
    generated = sum(stats.generated_tokens - 1 for stats in turns.figures)
    once = len(_HEAD) + sum(len(ids) - len(_HEAD) for ids in histories) - generated
    return Sharing(
        "preferring" if max_skips else "order asked",
        len(turns.figures),
        prefilled,
        round(prefilled / once, 2),
        round(prefilled / PUBLISHED_PREFILL, 1),
        max(turns.waits()),
        max(turns.overtaken()),
    )


def measure(conversations: int, questions: int, max_skips: int = MAX_SKIPS) -> list[Sharing]:
    """The order asked, and ours."""
    with tempfile.TemporaryDirectory() as folder:
        return [asyncio.run(play(conversations, questions, patience, Path(folder))) for patience in (0, max_skips)]


def table(rows: Sequence[Sharing]) -> str:
    """The rows for people."""
    names = list(asdict(rows[0]))
    lines = [names, *([str(value) for value in asdict(row).values()] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=4)
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--patience", type=int, default=MAX_SKIPS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    rows = measure(arguments.conversations, arguments.questions, arguments.patience)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(table(rows))
    print(f"the order asked prefills {rows[0].prefilled / rows[1].prefilled:.2f} times as much")


if __name__ == "__main__":
    main()
