"""Tools, calls, approvals, resources, prompts and conversations as tables, for the chat and the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, cast

from rkllm_mcp.catalogue import Catalogue, read_catalogue
from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import PromptTemplate, Resource, ResourceTemplate, ToolSpec
from rkllm_mcp.records import CallRecord, ConversationSummary, MemoryRow, Schedule
from rkllm_mcp.schedules.rules import describe_moment, describe_rule, read_rule, read_zone
from rkllm_mcp.schedules.runner import upcoming
from rkllm_mcp.surfaces.terminal import Terminal, printable, wrap
from rkllm_mcp.text import collapse_whitespace, first_line, moment, shorten

# Of a call's arguments, and of its error.
_SHOWN_CHARS = 60
_SHOWN_DESCRIPTION_CHARS = 80
_SHOWN_TOOL_CHARS = 120


def tool_table(tools: Sequence[ToolSpec], terminal: Terminal) -> str:
    """Return tools as a table: name, server, beginning of the description."""
    translated = [tool.in_language(terminal.language) for tool in tools]
    rows = [(tool.name, tool.server, shorten(first_line(tool.description), _SHOWN_TOOL_CHARS)) for tool in translated]
    return terminal.table(("NAME", "SERVER", "DESCRIPTION"), rows)


def tool_text(tool: ToolSpec, terminal: Terminal) -> str:
    """Return one tool with its parameters as text."""
    texts, columns = read_catalogue(terminal.language), terminal.columns
    required_word = texts.sentence("answer.required")
    tool = tool.in_language(terminal.language)
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    required: Sequence[str] = tool.input_schema.get("required") or ()
    rows: list[tuple[str, ...]] = []
    for name, part in properties.items():
        # JSON Schema also knows true and false.
        schema: Mapping[str, Any] = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}
        kinds: Any = schema.get("type", "any")
        if "enum" in schema:
            kinds = [json.dumps(value, ensure_ascii=False) for value in schema["enum"]]
        kind = " | ".join(map(str, cast("list[Any]", kinds))) if isinstance(kinds, list) else str(kinds)
        word = required_word if name in required else ""
        rows.append((f"  {name}", kind, word, str(schema.get("description", ""))))
    description = printable(tool.description.strip())
    lines = description.split("\n")
    if columns is not None:
        description = "\n".join(part for line in lines for part in wrap(line, columns))
    head = f"{tool.name}  ({tool.qualified_name})\n{description}\n"
    return f"{head}\n{terminal.table((), rows)}" if rows else f"{head}\n{texts.sentence('tools.no_arguments')}\n"


def grant_table(grants: Sequence[tuple[str, str, str]], terminal: Terminal) -> str:
    """Return approvals and refusals (decision, server, tool) as a table; empty without rows."""
    rows = [(terminal.word(decision), server, tool) for decision, server, tool in grants]
    return terminal.table(("DECISION", "SERVER", "TOOL"), rows)


def call_table(calls: Sequence[CallRecord], terminal: Terminal, *, is_short: bool = False) -> str:
    """Return recorded calls as a table, a short one without server, date and arguments; empty without rows."""
    texts = read_catalogue(terminal.language)
    rows: list[tuple[str, ...]] = []
    for call in calls:
        result = texts.sentence("tools.characters", count=call.result_chars)
        if call.is_error:
            result = shorten(texts.sentence("answer.failed", error=texts.phrase(call.error)), _SHOWN_CHARS)
        at, outcome = call_time(call), (call.tool, terminal.word(call.ruling), f"{call.seconds:.1f}", result)
        if is_short:
            rows.append((at.strftime("%H:%M:%S"), *outcome))
        else:
            arguments = shorten(call.arguments, _SHOWN_CHARS)
            rows.append((at.strftime("%Y-%m-%d %H:%M:%S"), call.server or "-", *outcome, arguments))
    heading = ("TOOL", "DECISION", "SECONDS", "RESULT")
    return terminal.table(("TIME", *heading) if is_short else ("TIME", "SERVER", *heading, "ARGUMENTS"), rows)


def call_time(call: CallRecord) -> datetime:
    """Return the local time of a call, to the second."""
    return datetime.fromtimestamp(call.at, timezone.utc).astimezone().replace(microsecond=0)


def resource_table(resources: Sequence[Resource], templates: Sequence[ResourceTemplate], terminal: Terminal) -> str:
    """Return resources, then templates, as a table with the names used after ``@``; empty without rows."""
    rows: list[tuple[str, str, str, str]] = []
    for offered in (*resources, *templates):
        about = shorten(first_line(offered.description or offered.name), _SHOWN_DESCRIPTION_CHARS)
        if isinstance(offered, Resource):
            size = "" if offered.size is None else f"{offered.size} {terminal.word('bytes')}"
            rows.append((offered.reference, offered.mime_type, size, about))
        else:
            rows.append((f"{offered.server}:{offered.uri_template}", offered.mime_type, "", about))
    return terminal.table(("RESOURCE", "TYPE", "SIZE", "DESCRIPTION"), rows)


def prompt_table(prompts: Sequence[PromptTemplate], terminal: Terminal) -> str:
    """Return prompts with their arguments as a table, optional ones in brackets; empty without rows."""
    rows = [
        (
            prompt.reference,
            " ".join(argument.name if argument.required else f"[{argument.name}]" for argument in prompt.arguments),
            shorten(first_line(prompt.description), _SHOWN_DESCRIPTION_CHARS),
        )
        for prompt in prompts
    ]
    return terminal.table(("PROMPT", "ARGUMENTS", "DESCRIPTION"), rows)


def conversation_table(summaries: Sequence[ConversationSummary], terminal: Terminal) -> str:
    """Return conversations as a table; empty without rows."""
    rows = [(summary.title, moment(summary.updated), str(summary.messages), summary.id) for summary in summaries]
    return terminal.table(("TITLE", "LAST", "MESSAGES", "ID"), rows)


def schedule_table(schedules: Sequence[Schedule], terminal: Terminal) -> str:
    """Return schedules as a table; empty without rows."""
    rows = [
        (
            shorten(collapse_whitespace(schedule.prompt), _SHOWN_CHARS),
            describe_rule(read_rule(schedule.rule), terminal.language),
            terminal.word(schedule.state)
            if schedule.next_at is None
            else describe_moment(schedule.next_at, read_zone(schedule.zone), terminal.language),
            schedule.id,
        )
        for schedule in schedules
    ]
    return terminal.table(("SCHEDULE", "WHEN", "NEXT", "ID"), rows)


def schedule_lines(schedule: Schedule, now: float, texts: Catalogue) -> list[str]:
    """Return what a person should read before a schedule is stored: its words, its rule and its next three times."""
    kind = "schedules.is_reminder" if schedule.is_reminder else "schedules.is_question"
    rule, zone = describe_rule(read_rule(schedule.rule), texts.language), schedule.zone
    times = ", ".join(upcoming(schedule, now, texts.language))
    return [
        texts.sentence(kind, prompt=schedule.prompt),
        texts.sentence("schedules.when", rule=rule, zone=zone),
        texts.sentence("schedules.next", times=times),
    ]


def memory_table(rows: Sequence[MemoryRow], terminal: Terminal) -> str:
    """Return what is remembered as a table; empty without rows."""
    marks = ["proposed" if row.state == "proposed" else "always" if row.is_pinned else "" for row in rows]
    cells = [
        (row.text, terminal.word(mark) if mark else "", moment(row.created), row.id)
        for row, mark in zip(rows, marks, strict=True)
    ]
    return terminal.table(("REMEMBERED", "ALWAYS", "SINCE", "ID"), cells)


def read_pairs(
    words: Sequence[str], separator: str = "=", advice: str = "write NAME=VALUE, in quotes where there are spaces"
) -> dict[str, str]:
    """Parse ``key=value`` words; ``advice`` ends the UsageError of another form."""
    pairs: dict[str, str] = {}
    for word in words:
        key, has_separator, value = word.partition(separator)
        if not has_separator or not key:
            raise UsageError(f"{word!r} has no {separator!r} behind a name; {advice}")
        pairs[key] = value
    return pairs


def switched_line(texts: Catalogue, server: str, tool: str | None, *, is_on: bool) -> str:
    """Return the line that confirms a switch of a tool, or of a whole server."""
    if tool is None:
        return texts.sentence("chat.server_on" if is_on else "chat.server_off", server=server)
    return texts.sentence("chat.tool_on" if is_on else "chat.tool_off", tool=tool, server=server)
