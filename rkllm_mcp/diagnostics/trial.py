"""A trial of a model: questions through the whole product or to another service, and the counts of what came of them.

    TrialTask ─▶ ask(app, …) or ask_with_six_tools(client, …) ─▶ judge ─▶ TrialOutcome ─▶ figures

``read_six`` are 60 questions with the six tools of ``diagnostics.six_tools``. ``bench/real_model.py`` has more tasks.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from rkllm_mcp.app.assistant import App
from rkllm_mcp.builtin.calculator import calculate
from rkllm_mcp.builtin.function import LocalToolError
from rkllm_mcp.catalogue import translate
from rkllm_mcp.diagnostics.six_tools import TOOLS, call
from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import Text, ToolCallDetected, ToolFinished, Usage
from rkllm_mcp.generation import AnswerOptions, ModelOptions
from rkllm_mcp.messages import Conversation, as_mapping
from rkllm_mcp.sampling import SamplingOverrides
from rkllm_mcp.text import LANGUAGES

SIX = Path(__file__).with_name("six_tasks.jsonl")
# Where the people of the questions live.
ZONE = "Asia/Tokyo"
_CALL = re.compile(r'tool_call|tool_response|<\|im_|"arguments"|\{"name"|<tools|\ufffd|</?function')
# What only the program's own texts say, the names of its tools among it.
_INTERNAL = re.compile(
    r"Traceback|\w+Error\b|Errno|ENOENT|unexpected keyword|positional argument|NoneType|pydantic|isError|\bUUID\b"
    r"|unknown tool|knowledge_base_id|The argument '|read_text_file|(?:list|search)_(?:directory|files|documents)"
    r"|get_(?:weather|forecast)|find_(?:area|tools)|convert_units|device_status"
    r"|\{\"\w+\": ?[\"\[{\d]"
)
_NO_ANSWERS = frozenset(translate("answer.no_answer_in_rounds", language) for language in LANGUAGES)
# A fact that the model cannot guess is right however it came; in a conversation it may be of a passage too.
_CHECKED_BY_ANSWER = {"calculator", "units", "documents", "dialogue"}
_MOST_ROUNDS = 4
MOST_NEW_TOKENS = 96
GREEDY = AnswerOptions(
    ModelOptions(max_new_tokens=MOST_NEW_TOKENS, sampling=SamplingOverrides(temperature=0)), approvals="grant"
)


@dataclass(frozen=True)
class TrialTurn:
    """A question with patterns of its answer, of an argument, and of the result that the answer has to come from."""

    question: str
    tools: tuple[str, ...] = ()  # that can answer it; empty for all
    argument: str = ""  # ``=25``: an expression of that value
    answer: str = ""  # empty: any words
    result: str = ""  # empty: ``answer``
    needs_tool: bool = True


@dataclass(frozen=True)
class TrialTask:
    """Turns of one conversation, most often one."""

    set: str
    kind: str
    language: str
    turns: tuple[TrialTurn, ...]
    kept_back: bool = False


def matches(pattern: str, text: str, began: datetime) -> bool:
    """Return True if a text has a pattern; ``{now:Europe/Paris}`` and the like stand for patterns of times."""
    plain = unicodedata.normalize("NFKC", text)
    if re.search(r"\d|\{", pattern):
        plain = re.sub(r"(?<=\d),(?=\d{3})", "", plain)
    times = r"\{([a-z]+)(?::([^{}]*))?\}"
    pattern = re.sub(times, lambda match: _time_pattern(match[1], match[2] or "", began), pattern)
    return re.search(pattern.replace(",?", ""), plain, re.IGNORECASE) is not None


def _time_pattern(kind: str, text: str, began: datetime) -> str:
    """Return the pattern of a time or a day, as it is where the trial began; ``text`` says which."""
    here = began.astimezone(zoneinfo.ZoneInfo(ZONE))
    today = here.date()
    moments: list[datetime] = []
    match kind:
        case "now":  # between ``began`` and ten minutes later, in the time zone of ``text``
            there = began.astimezone(zoneinfo.ZoneInfo(text or ZONE))
            moments = [there + timedelta(minutes=late) for late in range(10)]
        case "time":  # a time of one zone in another
            clock, source, target = text.split()
            hour, minute = map(int, clock.split(":"))
            there = began.astimezone(zoneinfo.ZoneInfo(source)).replace(hour=hour, minute=minute)
            moments = [there.astimezone(zoneinfo.ZoneInfo(target))]
        case "weekday":
            day = today + timedelta(days=int(text or 0))
            return f"{'月火水木金土日'[day.weekday()]}曜|{day:%A}"
        case "until":  # the number of days
            month, day_of_month = map(int, text.split("-"))
            return rf"(?<!\d){(today.replace(month=month, day=day_of_month) - today).days}(?!\d)"
        case "month":
            return f"{here:%B}|{here.month}月"
        case "half":
            return "午後" if here.hour >= 12 else "午前"
        case "date" | "coming":  # in so many days, or the next day that is this day of the week
            days = int(text or 0) if kind == "date" else (int(text) - today.weekday() - 1) % 7 + 1
            day = today + timedelta(days=days)
            months, number = rf"(?:{day:%B}|{day:%b})\.?", rf"0?{day.day}(?:st|nd|rd|th)?"
            return (
                rf"{months} {number}\b|\b{number} (?:of )?{months}|{day:%Y-%m-%d}|(?<!\d)0?{day.month}月0?{day.day}日"
                rf"|(?<!\d){day.month}/{day.day}(?!\d)"
            )
        case _:
            raise KeyError(kind)
    forms: list[str] = []
    for moment in moments:
        for hour in {moment.hour, moment.hour % 12 or 12}:
            forms += [rf"\b0?{hour}:{moment.minute:02d}", rf"(?<!\d)0?{hour}時0?{moment.minute}分"]
            if moment.minute == 0:
                forms += [rf"(?<!\d){hour}時(?!\d)", rf"\b{hour} ?[ap]\.?m"]
    return "|".join(forms)


@dataclass
class MadeCall:
    """A call, and its result once it has one."""

    name: str
    arguments: Mapping[str, Any]
    result: str = ""
    is_error: bool = False


@dataclass
class TrialOutcome:
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
    corrections: int = 0  # of tokens in held calls
    seconds: float = 0.0
    text: str = ""
    calls: list[Any] = field(default_factory=list[Any])


@dataclass
class TrialProgress:
    """What a conversation has so far."""

    calls: list[MadeCall] = field(default_factory=list[MadeCall])
    longest: int = 0  # tokens of its longest prompt with what was generated after it


def judge(
    task: TrialTask,
    number: int,
    made: Sequence[MadeCall],
    shown: str,
    text: str,
    began: datetime,
    earlier: Sequence[MadeCall] = (),
) -> TrialOutcome:
    """Return the outcome of a turn: ``shown`` is all that a person saw, ``text`` what is after the last call."""
    turn = task.turns[number]
    outcome = TrialOutcome("", turn.question, task.set, task.kind, task.language, turn.needs_tool, text=text)
    outcome.calls = [[call.name, dict(call.arguments), call.result[:300], call.is_error] for call in made]
    fitting = [call for call in (*earlier, *made) if not turn.tools or call.name in turn.tools]
    is_answer = bool(text.strip()) and text.strip() not in _NO_ANSWERS
    outcome.call_shown = _CALL.search(shown) is not None
    outcome.internal_shown = _INTERNAL.search(shown) is not None
    outcome.spurious = not turn.needs_tool and bool(made)
    if turn.needs_tool:
        outcome.called = bool(fitting)
        if task.set == "six":
            for call in fitting:
                values = " ".join(map(str, call.arguments.values()))
                if not turn.argument.startswith("="):
                    outcome.right |= re.search(turn.argument, values, re.IGNORECASE) is not None
                    continue
                with suppress(LocalToolError, ValueError):
                    outcome.right |= abs(float(calculate(values)) - float(turn.argument[1:])) < 1e-6
        else:
            outcome.right = any(matches(turn.result or turn.answer, call.result, began) for call in fitting)
        # Passages that are put into a turn are shown after the answer, and no call has them.
        has_fact = outcome.right or matches(turn.result, text, began)
        needed = has_fact if turn.result else outcome.called or task.kind in _CHECKED_BY_ANSWER
        is_answer = matches(turn.answer, text, began) and needed
    outcome.useful = is_answer and not outcome.call_shown and not outcome.internal_shown
    return outcome


async def ask(
    app: App, conversation: Conversation, task: TrialTask, number: int, progress: TrialProgress
) -> TrialOutcome:
    """Ask the product a question."""
    began, started = datetime.now().astimezone(), time.monotonic()
    calls: dict[str, MadeCall] = {}
    answer_text, text = "", ""
    usages: list[Usage] = []
    async with aclosing(app.reply(conversation, task.turns[number].question, GREEDY)) as events:
        async for event in events:
            if isinstance(event, Text):
                text += event.text
                answer_text += event.text
            elif isinstance(event, ToolCallDetected):
                calls[event.id] = MadeCall(event.name, event.arguments)
                text = ""
            elif isinstance(event, ToolFinished) and event.id in calls:
                calls[event.id].result, calls[event.id].is_error = event.text, event.is_error
            elif isinstance(event, Usage):
                usages.append(event)
    outcome = judge(task, number, [*calls.values()], answer_text, text, began, progress.calls)
    progress.calls += calls.values()
    outcome.rounds, outcome.seconds = len(usages), round(time.monotonic() - started, 1)
    outcome.first_prompt = usages[0].prompt_tokens if usages else 0
    for usage in usages:
        outcome.prefilled += usage.prefilled_tokens
        outcome.corrections += usage.corrections
        outcome.new += max(0, usage.prompt_tokens - progress.longest)
        progress.longest = max(progress.longest, usage.prompt_tokens + usage.generated_tokens)
    return outcome


@dataclass
class ServiceAnswer:
    """What a service with OpenAI's API answered, with the six tools run here."""

    text: str = ""  # after the last call
    calls: list[MadeCall] = field(default_factory=list[MadeCall])
    rounds: int = 0
    prompt_tokens: int = 0
    cached_tokens: int | None = None  # as the service reports them; None if it does not
    first_token_ms: float | None = None  # of the first round; None if nothing came
    seconds: float = 0.0


async def ask_with_six_tools(
    client: httpx2.AsyncClient, model: str, messages: list[dict[str, Any]], question: str
) -> ServiceAnswer:
    """Ask a service, run the tools that it calls, and add all of it to ``messages``, which it gets with each request.

    Raises:
        UsageError: the service refuses a request, or does not answer as OpenAI's API does.
    """
    messages.append({"role": "user", "content": question})
    answer = ServiceAnswer()
    started = time.monotonic()
    while answer.rounds < _MOST_ROUNDS:
        answer.rounds += 1
        try:
            message = await _round_of_service(client, model, messages, answer, started)
        except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
            remedy = "start the other host, and name its address as in http://127.0.0.1:8080/v1"
            raise UsageError(f"{client.base_url} gives no answer ({type(error).__name__}: {error}); {remedy}") from None
        messages.append(message)
        answer.text = message["content"] or ""
        if not message.get("tool_calls"):
            break
        for wire_call in message["tool_calls"]:
            name = wire_call["function"]["name"]
            arguments: Mapping[str, Any] = {}
            with suppress(ValueError):
                arguments = as_mapping(json.loads(wire_call["function"]["arguments"]))
            answer.calls.append(MadeCall(name, arguments, call(name, arguments)[0]))
            messages.append({"role": "tool", "tool_call_id": wire_call["id"], "content": answer.calls[-1].result})
    answer.seconds = time.monotonic() - started
    return answer


async def _round_of_service(
    client: httpx2.AsyncClient, model: str, messages: list[dict[str, Any]], answer: ServiceAnswer, started: float
) -> dict[str, Any]:
    """Return the message of one streamed completion, and count it in ``answer``."""
    tools = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
        for name, text, schema in TOOLS
    ]
    body = {
        "model": model,
        "messages": messages,
        "tools": tools,
        "temperature": 0,
        "max_tokens": MOST_NEW_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    text = ""
    calls: dict[int, dict[str, Any]] = {}
    async with client.stream("POST", "chat/completions", json=body) as response:
        if response.is_error:
            await response.aread()
            response.raise_for_status()
        async for line in response.aiter_lines():
            data = line.partition("data:")[2].strip()
            if not line.startswith("data:") or data in {"", "[DONE]"}:
                continue
            chunk = as_mapping(json.loads(data))
            if usage := as_mapping(chunk.get("usage")):
                answer.prompt_tokens += int(usage.get("prompt_tokens") or 0)
                cached = as_mapping(usage.get("prompt_tokens_details")).get("cached_tokens")
                if cached is not None:
                    answer.cached_tokens = (answer.cached_tokens or 0) + int(cached)
            for choice in chunk.get("choices") or ():
                delta = as_mapping(choice.get("delta"))
                content = delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")
                if content and answer.first_token_ms is None:
                    answer.first_token_ms = (time.monotonic() - started) * 1000
                text += delta.get("content") or ""
                for part in delta.get("tool_calls") or ():
                    wire_call = calls.setdefault(part.get("index") or 0, {})
                    wire_call["id"] = wire_call.get("id") or part.get("id") or ""
                    function = wire_call.setdefault("function", {"name": "", "arguments": ""})
                    for key in function:
                        function[key] += as_mapping(part.get("function")).get(key) or ""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [{"type": "function", **wire_call} for _, wire_call in sorted(calls.items())]
    return message


def read_six() -> dict[str, TrialTask]:
    """Return the tasks with the six tools by their keys."""
    rows: Iterable[dict[str, Any]] = map(json.loads, SIX.read_text("utf-8").splitlines())
    tasks: dict[str, TrialTask] = {}
    for number, row in enumerate(rows):
        needs_tool = bool(row["tools"])
        turn = TrialTurn(row["question"], tuple(row["tools"]), row["argument"], row["answer"], needs_tool=needs_tool)
        tasks[f"six {number}"] = TrialTask("six", "six", row["language"], (turn,))
    return tasks


def figures(outcomes: Sequence[TrialOutcome]) -> dict[str, float]:
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
        "corrections": sum(outcome.corrections for outcome in outcomes),
        "rounds": round(sum(outcome.rounds for outcome in outcomes) / max(1, len(outcomes)), 2),
        "first prompt": round(sum(outcome.first_prompt for outcome in first) / max(1, len(first))),
        "read, first": round(sum(outcome.prefilled for outcome in first) / max(1, len(first))),
        "read, later": round(sum(outcome.prefilled for outcome in later) / max(1, len(later))),
        "read over new": round(sum(turn.prefilled for turn in later) / max(1, sum(turn.new for turn in later)), 2),
    }
