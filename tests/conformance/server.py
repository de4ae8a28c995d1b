"""The server that the conformance suite tests: fixtures on the SDK's server, over Streamable HTTP, in both eras.

python -m tests.conformance.server PORT        serves http://127.0.0.1:PORT/mcp; says its port when it is ready
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError

from rkllm_base.listener import listening_socket
from tests.conformance.fixtures import PNG, TOOLS, Call, embedded, form, needs

Context = ServerRequestContext[Any]
TEMPLATE = "test://template/{id}/data"
TEXT = "This is the content of the static text resource."
CACHED = CacheHint(ttl_ms=60_000, scope="public")
RESOURCES = (
    types.Resource(uri="test://static-text", name="static-text", description="A text.", mime_type="text/plain"),
    types.Resource(uri="test://static-binary", name="static-binary", description="A picture.", mime_type="image/png"),
    types.Resource(uri="test://watched-resource", name="watched", description="It changes.", mime_type="text/plain"),
)


def argument(name: str) -> types.PromptArgument:
    return types.PromptArgument(name=name, description=f"The value of {name}.", required=True)


PROMPTS = (
    types.Prompt(name="test_simple_prompt", description="A prompt without arguments."),
    types.Prompt(
        name="test_prompt_with_arguments",
        description="A prompt with arguments.",
        arguments=[argument("arg1"), argument("arg2")],
    ),
    types.Prompt(
        name="test_prompt_with_embedded_resource",
        description="A prompt with a resource.",
        arguments=[argument("resourceUri")],
    ),
    types.Prompt(name="test_prompt_with_image", description="A prompt with an image."),
    types.Prompt(name="test_input_required_result_prompt", description="A prompt that asks first."),
)

bus = InMemorySubscriptionBus()


async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[tool for tool, _ in TOOLS.values()])


async def call_tool(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await TOOLS[params.name][1](Call(context, params, bus))


async def list_resources(context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[*RESOURCES])


async def list_templates(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template=TEMPLATE, name="template", description="One for each id.", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if uri == "test://static-binary":
        picture = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        return types.ReadResourceResult(contents=[picture])
    return types.ReadResourceResult(contents=[text_resource(uri)])


def text_resource(uri: str) -> types.TextResourceContents:
    beginning, end = TEMPLATE.split("{id}")
    if uri.startswith(beginning) and uri.endswith(end):
        number = uri[len(beginning) : -len(end)]
        text = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
    if uri in ("test://static-text", "test://watched-resource"):
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text=TEXT)
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


async def list_prompts(context: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[*PROMPTS])


async def get_prompt(
    context: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    given = params.arguments or {}
    if params.name == "test_simple_prompt":
        return turns(words("This is a simple prompt for testing."))
    if params.name == "test_prompt_with_arguments":
        return turns(words(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"))
    if params.name == "test_prompt_with_embedded_resource":
        resource = embedded(given["resourceUri"], "Embedded resource content for testing.")
        return turns(resource, words("Please process the embedded resource above."))
    if params.name == "test_prompt_with_image":
        picture = types.ImageContent(type="image", data=PNG, mime_type="image/png")
        return turns(picture, words("Please analyze the image above."))
    if params.name == "test_input_required_result_prompt":
        return asked_first(params)
    raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")


def asked_first(params: types.GetPromptRequestParams) -> types.GetPromptResult | types.InputRequiredResult:
    answer = (params.input_responses or {}).get("user_context")
    if not isinstance(answer, types.ElicitResult):
        return needs({"user_context": form("What context should the prompt use?", context="string")})
    return turns(words(f"Context: {(answer.content or {}).get('context')}"))


def words(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def turns(*blocks: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])


async def complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    found = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=found, total=len(found), has_more=False))


async def subscribe(context: Context, params: types.RequestParams) -> types.EmptyResult:
    return types.EmptyResult()


def create_server() -> Server[Any]:
    """The server with all that the suite looks for."""
    server = Server(
        "rkllm-mcp-conformance",
        version="1",
        cache_hints={
            "tools/list": CACHED,
            "prompts/list": CACHED,
            "resources/list": CACHED,
            "resources/templates/list": CACHED,
            "resources/read": CACHED,
        },
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=subscribe,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )
    # The constructor warns of this one, which the older protocol still has.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, subscribe)
    return server


def main(port: int) -> None:
    """Serve until interrupted."""
    listener = listening_socket("127.0.0.1", port)
    print(listener.getsockname()[1], flush=True)
    app = create_server().streamable_http_app(retry_interval=500)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[-1]))
