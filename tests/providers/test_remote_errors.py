"""What a service that fails is said to have done, and what to do: real statuses, broken streams, silence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

from rkllm_mcp.app.models import open_remote
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.errors import GenerationError, PromptTooLongError, ServiceError, ServiceTooLongError
from rkllm_mcp.messages import Message
from rkllm_mcp.providers.remote_settings import Kind, RemoteSettings
from tests.support.chat_service import (
    ChatService,
    Reply,
    anthropic_stream,
    anthropic_text,
    openai_reply,
    openai_stream,
    refusal,
    sse,
)
from tests.support.remote_models import KEY, asked, question, round_of, settings

pytestmark = pytest.mark.anyio
KINDS: tuple[Kind, ...] = ("openai", "anthropic")
STATUSES = (
    (400, "rejects the request with status 400 (so it says); check provider.model"),
    (401, "rejects the key (so it says); check provider.api_key"),
    (402, "requires payment (so it says); check your account with the service"),
    (403, "rejects the key (so it says)"),
    (404, "has no model 'model-x', or no such address (so it says); check provider.model and provider.base_url"),
    (408, "took too long (so it says); ask again"),
    (409, "rejects the request with status 409"),
    (422, "rejects the request with status 422"),
    (429, "is busy or has reached its rate limit (so it says); ask again in 7 s"),
    (500, "failed with status 500 (so it says); ask again"),
    (502, "failed with status 502"),
    (503, "is busy or has reached its rate limit"),
    (504, "took too long"),
    (529, "is busy or has reached its rate limit"),
)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_status_becomes_a_sentence_that_names_host_and_remedy(kind: Kind) -> None:
    replies = [refusal(status, "so it says", {"Retry-After": "7"}) for status, _ in STATUSES]
    said: list[str] = []
    with ChatService(*replies) as service, anyio.fail_after(60):
        async with asked(service, kind) as model:
            for status, _ in STATUSES:
                conversation = question()
                with pytest.raises(ServiceError) as caught:
                    await round_of(model, conversation)
                assert (caught.value.status, caught.value.host) == (status, service.host)
                assert conversation.messages[-1] == Message("assistant")
                said.append(str(caught.value))
    wrong = [line for line, (_, part) in zip(said, STATUSES, strict=True) if f"{service.host} {part}" not in line]
    assert wrong == []


async def test_a_proxy_without_any_board_is_told_from_a_busy_service_in_both_languages() -> None:
    answer = refusal(503, "no board can answer now; ask again in a moment", {"Retry-After": "0.01"}, code="no_board")
    with ChatService(*[answer] * 9) as service, anyio.fail_after(60):
        async with asked(service, "openai") as model:
            with pytest.raises(ServiceError) as caught:
                await round_of(model, question())
    assert str(caught.value) == f"{service.host} has no board that can answer now; ask again in a moment"
    assert read_catalogue("ja").phrase(str(caught.value)) == (
        f"{service.host} には今、回答できるボードがありません。しばらくしてからもう一度試してください"
    )


TOO_LONG = (
    (
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        (9000, 8192),
    ),
    (400, "prompt is too long: 9000 tokens > 8192 maximum", (9000, 8192)),
    (
        400,
        "the request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        (9000, 8192),
    ),
    (400, "Input exceeds the context window of this model", None),
    (413, "Request too large: too many tokens", None),
)


@pytest.mark.parametrize(("status", "message", "figures"), TOO_LONG)
async def test_a_prompt_that_is_too_long_is_refused_with_the_figures_and_leaves_no_turn(
    status: int, message: str, figures: tuple[int, int] | None
) -> None:
    conversation = question()
    with ChatService(refusal(status, message)) as service, anyio.fail_after(60):
        async with asked(service) as model:
            with pytest.raises(PromptTooLongError) as caught:
                await round_of(model, conversation)
    assert [turn.role for turn in conversation.messages] == ["system", "user"]
    assert conversation.unpaid_tokens == 0
    error = caught.value
    if figures is None:
        assert isinstance(error, ServiceTooLongError)
        assert str(error).startswith(f"{service.host} reports that the prompt is too long for its model; shorten")
    else:
        assert (error.prompt_tokens, error.limit_tokens) == figures
        assert f"so {service.host} refused it" in str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_key_is_never_shown_even_where_the_service_quotes_it(kind: Kind) -> None:
    odd = "an-odd-key-of-no-known-shape"
    with ChatService(refusal(401, f"Incorrect API key provided: {KEY} or {odd}")) as service, anyio.fail_after(60):
        async with asked(service, kind, api_key=odd) as model:
            with pytest.raises(ServiceError) as caught:
                await round_of(model, question())
            assert odd not in repr(model.service)
    assert KEY not in str(caught.value)
    assert odd not in str(caught.value)
    assert "[REDACTED]" in str(caught.value)


HALF: dict[Kind, list[bytes]] = {
    "openai": openai_stream({"content": "Half"}, finish=None, done=False),
    "anthropic": anthropic_stream(anthropic_text("Half"), stop=None),
}
BROKEN: tuple[tuple[str, Callable[[Kind], Reply]], ...] = (
    ("closed", lambda kind: Reply(pieces=HALF[kind], ending="break")),
    ("ended early", lambda kind: Reply(pieces=HALF[kind])),
    ("not JSON", lambda kind: Reply(pieces=[*HALF[kind], sse("{broken", "message_delta")])),
    ("not UTF-8", lambda kind: Reply(pieces=[*HALF[kind], b"event: message_delta\ndata: \xff\xfe{\n\n"])),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("_name", "reply"), BROKEN, ids=[name for name, _ in BROKEN])
async def test_an_answer_that_breaks_off_keeps_what_came(
    _name: str, reply: Callable[[Kind], Reply], kind: Kind
) -> None:
    conversation = question()
    with ChatService(reply(kind)) as service, anyio.fail_after(60):
        async with asked(service, kind) as model:
            with pytest.raises(ServiceError, match=f"{service.host} broke off in the middle of its answer"):
                await round_of(model, conversation)
    assert conversation.messages[-1] == Message("assistant", "Half")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_in_the_middle_of_a_stream_is_reported(kind: Kind) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with ChatService(Reply(pieces=[*HALF[kind], sse(body, "error")])) as service, anyio.fail_after(60):
        async with asked(service, kind) as model:
            with pytest.raises(
                ServiceError, match=r"is busy or has reached its rate limit \(Overloaded\); ask again in a"
            ):
                await round_of(model, question())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"", b'data: "text"\n\ndata: [1]\n\n'])
async def test_another_kind_of_service_is_distinguished_from_a_chat_service(kind: Kind, body: bytes) -> None:
    with ChatService(Reply(pieces=[body] if body else [])) as service, anyio.fail_after(60):
        async with asked(service, kind) as model:
            with pytest.raises(GenerationError) as caught:
                await round_of(model, question())
    assert re.search(r"did not answer as a service of kind|broke off", str(caught.value))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("reply", "changes", "sentence"),
    [
        (Reply(ending="silence"), {"timeout_s": 0.2}, "sent no data for 0.2 s; ask again, or raise provider.timeout_s"),
        (Reply(ending="hang"), {"timeout_s": 0.2}, "sent no data for 0.2 s"),
        (Reply(ending="hang"), {"answer_timeout_s": 0.2}, "did not finish its answer within 0.2 s"),
    ],
    ids=["before the head", "before the body", "for the whole answer"],
)
async def test_a_silent_service_is_waited_for_no_longer_than_it_may_be(
    kind: Kind, reply: Reply, changes: dict[str, float], sentence: str
) -> None:
    with ChatService(reply) as service, anyio.fail_after(60):
        async with asked(service, kind, **changes) as model:
            with pytest.raises(ServiceError, match=re.escape(f"{service.host} {sentence}")):
                await round_of(model, question())
        assert await anyio.to_thread.run_sync(service.left.wait, 5)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_connection_is_reported_with_the_address_to_check(kind: Kind) -> None:
    with ChatService() as service:
        gone = settings(service, kind)
    with anyio.fail_after(60):
        async with open_remote(gone) as model:
            with pytest.raises(ServiceError, match=f"{gone.host} cannot be reached .*check the network and provider"):
                await round_of(model, question())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_redirect_is_not_followed_so_that_no_other_service_gets_the_question(kind: Kind) -> None:
    with ChatService(openai_reply("got it")) as elsewhere, ChatService() as service, anyio.fail_after(60):
        service.replies.append(Reply(307, (), {"Location": f"{elsewhere.url}/v1/chat/completions"}))
        async with asked(service, kind) as model:
            with pytest.raises(ServiceError, match=f"redirects requests to {elsewhere.url}"):
                await round_of(model, question())
    assert elsewhere.requests == []


async def test_a_refusal_for_now_is_asked_again_as_often_as_the_owner_says() -> None:
    soon = refusal(503, "loading", {"Retry-After": "0.01"})
    with ChatService(soon, soon, openai_reply("Yes.")) as service, anyio.fail_after(60):
        async with asked(service, retries=2) as model:
            conversation = question()
            await round_of(model, conversation)
    assert conversation.messages[-1].text == "Yes."
    assert len(service.requests) == 3


def test_a_service_is_named_without_the_password_in_its_address() -> None:
    service = RemoteSettings("openai", "https://me:secret@example.com/v1", "m")
    assert service.host == "example.com"
    assert not service.is_vendors_own
    assert replace(service, base_url="https://api.openai.com/v1").is_vendors_own
