"""Examples that the mission's documents write out, run as they stand there; each is looked up in its document, too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.tool_retrieval import read_tools
from rkllm_mcp import MCPClient
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import BuiltinServer, OpenAPIServer, StdioServer
from rkllm_mcp.diagnostics.doctor import config_warnings
from rkllm_mcp.messages import PromptArgument, PromptTemplate, Resource, ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.search import ToolSearch
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.end_to_end.test_mission_examples import make_example, scripted_model
from tests.support.knowledge_server import open_tools
from tests.support.local_api import open_api
from tests.support.mcp_servers.specs import PATIENCE_S, local_server
from tests.support.shared import shared_path
from tests.support.third_party import server

pytestmark = pytest.mark.anyio

DEVELOPMENT = """
from typing import Annotated
from pathlib import Path
from pydantic import Field
from mcp.server import MCPServer
from mcp.server.mcpserver.resources import FunctionResource

server = MCPServer("development")

@server.tool(description="Get current weather for a location", structured_output=False)
def get_weather(location: Annotated[str, Field(description="City name")]) -> str:
    return f"The weather in {location} is sunny, 25°C."

@server.resource("file:///path/to/document.txt", name="Project Documentation", mime_type="text/plain")
def document() -> str:
    return "How the project is built."

@server.prompt(description="Review code for best practices")
def code_review(language: Annotated[str, Field(description="Programming language")]) -> str:
    return f"Review this {language} code for best practices."

server.run("stdio")
"""


def quoted(number: str, *literals: str) -> None:
    """Check that the document has these words, so that a test runs what is asked for; skips where it is not there."""
    (document,) = shared_path("mission").glob(f"{number}_*.txt")
    text = document.read_text("utf-8")
    assert [literal for literal in literals if literal not in text] == []


@pytest.fixture
def development(tmp_path: Path) -> Path:
    """The program of a server that offers what the documents show."""
    path = tmp_path / "development.py"
    path.write_text(DEVELOPMENT, encoding="utf-8")
    return path


# --- 001 MCP クライアント仕様 --------------------------------------------------------------------------


async def test_001_the_client_lists_and_calls_as_sections_3_1_to_3_3_show(development: Path) -> None:
    client = MCPClient(sys.executable, [str(development)])
    with anyio.fail_after(PATIENCE_S):
        async with client:
            (tool,) = await client.list_tools()
            result = await client.call_tool("get_weather", {"location": "Tokyo"})
    assert (tool["name"], tool["description"]) == ("get_weather", "Get current weather for a location")
    assert tool["inputSchema"]["required"] == ["location"]
    assert result == {
        "content": [{"type": "text", "text": "The weather in Tokyo is sunny, 25°C."}],
        "isError": False,
    }
    quoted("001", '"description": "Get current weather for a location"', "The weather in Tokyo is sunny, 25°C.")


# --- 002 RKLLM CLI MCP対応 -------------------------------------------------------------------------------


async def test_002_the_tool_resource_and_prompt_of_the_document_are_offered(development: Path) -> None:
    spec = local_server("development", command=sys.executable, args=[str(development)])
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([spec]) as toolbox:
            await toolbox.connected()
            tool = toolbox.resolve("get_weather")
            resources = await toolbox.offerings.resources()
            prompts = await toolbox.offerings.prompts()
    assert tool is not None
    assert tool.description == "Get current weather for a location"
    location = tool.input_schema["properties"]["location"]
    assert (location["type"], location["description"]) == ("string", "City name")
    assert tool.input_schema["required"] == ["location"]
    assert resources == (
        Resource("development", "file:///path/to/document.txt", "Project Documentation", mime_type="text/plain"),
    )
    language = PromptArgument("language", "Programming language", required=True)
    assert prompts == (PromptTemplate("development", "code_review", "Review code for best practices", (language,)),)
    quoted("002", '"uri": "file:///path/to/document.txt"', '"description": "Review code for best practices"')


def test_002_the_prompt_of_section_4_2_is_used_as_it_is_typed(tmp_path: Path, development: Path) -> None:
    demo = make_example(tmp_path, server("development", command="${PYTHON}", args=[str(development)]))
    typed = "/prompt code_review language=rust"
    done = demo.run("--model", scripted_model(tmp_path / "model"), "chat", stdin=f"{typed}\n/quit\n")
    assert done.returncode == 0, done.stderr
    status = "[MCP: Using prompt template 'code_review' from server 'development']"
    answer = "◆ Rust コードのレビューを開始します..."
    assert status in done.stderr + done.stdout
    assert answer in done.stdout
    quoted("002", f"> {typed}", status, answer)


# --- 003 MCP統合設計 ---------------------------------------------------------------------------------


async def test_003_the_headers_of_the_example_reach_the_api_with_its_tokens_and_its_tool_has_the_long_name() -> None:
    get = {"operationId": "get_incidents", "summary": "Lists incidents"}
    entry: dict[str, Any] = {
        "name": "servicenow",
        "transport": "openapi",
        "openapi_spec": {"openapi": "3.0.0", "paths": {"/echo": {"get": get}}},
        "headers_template": {"Authorization": "Bearer ${servicenow}", "X-API-Key": "${api_key}"},
    }
    tokens = {"servicenow": "eyJhbGc...", "api_key": "sk-1234..."}
    with anyio.fail_after(PATIENCE_S):
        async with open_api() as api:
            spec = OpenAPIServer.model_validate({**entry, "openapi_base_url": api.url})
            async with open_toolbox([spec]) as toolbox:
                await toolbox.connected()
                call = ToolCall("1", "mcp__servicenow__get_incidents", {})
                result = await toolbox.call(call, CallContext(tokens=tokens))
                (tool,) = toolbox.tools()
        assert api.keys == ["Bearer eyJhbGc..."]
    assert (tool.name, tool.qualified_name) == ("get_incidents", "mcp__servicenow__get_incidents")
    # The API echoes its headers; the model is not shown a token.
    assert json.loads(result.text)["headers"]["x-api-key"] == "[REDACTED]"
    assert not result.is_error
    quoted("003", "Authorization: Bearer ${servicenow}", "X-API-Key: ${api_key}", "mcp__servicenow__get_incidents")


def test_003_the_servers_of_the_types_stdio_and_builtin_are_read_as_the_document_has_them(tmp_path: Path) -> None:
    servers: dict[str, Any] = {
        "files": {
            "transport": "stdio",
            "command": "npx",
            "args": ["-y", "@anthropic-ai/mcp-server-filesystem", "/workspace"],
        },
        "utilities": {
            "transport": "builtin",
            "tools": [
                {"name": "calculate", "description": "計算", "input_schema": {"type": "object", "properties": {}}},
                {"name": "clock", "description": "現在時刻取得"},
            ],
        },
    }
    path = tmp_path / "mcp_config.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    config = load_config(path)
    files, utilities = config.servers
    assert isinstance(files, StdioServer)
    assert (files.command, files.args) == ("npx", ("-y", "@anthropic-ai/mcp-server-filesystem", "/workspace"))
    assert isinstance(utilities, BuiltinServer)
    # A definition alone names nothing that runs: that tool is left out, the file and the others are used.
    assert [tool.name for tool in utilities.tools if tool.problem] == ["calculate"]
    assert any("tool 'calculate' is left out" in line for line in config_warnings(config))
    quoted("003", '["-y", "@anthropic-ai/mcp-server-filesystem", "/workspace"]')


# --- 004 MCP Tools詳細仕様 ------------------------------------------------------------------------------

ALUMNI = (
    "マイナビアルムナイは、退職者と企業をつなぐプラットフォームです。退職後も会社とつながるアルムナイサービスです。"
)
QUERY = "マイナビのアルムナイサービスについて教えて"
OCR = "マイナビキャリ-では、キャリアコンサルティングを提供しています。"


async def test_004_the_requests_of_the_document_get_its_responses(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        created = await tools.call(
            "create_knowledge_base", name="マイナビサービス概要", description="マイナビが提供する各種サービスの説明資料"
        )
        # The id is the only part of the request that is not the document's.
        base_id = created.facts["knowledge_base_id"]
        await tools.call("add_document", knowledge_base_id=base_id, text=ALUMNI)
        found = await tools.call(
            "search_documents", query=QUERY, knowledge_base_id=base_id, threshold=0.7, max_results=5
        )
        summary = await tools.call("get_knowledge_base_summary", knowledge_base_id=base_id)
        corrected = await tools.call("normalize_ocr_text", text=OCR)
    assert {key: found.facts[key] for key in ("query", "knowledge_base_id", "threshold", "count")} == {
        "query": QUERY,
        "knowledge_base_id": base_id,
        "threshold": 0.7,
        "count": 1,
    }
    assert found.facts["results"][0]["content"].startswith(
        "マイナビアルムナイは、退職者と企業をつなぐプラットフォームです"
    )
    assert summary.facts["summary"] == "マイナビサービス概要: マイナビが提供する各種サービスの説明資料"
    assert summary.facts["statistics"] == {"total_documents": 1, "total_collections": 1, "total_chunks": 1}
    assert corrected.facts == {
        "original_text": OCR,
        "normalized_text": "マイナビキャリアでは、キャリアコンサルティングを提供しています。",
        "status": "success",
    }
    quoted("004", QUERY, OCR, summary.facts["summary"], corrected.facts["normalized_text"])


async def test_004_a_forced_tool_skips_the_choice() -> None:
    question, forced = "マイナビのサービスは？", "search_documents"
    selection = ToolSelection(ToolSearch, lambda _: 1, SelectionSettings(budget_tokens=2, auto_select=True))
    find, only = await selection.choose(question, read_tools(), forced)
    assert (find.name, only.name) == ("find_tools", forced)
    quoted("004", f'query="{question}"', f'force_tool="{forced}"')
