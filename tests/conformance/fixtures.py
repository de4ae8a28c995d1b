"""What the conformance suite expects to find on a server: its tools by name, in both eras of the protocol.

The sentences and names are the suite's; what is asked of a client follows SEP-2322 (inside the call) since 2026-07-28,
and is a request of the server before.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

Result: TypeAlias = types.CallToolResult | types.InputRequiredResult
# One pixel, and one sample of silence.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
_KEY = b"only for this process's own states"
_STEP_S = 0.05


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    context: ServerRequestContext[Any]
    params: types.CallToolRequestParams
    bus: InMemorySubscriptionBus

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What the client gave."""
        return self.params.arguments or {}

    def answer(self, key: str) -> Any:
        """What the client has answered to a question; None when it has not."""
        return (self.params.input_responses or {}).get(key)

    def may(self, capability: str) -> bool:
        """Whether the client has declared a capability."""
        declared = self.context.session.client_capabilities
        return declared is not None and getattr(declared, capability) is not None


Handler: TypeAlias = Callable[[Call], Awaitable[Result]]
TOOLS: dict[str, tuple[types.Tool, Handler]] = {}


def tool(name: str, description: str, /, **properties: str) -> Callable[[Handler], Handler]:
    """Offers a function as a tool whose parameters have the given JSON types; all are required."""
    schema: dict[str, Any] = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    if properties:
        schema["required"] = [*properties]
    return tool_with(name, description, schema)


def tool_with(name: str, description: str, schema: dict[str, Any]) -> Callable[[Handler], Handler]:
    """Offers a function as a tool with a schema."""

    def keep(handler: Handler) -> Handler:
        TOOLS[name] = (types.Tool(name=name, description=description, input_schema=schema), handler)
        return handler

    return keep


def said(*texts: str, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text) for text in texts], is_error=is_error
    )


def form(message: str, /, **properties: Any) -> types.ElicitRequest:
    """A question with one form; each field is a schema or the name of a JSON type."""
    fields = {key: {"type": part} if isinstance(part, str) else part for key, part in properties.items()}
    schema = {"type": "object", "properties": fields, "required": [*fields]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def question(text: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    """A question to the client's model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def needs(requests: dict[str, types.InputRequest], state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def signed(words: str) -> str:
    """A state that only this process can have made."""
    return f"{words}.{hmac.new(_KEY, words.encode(), hashlib.sha256).hexdigest()}"


def opened(state: str | None) -> str:
    """The words of a state; a JSON-RPC error when somebody else has made it."""
    words = (state or "").rpartition(".")[0]
    if state is None or not hmac.compare_digest(signed(words), state):
        raise MCPError(types.INVALID_PARAMS, "requestState was changed")
    return words


def text_of(answer: Any) -> str:
    """What an answer to sampling says."""
    content = answer.content
    return content.text if isinstance(content, types.TextContent) else str(content)


# --- what tools return ----------------------------------------------------------------------------------------------


@tool("test_simple_text", "Returns a text.")
async def simple_text(call: Call) -> Result:
    return said("This is a simple text response for testing.")


@tool("test_image_content", "Returns an image.")
async def image(call: Call) -> Result:
    return types.CallToolResult(content=[types.ImageContent(type="image", data=PNG, mime_type="image/png")])


@tool("test_audio_content", "Returns a sound.")
async def audio(call: Call) -> Result:
    return types.CallToolResult(content=[types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=resource)


@tool("test_embedded_resource", "Returns a resource.")
async def embedded_resource(call: Call) -> Result:
    return types.CallToolResult(content=[embedded("test://embedded-resource", "This is an embedded resource content.")])


@tool("test_multiple_content_types", "Returns a text, an image and a resource.")
async def multiple(call: Call) -> Result:
    resource = embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    picture = types.ImageContent(type="image", data=PNG, mime_type="image/png")
    text = types.TextContent(type="text", text="Multiple content types test:")
    return types.CallToolResult(content=[text, picture, resource])


@tool("test_error_handling", "Fails.")
async def failing(call: Call) -> Result:
    return said("This tool intentionally returns an error for testing", is_error=True)


async def log(call: Call, text: str) -> None:
    """A line of log, on the stream of the call."""
    params = types.LoggingMessageNotificationParams(level="info", data=text)
    if call.context.protocol_version < "2026":
        await call.context.session.send_notification(
            types.LoggingMessageNotification(params=params), related_request_id=call.context.request_id
        )


@tool("test_tool_with_logging", "Logs while it works.")
async def logging(call: Call) -> Result:
    await log(call, "Tool execution started")
    await anyio.sleep(_STEP_S)
    await log(call, "Tool processing data")
    await anyio.sleep(_STEP_S)
    await log(call, "Tool execution completed")
    return said("Logged three lines.")


@tool("test_logging_tool", "Logs where it was asked to.")
async def logging_if_asked(call: Call) -> Result:
    await log(call, "asked for")
    return said("Done.")


@tool("test_tool_with_progress", "Reports its progress.")
async def progress(call: Call) -> Result:
    for done in (0, 50, 100):
        await call.context.session.report_progress(done, 100)
        await anyio.sleep(_STEP_S)
    return said("Reported three times.")


@tool("test_reconnection", "Closes its stream before it answers.")
async def reconnection(call: Call) -> Result:
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
    await anyio.sleep(_STEP_S)
    return said("Reconnection test completed successfully.")


@tool("test_trigger_tool_change", "Says that the tools have changed.")
async def tool_change(call: Call) -> Result:
    await call.bus.publish(ToolsListChanged())
    return said("Said so.")


@tool("test_trigger_prompt_change", "Says that the prompts have changed.")
async def prompt_change(call: Call) -> Result:
    await call.bus.publish(PromptsListChanged())
    return said("Said so.")


ADDRESS: dict[str, Any] = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
CONTACT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool_with("json_schema_2020_12_tool", "Has a schema with much of what JSON Schema 2020-12 knows.", CONTACT)
async def json_schema(call: Call) -> Result:
    return said(json.dumps(dict(call.arguments)))


# --- what servers ask until 2025-11-25, as requests of their own ----------------------------------------------------


async def elicited(call: Call, request: types.ElicitRequest) -> types.ElicitResult:
    params = request.params
    assert isinstance(params, types.ElicitRequestFormParams)
    return await call.context.session.elicit_form(params.message, params.requested_schema, call.context.request_id)


def outcome(result: types.ElicitResult) -> str:
    return f"action={result.action}, content={json.dumps(result.content)}"


@tool("test_sampling", "Asks the client's model.", prompt="string")
async def sampling(call: Call) -> Result:
    from mcp.shared.message import ServerMessageMetadata

    answer = await call.context.session.send_request(
        question(str(call.arguments["prompt"])),
        types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=call.context.request_id),
    )
    return said(f"LLM response: {text_of(answer)}")


@tool("test_elicitation", "Asks the user.", message="string")
async def elicitation(call: Call) -> Result:
    username = {"type": "string", "description": "User's response"}
    email = {"type": "string", "description": "User's email address"}
    result = await elicited(call, form(str(call.arguments["message"]), username=username, email=email))
    return said(f"User response: {outcome(result)}")


@tool("test_elicitation_sep1034_defaults", "Asks with a default in every field.")
async def elicitation_defaults(call: Call) -> Result:
    request = form(
        "Please review and update the form fields with defaults",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return said(f"Elicitation completed: {outcome(await elicited(call, request))}")


@tool("test_elicitation_sep1330_enums", "Asks with every kind of enumeration.")
async def elicitation_enums(call: Call) -> Result:
    plain, titled = ["option1", "option2", "option3"], ["First", "Second", "Third"]
    options = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(titled, 1)]
    choices = [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(titled, 1)]
    names = ["Option One", "Option Two", "Option Three"]
    request = form(
        "Please select options from the enum fields",
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": options},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": choices}},
    )
    return said(f"Elicitation completed: {outcome(await elicited(call, request))}")


# --- what servers ask since 2026-07-28, inside the call -------------------------------------------------------------

NAME = "user_name"


def given_name(call: Call) -> str | None:
    """The name that the client has sent; None when there is none that can be used."""
    answer = call.answer(NAME)
    content = answer.content if isinstance(answer, types.ElicitResult) else None
    name = content.get("name") if content else None
    return name if isinstance(name, str) else None


@tool("test_input_required_result_elicitation", "Asks for a name.")
async def required_elicitation(call: Call) -> Result:
    name = given_name(call)
    return needs({NAME: form("What is your name?", name="string")}) if name is None else said(f"Hello, {name}!")


@tool("test_input_required_result_sampling", "Asks the model for a capital.")
async def required_sampling(call: Call) -> Result:
    answer = call.answer("capital_question")
    if answer is None:
        return needs({"capital_question": question("What is the capital of France?")})
    return said(text_of(answer))


@tool("test_input_required_result_list_roots", "Asks for the roots.")
async def required_roots(call: Call) -> Result:
    answer = call.answer("client_roots")
    if answer is None:
        return needs({"client_roots": types.ListRootsRequest()})
    return said("Roots: " + ", ".join(str(root.uri) for root in answer.roots))


@tool("test_input_required_result_request_state", "Asks, and knows its state again.")
async def required_state(call: Call) -> Result:
    if call.answer("confirm") is None:
        return needs({"confirm": form("Please confirm", ok="boolean")}, signed("confirm"))
    opened(call.params.request_state)
    return said("state-ok")


@tool("test_input_required_result_multiple_inputs", "Asks three things at once.")
async def required_inputs(call: Call) -> Result:
    requests: dict[str, types.InputRequest] = {
        NAME: form("What is your name?", name="string"),
        "greeting": question("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    }
    if any(call.answer(key) is None for key in requests):
        return needs(requests, signed("three"))
    opened(call.params.request_state)
    return said(
        f"{text_of(call.answer('greeting'))}, {given_name(call)}: {len(call.answer('client_roots').roots)} roots"
    )


@tool("test_input_required_result_multi_round", "Asks one thing after the other.")
async def required_rounds(call: Call) -> Result:
    if call.params.request_state is None:
        return needs({"step1": form("Step 1: What is your name?", name="string")}, signed("1"))
    if opened(call.params.request_state) == "1":
        return needs({"step2": form("Step 2: What is your favorite color?", color="string")}, signed("2"))
    return said("Both steps are done.")


@tool("test_input_required_result_tampered_state", "Asks, and refuses a state that was changed.")
async def required_untampered(call: Call) -> Result:
    if call.params.request_state is None:
        return needs({"confirm": form("Please confirm", ok="boolean")}, signed("untampered"))
    opened(call.params.request_state)
    return said("The state is as it was.")


@tool("test_input_required_result_capabilities", "Asks only what the client can answer.")
async def required_capabilities(call: Call) -> Result:
    possible: dict[str, types.InputRequest] = {
        "elicitation": form("What is your name?", name="string"),
        "sampling": question("What is your name?"),
        "roots": types.ListRootsRequest(),
    }
    requests = {key: request for key, request in possible.items() if call.may(key) and call.answer(key) is None}
    return needs(requests) if requests else said("Nothing is left to ask.")


@tool("test_streaming_elicitation", "Asks the user, on the stream of the call.")
async def streaming_elicitation(call: Call) -> Result:
    return await required_elicitation(call)


@tool("test_missing_capability", "Needs a client that can sample.")
async def missing_capability(call: Call) -> Result:
    if call.may("sampling"):
        return said("You can sample.")
    data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
    raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling", data)
