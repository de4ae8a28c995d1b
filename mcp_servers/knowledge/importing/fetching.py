"""A URL -> the document behind it, in a bounded time and size.

Only http and https; every hop of a redirect is judged like the first address (see ``addresses``). The proxy and the
login files of the environment are not used: a proxy would make the connection to an address that nobody judged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import PurePosixPath
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import anyio
import httpx2

from mcp_servers.knowledge.importing.addresses import addresses_of, shown
from mcp_servers.knowledge.importing.documents import Blob
from mcp_servers.knowledge.importing.problems import (
    AddressRefusedError,
    AddressUnreachableError,
    TooLargeError,
    UnsupportedFormatError,
)

_OK = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
# Documents all, whatever is behind the slash; anything else is judged by its bytes.
_NO_DOCUMENTS = frozenset({"image", "audio", "video", "font", "model"})
_TRIED_ADDRESSES = 3
_CLOSE_S = 1.0


@dataclass(frozen=True)
class FetchLimits:
    """How a document is fetched.

    Args:
        allowed_networks: networks that may be asked although they are private, e.g. ``("192.168.0.0/16",)``.
        redirects: followed at most.
        connect_timeout_s: for connection and TLS.
        read_timeout_s: between two pieces of an answer.
        total_timeout_s: for everything.
        user_agent: what the request says it comes from.
    """

    allowed_networks: tuple[str, ...] = ()
    redirects: int = 5
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 15.0
    total_timeout_s: float = 60.0
    user_agent: str = "rkllm-mcp-knowledge"


async def fetch(url: str, limits: FetchLimits, most_bytes: int) -> Blob:
    """Fetch a document.

    Args:
        url: http or https.
        limits: how.
        most_bytes: larger ones are given up.

    Raises:
        AddressRefusedError: no address that may be asked, or a redirect to one.
        AddressUnreachableError: no answer, or none with a document.
        TooLargeError: more bytes than allowed.
        UnsupportedFormatError: a picture, a recording.
    """
    timeout = httpx2.Timeout(limits.read_timeout_s, connect=limits.connect_timeout_s)
    try:
        with anyio.fail_after(limits.total_timeout_s):
            async with _client(timeout) as client:
                return await _follow(client, urldefrag(url).url, limits, most_bytes)
    except TimeoutError as error:
        reason = f"it takes longer than {limits.total_timeout_s:g} s"
        raise AddressUnreachableError(shown(url), reason) from error


@asynccontextmanager
async def _client(timeout: httpx2.Timeout) -> AsyncGenerator[httpx2.AsyncClient, None]:
    client = httpx2.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False)
    try:
        yield client
    finally:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await client.aclose()


async def _follow(client: httpx2.AsyncClient, url: str, limits: FetchLimits, most_bytes: int) -> Blob:
    for _ in range(limits.redirects + 1):
        answer = await _ask(client, url, limits, most_bytes)
        if isinstance(answer, Blob):
            return answer
        url = urldefrag(urljoin(url, answer)).url
    raise AddressUnreachableError(shown(url), f"it redirects more than {limits.redirects} times")


async def _ask(client: httpx2.AsyncClient, url: str, limits: FetchLimits, most_bytes: int) -> Blob | str:
    """The document, or where it is instead."""
    target = _checked(url)
    port = target.port or _PORTS[target.scheme]
    addresses = await addresses_of(url, target.host, port, limits.allowed_networks)
    failure: Exception | None = None
    for address in addresses[:_TRIED_ADDRESSES]:
        request = client.build_request(
            "GET",
            target.copy_with(host=address),
            headers={
                "Host": target.netloc.decode("ascii"),
                "User-Agent": limits.user_agent,
                "Accept": "*/*",
                # Unpacked bytes are counted, but a server that packs nothing is easier on a small machine.
                "Accept-Encoding": "identity",
            },
            # The certificate is checked against the name, not against the address that is connected to.
            extensions={"sni_hostname": target.raw_host.decode("ascii"), "timeout": client.timeout.as_dict()},
        )
        try:
            return await _document(client, request, url, most_bytes)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            failure = error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise AddressUnreachableError(shown(url), str(error) or type(error).__name__) from error
    raise AddressUnreachableError(shown(url), "the host does not answer") from failure


def _checked(url: str) -> httpx2.URL:
    try:
        target = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressRefusedError(shown(url), "it is no address") from error
    if target.scheme not in _PORTS or not target.host:
        raise AddressRefusedError(shown(url), "it is no http address")
    if target.userinfo:
        raise AddressRefusedError(shown(url), "it holds a login")
    return target


async def _document(client: httpx2.AsyncClient, request: httpx2.Request, url: str, most_bytes: int) -> Blob | str:
    response = await client.send(request, stream=True)
    try:
        location = response.headers.get("location", "")
        if response.status_code in _REDIRECTS and location:
            return location
        if response.status_code != _OK:
            raise AddressUnreachableError(shown(url), f"HTTP {response.status_code}")
        media_type, charset = _content_type(response.headers.get("content-type", ""))
        if media_type.partition("/")[0] in _NO_DOCUMENTS:
            raise UnsupportedFormatError(shown(url), f"it is {media_type}")
        content = await _content(response, url, most_bytes)
    finally:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await response.aclose()
    return Blob(content, _name(url), media_type, charset, url)


async def _content(response: httpx2.Response, url: str, most_bytes: int) -> bytes:
    too_large = TooLargeError(shown(url), f"it has more than {most_bytes // 1_000_000:,} MB")
    declared = response.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most_bytes:
        raise too_large
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > most_bytes:
            raise too_large
    return bytes(content)


def _content_type(header: str) -> tuple[str, str]:
    message = Message()
    message["Content-Type"] = header or "application/octet-stream"
    charset = message.get_content_charset("")
    return message.get_content_type(), charset


def _name(url: str) -> str:
    """What the document is called: the last part of its address, or its host."""
    parts = urlsplit(url)
    return unquote(PurePosixPath(parts.path).name) or parts.hostname or url
