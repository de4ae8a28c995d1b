"""Definitions and results that the SDK refuses are brought into shape; good ones are not touched."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolResult,
    ErrorData,
    GetPromptResult,
    InitializeResult,
    JSONRPCError,
    JSONRPCRequest,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
)
from pydantic import ValidationError

from rkllm_mcp.mcp_client.message_filter import (
    MessageListener,
    filter_messages,
    mend_call_result,
    mend_handshake,
    mend_list,
    mend_prompt,
    mend_tool_list,
)

EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def mended_tool(tool: Any) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    result = mend_tool_list({"tools": [tool]}, notes.append)
    ListToolsResult.model_validate(result)
    return result["tools"][0], notes


def test_a_good_definition_stays_as_it_is() -> None:
    good = {
        "name": "n",
        "title": "t",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}, "$defs": {}},
        "annotations": {"readOnlyHint": True, "title": "a"},
        "execution": {"taskSupport": "optional"},
    }
    # The SDK would throw away a result that does not fit the output schema.
    assert mended_tool({**good, "outputSchema": {"type": "object"}}) == (good, [])


def test_a_missing_schema_takes_any_arguments() -> None:
    tools: list[dict[str, Any]] = [{}, {"inputSchema": None}, {"inputSchema": {}}]
    for tool in tools:
        tool["name"] = "n"
        assert mended_tool(tool) == ({"name": "n", "inputSchema": EMPTY_SCHEMA}, [])


def test_a_schema_that_may_be_an_object_is_one() -> None:
    schema: dict[str, Any] = {"type": ["object", "null"], "properties": {"a": {}}}
    tool, notes = mended_tool({"name": "n", "inputSchema": schema})
    assert tool["inputSchema"] == {"type": "object", "properties": {"a": {}}}
    assert notes == ["tool 'n': its input schema has no type; it is treated as an object"]


def test_a_schema_of_something_else_takes_any_arguments_and_is_noted() -> None:
    tool, notes = mended_tool({"name": "n", "inputSchema": {"type": "string"}})
    assert tool["inputSchema"] == EMPTY_SCHEMA
    assert "any arguments are accepted" in notes[0]


def test_an_invalid_tool_is_left_out_and_noted() -> None:
    notes: list[str] = []
    result = mend_tool_list({"tools": [None, "x", {}, {"name": ""}, {"name": 3}], "nextCursor": 4}, notes.append)
    assert result == {"tools": []}
    assert len(notes) == 5
    assert mend_tool_list({"tools": "none"}, notes.append) == {"tools": []}


def test_results_become_readable() -> None:
    notes: list[str] = []
    broken: list[dict[str, Any]] = [
        {},
        {"content": None, "structuredContent": None, "isError": None},
        {"content": "text", "isError": 1},
        {"content": [{"type": "text"}, {"type": "image", "data": "A"}, 5, None]},
    ]
    for result in broken:
        CallToolResult.model_validate(mend_call_result(result, notes.append))
    assert mend_call_result(broken[2], notes.append) == {"content": [{"type": "text", "text": "text"}], "isError": True}


def test_schemas_that_strict_clients_refuse_hide_no_tool() -> None:
    notes: list[str] = []
    reference = {"$ref": "#/components/schemas/A", "components": {"schemas": {"A": {"type": "object"}}}}
    listed: list[Any] = [
        {"name": "required", "inputSchema": {"type": "object", "properties": {}, "required": None}},
        {"name": "reference", "inputSchema": reference},
        {"name": "lists", "inputSchema": {"type": "object"}, "outputSchema": {"type": ["null", "array"]}},
        {"name": "choice", "inputSchema": {"type": "object"}, "outputSchema": {"anyOf": [{"type": "object"}]}},
        None,
    ]
    result = mend_tool_list({"tools": listed, "nextCursor": None}, notes.append)
    ListToolsResult.model_validate(result)
    assert [tool["name"] for tool in result["tools"]] == ["required", "reference", "lists", "choice"]
    assert "nextCursor" not in result


def test_a_list_as_structured_content_and_a_resource_without_address_keep_their_text() -> None:
    notes: list[str] = []
    block = {"type": "resource", "resource": {"text": "inside"}}
    result = mend_call_result({"content": [block], "structuredContent": [1, 2]}, notes.append)
    assert result == {"content": [{"type": "text", "text": "inside"}], "structuredContent": {"result": [1, 2]}}
    assert len(notes) == 2
    newer = {"resultType": "complete", "content": [], "structuredContent": [1, 2]}
    assert mend_call_result(newer, notes.append) == newer


def test_good_results_and_questions_are_not_touched() -> None:
    notes: list[str] = []
    good: dict[str, Any] = {
        "content": [
            {"type": "text", "text": "t", "annotations": {"priority": 1}},
            {"type": "resource", "resource": {"uri": "a:b", "text": "x"}},
        ],
        "structuredContent": {"n": None},
        "isError": False,
    }
    question: dict[str, Any] = {"resultType": "input_required", "inputRequests": {}}
    assert mend_call_result(good, notes.append) == good
    assert mend_call_result(question, notes.append) == question
    assert notes == []


def test_one_item_with_a_fault_does_not_hide_the_others() -> None:
    notes: list[str] = []
    odd: list[Any] = [
        {"uri": "x:1"},
        {"uri": "x:2", "name": None, "size": "3", "mimeType": 5},
        {"name": "y"},
        "z",
        None,
    ]
    listed = {"resources": [*odd, {"uri": "x:3", "name": "n"}], "nextCursor": None}
    resources = mend_list(listed, notes.append, key="resources", name="uri")
    ListResourcesResult.model_validate(resources)
    assert resources == {
        "resources": [{"uri": "x:1", "name": "x:1"}, {"uri": "x:2", "name": "x:2"}, {"uri": "x:3", "name": "n"}]
    }
    assert len(notes) == 5
    listed = {"resourceTemplates": [{"uriTemplate": "x:{a}"}, {}]}
    templates = mend_list(listed, notes.append, key="resourceTemplates", name="uriTemplate")
    ListResourceTemplatesResult.model_validate(templates)
    assert templates["resourceTemplates"] == [{"uriTemplate": "x:{a}", "name": "x:{a}"}]
    arguments = [{"name": "a", "required": "yes", "description": None}, {"description": "no name"}, "b"]
    listed = {"prompts": [{"name": "p", "arguments": arguments}, {"title": "q"}]}
    prompts = mend_list(listed, notes.append, key="prompts", name="name")
    ListPromptsResult.model_validate(prompts)
    assert prompts["prompts"] == [{"name": "p", "arguments": [{"name": "a"}]}]
    none = mend_list({"resources": "none"}, notes.append, key="resources", name="uri")
    assert none == {"resources": []}


@pytest.mark.parametrize(
    ("result", "capabilities"),
    [
        ({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}, {"tools": {}}),
        (
            {"capabilities": {"tools": [], "logging": None, "prompts": {"listChanged": "no"}}},
            {"tools": {}, "prompts": {}},
        ),
        ({"protocolVersion": None, "serverInfo": "x", "capabilities": []}, {}),
    ],
)
def test_a_handshake_that_leaves_something_out_is_one(result: dict[str, Any], capabilities: dict[str, Any]) -> None:
    mended = mend_handshake(result, list[str]().append)
    InitializeResult.model_validate(mended)
    assert mended["capabilities"] == capabilities


@pytest.mark.parametrize(
    ("stated", "assumed"),
    [
        ("2030-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2025-04-01", "2025-03-26"),
        ("2024-10-07", "2024-11-05"),
        ("1.0", "2024-11-05"),
        ("DRAFT-2026-v1", "2025-11-25"),
        (None, "2024-11-05"),
    ],
)
def test_a_handshake_of_another_revision_is_taken_as_the_last_known_one_before_it(
    stated: str | None, assumed: str
) -> None:
    notes: list[str] = []
    mended = mend_handshake({"protocolVersion": stated, "capabilities": {}, "serverInfo": {"name": "x"}}, notes.append)
    assert mended["protocolVersion"] == assumed
    what = "no protocol version" if stated is None else f"the protocol version {stated}"
    assert notes == [f"the handshake states {what}; {assumed} is assumed"]


@pytest.mark.parametrize("result", [{}, {"tools": {"a": 1}}, {"protocolVersion": 3}, {"content": {"type": 7}}])
def test_an_object_without_any_part_of_a_handshake_is_not_one(result: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InitializeResult.model_validate(mend_handshake(result, list[str]().append))


def test_a_prompt_of_another_shape_is_read() -> None:
    messages: list[Any] = [
        {"role": "system", "content": "words"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "new", "x": 1}]},
    ]
    prompt = mend_prompt({"messages": messages}, lambda _: None)
    GetPromptResult.model_validate(prompt)
    assert [(each["role"], each["content"]["text"]) for each in prompt["messages"]] == [
        ("user", "words"),
        ("assistant", "a"),
        ("assistant", '{"type": "new", "x": 1}'),
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(("open_calls", "id_"), [([7], 7), ([7, 8], None), ([], None)])
async def test_an_error_without_an_id_is_about_the_only_open_request(open_calls: list[int], id_: int | None) -> None:
    calls = [JSONRPCRequest(jsonrpc="2.0", id=each, method="tools/call", params={"name": "x"}) for each in open_calls]
    error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=-32603, message="broken"))

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        server, incoming = anyio.create_memory_object_stream[Any](9)
        outgoing, _kept = anyio.create_memory_object_stream[Any](9)
        with server, incoming, outgoing, _kept:
            await server.send(SessionMessage(error))
            yield incoming, outgoing

    async with filter_messages(transport(), MessageListener(lambda: None, lambda _: None)) as (read, write):
        for call in calls:
            await write.send(SessionMessage(call))
        item: Any = await read.receive()
    assert item.message.id == id_


def test_a_list_in_place_of_a_tool_list_and_a_text_that_is_not_one_are_read() -> None:
    notes: list[str] = []
    listed = mend_tool_list({"content": [{"name": "look", "inputSchema": {"type": "object"}}]}, notes.append)
    assert [tool["name"] for tool in listed["tools"]] == ["look"]
    blocks = [{"type": "text", "text": 12}, {"type": "text", "text": {"temp": 12}}]
    result = mend_call_result({"content": blocks}, notes.append)
    assert [block["text"] for block in result["content"]] == ["12", '{"temp":12}']
    assert notes == []
