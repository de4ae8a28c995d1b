"""What a conversation with tools prefills, against hosts that send everything again: tokens and seconds.

One conversation of ten questions, three of them with a tool, on the emulated runtime flat out. Two hosts are counted in
the same run: ``ours`` is what the runtime reports as prefilled; ``cleared`` is a host that clears the cache after
every run, so that each prompt is evaluated whole. The seconds are the tokens at a published speed, not a measurement
of an NPU. ``second_session`` is the prompt of a program's second session, before which it asks for a title.

``setup_…`` are conversations of twelve questions with the configuration that ``setup`` writes, of which every third is
answered from the result of a tool: what is read after the first question over what was never read before, with the
tools in a list and, with answers from the results alone, with the question.

    python bench/prefill.py [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.diagnostics.dialogue import DIALOGUE
from rkllm_mcp.events import ToolCallDetected, Usage
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.surfaces.cli.config import NewConfiguration

# Prefill of Qwen3-0.6B on an RK3588, tokens per second, 128 / 199 ms (rknn-llm benchmark 1.3.0, published by Rockchip).
PUBLISHED_PREFILL = 643.0
TITLE = "You write a title of at most five words for a conversation."
PROGRAM = "You are an assistant that reads, writes and runs what a person asks for in a folder. " * 150
DEMO = Path(__file__).parents[1] / "models" / "demo"
SETUP_DIALOGUE = (
    *("Hello.", "Who are you?", "What time is it in London?"),
    *("Thank you.", "Good.", "ニューヨークは今何時？"),
    *("ありがとう", "こんにちは", "パリは今何時？"),
    *("Good.", "Hello again.", "What time is it in Berlin?"),
    "Bye.",
)
CONFIG = """
[model]
name = "demo"
[runtime]
library = "emulator"
[[servers]]
name = "time"
command = "${PYTHON}"
args = ["-m", "mcp_server_time"]
"""


@dataclass(frozen=True)
class Prefill:
    """Tokens of one conversation."""

    questions: int
    tool_calls: int
    distinct: int
    ours: int
    cleared: int
    ours_over_distinct: float
    cleared_over_ours: float
    seconds_ours: float
    seconds_cleared: float
    second_session: int
    second_session_prefilled: int
    setup_listed: float
    setup_with_question: float


async def measure_sessions(config_path: str) -> Usage:
    """Play two sessions of a program, each with a question for a title before; return the usage of the second."""
    usages: list[Usage] = []
    async with open_app(load_config(config_path)) as app:
        for question in ("Read the first file.", "Now the second one."):
            for system in (TITLE, PROGRAM):
                conversation = app.new_conversation(system)
                async with aclosing(app.reply(conversation, question, AnswerOptions(tools=False))) as events:
                    usages += [event async for event in events if isinstance(event, Usage)]
    return usages[-1]


async def measure(config_path: str, folder: Path) -> Prefill:
    """Play the conversation and count."""
    calls = 0
    usages: list[Usage] = []
    async with open_app(load_config(config_path)) as app:
        conversation = app.new_conversation()
        for question in DIALOGUE:
            async with aclosing(app.reply(conversation, question)) as events:
                async for event in events:
                    if isinstance(event, Usage):
                        usages.append(event)
                    calls += isinstance(event, ToolCallDetected)
    distinct = usages[-1].prompt_tokens + usages[-1].generated_tokens
    ours = sum(usage.prefilled_tokens for usage in usages)
    cleared = sum(usage.prompt_tokens for usage in usages)
    session = await measure_sessions(config_path)
    return Prefill(
        len(DIALOGUE),
        calls,
        distinct,
        ours,
        cleared,
        round(ours / distinct, 3),
        round(cleared / ours, 2),
        round(ours / PUBLISHED_PREFILL, 2),
        round(cleared / PUBLISHED_PREFILL, 2),
        session.prompt_tokens,
        session.prefilled_tokens,
        await measure_setup(folder, "listed"),
        await measure_setup(folder, "with_question"),
    )


async def measure_setup(folder: Path, tools: str) -> float:
    """Return what is read over what is new from the second question on, with the configuration of ``setup``."""
    model = folder / tools
    shutil.copytree(DEMO, model)
    card = model / "model.toml"
    table, _, rest = card.read_text("utf-8").replace('"demo"', json.dumps(tools)).partition("[")
    # As in the cards of the catalogue.
    answers_from = "facts" if tools == "with_question" else "conversation"
    card.write_text(f'{table}tools = "{tools}"\nanswers_from = "{answers_from}"\n[{rest}', "utf-8")
    file = folder / f"{tools}.toml"
    (folder / "files").mkdir(exist_ok=True)
    file.write_text(NewConfiguration(str(model), "emulator", folder=folder / "files").text(), "utf-8")
    read = new = longest = 0
    async with open_app(load_config(str(file))) as app:
        await app.toolbox.wait_until_started()
        conversation = app.new_conversation()
        for number, question in enumerate(SETUP_DIALOGUE):
            calls = 0
            async with aclosing(app.reply(conversation, question)) as events:
                async for event in events:
                    calls += isinstance(event, ToolCallDetected)
                    if isinstance(event, Usage):
                        read += event.prefilled_tokens if number else 0
                        new += max(0, event.prompt_tokens - longest) if number else 0
                        longest = max(longest, event.prompt_tokens + event.generated_tokens)
            if bool(calls) != (number % 3 == 2):
                raise SystemExit(f"{question!r} made {calls} calls with the tools {tools}")
    return round(read / new, 3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    os.environ.setdefault("RKLLM_EMULATOR_SPEED", "flat")
    with tempfile.TemporaryDirectory() as cache, tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        # The files of earlier runs would be loaded.
        os.environ["XDG_CACHE_HOME"] = cache
        config.write(CONFIG)
        config.flush()
        figures = asdict(asyncio.run(measure(config.name, Path(cache))))
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
