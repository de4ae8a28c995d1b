"""How other hosts reach the board's services: standard input and output, or HTTP.

Over HTTP the server listens on loopback only, unless ``[service]`` names keys for tools; then every request needs one.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from rkllm_base.addresses import is_loopback
from rkllm_base.lines import Lines
from rkllm_mcp import __version__
from rkllm_mcp.config.secrets import KEY_ADVICE, matches, problem_off_loopback
from rkllm_mcp.config.sections import web_address
from rkllm_mcp.config.validation_errors import allowed_for, describe
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.surfaces.invocation import EXIT_DONE, RefusalLog, open_socket, run_async

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from rkllm_mcp.app.board_services import BoardServices
    from rkllm_mcp.surfaces.invocation import Session

Prompt = Annotated[str, Field(description="What to answer")]
System = Annotated[str, Field(description="Who the model is and how it answers")]
MaxTokens = Annotated[int | None, Field(description="The longest answer, tokens", ge=1)]
Texts = Annotated[list[str], Field(description="The texts", min_length=1, max_length=256)]
Query = Annotated[str, Field(description="What is looked for")]
Documents = Annotated[list[str], Field(description="What may answer it", min_length=1, max_length=256)]
Instruction = Annotated[str, Field(description="What the query asks for; empty for documents")]
Task = Annotated[str, Field(description="What a document has to do for the query; a web search when empty")]
Dimensions = Annotated[int | None, Field(description="Keep this many numbers of each vector", ge=1)]


class BoardServer(MCPServer[None]):
    """The board's services as an MCP server."""

    def __init__(self, services: BoardServices) -> None:
        offered = _Tools(services)
        hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
        super().__init__(
            "rkllm-mcp",
            title="Language model on a Rockchip NPU",
            version=__version__,
            tools=[
                Tool.from_function(function, annotations=hints, structured_output=False)
                for function in (offered.generate, offered.embed, offered.rerank, offered.board_status)
            ],
            resources=[
                FunctionResource.from_function(
                    offered.status_text, "board://status", "status", mime_type="application/json"
                ),
                FunctionResource.from_function(
                    offered.model_text, "board://model", "model", mime_type="application/json"
                ),
            ],
            log_level="WARNING",
        )

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; a failure is the sentence of its error, and arguments that do not fit are named in one."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, RkllmMcpError):
                raise ToolError(str(cause)) from None
            if isinstance(cause, ValidationError):
                details = cause.errors()
                missing = [f"'{detail['loc'][0]}'" for detail in details if detail["type"] == "missing"]
                if missing:
                    problem = f"{name} was called without {' and '.join(missing)}"
                    raise ToolError(f"{problem}; give {'it' if len(missing) == 1 else 'them'}") from None
                where, value = ".".join(map(str, details[0]["loc"])), describe(details[0]["input"])
                raise ToolError(f"'{where}' of {name}: found {value}; {allowed_for(details[0])}") from None
            raise

    async def run_stdio_async(self) -> None:
        """Serve the client on standard input and output; the SDK's would read in a thread, which no signal ends."""
        from mcp.server.stdio import stdio_server

        server = self._lowlevel_server
        async with stdio_server(stdin=cast("Any", Lines(sys.stdin.fileno()))) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


@dataclass(eq=False)
class _Tools:
    """The tools and resources as functions, from whose signatures the SDK reads the schemas."""

    services: BoardServices

    async def generate(
        self, prompt: Prompt, ctx: Context, system: System = "", max_tokens: MaxTokens = None
    ) -> CallToolResult:
        """Answer a prompt with the language model on the board's NPU."""
        generated = await self.services.generate(
            prompt, system, max_tokens, lambda text, count: ctx.report_progress(count, max_tokens, text)
        )
        return _result(asdict(generated), generated.text)

    async def embed(self, texts: Texts, instruction: Instruction = "", dimensions: Dimensions = None) -> CallToolResult:
        """Turn texts into vectors of length 1; similar texts have a large dot product."""
        vectors = await self.services.embed(texts, instruction=instruction, dimensions=dimensions)
        rounded = [[round(number, 6) for number in vector] for vector in vectors]
        return _result({"model": self.services.embedder.name, "vectors": rounded})

    async def rerank(self, query: Query, documents: Documents, instruction: Task = "") -> CallToolResult:
        """Order documents by how well they answer a query, best first, with a score from 0 to 1."""
        scores = await self.services.rerank(query, documents, instruction=instruction)
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        ranking = [{"index": index, "score": round(scores[index], 6)} for index in order]
        return _result({"model": self.services.ranker.name, "ranking": ranking})

    async def board_status(self) -> CallToolResult:
        """State of the board: model, runtime, NPU load, clocks, temperature, memory."""
        return _result(await self.services.status())

    async def status_text(self) -> str:
        """State of the board: model, runtime, NPU load, clocks, temperature, memory."""
        return json.dumps(await self.services.status(), ensure_ascii=False)

    async def model_text(self) -> str:
        """The language model: its name, description and context window."""
        board = self.services.app.model_host.board
        card = board.model.card
        facts = {
            "name": board.model.name,
            "description": card.description,
            "template": card.template,
            "context_tokens": board.engine.context_tokens,
            "emulated": card.emulated,
        }
        return json.dumps(facts, ensure_ascii=False)


def _result(facts: Mapping[str, Any], text: str | None = None) -> CallToolResult:
    """Return values, and as text the same in JSON unless it is given."""
    text = json.dumps(facts, ensure_ascii=False) if text is None else text
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=dict(facts))


# Names of the models for embedding and for ranking.
Models: TypeAlias = tuple[str | None, str | None]
_AT_A_TERMINAL = (
    "This speaks MCP on standard input: let a host start it as a server with the command 'rkllm-mcp' and the arguments "
    "'tools serve', or listen with --http; Ctrl-C ends."
)


def serve(session: Session, models: Models, *, over_http: bool, host: str | None, port: int | None) -> int:
    """Serve until the client leaves, or until interrupted; without its own model, the chat model does a task."""
    config = session.config()
    address, number = host or config.service.host, config.service.port if port is None else port
    keys = tuple(entry for entry, rights in config.service.owner_keys() if "tools" in rights)
    if over_http and not is_loopback(address) and (problem := problem_off_loopback(keys)):
        raise UsageError(f"{address}: {problem}; {KEY_ADVICE}")
    if over_http and config.service.owner_keys() and not keys:
        raise UsageError("no key in [service] allows tools; add 'tools' to allow in one of [[service.keys]]")

    if not over_http and sys.stdin.isatty():
        session.status(_AT_A_TERMINAL)

    async def serve_until_stopped() -> int:
        from rkllm_mcp.app.board_services import open_board_services

        async with open_board_services(config, *models, status=session.status) as services:
            server = BoardServer(services)
            if not over_http:
                await server.run_stdio_async()
                return EXIT_DONE
            from rkllm_base.listener import Listener

            app = RequiredKey(server.streamable_http_app(host=address), keys, RefusalLog(session.status))
            listener = Listener(app, config.service.is_trusted_proxy, lifespan="on")
            # Not a line for each request of a stranger that is not HTTP.
            logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
            with open_socket(address, number) as listening:
                session.status(f"Serving MCP at {web_address(address, listening.getsockname()[1])}/mcp")
                await listener.serve_until_cancelled(listening)
        return EXIT_DONE

    return run_async(serve_until_stopped)


class RequiredKey:
    """An application that requires one of the keys as a bearer token; without keys it is open.

    A request with another key is noted in ``refused``.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], refused: RefusalLog) -> None:
        self._app = app
        self._keys = keys
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http" or not self._keys:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        kind, _, token = headers.get("authorization", "").partition(" ")
        # Every key is compared, and each in the same time whatever was sent.
        matching = [entry for entry in self._keys if matches(token.strip(), entry)]
        if matching and kind.lower() == "bearer":
            await self._app(scope, receive, send)
            return
        if "authorization" in headers:
            self._refused.note((scope.get("client") or [""])[0], "401")
        answer = {"error": "a key is required: Authorization: Bearer KEY"}
        await JSONResponse(answer, 401, headers={"www-authenticate": "Bearer"})(scope, receive, send)
