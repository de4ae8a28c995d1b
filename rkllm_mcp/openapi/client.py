"""HTTP response -> tool result: the text, or the error with advice for the model.

Error statuses become results, not exceptions. Tokens that an API echoes are replaced by ``[REDACTED]``, also where
truncation cuts one.

Reference: RFC 9110, status codes; mission "MCP統合設計", 認証エラー.
"""

from __future__ import annotations

import http.cookiejar
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

import anyio
import httpx2

from rkllm_mcp.config.addresses import Reach, origin_of
from rkllm_mcp.config.header_templates import redact
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.openapi.operations import Operation
from rkllm_mcp.openapi.request import Request
from rkllm_mcp.text import first_line, shorten
from rkllm_mcp.toolcalls.results import size_text, text_result

_MAX_REDIRECTS = 5
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/x-www-form-urlencoded", "application/yaml")


class HttpClientError(Exception):
    """No response; the message is for the model."""


@dataclass(frozen=True)
class HttpResult:
    """An HTTP response."""

    status: int  # HTTP status
    reason: str  # reason phrase
    media_type: str = ""  # lower case; empty if the API does not name it
    content: bytes = b""  # the part that was read; empty if not text
    is_cut: bool = False  # the content is longer
    size_bytes: int | None = None  # of the whole content, if announced or read completely
    charset: str = "utf-8"  # of a text
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # lower-case names


def _is_text_type(media_type: str) -> bool:
    return media_type.startswith(_TEXT_TYPES) or media_type.endswith(("+json", "+xml", "json", "javascript", "yaml"))


class _RedactedURL(httpx2.URL):
    """A URL whose text form hides tokens, also in the HTTP client's own log."""

    def __init__(self, url: str, secrets: Sequence[str]) -> None:
        super().__init__(url)
        self._secrets = secrets

    def __str__(self) -> str:
        return redact(super().__str__(), self._secrets)


@dataclass(frozen=True)
class HttpClient:
    """HTTP client for one API; ``open_http_client`` creates one."""

    client: httpx2.AsyncClient
    reach: Reach | None  # limits the addresses
    total_s: float  # the longest time for an answer

    async def send(
        self, request: Request, limit_bytes: int, secrets: Sequence[str] = (), *, any_type: bool = False
    ) -> HttpResult:
        """Send a request and read at most ``limit_bytes`` of the response.

        ``secrets`` are hidden in logs. Content that is not text is read only with ``any_type``. An HttpClientError if
        no response came, or a redirect to another origin.
        """
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                with anyio.fail_after(self.total_s):
                    answer = await self._send_once(request, limit_bytes, secrets, any_type=any_type)
            except TimeoutError:
                raise HttpClientError(f"The API's answer was not complete after {self.total_s:g} s.") from None
            except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, ValueError) as error:
                where = origin_of(request.url) or "its address"
                detail = shorten(first_line(str(error)) or type(error).__name__, _MAX_REASON_CHARS).rstrip(".")
                if isinstance(error, httpx2.ConnectTimeout):
                    reason = f"The API at {where} cannot be reached: no connection in time."
                elif isinstance(error, httpx2.TimeoutException):
                    reason = f"The API at {where} did not answer in time."
                elif isinstance(error, httpx2.ConnectError):
                    reason = f"The API at {where} cannot be reached: {detail}."
                else:
                    reason = f"The exchange with the API at {where} failed: {detail}."
                raise HttpClientError(reason) from None
            except ServerUnavailableError as error:
                raise HttpClientError(f"The address of the API is refused: {error}.") from None
            target = answer.headers.get("location") if answer.status in {301, 302, 303, 307, 308} else None
            if target is None:
                return answer
            url = urljoin(request.url, target)
            if origin_of(url) != origin_of(request.url):
                where = origin_of(url) or "an invalid address"
                remedy = "set openapi_base_url to the right address."
                raise HttpClientError(f"The API redirects to {where}, which is not followed; {remedy}")
            is_post = request.method == "POST" and answer.status in {301, 302}
            if is_post or (answer.status == 303 and request.method != "HEAD"):
                headers = {name: value for name, value in request.headers.items() if name.lower() != "content-type"}
                request = Request("GET", url, headers)
            else:
                request = Request(request.method, url, request.headers, request.content)
        raise HttpClientError("The API redirects in a loop; report this to its operator.")

    async def _send_once(
        self, request: Request, limit_bytes: int, secrets: Sequence[str], *, any_type: bool
    ) -> HttpResult:
        headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
        sent = self.client.build_request(request.method, request.url, headers=headers, content=request.content)
        if self.reach is not None:
            self.reach.restrict(sent)
        sent.url = _RedactedURL(request.url, secrets)
        response = await self.client.send(sent, stream=True)
        try:
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            length = response.headers.get("content-length", "")
            announced = int(length) if length.isdecimal() and "content-encoding" not in response.headers else None
            chunks: list[bytes] = []
            read_bytes, is_cut = 0, False
            if media_type and not any_type and not _is_text_type(media_type):
                is_cut = True  # the rest is not needed
            else:
                async for chunk in response.aiter_bytes():
                    chunks.append(chunk[: limit_bytes - read_bytes])
                    read_bytes += len(chunk)
                    if read_bytes > limit_bytes:
                        is_cut = True
                        break
            return HttpResult(
                status=response.status_code,
                reason=response.reason_phrase,
                media_type=media_type,
                content=b"".join(chunks),
                is_cut=is_cut,
                size_bytes=announced if is_cut else read_bytes,
                charset=response.charset_encoding or "utf-8",
                headers={name.lower(): value for name, value in response.headers.items()},
            )
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


@asynccontextmanager
async def open_http_client(
    connect_timeout_s: float, timeout_s: float, user_agent: str, reach: Reach | None = None
) -> AsyncGenerator[HttpClient]:
    """Open a client for one API inside this block.

    ``timeout_s`` limits the time without data and, twice, that of an answer; ``reach`` limits the addresses.
    """
    timeout = httpx2.Timeout(timeout_s, connect=min(connect_timeout_s, timeout_s))
    forgetful = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    # Some APIs reject requests without a user agent.
    client = httpx2.AsyncClient(timeout=timeout, cookies=forgetful, headers={"User-Agent": user_agent})
    async with client:
        yield HttpClient(client, reach, 2 * timeout_s)


# Length of the reason of a failed exchange.
_MAX_REASON_CHARS = 200


# Length of an error text for the model, after removing HTML.
_MAX_ERROR_CHARS = 600
_MAX_HTML_CHARS = 20_000
_MARKUP = re.compile(r"<(script|style|head)\b[^>]*>.*?</\1\s*>|<!--.*?-->|<[^<>]*>", re.DOTALL | re.IGNORECASE)
_ADVICE = {
    401: "the token is missing, wrong or expired",
    403: "the token is known, but may not do this",
    404: "no such name or id",
    405: "this operation is not supported there",
    409: "the request conflicts with the current state",
    413: "the request is too large",
    429: "too many requests; wait before the next",
}


def result_of(operation: Operation, answer: HttpResult, secrets: Sequence[str], limit_chars: int) -> dict[str, Any]:
    """Return the JSON of a ``tools/call`` result, with ``secrets`` redacted and at most ``limit_chars`` of text."""
    is_error = answer.status >= 400 or answer.status < 200
    status = f"{answer.status} {answer.reason}".strip()
    # Content without a media type is judged by its bytes.
    is_text = _is_text_type(answer.media_type) if answer.media_type else b"\0" not in answer.content[:1024]
    text = ""
    if is_text:
        try:
            text = answer.content.decode(answer.charset, "replace")
        except LookupError:
            text = answer.content.decode("utf-8", "replace")
        text = redact(text, secrets)
        if answer.is_cut and secrets:
            # Truncation may have cut a token; remove a tail that could contain part of one.
            tail_chars = max(map(len, secrets)) * 2
            text = text[:-tail_chars] if len(text) > tail_chars else ""
    if is_error:
        # What the status means for this operation, and what the API says of it.
        of_server = "the API itself has failed; try again later" if answer.status >= 500 else ""
        advice = _ADVICE.get(answer.status, of_server)
        names = dict.fromkeys(f"'{scheme.name}'" for alternative in operation.security for scheme in alternative)
        if answer.status == 401 and names:
            advice = f"{advice}; it takes the token {' or '.join(names)}"
        if wait := answer.headers.get("retry-after", "")[:40]:
            advice = f"{advice} (after {wait}{' s' if wait.isdecimal() else ''})"
        if "html" in answer.media_type:
            text = re.sub(r"\s+", " ", _MARKUP.sub(" ", text[:_MAX_HTML_CHARS])).strip()
        text = shorten(text, _MAX_ERROR_CHARS)
        sentence = f"The API answered {redact(status, secrets)}" + (f": {advice}" if advice else "") + "."
        return text_result(f"{sentence} It says: {text}" if text.strip() else sentence, is_error=True)
    size = "unknown size" if answer.size_bytes is None else size_text(answer.size_bytes)
    if not is_text:
        text = f"[{answer.media_type or 'data of unknown type'}, {size}, not shown]"
    elif not text.strip():
        location = answer.headers.get("location")
        text = f"Done ({status})." + (f" Location: {redact(location, secrets)}" if location else "")
    elif len(text) > limit_chars or answer.is_cut:
        text = f"{text[:limit_chars]}\n… the answer has {size}; only its beginning was read"
    return text_result(text)
