"""The cloud server as its clients see it, against servers that answer as the vendors document."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import TextContent

from mcp_servers.cloud.server import create_server
from mcp_servers.cloud.settings import NO_KEY, settings_from
from tests.support.chat_service import ChatService, Reply, refusal
from tests.support.outside import WITHOUT_END, hostile_server

pytestmark = pytest.mark.anyio
VENDORS = ("openai", "gemini", "anthropic")
KEY = "the-secret-key-of-somebody"
JSON = {"Content-Type": "application/json"}


def said(vendor: str, text: str, finish: str = "") -> Reply:
    """An answer as the vendor documents it."""
    message = {"role": "assistant", "content": text}
    part = [{"text": "(thinking)", "thought": True}, {"text": text}]
    documents: dict[str, Any] = {
        "openai": {"choices": [{"index": 0, "message": message, "finish_reason": finish or "stop"}]},
        "gemini": {"candidates": [{"content": {"parts": part, "role": "model"}, "finishReason": finish or "STOP"}]},
        "anthropic": {"content": [{"type": "text", "text": text}], "stop_reason": finish or "end_turn"},
    }
    return answered(documents[vendor])


def answered(document: Any) -> Reply:
    return Reply(200, [json.dumps(document).encode()], JSON)


@asynccontextmanager
async def cloud(service: ChatService, **more: str) -> AsyncGenerator[Client, None]:
    """All three vendors at one address."""
    environment = {f"{vendor.upper()}_API_KEY": KEY for vendor in VENDORS}
    environment |= {f"{vendor.upper()}_BASE_URL": service.url for vendor in VENDORS}
    with service, anyio.fail_after(60):
        async with Client(create_server(settings_from({**environment, **more}))) as client:
            yield client


async def asked(client: Client, vendor: str, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(f"ask_{vendor}", {"question": "Why is the sky blue?", **arguments})
    (content,) = result.content
    assert isinstance(content, TextContent)
    return bool(result.is_error), content.text


def test_only_the_vendors_whose_key_is_set_are_offered() -> None:
    settings = settings_from({"GEMINI_API_KEY": KEY, "OPENAI_API_KEY": "", "ANTHROPIC_BASE_URL": "http://x"})
    assert [vendor.api.tool for vendor in settings.vendors] == ["ask_gemini"]
    assert settings.vendors[0].base_url == settings.vendors[0].api.default_url
    assert KEY not in repr(settings)
    assert create_server(settings_from({})).instructions == NO_KEY


async def test_the_tools_say_that_the_question_leaves_and_that_they_change_nothing() -> None:
    async with cloud(ChatService(), OPENAI_MODEL="gpt-x, gpt-y") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"ask_openai", "ask_gemini", "ask_anthropic"}
    tool = tools["ask_openai"]
    assert "The question leaves this device." in (tool.description or "")
    assert tool.annotations is not None
    assert (tool.annotations.read_only_hint, tool.annotations.open_world_hint) == (True, True)
    assert tool.input_schema["required"] == ["question"]
    assert tool.input_schema["properties"]["model"]["enum"] == ["gpt-x", "gpt-y"]
    assert tool.input_schema["properties"]["max_tokens"]["maximum"] == 8192
    assert "title" not in json.dumps(tool.input_schema)


@pytest.mark.parametrize("way", [*WITHOUT_END, "many", "deep", "compressed"])
@pytest.mark.parametrize("vendor", VENDORS)
async def test_an_answer_without_end_is_one_error(vendor: str, way: str) -> None:
    environment = {f"{vendor.upper()}_API_KEY": KEY, "CLOUD_TIMEOUT_S": "1"}
    with hostile_server() as outside, anyio.fail_after(60):
        outside.way = way
        settings = settings_from({**environment, f"{vendor.upper()}_BASE_URL": outside.url})
        async with Client(create_server(settings)) as client:
            is_error, _ = await asked(client, vendor)
        assert is_error
        # It reads 2 MiB at most, and the buffers of the network hold some more.
        assert outside.sent < 100_000_000


QUESTION, SYSTEM = "Why is the sky blue?", "Be brief."
WIRE: Mapping[str, tuple[str, str, Any]] = {
    "openai": (
        "/chat/completions",
        "authorization",
        {
            "model": "m/1",
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}],
            "max_tokens": 50,
        },
    ),
    "gemini": (
        "/v1beta/models/m%2F1:generateContent",
        "x-goog-api-key",
        {
            "contents": [{"role": "user", "parts": [{"text": QUESTION}]}],
            "generationConfig": {"maxOutputTokens": 50},
            "systemInstruction": {"parts": [{"text": SYSTEM}]},
        },
    ),
    "anthropic": (
        "/v1/messages",
        "x-api-key",
        {
            "model": "m/1",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": QUESTION}],
            "system": SYSTEM,
        },
    ),
}


@pytest.mark.parametrize("vendor", VENDORS)
async def test_each_vendor_is_asked_and_read_as_it_documents(vendor: str) -> None:
    service = ChatService(said(vendor, "Because of Rayleigh."))
    async with cloud(service, **{f"{vendor.upper()}_MODEL": "m/1"}) as client:
        assert await asked(client, vendor, system=SYSTEM, max_tokens=50) == (False, "Because of Rayleigh.")
    path, header, body = WIRE[vendor]
    request = service.requests[0]
    assert (request.path, request.body) == (path, body)
    assert request.headers[header].removeprefix("Bearer ") == KEY


async def test_the_vendors_own_address_gets_the_new_name_of_the_limit() -> None:
    (vendor,) = settings_from({"OPENAI_API_KEY": KEY}).vendors
    from mcp_servers.cloud.vendors import ChatRequest

    body = vendor.api.request(ChatRequest("?", "m", 7), KEY, vendor.base_url).body
    assert body["max_completion_tokens"] == 7


CUT = {"openai": "length", "gemini": "MAX_TOKENS", "anthropic": "max_tokens"}


@pytest.mark.parametrize("vendor", VENDORS)
async def test_an_answer_that_is_cut_says_so_with_words_and_without(vendor: str) -> None:
    service = ChatService(
        said(vendor, "Because", CUT[vendor]), said(vendor, "", CUT[vendor]), said(vendor, "x" * 20_000)
    )
    note = "[Cut at 9 tokens; ask for a shorter answer or with more max_tokens.]"
    async with cloud(service) as client:
        assert await asked(client, vendor, max_tokens=9) == (False, f"Because\n{note}")
        assert await asked(client, vendor, max_tokens=9) == (False, note)
        long = (await asked(client, vendor))[1]
    assert long == f"{'x' * 12_000}\n[Cut: 12000 of 20000 characters; ask for a shorter answer.]"


WITHHELD: Mapping[str, Any] = {
    "openai": {"choices": [{"message": {"content": None, "refusal": "I won't"}, "finish_reason": "stop"}]},
    "gemini": {"promptFeedback": {"blockReason": "SAFETY"}},
    "anthropic": {"content": [], "stop_reason": "refusal"},
}


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_question_a_vendor_does_not_answer_is_reported(vendor: str) -> None:
    async with cloud(ChatService(answered(WITHHELD[vendor]))) as client:
        is_error, text = await asked(client, vendor)
    assert is_error
    assert "declined to answer this question" in text


STATUSES = (
    (400, "answered with HTTP 400 (so it says). Change the question."),
    (401, "rejects the API key (so it says). Check {}_API_KEY."),
    (403, "rejects the API key"),
    (404, "It may not have the model '"),
    (429, "is busy or its limit is reached (so it says). Try again in 30 s."),
    (500, "answered with HTTP 500 (so it says). Try again later."),
    (529, "is busy or its limit is reached"),
    (307, "It redirects requests to another address: check {}_BASE_URL."),
)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_every_status_becomes_a_sentence_and_nothing_is_sent_twice(vendor: str) -> None:
    replies = [refusal(status, "so it says", {"Retry-After": "30", "Location": "/x"}) for status, _ in STATUSES]
    service = ChatService(*replies)
    async with cloud(service) as client:
        told = [await asked(client, vendor) for _ in STATUSES]
    wrong = [
        text for (_, text), (_, part) in zip(told, STATUSES, strict=True) if part.format(vendor.upper()) not in text
    ]
    assert wrong == []
    assert all(is_error for is_error, _ in told)
    assert len(service.requests) == len(STATUSES)


BROKEN = (
    (Reply(200, [b"<html>"], JSON), "cannot be read"),
    (Reply(200, [b"[]"], JSON), "cannot be read"),
    (answered({"choices": [], "candidates": [], "content": "x"}), "cannot be read"),
    (answered({"choices": [{"message": {}}], "candidates": [{}], "content": []}), "it contains no text"),
    (Reply(200, [b"x" * 65_536] * 33, JSON), "longer than"),
    (Reply(200, [b'{"choi'], JSON, ending="break"), "cannot be reached"),
    (Reply(500, [b'[{"error": {"message": "first of a list"}}]'], JSON), "(first of a list)"),
    (Reply(500, [b'{"error": "in words"}'], JSON), "(in words)"),
    (Reply(500, [b'{"error": 5}'], JSON), "answered with HTTP 500."),
)


async def test_every_other_response_is_an_error_in_a_sentence() -> None:
    service = ChatService(*(reply for reply, _ in BROKEN for _ in VENDORS))
    async with cloud(service) as client:
        told = [(await asked(client, vendor), part) for _, part in BROKEN for vendor in VENDORS]
    assert [text for (is_error, text), part in told if not is_error or part not in text] == []


async def test_a_key_is_not_quoted_even_where_the_vendor_does() -> None:
    async with cloud(ChatService(refusal(401, f"no such key: {KEY}"))) as client:
        _, text = await asked(client, "openai")
    assert KEY not in text
    assert "[key]" in text


REFUSED = (
    ({"question": "  "}, "The question is empty."),
    ({"question": "x" * 20_001}, "has 20001 characters, at most 20000 are sent"),
    ({"model": "other"}, "Use one of: gpt-5.4-mini"),
    ({"max_tokens": 8193}, "max_tokens must be from 1 to 8192"),
    ({"max_tokens": -1}, "max_tokens must be from 1 to 8192"),
)


async def test_what_may_not_be_asked_is_refused_before_it_leaves() -> None:
    service = ChatService()
    async with cloud(service) as client:
        told = [(await asked(client, "openai", **arguments), part) for arguments, part in REFUSED]
    assert [text for (is_error, text), part in told if not is_error or part not in text] == []
    assert service.requests == []


async def test_a_vendor_that_is_silent_or_gone_is_not_waited_for() -> None:
    service = ChatService(Reply(ending="silence"))
    async with cloud(service, CLOUD_TIMEOUT_S="0.2") as client:
        assert "no answer in 0.2 s" in (await asked(client, "openai"))[1]
        assert await anyio.to_thread.run_sync(service.left.wait, 5)
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": service.url}
    with anyio.fail_after(60):
        async with Client(create_server(settings_from(environment))) as client:
            is_error, text = await asked(client, "openai")
    assert is_error
    assert f"{service.host} cannot be reached" in text


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "example.com"},
            "OPENAI_BASE_URL is 'example.com': give an address",
        ),
        ({"GEMINI_API_KEY": "k", "GEMINI_MODEL": "a, ../b"}, "GEMINI_MODEL contains '../b'"),
        ({"CLOUD_TIMEOUT_S": "soon"}, "CLOUD_TIMEOUT_S is 'soon': give a number of at least 0.1"),
        ({"CLOUD_MAX_TOKENS": "nan"}, "CLOUD_MAX_TOKENS is 'nan'"),
        ({"OPENAI_API_KEY": "käse"}, "OPENAI_API_KEY is not an API key"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_and_no_key_is(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match="^" + sentence.replace(".", r"\.")) as caught:
        settings_from(environment)
    assert "käse" not in str(caught.value)
