"""The knowledge server as the commands use it: which one, and its tools."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import anyio

from rkllm_mcp.app.environment import ToolEnvironment
from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import ServerConfig, StdioServer, is_knowledge
from rkllm_mcp.errors import ServerUnavailableError, ToolboxError, ToolTimeoutError, UsageError
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.surfaces.cli.options import require_mcp
from rkllm_mcp.surfaces.invocation import Session

Facts: TypeAlias = dict[str, Any]

_NAME = "knowledge"
_MODULE = "mcp_servers.knowledge"
# The server's own settings begin so.
_VARIABLES = "KNOWLEDGE_"
# A folder of scanned books takes its time; without an end nothing waits.
_CALL_TIMEOUT_S = 24 * 3600.0
_PAGE = 1000
# Beginning of the server's refusal of a path that is on the machine of the server.
_NO_PATHS = "The path is not read: it is on the server's machine"
_PART_BYTES = 1_000_000
_FIRST_BASE = "documents"
LISTING = "'rkllm-mcp knowledge list' shows them"


class Knowledge:
    """Connection to the knowledge server."""

    def __init__(self, environment: ToolEnvironment, session: Session) -> None:
        (self._server,) = environment.toolbox.connections
        self._session = session

    async def call(self, tool: str, **arguments: Any) -> Facts:
        """Call a tool and return its structured result; a failure is a ToolboxError with the server's message."""

        async def show_progress(amount: float, total: float | None, message: str | None) -> None:
            if self._session.terminal.shows_progress:
                how_far = f"{amount:g}/{total:g} " if total else ""
                self._session.status(f"{how_far}{message or ''}")

        arguments_sent = {name: value for name, value in arguments.items() if value not in ("", None, False)}
        context = CallContext(on_progress=show_progress, tokens=self._session.tokens)
        with anyio.move_on_after(_CALL_TIMEOUT_S):
            result = await self._server.call(tool, arguments_sent, context)
            if result["isError"]:
                message = "\n".join(str(block.get("text", "")) for block in result["content"]).strip()
                raise ToolboxError(message or "the knowledge server failed without saying why; its log says more")
            return cast("Facts", result.get("structuredContent") or {})
        raise ToolTimeoutError(f"'{tool}' took longer than {_CALL_TIMEOUT_S:g} s; give it less at once")

    async def base_id(self, id_or_name: str) -> str:
        """Return the id of the base with this id or name, the only one for an empty name, or raise a UsageError."""
        matching = [
            base
            for base in await self.bases()
            if id_or_name in ("", base["knowledge_base_id"]) or base["name"].casefold() == id_or_name.casefold()
        ]
        if len(matching) == 1:
            return matching[0]["knowledge_base_id"]
        if not matching:
            raise UsageError(f"there is no knowledge base {id_or_name!r}; {LISTING}")
        if id_or_name:
            raise UsageError(f"several knowledge bases are called {id_or_name!r}; give the id of one, {LISTING}")
        raise UsageError(f"there are several knowledge bases; name one with --base, {LISTING}")

    async def base_id_or_first(self, id_or_name: str) -> str:
        """Return the id of a base as ``base_id`` does; if none exists, create the first one and say so."""
        if (await self.listing())["knowledge_bases"]:
            return await self.base_id(id_or_name)
        created = await self.call("create_knowledge_base", name=id_or_name or _FIRST_BASE)
        self._session.status(f"Created the knowledge base {created['name']!r}.")
        return created["knowledge_base_id"]

    async def bases(self) -> list[Facts]:
        """Return every knowledge base, or raise a UsageError if none exists."""
        bases = (await self.listing())["knowledge_bases"]
        if not bases:
            raise UsageError("there is no knowledge base yet; 'rkllm-mcp knowledge add FILE' makes one")
        return bases

    async def listing(self, base_id: str = "") -> Facts:
        """Return all pages of the list of knowledge bases, or of one with its documents."""
        listing = await self.call("list_knowledge_bases", knowledge_base_id=base_id, limit=_PAGE)
        key = "documents" if base_id else "knowledge_bases"
        while cursor := listing.pop("next_cursor", ""):
            page = await self.call("list_knowledge_bases", knowledge_base_id=base_id, limit=_PAGE, cursor=cursor)
            listing |= {**page, key: listing[key] + page[key]}
        return listing

    async def add(self, base_id: str, source: Facts, **attributes: str) -> Facts:
        """Add a source; a file is sent to a server that does not read paths."""
        try:
            return await self.call("add_document", knowledge_base_id=base_id, **source, **attributes)
        except ToolboxError as error:
            path = anyio.Path(source.get("path", ""))
            if not str(error).startswith(_NO_PATHS) or not await path.is_file():
                raise
        try:
            content = await path.read_bytes()
        except OSError as error:
            raise ToolboxError(f"it cannot be read: {error.strerror}") from None
        return await self.send("add_document", content, path.name, knowledge_base_id=base_id, **attributes)

    async def send(self, tool: str, content: bytes, name: str, **arguments: str) -> Facts:
        """Call a tool with the bytes of a file, in parts, and return the result of the last."""
        answer: Facts = {}
        for start in range(0, len(content) or 1, _PART_BYTES):
            part = {
                "data": base64.b64encode(content[start : start + _PART_BYTES]).decode(),
                "file_name": name,
                "upload_id": answer.get("upload_id"),
                "more": start + _PART_BYTES < len(content),
            }
            answer = await self.call(tool, **arguments, **part)
        return answer


def knowledge_server(config: Config) -> ServerConfig:
    """The server that the commands speak to: the configuration's first that is one, else one of our own."""
    variables = tuple(name for name in os.environ if name.startswith(_VARIABLES))
    environment = ("XDG_DATA_HOME", *variables)
    own = StdioServer(name=_NAME, command=sys.executable, args=("-m", _MODULE), inherit_env=environment)
    return next(filter(is_knowledge, config.servers), own)


@asynccontextmanager
async def open_knowledge(session: Session, config: Config | None = None) -> AsyncGenerator[Knowledge, None]:
    """Connect the knowledge server of a configuration, by default that of the session.

    Raises:
        ServerUnavailableError: it cannot be asked.
    """
    config = config or session.config()
    require_mcp(config)
    # A command names its tool; the limits on tools listed for a model do not apply.
    server = knowledge_server(config).model_copy(
        update={"enabled": True, "allowed_tools": None, "excluded_tools": (), "lazy": False, "auto_context_tool": None}
    )
    async with open_tools(config.model_copy(update={"servers": (server,)})) as environment:
        await environment.toolbox.wait_until_connected()
        async with environment.toolbox.attending(session.tokens):
            (connection,) = environment.toolbox.connections
            try:
                await connection.available()
            except ServerUnavailableError as error:
                # Add the reason, such as a missing library, so that it is visible without starting the server by hand.
                last_line = "".join(f" It said: {line}" for line in connection.notes.shown()[-1:])
                problem = f"Failed to connect to the knowledge server: {error}{last_line}"
                raise ServerUnavailableError(problem) from error
            yield Knowledge(environment, session)
