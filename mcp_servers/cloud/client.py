"""Client of the vendors' HTTP APIs: one request per question, with limits.

Rules: a request is never repeated, because an answer costs money; every wait is bounded, and cancellation closes the
connection; redirects are not followed, and keys are neither logged nor quoted in messages.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import cast

import httpx2

from mcp_servers.cloud.settings import Settings, Vendor
from mcp_servers.cloud.vendors import ChatRequest
from mcp_servers.errors import BilingualError
from mcp_servers.program import close_in_time, read_texts, version
from rkllm_base.answers import AnswerLimits, AnswerRefusedError, AnswerTooSlowError, fetch, read_json, retry_after_s

# The start of a long error message from a vendor is enough for a small model.
_MAX_DETAIL_CHARS = 200
_OK, _REDIRECTS, _BAD_REQUEST, _NOT_FOUND, _SERVER_ERROR = 200, range(300, 400), 400, 404, 500
_KEY_STATUSES = frozenset({401, 403})
_BUSY_STATUSES = frozenset({429, 503, 529})


class CloudError(BilingualError):
    """An error that a tool returns instead of an answer; its message never contains an API key.

    A small model reads the messages and passes them on, so each one ends with the next step for the user.
    """

    catalog = read_texts(__file__, "errors.json")


@dataclass(frozen=True)
class CloudClient:
    """Client that sends questions to the configured vendors."""

    settings: Settings
    client: httpx2.AsyncClient

    async def ask(self, vendor: Vendor, text: str, system: str, model: str, max_tokens: int) -> str:
        """Return the answer of a vendor, with a note when it was truncated.

        ``system`` and ``model`` may be empty and ``max_tokens`` 0 for the defaults of the settings. Raises CloudError
        if no answer was received.
        """
        settings = self.settings
        chars, limit = len(text) + len(system), settings.max_question_chars
        question = ChatRequest(text, model or vendor.models[0], max_tokens or settings.default_tokens, system)
        if not text.strip():
            raise CloudError("EmptyQuestion")
        if chars > limit:
            raise CloudError("LongQuestion", chars=chars, limit=limit)
        if question.model not in vendor.models:
            raise CloudError("ModelNotAllowed", models=", ".join(vendor.models))
        if not 1 <= question.max_tokens <= settings.max_tokens_limit:
            raise CloudError("TokensOutOfRange", limit=settings.max_tokens_limit)
        request = vendor.api.request(question, vendor.key, vendor.base_url)
        limits = AnswerLimits(settings.timeout_s, settings.max_reply_bytes)
        try:
            reply = await fetch(self.client, "POST", request.url, limits, headers=request.headers, json=request.body)
        except AnswerTooSlowError:
            reason = f"no answer in {settings.timeout_s:g} s"
            raise CloudError("ConnectionFailed", host=vendor.host, reason=reason) from None
        except AnswerRefusedError as refusal:
            raise CloudError("InvalidReply", host=vendor.host, reason=str(refusal)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            reason = _one_line(str(error) or type(error).__name__, vendor)
            raise CloudError("ConnectionFailed", host=vendor.host, reason=reason) from None
        if reply.status != _OK:
            raise _status_error(vendor, question, reply.status, reply.headers, reply.content)
        try:
            answer = vendor.api.read(read_json(reply.content))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CloudError("InvalidReply", host=vendor.host, reason=_one_line(str(error), vendor)) from None
        if answer.refusal:
            raise CloudError("ContentFiltered", vendor=vendor.api.name, reason=_one_line(answer.refusal, vendor))
        words = answer.text.strip()
        if not words and not answer.is_cut:
            raise CloudError("InvalidReply", host=vendor.host, reason="it contains no text")
        shortened = words[: settings.max_answer_chars]
        if answer.is_cut:
            more = f"[Cut at {question.max_tokens} tokens; ask for a shorter answer or with more max_tokens.]"
        elif len(shortened) < len(words):
            more = f"[Cut: {len(shortened)} of {len(words)} characters; ask for a shorter answer.]"
        else:
            more = ""
        return "\n".join(filter(None, (shortened, more)))


@asynccontextmanager
async def open_client(settings: Settings) -> AsyncGenerator[CloudClient, None]:
    """Open a client for the duration of the block."""
    client = httpx2.AsyncClient(
        headers={"User-Agent": f"rkllm-mcp-cloud/{version()}", "Accept": "application/json"},
        # The whole request has its own time limit in ask.
        timeout=httpx2.Timeout(None, connect=settings.connect_timeout_s),
        # A redirect would send the question and the key to a host that the configuration does not name.
        follow_redirects=False,
    )
    try:
        yield CloudClient(settings, client)
    finally:
        await close_in_time(client.aclose)


def _status_error(
    vendor: Vendor, question: ChatRequest, status: int, headers: Mapping[str, str], body: bytes
) -> CloudError:
    # The vendor's own message; Gemini's streaming format is a list.
    document: object = None
    with suppress(ValueError, RecursionError):
        document = json.loads(body)
    if isinstance(document, list):
        document = next(iter(cast("list[object]", document)), None)
    for key in ("error", "message"):
        document = cast("dict[str, object]", document).get(key) if isinstance(document, dict) else document
    detail = _one_line(document, vendor) if isinstance(document, str) else ""
    values: dict[str, object] = {}
    # Gemini reports a wrong key with status 400.
    if status in _KEY_STATUSES or (status == _BAD_REQUEST and "API key not valid" in detail):
        kind = "Authentication"
    elif status in _BUSY_STATUSES:
        wait_s = retry_after_s(headers)
        kind = "RateLimit" if wait_s is None else "RateLimitUntil"
        values["wait_s"] = wait_s
    elif status == _NOT_FOUND:
        kind = "ModelNotFound"
        values["model"] = question.model
    elif status in _REDIRECTS:
        kind = "Redirected"
    else:
        kind = "VendorFailed" if status >= _SERVER_ERROR else "QuestionRejected"
    api = vendor.api
    values["quoted_detail"] = f" ({detail})" if detail else ""
    return CloudError(kind, vendor=api.name, variable=api.variable, status=status, **values)


def _one_line(text: str, vendor: Vendor) -> str:
    line = " ".join(text.split()).replace(vendor.key, "[key]")
    return line if len(line) <= _MAX_DETAIL_CHARS else f"{line[: _MAX_DETAIL_CHARS - 1]}…"
