"""What a model makes of questions through the whole product, with real servers: calls, answers, leaks, tokens.

    python -m bench.real_model MODEL [--set six|own] [--tuning | --kept-back | --fresh N] [--language en|ja] [--every N]
    python -m bench.real_model MODEL --beside http://127.0.0.1:8080/v1

MODEL is a model of ``rkllm-mcp models list``, on a board or, with weights behind the emulated NPU, on the CPU. ``six``
are 60 questions with six tools of fixed results. ``own`` are 360 with the configuration that ``setup`` writes, the
knowledge server of the gallery, made-up weather and a made-up board: for each of seven kinds of tools 20 in English and
20 in Japanese, 40 that need no tool, and eight conversations of five turns. ``own/tuning.txt`` may be looked at while
something is built; ``own/kept_back.txt`` was kept back until its tasks set weights. ``--fresh 1`` asks the 64 tasks
and four conversations of ``own/fresh.txt``, written on 2026-11-29 before its first run by somebody who had not read
the product and read by developers since; ``--fresh 2`` the 60 tasks and five conversations of ``own/fresh2.txt``,
written on the same day before its first run by a developer who had read these pages and the first set, but not the
rules' lists of words. ``--every N`` asks each Nth task; ``--out FILE`` keeps a line for each answer, and goes on with a
file that is there. ``--beside`` asks a service with OpenAI's API (llama-server, rkllm-mcp serve) the ``six`` in the
product's place, and runs their tools here.

A line of ``own`` is a question, a pattern of a right answer (``-``: no tool is needed) and, where an answer could be
guessed, a pattern of the result that it has to come from. An answer is useful if it matches, shows neither a call nor
an internal text, and the call that it needs was made; a right number or passage is right without one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
import time
import unicodedata
import zoneinfo
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.six_tools import TOOLS, call, schema
from mcp_servers.knowledge.importing.folders import import_folder
from mcp_servers.knowledge.importing.reader import open_reader
from mcp_servers.knowledge.ingest import DocumentWriter
from mcp_servers.knowledge.library import open_library
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.board.machine import ROOT_VARIABLE
from rkllm_mcp.builtin.calculator import calculate
from rkllm_mcp.builtin.function import LocalToolError
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.editing import add_servers
from rkllm_mcp.config.gallery import server_table
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.events import Text, ToolCallDetected, ToolFinished, Usage
from rkllm_mcp.generation import AnswerOptions, ModelOptions
from rkllm_mcp.messages import Conversation, as_mapping
from rkllm_mcp.sampling import SamplingOverrides
from rkllm_mcp.surfaces.cli.config import NewConfiguration
from rkllm_mcp.text import LANGUAGES
from tests.support.board_trees import RK3588, plant
from tests.support.fake_jma import FakeAgency

SIX = Path(__file__).with_name("real_model_tasks.jsonl")
OWN = Path(__file__).with_name("own")
TUNING, KEPT_BACK = OWN / "tuning.txt", OWN / "kept_back.txt"
FRESH = (OWN / "fresh.txt", OWN / "fresh2.txt")
# Where the people of ``own`` live.
ZONE = "Asia/Tokyo"
DIALOGUE = "dialogue"
_NO_TOOL = "-"
_CALL = re.compile(r'tool_call|tool_response|<\|im_|"arguments"|\{"name"|<tools|\ufffd|</?function')
# What only the program's own texts say, the names of its tools among it.
_INTERNAL = re.compile(
    r"Traceback|\w+Error\b|Errno|ENOENT|unexpected keyword|positional argument|NoneType|pydantic|isError|\bUUID\b"
    r"|unknown tool|knowledge_base_id|The argument '|read_text_file|(?:list|search)_(?:directory|files|documents)"
    r"|get_(?:weather|forecast)|find_(?:area|tools)|convert_units|device_status"
    r"|\{\"\w+\": ?[\"\[{\d]"
)
_NO_ANSWERS = frozenset(translate("answer.no_answer_in_rounds", language) for language in LANGUAGES)
# A fact that the model cannot guess is right however it came.
_CHECKED_BY_ANSWER = {"calculator", "units", "documents"}
_MOST_ROUNDS = 4
_MOST_NEW_TOKENS = 96
_SIX_CONFIG = """
[model]
name = {model}
[runtime]
library = {library}
[agent]
max_rounds = 4
wait_for_servers_s = 60
[security]
approve = "never"
[[servers]]
name = "six"
command = "${{PYTHON}}"
args = ["-m", "bench.six_tools"]
"""


@dataclass(frozen=True)
class Turn:
    """A question with patterns of its answer, of an argument, and of the result that the answer has to come from."""

    question: str
    tools: tuple[str, ...] = ()  # that can answer it; empty for all
    argument: str = ""  # ``=25``: an expression of that value
    answer: str = ""  # empty: any words
    result: str = ""  # empty: ``answer``
    needs_tool: bool = True


@dataclass(frozen=True)
class Task:
    """Turns of one conversation, most often one."""

    set: str
    kind: str
    language: str
    turns: tuple[Turn, ...]
    kept_back: bool = False


def matches(pattern: str, text: str, began: datetime) -> bool:
    """Return True if a text has a pattern; ``{now:Europe/Paris}`` and the like stand for patterns of times."""
    plain = unicodedata.normalize("NFKC", text)
    if re.search(r"\d|\{", pattern):
        plain = re.sub(r"(?<=\d),(?=\d{3})", "", plain)
    pattern = re.sub(r"\{([a-z]+)(?::([^{}]*))?\}", lambda match: _TIMES[match[1]](match[2] or "", began), pattern)
    return re.search(pattern.replace(",?", ""), plain, re.IGNORECASE) is not None


def _here(began: datetime) -> datetime:
    return began.astimezone(zoneinfo.ZoneInfo(ZONE))


def _now(zone: str, began: datetime) -> str:
    """Return a pattern of the times between ``began`` and ten minutes later."""
    here = began.astimezone(zoneinfo.ZoneInfo(zone or ZONE))
    return "|".join(_time_of_day(here + timedelta(minutes=late)) for late in range(10))


def _converted(conversion: str, began: datetime) -> str:
    clock, source, target = conversion.split()
    hour, minute = map(int, clock.split(":"))
    there = began.astimezone(zoneinfo.ZoneInfo(source)).replace(hour=hour, minute=minute)
    return _time_of_day(there.astimezone(zoneinfo.ZoneInfo(target)))


def _time_of_day(moment: datetime) -> str:
    forms: list[str] = []
    for hour in {moment.hour, moment.hour % 12 or 12}:
        forms += [rf"\b0?{hour}:{moment.minute:02d}", rf"(?<!\d)0?{hour}時0?{moment.minute}分"]
        if moment.minute == 0:
            forms += [rf"(?<!\d){hour}時(?!\d)", rf"\b{hour} ?[ap]\.?m"]
    return "|".join(forms)


def _date(day: date) -> str:
    months = rf"(?:{day:%B}|{day:%b})\.?"
    number = rf"0?{day.day}(?:st|nd|rd|th)?"
    return (
        rf"{months} {number}\b|\b{number} (?:of )?{months}|{day:%Y-%m-%d}|(?<!\d)0?{day.month}月0?{day.day}日"
        rf"|(?<!\d){day.month}/{day.day}(?!\d)"
    )


def _until(text: str, began: datetime) -> str:
    month, day = map(int, text.split("-"))
    today = _here(began).date()
    return rf"(?<!\d){(today.replace(month=month, day=day) - today).days}(?!\d)"


def _day(ahead: str, began: datetime) -> date:
    return _here(began).date() + timedelta(days=int(ahead or 0))


def _coming(weekday: str, began: datetime) -> str:
    today = _day("", began)
    return _date(today + timedelta(days=(int(weekday) - today.weekday() - 1) % 7 + 1))


_TIMES: Mapping[str, Callable[[str, datetime], str]] = {
    "now": _now,
    "time": _converted,
    "date": lambda ahead, began: _date(_day(ahead, began)),
    "weekday": lambda ahead, began: f"{'月火水木金土日'[_day(ahead, began).weekday()]}曜|{_day(ahead, began):%A}",
    "coming": _coming,
    "until": _until,
    "month": lambda _, began: f"{_here(began):%B}|{_here(began).month}月",
    "half": lambda _, began: "午後" if _here(began).hour >= 12 else "午前",
}


def has_argument(turn: Turn, arguments: Mapping[str, Any]) -> bool:
    """Return True if the arguments of a call are right."""
    values = " ".join(map(str, arguments.values()))
    if not turn.argument.startswith("="):
        return re.search(turn.argument, values, re.IGNORECASE) is not None
    try:
        return abs(float(calculate(values)) - float(turn.argument[1:])) < 1e-6
    except (LocalToolError, ValueError):
        return False


@dataclass
class Made:
    """A call, and its result once it has one."""

    name: str
    arguments: Mapping[str, Any]
    result: str = ""
    is_error: bool = False


@dataclass
class Outcome:
    """What came of a turn."""

    key: str  # kind, language, number of the task and of the turn
    question: str
    set: str
    kind: str
    language: str
    needs_tool: bool
    called: bool = False  # a tool that can answer was called, now or earlier in the conversation
    right: bool = False  # with right arguments, or with a result that has the fact
    useful: bool = False
    spurious: bool = False  # a call where none was needed
    call_shown: bool = False
    internal_shown: bool = False
    rounds: int = 0
    first_prompt: int = 0  # tokens of the first prompt of the turn
    prefilled: int = 0
    new: int = 0  # tokens of prompts that were never read before
    seconds: float = 0.0
    text: str = ""
    calls: list[Any] = field(default_factory=list[Any])


@dataclass
class Progress:
    """What a conversation has so far."""

    calls: list[Made] = field(default_factory=list[Made])
    longest: int = 0  # tokens of its longest prompt with what was generated after it


def judge(
    task: Task, number: int, made: Sequence[Made], shown: str, text: str, began: datetime, earlier: Sequence[Made] = ()
) -> Outcome:
    """Return the outcome of a turn: ``shown`` is all that a person saw, ``text`` what is after the last call."""
    turn = task.turns[number]
    outcome = Outcome("", turn.question, task.set, task.kind, task.language, turn.needs_tool, text=text)
    outcome.calls = [[each.name, dict(each.arguments), each.result[:300], each.is_error] for each in made]
    fitting = [each for each in (*earlier, *made) if not turn.tools or each.name in turn.tools]
    is_answer = bool(text.strip()) and text.strip() not in _NO_ANSWERS
    outcome.call_shown = _CALL.search(shown) is not None
    outcome.internal_shown = _INTERNAL.search(shown) is not None
    outcome.spurious = not turn.needs_tool and bool(made)
    if turn.needs_tool:
        outcome.called = bool(fitting)
        if task.set == "six":
            outcome.right = any(has_argument(turn, each.arguments) for each in fitting)
        else:
            outcome.right = any(matches(turn.result or turn.answer, each.result, began) for each in fitting)
        needed = outcome.right if turn.result else outcome.called or task.kind in _CHECKED_BY_ANSWER
        is_answer = matches(turn.answer, text, began) and needed
    outcome.useful = is_answer and not outcome.call_shown and not outcome.internal_shown
    return outcome


async def ask(app: App, conversation: Conversation, task: Task, number: int, progress: Progress) -> Outcome:
    """Ask the product a question."""
    began, started = datetime.now().astimezone(), time.monotonic()
    made: dict[str, Made] = {}
    shown, text = "", ""
    usages: list[Usage] = []
    greedy = ModelOptions(max_new_tokens=_MOST_NEW_TOKENS, sampling=SamplingOverrides(temperature=0))
    options = AnswerOptions(greedy, approvals="grant")
    async with aclosing(app.reply(conversation, task.turns[number].question, options)) as events:
        async for event in events:
            if isinstance(event, Text):
                text += event.text
                shown += event.text
            elif isinstance(event, ToolCallDetected):
                made[event.id] = Made(event.name, event.arguments)
                text = ""
            elif isinstance(event, ToolFinished) and event.id in made:
                made[event.id].result, made[event.id].is_error = event.text, event.is_error
            elif isinstance(event, Usage):
                usages.append(event)
    outcome = judge(task, number, [*made.values()], shown, text, began, progress.calls)
    progress.calls += made.values()
    outcome.rounds, outcome.seconds = len(usages), round(time.monotonic() - started, 1)
    outcome.first_prompt = usages[0].prompt_tokens if usages else 0
    for usage in usages:
        outcome.prefilled += usage.prefilled_tokens
        outcome.new += max(0, usage.prompt_tokens - progress.longest)
        progress.longest = max(progress.longest, usage.prompt_tokens + usage.generated_tokens)
    return outcome


async def ask_service(client: httpx2.AsyncClient, model: str, task: Task) -> Outcome:
    """Ask a service with OpenAI's API, and run the six tools here."""
    began, started = datetime.now().astimezone(), time.monotonic()
    tools = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": schema(key, about)}}
        for name, text, key, about in TOOLS
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.turns[0].question}]
    made: list[Made] = []
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
        for each in message["tool_calls"]:
            name, arguments = each["function"]["name"], _arguments(each["function"]["arguments"])
            made.append(Made(name, arguments, call(name, arguments)[0]))
            messages.append({"role": "tool", "tool_call_id": each["id"], "content": made[-1].result})
    outcome = judge(task, 0, made, text, text, began)
    outcome.rounds, outcome.prefilled, outcome.seconds = rounds, prefilled, round(time.monotonic() - started, 1)
    return outcome


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return as_mapping(json.loads(text))
    except ValueError:
        return {}


def read_tasks(files: Iterable[Path] = (TUNING, KEPT_BACK)) -> dict[str, Task]:
    """Return the tasks of ``six`` and of these files of ``own`` by their keys."""
    tasks: dict[str, Task] = {}
    rows: Iterable[dict[str, Any]] = map(json.loads, SIX.read_text("utf-8").splitlines())
    for number, row in enumerate(rows):
        needs_tool = bool(row["tools"])
        turn = Turn(row["question"], tuple(row["tools"]), row["argument"], row["answer"], needs_tool=needs_tool)
        tasks[f"six {number}"] = Task("six", "six", row["language"], (turn,))
    for file in files:
        for section in file.read_text("utf-8").split("\n## ")[1:]:
            title, _, body = section.partition("\n")
            kind, language = title.split()
            blocks = body.strip().split("\n\n") if kind == DIALOGUE else body.strip().splitlines()
            for number, block in enumerate(blocks):
                turns = tuple(map(_turn, block.splitlines()))
                key = f"{file.stem} {kind} {language} {number}"
                tasks[key] = Task("own", kind, language, turns, kept_back=file != TUNING)
    return tasks


def _turn(line: str) -> Turn:
    question, answer, *result = line.split(" => ")
    if answer == _NO_TOOL:
        return Turn(question, needs_tool=False)
    return Turn(question, answer=answer, result=result[0] if result else "")


async def configuration(folder: Path, model: str, library: str, name: str, agency: FakeAgency) -> Config:
    """Write the configuration of a set, with its files, documents, weather and board, and return it."""
    file = folder / "mcp_config.toml"
    if name == "six":
        file.write_text(_SIX_CONFIG.format(model=json.dumps(model), library=json.dumps(library)), "utf-8")
        return load_config(str(file))
    shutil.copytree(OWN / "files", folder / "files")
    async with open_library(folder / "knowledge") as documents, open_reader() as reader:
        base = await documents.create("documents")
        await import_folder(OWN / "documents", DocumentWriter(documents, base.id), reader)
        await documents.wait_idle()
    plant(folder / "board", RK3588)
    text = NewConfiguration(model, library, folder=folder / "files").text()
    weather = ", ".join(f"{name} = {json.dumps(value)}" for name, value in agency.environment(folder / "cache").items())
    file.write_text(re.sub(r"inherit_env = .*", f"env = {{ {weather} }}", text, count=1), "utf-8")
    knowledge = server_table("knowledge", None)
    add_servers(file, [{**knowledge, "args": [*knowledge["args"], "--folder", str(folder / "knowledge")]}])
    return load_config(str(file))


def agency_of_today() -> FakeAgency:
    """Return an agency whose newest forecast is of today."""
    return FakeAgency(now=datetime.now(zoneinfo.ZoneInfo(ZONE)).replace(hour=12, minute=30))


@asynccontextmanager
async def _board_of(root: Path) -> AsyncGenerator[None]:
    """Let the readings of the board come from ``root`` for the duration of the block."""
    before = os.environ.get(ROOT_VARIABLE)
    os.environ[ROOT_VARIABLE] = str(root)
    try:
        yield
    finally:
        del os.environ[ROOT_VARIABLE]
        if before is not None:
            os.environ[ROOT_VARIABLE] = before


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

    async def run(self, tasks: Mapping[str, Task]) -> None:
        """Ask the tasks."""
        if self.beside:
            client = httpx2.AsyncClient(base_url=f"{self.beside.rstrip('/')}/", timeout=600)
            async with client:
                for key, task in tasks.items():
                    self._add([await ask_service(client, self.model, task)], key)
            return
        for name in dict.fromkeys(task.set for task in tasks.values()):
            with tempfile.TemporaryDirectory() as folder, agency_of_today() as agency:
                config = await configuration(Path(folder), self.model, self.library, name, agency)
                async with _board_of(Path(folder) / "board"), open_app(config) as app:
                    await app.ready()
                    await app.toolbox.started()
                    for key, task in tasks.items():
                        if task.set == name:
                            conversation, progress = app.new_conversation(), Progress()
                            turns = range(len(task.turns))
                            self._add([await ask(app, conversation, task, turn, progress) for turn in turns], key)

    def _add(self, outcomes: Sequence[Outcome], key: str) -> None:
        for number, outcome in enumerate(outcomes):
            outcome.key = f"{key} {number}"
        self.outcomes += outcomes
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(asdict(outcome), ensure_ascii=False)}\n" for outcome in outcomes)
        for outcome in outcomes if self.shows else ():
            state = "ok" if outcome.useful and not outcome.spurious else "--"
            calls = [(name, arguments) for name, arguments, *_ in outcome.calls]
            print(f"{state} {outcome.seconds:5.0f} s  {outcome.question}  {calls}  {outcome.text!r:.160}", flush=True)


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the counts of a table row."""
    with_tool = [outcome for outcome in outcomes if outcome.needs_tool]
    without = [outcome for outcome in outcomes if not outcome.needs_tool]
    first = [outcome for outcome in outcomes if outcome.key.endswith(" 0")]
    later = [outcome for outcome in outcomes if not outcome.key.endswith(" 0")]
    return {
        "with a tool": len(with_tool),
        "called": sum(outcome.called for outcome in with_tool),
        "right": sum(outcome.right for outcome in with_tool),
        "useful": sum(outcome.useful for outcome in with_tool),
        "without": len(without),
        "spurious": sum(outcome.spurious for outcome in without),
        "answered": sum(outcome.useful for outcome in without),
        "calls shown": sum(outcome.call_shown for outcome in outcomes),
        "internal texts": sum(outcome.internal_shown for outcome in outcomes),
        "rounds": round(sum(outcome.rounds for outcome in outcomes) / max(1, len(outcomes)), 2),
        "first prompt": round(sum(outcome.first_prompt for outcome in first) / max(1, len(first))),
        "read, first": round(sum(outcome.prefilled for outcome in first) / max(1, len(first))),
        "read, later": round(sum(outcome.prefilled for outcome in later) / max(1, len(later))),
        "read over new": round(sum(each.prefilled for each in later) / max(1, sum(each.new for each in later)), 2),
    }


def groups(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Return the outcomes of each kind and language, of each language, and all."""
    titled = [
        (title, outcome)
        for outcome in sorted(outcomes, key=lambda outcome: (outcome.kind, outcome.language))
        for title in (f"{outcome.kind} {outcome.language}", f"all {outcome.language}", "all")
    ]
    titles = sorted(dict.fromkeys(title for title, _ in titled), key=lambda title: title.startswith("all"))
    return {title: [outcome for other, outcome in titled if other == title] for title in titles}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a name of 'models list'; with --beside, the name in the request")
    parser.add_argument("--runtime", default="auto", help="the runtime library, as in [runtime] library")
    parser.add_argument("--set", choices=["six", "own"], help="one set; without it both")
    parser.add_argument("--kind", help="one kind of tasks of own")
    parser.add_argument("--language", choices=["en", "ja"])
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--tuning", action="store_true", help="without the tasks that are kept back")
    half.add_argument("--kept-back", action="store_true", help="only those")
    half.add_argument("--fresh", type=int, choices=[1, 2], help="only the tasks of a set that nothing was tuned to")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth task")
    parser.add_argument("--most", type=int, default=None, metavar="N", help="ask N tasks now; --out goes on later")
    parser.add_argument("--beside", default="", metavar="URL", help="a service with OpenAI's API")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep a line for each answer")
    parser.add_argument("--show", action="store_true", help="print each answer")
    options = parser.parse_args()
    os.environ["TZ"] = ZONE
    time.tzset()
    measurement = Measurement(options.model, options.runtime, options.beside, options.out, options.show)
    measurement.read()
    name = "six" if options.beside else options.set
    number: int | None = options.fresh
    wanted = {
        key: task
        for key, task in read_tasks([FRESH[number - 1]] if number else [TUNING, KEPT_BACK]).items()
        if name in {None, task.set}
        and options.kind in {None, task.kind}
        and options.language in {None, task.language}
        and not (options.tuning and task.kept_back)
        and not ((options.kept_back or number) and not task.kept_back)
    }
    known = {outcome.key.rpartition(" ")[0] for outcome in measurement.outcomes}
    keys = [key for key in [*wanted][:: options.every] if key not in known]
    anyio.run(measurement.run, {key: wanted[key] for key in keys[: options.most]})
    rows = {title: figures(group) for title, group in groups(measurement.outcomes).items()}
    for row, counts in rows.items():
        print(row)
        print("   ", ", ".join(f"{title} {value}" for title, value in counts.items()))


if __name__ == "__main__":
    main()
