"""What a model makes of 120 tasks through the whole product, with real servers: calls, answers, leaks, tokens.

    python -m bench.real_model MODEL [--set six|own] [--tuning | --kept-back] [--language en|ja] [--every N]
    python -m bench.real_model MODEL --beside http://127.0.0.1:8080/v1

MODEL is a model of ``rkllm-mcp models list``, on a board or, with weights behind the emulated NPU, on the CPU. Of the
tasks of a set two thirds need a tool; ``six`` are asked with six tools of fixed results, ``own`` with the clock, the
calculator, the units, a folder, the weather and the knowledge server that come with rkllm-mcp. Half of ``own`` is kept
back: nothing was set by its results. ``--beside`` asks a service with OpenAI's API (llama-server, rkllm-mcp serve) the
``six`` in the product's place, and runs their tools here. ``--every N`` asks each Nth task; ``--out FILE`` keeps a line
for each, and goes on with a file that is there.

An answer is useful if it states the fact, has no markup of calls in it and every call it needed was made.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.own_words import read_office
from bench.six_tools import TOOLS, call, schema
from mcp_servers.knowledge.library import open_library
from mcp_servers.knowledge.types import NewChunk, NewDocument
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.builtin.calculator import calculate
from rkllm_mcp.builtin.function import LocalToolError
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.events import Text, ToolCallDetected, Usage
from rkllm_mcp.generation import AnswerOptions, ModelOptions, SamplingOverrides
from rkllm_mcp.messages import as_mapping
from rkllm_mcp.text import LANGUAGES

FILE = Path(__file__).with_name("real_model_tasks.jsonl")
REPOSITORY = FILE.parents[1]
_LEAK = re.compile(r'tool_call|tool_response|<\|im_|"arguments"|\{"name"|<tools|\ufffd|</?function')
_NO_ANSWERS = frozenset(translate("answer.no_answer_in_rounds", language) for language in LANGUAGES)
_MOST_ROUNDS = 4
_MOST_NEW_TOKENS = 96
_FILES = {
    "plan.txt": "Tuesday 14:00 dentist, Dr. Mori\nThursday parents' evening\n",
    "recipe.txt": "Pancakes: 200 g flour (小麦粉), 2 eggs, 300 ml milk.\n",
    "letter.txt": "佐藤さんへ\n4月に札幌へ引っ越します。新しい住所は決まり次第お知らせします。\n",
}
_CONFIG = """
[model]
name = {model}
[runtime]
library = {library}
[agent]
max_rounds = 4
wait_for_servers_s = 60
[security]
approve = "never"
{servers}
"""
_SIX = """
[[servers]]
name = "six"
command = "${PYTHON}"
args = ["-m", "bench.six_tools"]
"""
_OWN = """
[[servers]]
name = "board"
transport = "builtin"
tools = [{ name = "clock" }, { name = "calculator" }, { name = "convert_units" }]
[[servers]]
name = "files"
transport = "builtin"
folder = "files"
[[servers]]
name = "weather"
command = "${PYTHON}"
args = ["-m", "mcp_servers.weather"]
env = { WEATHER_SAMPLE = "1", JMA_BASE_URL = "http://127.0.0.1:9" }
[[servers]]
name = "knowledge"
command = "${PYTHON}"
args = [
    "-m", "mcp_servers.knowledge", "--folder", "FOLDER", "--embedder", "hashing", "--default-base", "rules",
    "--default-results", "2", "--text", "passages",
]
allowed_tools = ["search_documents"]
"""


@dataclass(frozen=True)
class Task:
    """A question, the tools that can answer it (none: no tool is needed), and patterns of argument and answer."""

    set: str
    language: str
    question: str
    tools: tuple[str, ...] = ()
    argument: str = ""  # ``=25``: an expression of that value
    answer: str = ""
    kept_back: bool = False

    def has_argument(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if the arguments of a call are right."""
        values = " ".join(map(str, arguments.values()))
        if not self.argument.startswith("="):
            return re.search(self.argument, values, re.IGNORECASE) is not None
        try:
            return abs(float(calculate(values)) - float(self.argument[1:])) < 1e-6
        except (LocalToolError, ValueError):
            return False

    def is_answered(self, text: str, began: datetime) -> bool:
        """Return True if an answer states the fact."""
        plain = text.replace(",", "") if re.search(r"\d", self.answer) else text
        pattern = self.answer.replace(",?", "")
        pattern = re.sub(r"\{(\w+):?([\w/]*)\}", lambda match: _at(match[1], match[2], began), pattern)
        return re.search(pattern, plain, re.IGNORECASE) is not None


def _at(kind: str, zone: str, began: datetime) -> str:
    """Return a pattern of the time, the date or the day of the week between ``began`` and now."""
    here = began.astimezone(zoneinfo.ZoneInfo(zone)) if zone else began.astimezone()
    if kind == "date":
        return rf"{here:%B} {here.day}\b|\b{here.day} {here:%B}|{here:%Y-%m-%d}|{here.month}月{here.day}日"
    if kind == "weekday":
        return f"{'月火水木金土日'[here.weekday()]}曜"
    minutes = [here + timedelta(minutes=late) for late in range(10)]
    return "|".join(
        rf"\b0?{hour}:{each.minute:02d}|\b{hour}時{each.minute:02d}分|\b{hour}時{each.minute}分"
        for each in minutes
        for hour in {each.hour, each.hour % 12 or 12}
    )


@dataclass
class Outcome:
    """What came of a task."""

    question: str
    set: str
    language: str
    needs_tool: bool
    called: bool = False  # a tool that can answer was called
    right: bool = False  # with right arguments
    useful: bool = False
    spurious: bool = False  # a call where none was needed
    leaked: bool = False
    extra_rounds: int = 0  # more rounds than the least: one, or two with a tool
    prefilled: int = 0
    seconds: float = 0.0
    text: str = ""
    calls: list[Any] = field(default_factory=list[Any])


def judge(
    task: Task, calls: Sequence[tuple[str, Mapping[str, Any]]], text: str, rounds: int, began: datetime
) -> Outcome:
    """Return the outcome of an answer."""
    outcome = Outcome(task.question, task.set, task.language, bool(task.tools), text=text, calls=list(calls))
    fitting = [arguments for name, arguments in calls if name in task.tools]
    outcome.called = bool(fitting)
    outcome.right = any(map(task.has_argument, fitting))
    outcome.leaked = _LEAK.search(text) is not None
    outcome.spurious = not task.tools and bool(calls)
    is_answer = bool(text.strip()) and text.strip() not in _NO_ANSWERS
    is_right = task.is_answered(text, began) and outcome.called if task.tools else is_answer
    outcome.useful = is_right and not outcome.leaked
    outcome.extra_rounds = max(0, rounds - (2 if task.tools else 1))
    return outcome


async def ask(app: App, task: Task) -> Outcome:
    """Ask the product a question in a new conversation."""
    began, started = datetime.now().astimezone(), time.monotonic()
    calls: list[tuple[str, Mapping[str, Any]]] = []
    text, rounds, prefilled = "", 0, 0
    greedy = ModelOptions(max_new_tokens=_MOST_NEW_TOKENS, sampling=SamplingOverrides(temperature=0))
    options = AnswerOptions(greedy, approvals="grant", waits_for_servers=True)
    async with aclosing(app.reply(app.new_conversation(), task.question, options)) as events:
        async for event in events:
            if isinstance(event, Text):
                text += event.text
            elif isinstance(event, ToolCallDetected):
                calls.append((event.name, event.arguments))
                text = ""
            elif isinstance(event, Usage):
                rounds += 1
                prefilled += event.prefilled_tokens
    outcome = judge(task, calls, text, rounds, began)
    outcome.prefilled, outcome.seconds = prefilled, round(time.monotonic() - started, 1)
    return outcome


async def ask_service(client: httpx2.AsyncClient, model: str, task: Task) -> Outcome:
    """Ask a service with OpenAI's API, and run the six tools here."""
    began, started = datetime.now().astimezone(), time.monotonic()
    tools = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": schema(key, about)}}
        for name, text, key, about in TOOLS
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.question}]
    calls: list[tuple[str, Mapping[str, Any]]] = []
    text, rounds, prefilled = "", 0, 0
    while rounds < _MOST_ROUNDS:
        body = {"model": model, "messages": messages, "tools": tools, "temperature": 0, "max_tokens": _MOST_NEW_TOKENS}
        answer = await client.post("chat/completions", json=body)
        response: dict[str, Any] = answer.raise_for_status().json()
        rounds += 1
        usage = as_mapping(response.get("usage"))
        cached = as_mapping(usage.get("prompt_tokens_details")).get("cached_tokens") or 0
        prefilled += int(usage.get("prompt_tokens", 0)) - int(cached)
        message = response["choices"][0]["message"]
        text = message.get("content") or ""
        if not message.get("tool_calls"):
            break
        messages.append({"role": "assistant", "content": text or None, "tool_calls": message["tool_calls"]})
        for made in message["tool_calls"]:
            name, arguments = made["function"]["name"], _arguments(made["function"]["arguments"])
            calls.append((name, arguments))
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": call(name, arguments)[0]})
    outcome = judge(task, calls, text, rounds, began)
    outcome.prefilled, outcome.seconds = prefilled, round(time.monotonic() - started, 1)
    return outcome


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return as_mapping(json.loads(text))
    except ValueError:
        return {}


def read_tasks() -> list[Task]:
    """Return every task."""
    rows: Iterable[dict[str, Any]] = map(json.loads, FILE.read_text("utf-8").splitlines())
    return [Task(tools=tuple(row.pop("tools")), **row) for row in rows]


async def configuration(folder: Path, model: str, library: str, name: str) -> Config:
    """Write the configuration of a set, with its files and documents, and return it."""
    servers = _SIX
    if name == "own":
        (folder / "files").mkdir()
        for title, text in _FILES.items():
            (folder / "files" / title).write_text(text, "utf-8")
        async with open_library(folder / "knowledge") as library_of_rules:
            base = await library_of_rules.create("rules")
            for number, (title, text) in enumerate(read_office()[0].items()):
                await library_of_rules.add(base.id, NewDocument(title, (NewChunk(text),), f"{number:08x}", uri=title))
        servers = _OWN.replace("FOLDER", str(folder / "knowledge"))
    file = folder / "mcp_config.toml"
    text = _CONFIG.format(model=json.dumps(model), library=json.dumps(library), servers=servers)
    file.write_text(text, "utf-8")
    return load_config(str(file))


@dataclass
class Measurement:
    """What is asked of whom, and the outcomes so far."""

    model: str
    library: str = "auto"
    beside: str = ""  # a service in the product's place
    out: Path | None = None
    shows: bool = False
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def read(self) -> None:
        """Read the outcomes of earlier runs."""
        if self.out is not None and self.out.exists():
            self.outcomes = [Outcome(**json.loads(line)) for line in self.out.read_text("utf-8").splitlines()]

    async def run(self, tasks: Sequence[Task]) -> None:
        """Ask the tasks."""
        if self.beside:
            client = httpx2.AsyncClient(base_url=f"{self.beside.rstrip('/')}/", timeout=600)
            async with client:
                for task in tasks:
                    self._add(await ask_service(client, self.model, task))
            return
        for name in dict.fromkeys(task.set for task in tasks):
            with tempfile.TemporaryDirectory() as folder:
                config = await configuration(Path(folder), self.model, self.library, name)
                async with open_app(config) as app:
                    await app.ready()
                    for task in (task for task in tasks if task.set == name):
                        self._add(await ask(app, task))

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
        if self.shows:
            state = "ok" if outcome.useful and not outcome.spurious else "--"
            print(
                f"{state} {outcome.seconds:5.0f} s  {outcome.question}  {outcome.calls}  {outcome.text!r:.160}",
                flush=True,
            )


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the counts of a table row."""
    with_tool = [outcome for outcome in outcomes if outcome.needs_tool]
    without = [outcome for outcome in outcomes if not outcome.needs_tool]
    count = max(1, len(outcomes))
    return {
        "tasks with a tool": len(with_tool),
        "called": sum(outcome.called for outcome in with_tool),
        "right arguments": sum(outcome.right for outcome in with_tool),
        "useful answers": sum(outcome.useful for outcome in with_tool),
        "tasks without": len(without),
        "spurious calls": sum(outcome.spurious for outcome in without),
        "answered": sum(outcome.useful for outcome in without),
        "leaks": sum(outcome.leaked for outcome in outcomes),
        "extra rounds per task": round(sum(outcome.extra_rounds for outcome in outcomes) / count, 2),
        "prefilled per task": round(sum(outcome.prefilled for outcome in outcomes) / count),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a name of 'models list'; with --beside, the name in the request")
    parser.add_argument("--runtime", default="auto", help="the runtime library, as in [runtime] library")
    parser.add_argument("--set", choices=["six", "own"], help="one set; without it both")
    parser.add_argument("--language", choices=["en", "ja"])
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--tuning", action="store_true", help="without the tasks that are kept back")
    half.add_argument("--kept-back", action="store_true", help="only those")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth task")
    parser.add_argument("--most", type=int, default=None, metavar="N", help="ask N tasks now; --out goes on later")
    parser.add_argument("--beside", default="", metavar="URL", help="a service with OpenAI's API")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep a line for each task")
    parser.add_argument("--show", action="store_true", help="print each answer")
    options = parser.parse_args()
    measurement = Measurement(options.model, options.runtime, options.beside, options.out, options.show)
    measurement.read()
    name = "six" if options.beside else options.set
    tasks = [task for task in read_tasks() if name in {None, task.set} and options.language in {None, task.language}]
    if options.tuning or options.kept_back:
        tasks = [task for task in tasks if task.kept_back == options.kept_back]
    known = {outcome.question for outcome in measurement.outcomes}
    tasks = [task for task in tasks[:: options.every] if task.question not in known]
    anyio.run(measurement.run, tasks[: options.most])
    for title, value in figures(measurement.outcomes).items():
        print(f"{title:22} {value}")


if __name__ == "__main__":
    main()
