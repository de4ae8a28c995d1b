"""One HTTP request goes out, and what comes back is read up to a limit.

Redirects are followed within the origin of the request only: anywhere else the tokens would go to somebody they were
not given for. Cookies of an API are not kept, because the next call may be another person's. An address in a log shows
no token. Imports the HTTP client, so it is imported itself where a source is opened.

Followed: RFC 9110 (redirects, content types); httpx2 2.14.
"""

from __future__ import annotations

import http.cookiejar
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urljoin

import anyio
import httpx2

from rkllm_mcp.tools.openapi.addresses import origin_of
from rkllm_mcp.tools.openapi.requests import Request
from rkllm_mcp.tools.tokens import redacted

_MAX_REDIRECTS = 5
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/x-www-form-urlencoded", "application/yaml")


class ExchangeError(Exception):
    """No answer came; the message says why, for the model."""


@dataclass(frozen=True)
class Answer:
    """What came back.

    Args:
        status: the HTTP status.
        reason: the words beside it.
        media_type: of the content, in small letters; empty when the API does not say.
        content: the content as far as it was read; nothing where it is not text.
        is_cut: there was more.
        size_bytes: of the whole content, where the API said so or all of it was read.
        charset: of a text.
        headers: by name in small letters.
    """

    status: int
    reason: str
    media_type: str = ""
    content: bytes = b""
    is_cut: bool = False
    size_bytes: int | None = None
    charset: str = "utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def is_text(self) -> bool:
        """Whether the content is something to read; without a type it is looked at."""
        if not self.media_type:
            return b"\0" not in self.content[:1024]
        return is_text_type(self.media_type)


def is_text_type(media_type: str) -> bool:
    """Whether content of this type is text."""
    return media_type.startswith(_TEXT_TYPES) or media_type.endswith(("+json", "+xml", "json", "javascript", "yaml"))


class _DiscreetURL(httpx2.URL):
    """An address that shows no token wherever it is written, the client's own log included."""

    def __init__(self, url: str, secrets: Sequence[str]) -> None:
        super().__init__(url)
        self._secrets = secrets

    def __str__(self) -> str:
        return redacted(super().__str__(), self._secrets)


class Exchange:
    """A way to an API; ``open_exchange`` makes one."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def send(
        self, request: Request, limit_bytes: int, secrets: Sequence[str] = (), *, any_type: bool = False
    ) -> Answer:
        """Send a request and read the answer.

        Args:
            request: what is sent.
            limit_bytes: the most that is read.
            secrets: what no log may show.
            any_type: read what does not call itself text as well.

        Raises:
            ExchangeError: no answer came, or one that leads elsewhere.
        """
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                answer = await self._send_once(request, limit_bytes, secrets, any_type=any_type)
            except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, ValueError) as error:
                raise ExchangeError(_unreachable(request, error)) from None
            target = answer.headers.get("location") if answer.status in {301, 302, 303, 307, 308} else None
            if target is None:
                return answer
            request = _redirected(request, answer.status, target)
        raise ExchangeError("The API redirects in circles; tell its owner.")

    async def _send_once(self, request: Request, limit_bytes: int, secrets: Sequence[str], *, any_type: bool) -> Answer:
        headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
        sent = self._client.build_request(request.method, request.url, headers=headers, content=request.content)
        sent.url = _DiscreetURL(request.url, secrets)
        response = await self._client.send(sent, stream=True)
        try:
            return await _read(response, limit_bytes, any_type=any_type)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


@asynccontextmanager
async def open_exchange(connect_timeout_s: float, timeout_s: float, user_agent: str) -> AsyncGenerator[Exchange]:
    """A client for one API; on leaving, its connections are closed.

    Args:
        connect_timeout_s: the longest a connection may take.
        timeout_s: the longest silence.
        user_agent: who we say we are; some APIs answer nobody without a name.
    """
    timeout = httpx2.Timeout(timeout_s, connect=min(connect_timeout_s, timeout_s))
    forgetful = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    client = httpx2.AsyncClient(timeout=timeout, cookies=forgetful, headers={"User-Agent": user_agent})
    async with client:
        yield Exchange(client)


async def _read(response: httpx2.Response, limit_bytes: int, *, any_type: bool) -> Answer:
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    length = response.headers.get("content-length", "")
    announced = int(length) if length.isdecimal() and "content-encoding" not in response.headers else None
    chunks: list[bytes] = []
    read_bytes, is_cut = 0, False
    if media_type and not any_type and not is_text_type(media_type):
        is_cut = True  # what nobody reads need not come
    else:
        async for chunk in response.aiter_bytes():
            chunks.append(chunk[: limit_bytes - read_bytes])
            read_bytes += len(chunk)
            if read_bytes > limit_bytes:
                is_cut = True
                break
    return Answer(
        status=response.status_code,
        reason=response.reason_phrase,
        media_type=media_type,
        content=b"".join(chunks),
        is_cut=is_cut,
        size_bytes=announced if is_cut else read_bytes,
        charset=response.charset_encoding or "utf-8",
        headers={name.lower(): value for name, value in response.headers.items()},
    )


def _redirected(request: Request, status: int, target: str) -> Request:
    url = urljoin(request.url, target)
    if origin_of(url) != origin_of(request.url):
        raise ExchangeError(
            f"The API redirects to {origin_of(url) or 'an address that is none'}, which is not followed; "
            "set openapi_base_url to the right address."
        )
    is_post = request.method == "POST" and status in {301, 302}
    if not (is_post or (status == 303 and request.method != "HEAD")):
        return Request(request.method, url, request.headers, request.content)
    headers = {name: value for name, value in request.headers.items() if name.lower() != "content-type"}
    return Request("GET", url, headers)


def _unreachable(request: Request, error: Exception) -> str:
    where = origin_of(request.url) or "its address"
    if isinstance(error, httpx2.ConnectTimeout):
        return f"The API at {where} cannot be reached: no connection in time."
    if isinstance(error, httpx2.TimeoutException):
        return f"The API at {where} did not answer in time."
    if isinstance(error, httpx2.ConnectError):
        return f"The API at {where} cannot be reached: {_first_line(error)}."
    return f"The exchange with the API at {where} failed: {_first_line(error)}."


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:200].rstrip(".")
