"""What is remembered about tools: ``rkllm-mcp tools history``, ``enable``, ``disable`` and ``approvals``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from rkllm_mcp.errors import UsageError
from rkllm_mcp.records import CallRecord
from rkllm_mcp.surfaces.chat_phrases import ENGLISH, ChatPhrases
from rkllm_mcp.surfaces.servers import require_mcp
from rkllm_mcp.surfaces.session import EXIT_DONE, Session, run_async
from rkllm_mcp.surfaces.table import table
from rkllm_mcp.surfaces.tools import write_json

if TYPE_CHECKING:
    from rkllm_mcp.config import Config
    from rkllm_mcp.inspection import Memory, Toolbox

_SHOWN_ARGUMENTS = 60
_SHOWN_ERROR = 60


@dataclass(frozen=True)
class HistoryWish:
    """Which calls to show.

    Args:
        limit: at most so many, the latest.
        server: of this server alone; of all when None.
        errors_only: those that failed or were refused.
    """

    limit: int = 20
    server: str | None = None
    errors_only: bool = False


def history(session: Session, wish: HistoryWish, *, as_json: bool) -> int:
    """Print the latest calls of tools, newest first."""
    from rkllm_mcp.inspection import open_remembered

    async def work() -> int:
        async with open_remembered(session.config()) as memory:
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
    from rkllm_mcp.inspection import open_tools_and_memory

    config = session.config()
    require_mcp(config)
    servers = {server.name for server in config.servers}
    # Of a server nothing has to be known; the tools of the others are asked for.
    needed = config.only_servers(()) if servers.issuperset(names) else config

    async def work() -> int:
        async with open_tools_and_memory(needed, session.status, required=True) as equipment:
            await equipment.toolbox.connected()
            for name in names:
                session.status(turn(equipment.toolbox, config, name, is_on=is_on))
            await equipment.memory.settled()
        return EXIT_DONE

    return run_async(work)


def turn(toolbox: Toolbox, config: Config, name: str, phrases: ChatPhrases = ENGLISH, *, is_on: bool) -> str:
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
    from rkllm_mcp.inspection import open_remembered

    async def work() -> int:
        async with open_remembered(session.config()) as memory:
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


async def forget(memory: Memory, name: str, phrases: ChatPhrases = ENGLISH) -> list[str]:
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
