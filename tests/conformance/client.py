"""The client that the conformance suite tests: this project's own configuration, toolbox and connections.

python -m tests.conformance.client URL

What a scenario wants beyond listing and calling the tools of the server at URL is in ``CALLS``; all others get a
call of every listed tool, with values that fit its schema. A call that fails is no failure of the client.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.shared.auth import AuthorizationCodeResult

from rkllm_mcp.config.loading import build_config
from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
from rkllm_mcp.mcp_client.oauth import SignIn
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.protocols import CallContext, FixedApprover, SamplingAnswer, SamplingRequest
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox

# The suite's authorization servers know the client by these.
REDIRECT_URI = "http://localhost:3000/callback"
CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"

Arguments: TypeAlias = dict[str, Any]
Context: TypeAlias = Mapping[str, Any]
Plan: TypeAlias = Callable[[Mapping[str, ToolSpec], Context], Iterable[tuple[str, Arguments]]]


class Echo:
    """A ``Sampler`` that always has an answer; the suite looks at the way to it."""

    sees = False

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        """The last message, said again."""
        return SamplingAnswer(request.messages[-1].text, "echo")


async def consent(server: str, url: str, redirect_uri: str) -> AuthorizationCodeResult:
    """What a browser brings back from an authorization server that asks nobody."""
    del server, redirect_uri
    browser = httpx2.AsyncClient(follow_redirects=False, timeout=60)
    async with browser:
        answer = await browser.get(url)
    query = parse_qs(urlsplit(answer.headers.get("location", "")).query)
    if "code" not in query:
        raise ServerUnavailableError("the authorization server gave no code")
    state, issuer = query.get("state", [None])[0], query.get("iss", [None])[0]
    return AuthorizationCodeResult(code=query["code"][0], state=state, iss=issuer)


def spec_of(url: str, scenario: str, context: Context) -> RemoteServer:
    """The server as a configuration file names it."""
    entry: dict[str, Any] = {
        "name": "conformance",
        "url": url,
        "sampling": "allow",
        "elicitation": "defaults",
        "roots": [str(Path.cwd())],
    }
    if scenario.startswith("auth/"):
        entry |= {"auth": "oauth", "redirect_uri": REDIRECT_URI}
        entry |= {key: context[key] for key in ("client_id", "client_secret") if key in context}
    (spec,) = build_config({"servers": [entry]}, {}, "the conformance client", None).resolved_servers()
    assert isinstance(spec, RemoteServer)
    return spec


def every_tool(tools: Mapping[str, ToolSpec], context: Context) -> Iterable[tuple[str, Arguments]]:
    """Each listed tool once."""
    del context
    for name, tool in tools.items():
        properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
        yield name, {key: _value(properties.get(key) or {}) for key in tool.input_schema.get("required") or ()}


def _value(schema: Mapping[str, Any]) -> Any:
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    fitting: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    return fitting.get(str(schema.get("type")), "text")


def given_calls(tools: Mapping[str, ToolSpec], context: Context) -> Iterable[tuple[str, Arguments]]:
    """The calls that the suite has written down, without those of tools that are not offered."""
    for call in context.get("toolCalls", ()):
        if call["name"] in tools:
            yield call["name"], call.get("arguments") or {}


def preserved_schema(tools: Mapping[str, ToolSpec], context: Context) -> Iterable[tuple[str, Arguments]]:
    """A tool's schema, sent back as it came."""
    del context
    yield "json_schema_echo", {"schema": dict(tools["json_schema_2020_12_tool"].input_schema)}


def in_order(*names: str) -> Plan:
    """These tools, one after the other."""

    def plan(tools: Mapping[str, ToolSpec], context: Context) -> Iterable[tuple[str, Arguments]]:
        offered = dict(every_tool(tools, context))
        return [(name, offered[name]) for name in names if name in offered]

    return plan


CALLS: Mapping[str, Plan] = {
    "initialize": lambda tools, context: (),
    "tools_call": lambda tools, context: [("add_numbers", {"a": 5, "b": 3})],
    "http-custom-headers": given_calls,
    "json-schema-2020-12-preservation": preserved_schema,
    "sep-2322-client-request-state": in_order(
        "test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"
    ),
}


async def play(toolbox: Toolbox, scenario: str, context: Context) -> None:
    """Make the calls of a scenario."""
    await toolbox.wait_until_connected()
    tools = {tool.wire_name: tool for tool in toolbox.tools()}
    circumstances = CallContext(asker=FixedApprover("once"))
    for number, (name, arguments) in enumerate(CALLS.get(scenario, every_tool)(tools, context)):
        result = await toolbox.call(ToolCall(f"call_{number}", tools[name].name, arguments), circumstances)
        print(f"{name}: {'failed: ' if result.is_error else ''}{result.text}")


async def main(url: str) -> None:
    """Run the scenario that the suite has put into the environment."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context: Context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    host = ConnectionServices(sign_in=SignIn(consent=consent, client_metadata_url=CLIENT_METADATA_URL))
    spec = spec_of(url, scenario, context)
    async with open_toolbox([spec], on_status=print, host=host, sampler=Echo()) as toolbox:
        await play(toolbox, scenario, context)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
