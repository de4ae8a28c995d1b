"""A question -> one request over HTTP -> an answer, within its limits.

Rules: one request for each question, never repeated, because an answer costs money; every wait bounded, and leaving
closes the connection; redirects are not followed, and keys are neither logged nor quoted. How a vendor is spoken to is
its ``Interface``'s business.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import anyio
import httpx2

from mcp_servers.cloud.errors import (
    AnswerWithheldError,
    BusyError,
    CloudError,
    KeyRefusedError,
    QuestionRefusedError,
    UnreachableError,
    UnreadableError,
    VendorRefusedError,
)
from mcp_servers.cloud.interfaces import Answered, Asked, Question
from mcp_servers.cloud.settings import Settings, Vendor, version

# Closing a TLS connection says goodbye over the network; nobody waits long for that.
_CLOSE_S = 1.0
# Of an error that a vendor explains at length, a small model needs the beginning.
_SAID_CHARS = 200
_OK, _REDIRECTS, _BAD_REQUEST, _NOT_FOUND, _SERVER_ERROR = 200, range(300, 400), 400, 404, 500
_KEY_STATUSES = frozenset({401, 403})
_BUSY_STATUSES = frozenset({429, 503, 529})


class Asking:
    """Asks vendors.

    Args:
        settings: the limits.
        client: the connections.
    """

    def __init__(self, settings: Settings, client: httpx2.AsyncClient) -> None:
        self._settings = settings
        self._client = client

    async def ask(self, vendor: Vendor, text: str, system: str, model: str, max_tokens: int) -> str:
        """The answer as it is handed on.

        Args:
            vendor: who is asked.
            text: the question.
            system: how to answer; empty for no wish.
            model: which model; empty for the usual one.
            max_tokens: the longest answer; 0 for the usual.

        Raises:
            CloudError: there is no answer, and why.
        """
        settings = self._settings
        question = self._checked(vendor, text, system, model, max_tokens or settings.usual_tokens)
        answer = await self._answer(vendor, question)
        if answer.withheld:
            raise AnswerWithheldError(vendor.interface.name, _line(answer.withheld, vendor))
        words = answer.text.strip()
        if not words and not answer.is_cut:
            raise UnreadableError(vendor.host, "it holds no words")
        shown = words[: settings.answer_chars]
        if answer.is_cut:
            more = f"[Cut at {question.max_tokens} tokens; ask for a shorter answer or with more max_tokens.]"
        elif len(shown) < len(words):
            more = f"[Cut: {len(shown)} of {len(words)} characters; ask for a shorter answer.]"
        else:
            more = ""
        return "\n".join(filter(None, (shown, more)))

    def _checked(self, vendor: Vendor, text: str, system: str, model: str, max_tokens: int) -> Question:
        settings = self._settings
        chars, most = len(text) + len(system), settings.question_chars
        model = model or vendor.models[0]
        if not text.strip():
            raise QuestionRefusedError("The question is empty. Ask something.", "質問が空です。質問を入れてください。")
        if chars > most:
            english = f"The question has {chars} characters, at most {most} are sent. Shorten it."
            raise QuestionRefusedError(english, f"質問が長すぎます({chars}文字、上限{most}文字)。短くしてください。")
        if model not in vendor.models:
            names = ", ".join(vendor.models)
            raise QuestionRefusedError(
                f"The model may not be asked. Use one of: {names}.", f"このモデルは使えません。使えるモデル: {names}"
            )
        if not 1 <= max_tokens <= settings.most_tokens:
            most = settings.most_tokens
            raise QuestionRefusedError(
                f"max_tokens must be from 1 to {most}.", f"max_tokensは1から{most}までで指定してください。"
            )
        return Question(text, model, max_tokens, system)

    async def _answer(self, vendor: Vendor, question: Question) -> Answered:
        asked = vendor.interface.request(question, vendor.key, vendor.is_own)
        try:
            with anyio.fail_after(self._settings.timeout_s):
                status, headers, body = await self._sent(vendor, asked)
        except TimeoutError:
            raise UnreachableError(vendor.host, f"no answer in {self._settings.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise UnreachableError(vendor.host, _line(str(error) or type(error).__name__, vendor)) from None
        if status != _OK:
            raise _refusal(vendor, question, status, headers, body)
        try:
            return vendor.interface.read(json.loads(body))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableError(vendor.host, _line(str(error), vendor)) from None

    async def _sent(self, vendor: Vendor, asked: Asked) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body; no more of it than may be.

        Raises:
            UnreadableError: it is larger than an answer can be.
        """
        url = vendor.base_url + asked.path
        async with self._client.stream("POST", url, headers=asked.headers, json=asked.body) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._settings.answer_bytes:
                    raise UnreadableError(vendor.host, f"it is larger than {self._settings.answer_bytes} bytes")
            return response.status_code, response.headers, bytes(body)


@asynccontextmanager
async def open_asking(settings: Settings) -> AsyncGenerator[Asking, None]:
    """What asks, for as long as the block lasts."""
    client = httpx2.AsyncClient(
        headers={"User-Agent": f"rkllm-mcp-cloud/{version()}", "Accept": "application/json"},
        # The whole of a request has its own limit.
        timeout=httpx2.Timeout(None, connect=settings.connect_timeout_s),
        # A redirect would take question and key to a host that nobody has named.
        follow_redirects=False,
    )
    try:
        yield Asking(settings, client)
    finally:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await client.aclose()


def _refusal(vendor: Vendor, question: Question, status: int, headers: Mapping[str, str], body: bytes) -> CloudError:
    """The error of a status."""
    name, variable = vendor.interface.name, vendor.interface.variable
    said = _said(vendor, body)
    # Gemini says so of a wrong key with status 400.
    if status in _KEY_STATUSES or (status == _BAD_REQUEST and "API key not valid" in said):
        return KeyRefusedError(name, f"{variable}_API_KEY", said)
    if status in _BUSY_STATUSES:
        return BusyError(name, said, _seconds(headers.get("retry-after", "")))
    if status == _NOT_FOUND:
        remedy = f"It may have no model '{question.model}': check {variable}_MODEL and {variable}_BASE_URL."
        japanese = (
            f"モデル「{question.model}」がないようです。{variable}_MODELと{variable}_BASE_URLを確認してください。"
        )
        return VendorRefusedError(name, status, said, remedy, japanese)
    if status in _REDIRECTS:
        remedy = f"It sends requests on to another address: check {variable}_BASE_URL."
        return VendorRefusedError(name, status, said, remedy, f"{variable}_BASE_URLを確認してください。")
    if status >= _SERVER_ERROR:
        return VendorRefusedError(name, status, said, "Try again later.", "しばらくしてからもう一度試してください。")
    return VendorRefusedError(name, status, said, "Change the question.", "質問を変えて試してください。")


def _said(vendor: Vendor, body: bytes) -> str:
    """What a vendor says in its error, on one line; empty where it says nothing that can be read."""
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if isinstance(document, list):
        # What Gemini streams.
        document = next(iter(cast("list[object]", document)), None)
    for key in ("error", "message"):
        document = cast("dict[str, object]", document).get(key) if isinstance(document, dict) else document
    return _line(document, vendor) if isinstance(document, str) else ""


def _line(text: str, vendor: Vendor) -> str:
    line = " ".join(text.split()).replace(vendor.key, "[key]")
    return line if len(line) <= _SAID_CHARS else f"{line[: _SAID_CHARS - 1]}…"


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
