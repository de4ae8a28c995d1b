"""The board's abilities as an MCP server, for other hosts: ``rkllm-mcp tools serve``.

Tools: ``generate``, ``embed``, ``rerank``, ``board_status``; resources: ``board://status`` and ``board://model``. What
fails is a result that says why. ``generate`` reports each piece of text as progress to whoever asks for that; a client
that cancels, or leaves, stops its own run.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError

from rkllm_mcp import __version__
from rkllm_mcp.abilities import Abilities
from rkllm_mcp.config.explanation import allowed_for, describe
from rkllm_mcp.errors import RkllmMcpError

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
    """The abilities of one board as an MCP server.

    Args:
        abilities: what it can do.
    """

    def __init__(self, abilities: Abilities) -> None:
        offered = _Tools(abilities)
        super().__init__(
            "rkllm-mcp",
            title="Language model on a Rockchip NPU",
            version=__version__,
            tools=[_tool(each) for each in (offered.generate, offered.embed, offered.rerank, offered.board_status)],
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
        """Call a tool; arguments that do not fit are named in a sentence instead of the validator's report."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise ToolError(_what_is_wrong(name, error.__cause__)) from None

    async def run_on(self, reading: Any, writing: Any) -> None:
        """Serve one client over a pair of the SDK's streams; ``run_stdio_async`` takes no streams."""
        server = self._lowlevel_server
        await server.run(reading, writing, server.create_initialization_options())


class _Tools:
    """The tools and resources as functions, from whose signatures the SDK reads the schemas."""

    def __init__(self, abilities: Abilities) -> None:
        self._abilities = abilities

    async def generate(
        self, prompt: Prompt, ctx: Context, system: System = "", max_tokens: MaxTokens = None
    ) -> CallToolResult:
        """Answer a prompt with the language model on the board's NPU."""

        async def tell(text: str, count: int) -> None:
            await ctx.report_progress(count, max_tokens, text)

        async def answer() -> tuple[str, dict[str, Any]]:
            made = await self._abilities.generate(prompt, system, max_tokens, tell)
            facts: dict[str, Any] = {
                "text": made.text,
                "model": made.model,
                "is_cut": made.reason == "token_limit",
                "prompt_tokens": made.prompt_tokens,
                "generated_tokens": made.generated_tokens,
            }
            return made.text, facts

        return await _result(answer)

    async def embed(self, texts: Texts, instruction: Instruction = "", dimensions: Dimensions = None) -> CallToolResult:
        """Turn texts into vectors of length 1; similar texts have a large dot product."""

        async def answer() -> tuple[str, dict[str, Any]]:
            vectors = await self._abilities.embed(texts, instruction=instruction, dimensions=dimensions)
            facts = {"model": self._abilities.embedder.name, "vectors": [[round(x, 6) for x in v] for v in vectors]}
            return json.dumps(facts), facts

        return await _result(answer)

    async def rerank(self, query: Query, documents: Documents, instruction: Task = "") -> CallToolResult:
        """Order documents by how well they answer a query, best first, with a score from 0 to 1."""

        async def answer() -> tuple[str, dict[str, Any]]:
            scores = await self._abilities.rerank(query, documents, instruction=instruction)
            order = sorted(range(len(scores)), key=lambda index: -scores[index])
            ranking = [{"index": index, "score": round(scores[index], 6)} for index in order]
            facts = {"model": self._abilities.ranker.name, "ranking": ranking}
            return json.dumps(facts), facts

        return await _result(answer)

    async def board_status(self) -> CallToolResult:
        """How the board is: model, runtime, NPU load, clocks, temperature, memory."""

        async def answer() -> tuple[str, dict[str, Any]]:
            facts = await self._abilities.status()
            return json.dumps(facts, ensure_ascii=False), dict(facts)

        return await _result(answer)

    async def status_text(self) -> str:
        """How the board is: model, runtime, NPU load, clocks, temperature, memory."""
        return json.dumps(await self._abilities.status(), ensure_ascii=False)

    async def model_text(self) -> str:
        """The language model: its name, what it is, its context window."""
        model = self._abilities.app.model
        facts = {
            "name": model.name,
            "description": model.card.description,
            "template": model.card.template,
            "context_tokens": self._abilities.app.engine.context_tokens,
            "emulated": model.card.emulated,
        }
        return json.dumps(facts, ensure_ascii=False)


def _tool(function: Callable[..., Any]) -> Tool:
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    return Tool.from_function(function, annotations=hints, structured_output=False)


def _what_is_wrong(tool: str, error: ValidationError) -> str:
    """What is wrong with a call's arguments, for whoever reads the result."""
    details = error.errors()
    missing = [f"'{detail['loc'][0]}'" for detail in details if detail["type"] == "missing"]
    if missing:
        return f"{tool} was called without {' and '.join(missing)}; give {'it' if len(missing) == 1 else 'them'}"
    where = ".".join(map(str, details[0]["loc"]))
    return f"'{where}' of {tool}: found {describe(details[0]['input'])}; {allowed_for(details[0])}"


async def _result(answer: Callable[[], Awaitable[tuple[str, dict[str, Any]]]]) -> CallToolResult:
    """An answer as text and as values; what cannot be answered as a result that says why."""
    try:
        text, facts = await answer()
    except RkllmMcpError as error:
        return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=facts)
