"""What is remembered about tools: ``rkllm-mcp tools history``, ``enable``, ``disable`` and ``approvals``."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import ToolFinished, event_to_json
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.protocols import Approver, CallContext, FixedApprover
from rkllm_mcp.records import CallRecord
from rkllm_mcp.surfaces.chat.forms import FormPrompt, Person, is_interactive
from rkllm_mcp.surfaces.chat.input import ConsoleAnswers
from rkllm_mcp.surfaces.chat.phrases import CHAT_ENGLISH, ChatPhrases
from rkllm_mcp.surfaces.cli.run import unknown_tool
from rkllm_mcp.surfaces.cli.servers import require_mcp
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session, run_async
from rkllm_mcp.surfaces.terminal import printable, table, write_json

if TYPE_CHECKING:
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.store import Store
    from rkllm_mcp.tools.toolbox import Toolbox


def list_all(session: Session, *, as_json: bool) -> int:
    """Print every tool that a model is shown."""

    async def work(toolbox: Toolbox) -> int:
        tools = toolbox.tools()
        if as_json:
            write_json([tool_dict(tool) for tool in tools])
        else:
            sys.stdout.write(tool_table(tools, session.terminal.columns))
            off = [tool.name for tool in toolbox.tools(disabled=True)]
            if off:
                session.status(f"Switched off: {', '.join(off)}; 'rkllm-mcp tools enable NAME' switches one on.")
            elif not tools:
                session.status("No tools; 'rkllm-mcp servers test' says why.")
        return EXIT_DONE

    return with_tools(session, work)


def show(session: Session, name: str, *, as_json: bool) -> int:
    """Print one tool."""

    async def work(toolbox: Toolbox) -> int:
        tool = found_tool(toolbox, name)
        if as_json:
            write_json(tool_dict(tool))
        else:
            sys.stdout.write(tool_text(tool, session.terminal.columns))
        return EXIT_DONE

    return with_tools(session, work)


def read_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as people type them: one JSON object, or ``key=value`` for each.

    A value is JSON where the tool's schema wants something else than a string, and text where it wants one.

    Raises:
        UsageError: a word is neither.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            return cast("dict[str, Any]", json.loads(words[0]))
        except json.JSONDecodeError as error:
            raise UsageError(f"the arguments are not JSON: {error.msg} at column {error.colno}; mend them") from None
    properties: Mapping[str, Any] = schema.get("properties") or {}
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{word!r} is no argument; write KEY=VALUE, or all of them as one JSON object in quotes")
        arguments[key] = _argument(text, properties.get(key))
    return arguments


def _argument(text: str, schema: Any) -> Any:
    wanted: Any = cast("Mapping[str, Any]", schema).get("type") if isinstance(schema, Mapping) else None
    if wanted == "string":
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def tool_table(tools: Sequence[ToolSpec], columns: int | None = None) -> str:
    """The tools as lines for a person: name, server, the first line of what it does."""
    rows = [(tool.name, tool.server, tool.description.strip().split("\n", 1)[0][:100]) for tool in tools]
    return table(("NAME", "SERVER", "DESCRIPTION"), rows, columns)


def tool_text(tool: ToolSpec, columns: int | None = None) -> str:
    """One tool for a person."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    required: Sequence[str] = tool.input_schema.get("required") or ()
    rows = [
        (f"  {name}", _type_of(schema), "required" if name in required else "", str(schema.get("description", "")))
        for name, schema in ((name, _table(schema)) for name, schema in properties.items())
    ]
    head = f"{tool.name}  ({tool.qualified_name})\n{printable(tool.description.strip())}\n"
    return f"{head}\n{table((), rows, columns)}" if rows else f"{head}\nno arguments\n"


def _table(schema: Any) -> Mapping[str, Any]:
    """A schema as a table; JSON Schema also knows true and false."""
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _type_of(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    kind: Any = schema.get("type", "any")
    return " | ".join(str(part) for part in cast("list[Any]", kind)) if isinstance(kind, list) else str(kind)


def tool_dict(tool: ToolSpec) -> dict[str, Any]:
    """One tool for a program."""
    return {
        "name": tool.name,
        "qualified_name": tool.qualified_name,
        "server": tool.server,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "read_only": tool.read_only,
        "destructive": tool.destructive,
    }


def found_tool(toolbox: Toolbox, name: str) -> ToolSpec:
    """The tool of that name.

    Raises:
        UsageError: there is none.
    """
    tool = toolbox.resolve(name)
    if tool is None:
        raise unknown_tool(name, toolbox.suggest(name))
    return tool


def with_tools(session: Session, work: Callable[[Toolbox], Awaitable[int]]) -> int:
    """Connect the servers, wait until each is there or has failed, and do ``work``; returns its exit code."""
    from rkllm_mcp.app.preview import open_toolbox_only

    config = session.config()
    require_mcp(config)
    tokens = session.tokens

    async def connected() -> int:
        async with open_toolbox_only(config, session.status) as toolbox:
            await toolbox.connected()
            async with toolbox.attending(tokens):
                return await work(toolbox)

    return run_async(connected)


_SAY_YES = "Say --yes to allow it."
_NOT_RUN = f"Error: it was not run, because it may change something and nobody could be asked. {_SAY_YES}"


def call(session: Session, name: str, words: Sequence[str], *, as_json: bool, yes: bool) -> int:
    """Call one tool and print what it answers."""
    is_piped = list(words) == ["-"]
    given = [sys.stdin.buffer.read().decode("utf-8", "replace")] if is_piped else words
    asker = _asker(session, yes=yes, can_ask=not is_piped)
    context = CallContext(asker=asker, tokens=session.tokens)

    async def work(toolbox: Toolbox) -> int:
        tool = found_tool(toolbox, name)
        arguments = read_arguments(given, tool.input_schema)
        result = await toolbox.call(ToolCall("call_1", tool.name, arguments), context)
        if as_json:
            seconds = round(result.seconds, 3)
            event = ToolFinished(result.call_id, result.name, result.is_error, result.text, seconds, result.truncated)
            sys.stdout.write(f"{event_to_json(event)}\n")
        elif result.is_error:
            session.terminal.error(_NOT_RUN if result.ruling == "refused" else f"Error: {result.text}")
        else:
            sys.stdout.write(f"{printable(result.text)}\n")
        sys.stdout.flush()
        return EXIT_ANSWER_FAILED if result.is_error else EXIT_DONE

    return with_tools(session, work)


def _asker(session: Session, *, yes: bool, can_ask: bool) -> Approver:
    from rkllm_mcp.app.preview import asking_language

    if yes:
        return FixedApprover("once")
    if can_ask and is_interactive():
        language = asking_language(session.config())
        return Person(FormPrompt(session.terminal, ConsoleAnswers(session.terminal), language))
    return FixedApprover("deny", _SAY_YES)


_SHOWN_ARGUMENTS = 60
_SHOWN_ERROR = 60


@dataclass(frozen=True)
class HistoryQuery:
    """Which calls to show.

    Args:
        limit: at most so many, the latest.
        server: of this server alone; of all when None.
        errors_only: those that failed or were refused.
    """

    limit: int = 20
    server: str | None = None
    errors_only: bool = False


def history(session: Session, wish: HistoryQuery, *, as_json: bool) -> int:
    """Print the latest calls of tools, newest first."""
    from rkllm_mcp.app.preview import open_stored

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            calls = await memory.calls.latest(wish.limit, server=wish.server, errors_only=wish.errors_only)
        if as_json:
            write_json([{**asdict(call), "at": _moment(call).isoformat()} for call in calls])
            return EXIT_DONE
        sys.stdout.write(call_table(calls, session.terminal.columns))
        if not calls:
            session.status("No calls are recorded.")
        return EXIT_DONE

    return run_async(work)


def switch(session: Session, names: Sequence[str], *, is_on: bool) -> int:
    """Switch tools or servers on or off, for this and every later run."""
    from rkllm_mcp.app.preview import open_toolbox_and_store

    config = session.config()
    require_mcp(config)
    servers = {server.name for server in config.servers}
    # Of a server nothing has to be known; the tools of the others are asked for.
    needed = config.only_servers(()) if servers.issuperset(names) else config

    async def work() -> int:
        async with open_toolbox_and_store(needed, session.status, required=True) as equipment:
            await equipment.toolbox.connected()
            for name in names:
                session.status(turn_switch(equipment.toolbox, config, name, is_on=is_on))
            await equipment.memory.settled()
        return EXIT_DONE

    return run_async(work)


def turn_switch(
    toolbox: Toolbox, config: Config, name: str, phrases: ChatPhrases = CHAT_ENGLISH, *, is_on: bool
) -> str:
    """Switch a tool or a server; the line that says so.

    Args:
        toolbox: whose tool.
        config: whose server.
        name: of either.
        phrases: in which words.
        is_on: from now on.

    Raises:
        ToolboxError: there is neither a tool nor a server of that name.
    """
    # Whoever names a server does not mean another one's tool that is called like it.
    if name in {server.name for server in config.servers}:
        toolbox.switches.turn_server(name, is_on=is_on)
        return (phrases.server_on if is_on else phrases.server_off).format(server=name)
    (tool,) = toolbox.enable(name) if is_on else toolbox.disable(name)
    return (phrases.tool_on if is_on else phrases.tool_off).format(tool=tool.name, server=tool.server)


def approvals(session: Session, names: Sequence[str], *, as_json: bool) -> int:
    """Print what was allowed or refused for good, or take back what was said about ``names``."""
    from rkllm_mcp.app.preview import open_stored

    async def work() -> int:
        async with open_stored(session.config()) as memory:
            for name in names:
                for line in await forget(memory, name):
                    session.status(line)
            given = await memory.grants.all()
        if names:
            return EXIT_DONE
        if as_json:
            write_json([{"decision": grant.kind, "server": server, "tool": tool} for server, tool, grant in given])
        else:
            kinds = [(grant.kind, server, tool) for server, tool, grant in given]
            sys.stdout.write(grant_table(kinds, session.terminal.columns))
            if not given:
                session.status("Nothing is allowed or refused for good.")
        return EXIT_DONE

    return run_async(work)


async def forget(memory: Store, name: str, phrases: ChatPhrases = CHAT_ENGLISH) -> list[str]:
    """Take back what was allowed or refused for good about a tool, or all tools of a server; a line about each.

    Raises:
        UsageError: nothing is remembered about it.
        StoreError: what is remembered cannot be read or written.
    """
    given = await memory.grants.all()
    meant = meant_by(name, [(server, tool) for server, tool, _ in given])
    if not meant:
        raise UsageError(f"nothing is remembered about {name!r}; 'rkllm-mcp tools approvals' lists what is")
    for server, tool in meant:
        await memory.grants.forget(server, tool)
    return [phrases.forgotten.format(tool=tool, server=server) for server, tool in meant]


def meant_by(name: str, given: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Which of these (server, tool) a name means: a tool in either spelling, or all tools of a server."""
    return [(server, tool) for server, tool in given if name in (tool, server, f"mcp__{server}__{tool}")]


def grant_table(given: Sequence[tuple[str, str, str]], columns: int | None = None) -> str:
    """What was said beyond one call, as decision, server and tool, for a person; empty when nothing was."""
    return table(("DECISION", "SERVER", "TOOL"), given, columns)


def call_table(calls: Sequence[CallRecord], columns: int | None = None) -> str:
    """Recorded calls for a person; empty when there are none."""
    return table(("TIME", "SERVER", "TOOL", "DECISION", "SECONDS", "RESULT", "ARGUMENTS"), _rows(calls), columns)


def short_call_table(calls: Sequence[CallRecord], columns: int | None = None) -> str:
    """The same without what a person remembers who has just watched them."""
    rows = [
        (_moment(call).strftime("%H:%M:%S"), call.tool, call.ruling, f"{call.seconds:.1f}", _result(call))
        for call in calls
    ]
    return table(("TIME", "TOOL", "DECISION", "SECONDS", "RESULT"), rows, columns)


def _result(call: CallRecord) -> str:
    return _cut(f"error: {call.error}", _SHOWN_ERROR) if call.is_error else f"{call.result_chars} characters"


def _rows(calls: Sequence[CallRecord]) -> list[tuple[str, ...]]:
    return [
        (
            _moment(call).strftime("%Y-%m-%d %H:%M:%S"),
            call.server or "-",
            call.tool,
            call.ruling,
            f"{call.seconds:.1f}",
            _result(call),
            _cut(call.arguments, _SHOWN_ARGUMENTS),
        )
        for call in calls
    ]


def _moment(call: CallRecord) -> datetime:
    return datetime.fromtimestamp(call.at, timezone.utc).astimezone().replace(microsecond=0)


def _cut(text: str, limit_chars: int) -> str:
    return text if len(text) <= limit_chars else f"{text[: limit_chars - 1]}…"
