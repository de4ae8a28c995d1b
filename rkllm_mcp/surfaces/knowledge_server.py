"""The knowledge server as a command reaches it: over MCP alone, whichever way the configuration says.

It is the first server of the configuration that is one, else one that is started for the command, with the folder that
it has when nobody says another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio

from rkllm_mcp.calling import CallContext
from rkllm_mcp.errors import ServerUnavailableError, ToolboxError, ToolTimeoutError, UsageError
from rkllm_mcp.surfaces.servers import require_mcp
from rkllm_mcp.surfaces.session import Session, run_async

if TYPE_CHECKING:
    from rkllm_mcp.config import Config, ServerConfig
    from rkllm_mcp.inspection import Toolbox

Facts: TypeAlias = dict[str, Any]

_NAME = "knowledge"
_MODULE = "mcp_servers.knowledge"
_PROGRAM = "rkllm-mcp-knowledge"
# The server's own settings begin so.
_VARIABLES = "KNOWLEDGE_"
# A folder of scanned books takes its time; without an end nothing waits.
_CALL_TIMEOUT_S = 24 * 3600.0
LISTING = "'rkllm-mcp knowledge list' shows them"


class Knowledge:
    """The knowledge server, connected.

    Args:
        toolbox: has it alone.
        session: is told how far something is.
    """

    def __init__(self, toolbox: Toolbox, session: Session) -> None:
        (self._server,) = toolbox.connections
        self._session = session

    async def available(self) -> None:
        """Wait until it can be asked.

        Raises:
            ServerUnavailableError: it cannot.
        """
        try:
            await self._server.available()
        except ServerUnavailableError as error:
            # Such as a library that is not installed; whoever reads it need not start the server to see it.
            said = "".join(f" It said: {line}" for line in self._server.notes.shown()[-1:])
            raise ServerUnavailableError(f"Failed to connect to the knowledge server: {error}{said}") from error

    async def call(self, tool: str, **arguments: Any) -> Facts:
        """What a tool answers.

        Raises:
            ToolboxError: it failed, with its own sentence.
        """

        async def tell(done: float, total: float | None, message: str | None) -> None:
            if self._session.terminal.shows_progress:
                how_far = f"{done:g}/{total:g} " if total else ""
                self._session.status(f"{how_far}{message or ''}")

        given = {name: value for name, value in arguments.items() if value not in ("", None)}
        context = CallContext(on_progress=tell, tokens=self._session.tokens)
        with anyio.move_on_after(_CALL_TIMEOUT_S):
            result = await self._server.call(tool, given, context)
            if result["isError"]:
                raise ToolboxError(_text(result))
            return cast("Facts", result.get("structuredContent") or {})
        raise ToolTimeoutError(f"'{tool}' took longer than {_CALL_TIMEOUT_S:g} s; give it less at once")

    async def base_id(self, wanted: str) -> str:
        """The id of a knowledge base.

        Args:
            wanted: its id or name; empty for the only one.

        Raises:
            UsageError: there is none, or several.
        """
        named = self.named(await self.bases(), wanted)
        if len(named) == 1:
            return named[0]["knowledge_base_id"]
        if not named:
            raise UsageError(f"there is no knowledge base {wanted!r}; {LISTING}")
        if wanted:
            raise UsageError(f"several knowledge bases are called {wanted!r}; give the id of one, {LISTING}")
        raise UsageError(f"there are several knowledge bases; name one with --base, {LISTING}")

    async def bases(self) -> list[Facts]:
        """Every knowledge base.

        Raises:
            UsageError: there is none.
        """
        found = (await self.call("list_knowledge_bases"))["knowledge_bases"]
        if not found:
            raise UsageError("there is no knowledge base yet; 'rkllm-mcp knowledge create NAME' makes one")
        return found

    @staticmethod
    def named(bases: Sequence[Facts], wanted: str) -> list[Facts]:
        """Those of an id or a name; all of them for none."""
        return [b for b in bases if wanted in ("", b["knowledge_base_id"]) or b["name"].casefold() == wanted.casefold()]


def knowledge_server(config: Config) -> ServerConfig:
    """The server that the commands speak to: the configuration's first that is one, else one of our own."""
    from rkllm_mcp.config.servers import StdioServer

    for server in config.servers:
        started = " ".join((server.command, *server.args)) if isinstance(server, StdioServer) else ""
        if server.name == _NAME or _MODULE in started or _PROGRAM in started:
            return server
    variables = tuple(name for name in os.environ if name.startswith(_VARIABLES))
    return StdioServer(
        name=_NAME, command=sys.executable, args=("-m", _MODULE), inherit_env=("XDG_DATA_HOME", *variables)
    )


def with_knowledge(session: Session, work: Callable[[Knowledge], Awaitable[int]]) -> int:
    """Connect the server and do ``work``; returns its exit code.

    Raises:
        ServerUnavailableError: there is no connection.
    """
    from rkllm_mcp.inspection import open_tools

    config = session.config()
    require_mcp(config)
    # Whoever types a command has chosen the tool; what a model may be shown is another question.
    server = knowledge_server(config).model_copy(
        update={"enabled": True, "allowed_tools": None, "excluded_tools": (), "lazy": False, "auto_context_tool": None}
    )
    alone = config.model_copy(update={"servers": (server,)})
    tokens = session.tokens

    async def connected() -> int:
        async with open_tools(alone) as toolbox:
            await toolbox.connected()
            async with toolbox.attending(tokens):
                knowledge = Knowledge(toolbox, session)
                await knowledge.available()
                return await work(knowledge)

    return run_async(connected)


def _text(result: Mapping[str, Any]) -> str:
    said = "\n".join(str(block.get("text", "")) for block in result["content"]).strip()
    return said or "the knowledge server failed without saying why; its log says more"
