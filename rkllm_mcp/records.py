"""Values stored between runs (calls, approvals, switches, conversations), their ports."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from rkllm_mcp.catalogue import translate
from rkllm_mcp.messages import ApprovalOutcome, StoredTurn
from rkllm_mcp.text import LANGUAGES, Language

GrantKind: TypeAlias = Literal["always", "never", "configured"]
# Decisions after which the result is a sentence of the host, not of the tool.
_NOT_RUN: tuple[ApprovalOutcome, ...] = ("deny", "never", "refused", "off", "stopped")
NOT_STORED = "[not stored: keep_results is off in [service]]"


def without_result(item: dict[str, Any]) -> dict[str, Any]:
    """Return an event, or an item of the Responses API, without the text of a tool's result."""
    if item.get("kind") == "tool_result" and item["text"] and item.get("ruling") not in _NOT_RUN:
        return {**item, "text": "", "omitted": True}
    if item.get("kind") == "sources":
        return {**item, "items": [{**source, "passage": ""} for source in item["items"]]}
    if item.get("type") == "mcp_call":
        return {**item, **{name: NOT_STORED for name in ("output", "error") if item.get(name)}}
    return item


def without_results(turn: StoredTurn) -> StoredTurn:
    """Return a turn without the results of tools: those of its calls, and those before a question."""
    events = json.loads(turn.events or "[]")
    less = [without_result(event) for event in events]
    stored = turn.events if less == events else json.dumps(less, ensure_ascii=False, separators=(",", ":"))
    # Results of automatic tools before a question, as ``agent.instructions`` writes them in each language.
    marks = (translate("model.found", language).split("\n") for language in LANGUAGES)
    pattern = "|".join(f"{re.escape(begin)}\n.*?\n{re.escape(end)}\n*" for begin, end in marks)
    context = re.sub(pattern, "", turn.context, flags=re.DOTALL)
    return replace(turn, context=context.strip(), events=stored)


def recalled_block(rows: Sequence[MemoryRow], language: Language) -> str:
    """Return rows as the model reads them before a question, in the language of the question."""
    return "\n".join([translate("model.recalled", language), *(f"- {row.text}" for row in rows)])


def recalled_texts(context: str) -> list[str]:
    """Return the rows that were recalled in the context of a question, whose last part they are."""
    lines = context.split("\n")
    headings = {translate("model.recalled", language) for language in LANGUAGES}
    end = max((number for number, line in enumerate(lines, 1) if line in headings), default=len(lines))
    rows = lines[end:]
    return [row[2:] for row in rows] if all(row.startswith("- ") for row in rows) else []


def without_recalled(context: str, text: str) -> str:
    """Return the context of a question without a row of what was recalled, and without the heading of none."""
    lines = context.split("\n")
    headings = {translate("model.recalled", language) for language in LANGUAGES}
    begin = next((index for index, line in enumerate(lines) if line in headings), None)
    if begin is None:
        return context
    rows = [line for line in lines[begin + 1 :] if line != f"- {text}"]
    is_empty = not rows or not rows[0].startswith("- ")
    return "\n".join([*lines[:begin], *([] if is_empty else [lines[begin]]), *rows]).strip()


def without_row(turn: StoredTurn, text: str) -> StoredTurn:
    """Return a stored turn without a row that was recalled for it, or shown with it."""
    events = json.loads(turn.events or "[]")
    less: list[dict[str, Any]] = []
    for event in events:
        if event.get("kind") == "memories":
            event = {**event, "rows": [row for row in event["rows"] if row["text"] != text]}
        if event.get("rows") != []:
            less.append(event)
    stored = turn.events if less == events else json.dumps(less, ensure_ascii=False, separators=(",", ":"))
    return replace(turn, context=without_recalled(turn.context, text), events=stored if less else "")


@dataclass(frozen=True)
class CallRecord:
    """Record of a finished tool call; texts are redacted and truncated."""

    at: float  # end of the call, seconds since 1970
    server: str  # empty for tools without a server
    tool: str  # wire name
    arguments: str  # compact JSON
    ruling: ApprovalOutcome
    is_error: bool = False
    error: str = ""  # first line of the error
    result_chars: int = 0
    seconds: float = 0.0  # without the wait for a person
    conversation: str = ""
    request: str = ""  # the user's text that caused the call


# Stores a record; returns at once and never raises.
CallRecorder: TypeAlias = Callable[[CallRecord], None]
# Returns (user's text, ``mcp__server__tool``) of up to so many good calls, newest first; never raises.
PastCalls: TypeAlias = Callable[[int], Awaitable[Sequence[tuple[str, str]]]]


@dataclass(frozen=True)
class StoredApproval:
    """Permanent decision about a tool; valid for one ``fingerprint`` of its definition."""

    kind: GrantKind  # configured: allowed by ``always_allow``
    fingerprint: str


@dataclass(frozen=True)
class Switch:
    """On/off switch of a tool, or of a whole server."""

    server: str
    tool: str  # wire name; empty for the whole server
    is_on: bool | None  # None removes the switch, so that the server's or the configuration's setting applies


@dataclass(frozen=True)
class StoredConversation:
    """A stored conversation; times are seconds since 1970."""

    id: str
    title: str
    created: float  # time of the first question
    updated: float  # end of the last answer
    turns: tuple[StoredTurn, ...]
    system: str | None = None  # overrides the configured system prompt
    calls_made: int = 0  # number of call ids in use
    settings: str = ""  # options of its questions, JSON
    pinned: bool = False
    # Of each question with several versions, by position: the number of the one in ``turns``, from 1, and their count.
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])


@dataclass(frozen=True)
class ConversationSummary:
    """A stored conversation without its text; ``messages`` is the number of turns."""

    id: str
    title: str
    created: float
    updated: float
    messages: int
    pinned: bool = False
    passage: str = ""  # the text around the search words; empty if only the title contains them


# The longest row of a memory, in characters, and the most rows of a person.
LONGEST_ROW = 160
MOST_ROWS = 200
MemoryState: TypeAlias = Literal["kept", "proposed"]


@dataclass(frozen=True)
class MemoryRow:
    """What a person wants to be remembered in all their conversations."""

    id: str
    text: str  # one line in the person's own words
    language: str = "en"
    is_pinned: bool = False  # every conversation begins with it; others are recalled for the questions they fit
    state: MemoryState = "kept"  # a proposal of the model is not used before the person has agreed
    source: str = ""  # id of the conversation in which it was said; empty if it was typed elsewhere
    created: float = 0.0  # seconds since 1970
    used: float = 0.0  # when it was recalled last; 0 for never


@dataclass(frozen=True)
class Device:
    """A device of the owner that has a key."""

    id: str
    name: str  # its own name for itself
    linked: float  # Unix time at which it got the key
    rights: tuple[str, ...] = ()  # those of a key for a program; empty for all, as linked devices have
    parent: str = ""  # id of the device, or name of the configured key, that made the key; empty for the owner


@dataclass(frozen=True)
class KeyedRequest:
    """A request that its client named with an ``Idempotency-Key``."""

    body: str  # digest of what was asked
    conversation: str = ""
    position: int = 0  # of its question in the conversation
    response: str = ""  # id of its stored response
    board: str = ""  # the process that answers or has answered
    is_over: bool = False

    def as_json(self) -> str:
        """Return it as it is stored."""
        return json.dumps(vars(self))


# active: it runs at its next time; paused: not until it is resumed; done: it had one time, which is over.
ScheduleState: TypeAlias = Literal["active", "paused", "done"]
# waiting: claimed, not begun; quiet: there was nothing to report; needs_yes: a call needed a person; missed: it was due
# while the board was off for too long; interrupted: its process ended in the middle; paused: too many failures.
RunOutcome: TypeAlias = Literal[
    "waiting", "running", "answered", "quiet", "reminded", "needs_yes", "failed", "missed", "interrupted", "paused"
]
WebhookForm: TypeAlias = Literal["json", "text"]


@dataclass(frozen=True)
class Schedule:
    """Something that is asked of the model, or said to a person, by a rule of time; times are seconds since 1970."""

    id: str
    prompt: str  # what is asked of the model, or the text of the reminder
    rule: str  # see ``schedules.rules``
    zone: str  # IANA name
    language: Language = "en"  # of notices
    is_reminder: bool = False  # its text is a notice; no model is asked
    is_quiet: bool = False  # nothing is shown when there is nothing to report
    tools: tuple[str, ...] = ()  # tools that it may call without asking, in addition to those that only read
    webhook: str = ""  # address that gets each result; empty for none
    webhook_form: WebhookForm = "json"
    secret: str = field(default="", repr=False)  # signs what the webhook gets
    conversation: str = ""  # of its results; empty before the first one
    next_at: float | None = None
    state: ScheduleState = "active"
    failures: int = 0  # in a row
    created: float = 0.0


@dataclass(frozen=True)
class ScheduleRun:
    """One run of a schedule; times are seconds since 1970."""

    number: int  # grows with each run of all schedules
    id: str
    schedule: str
    due: float
    claimed: float
    ended: float | None
    outcome: RunOutcome
    text: str  # the answer, the reminder, or the reason
    delivery: str  # what became of the webhook; empty without one
    conversation: str  # that has the answer; empty for none
    board: str  # process that has claimed or runs it
