"""Reader: path, bytes or URL -> ParsedDocument. Loads bytes here and parses them in the parser process.

Fetching a URL is limited in time, size and reachable networks. Protection against server-side request forgery: a name
is resolved once, every address is checked, and the connection goes to a checked address, because a second lookup could
return another. Each redirect is checked the same way. Proxies and ``.netrc`` are not used: a proxy would connect to an
unchecked address.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from email.message import Message
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import anyio
import anyio.to_thread
import httpx2

from mcp_servers.knowledge.errors import (
    AddressRefusedError,
    AddressUnreachableError,
    TooLargeError,
    UnreadableFileError,
    UnsupportedFormatError,
)
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.parser_process import MIN_MEMORY, Parsers, open_parser
from mcp_servers.program import close_in_time, redact_url
from rkllm_base.addresses import Zone, reached_address, zone_of


async def resolve_public(url: str, host: str, port: int, allowed: Sequence[str]) -> list[str]:
    """Return the addresses of a host if all may be reached, those in private networks only if ``allowed`` has them."""
    try:
        addresses = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressUnreachableError(redact_url(url), f"the host {host} is not known") from error
    numeric = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in addresses))
    networks = [ipaddress.ip_network(network) for network in allowed]
    for address in numeric:
        is_named = any(reached_address(address) in network for network in networks)
        if zone_of(address) is not Zone.PUBLIC and not is_named:
            raise AddressRefusedError(redact_url(url), f"{host} is in a private network")
    return numeric


_OK = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
# Major types that are never documents; others are detected by their bytes.
_MEDIA_KINDS = frozenset({"image", "audio", "video", "font", "model"})
_MAX_ADDRESSES = 3


@dataclass(frozen=True)
class FetchLimits:
    """Limits of a fetch."""

    allowed_networks: tuple[str, ...] = ()  # permitted although private, e.g. 192.168.0.0/16
    redirects: int = 5  # maximum
    connect_timeout_s: float = 5.0  # including TLS
    read_timeout_s: float = 15.0  # between two parts of the response
    total_timeout_s: float = 60.0
    user_agent: str = "rkllm-mcp-knowledge"


async def fetch(url: str, limits: FetchLimits, max_bytes: int) -> Blob:
    """Fetch a document of at most ``max_bytes`` over http or https.

    Raises AddressRefusedError, AddressUnreachableError, TooLargeError, or UnsupportedFormatError for media.
    """
    timeout = httpx2.Timeout(limits.read_timeout_s, connect=limits.connect_timeout_s)
    client = httpx2.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False)
    target = urldefrag(url).url
    try:
        with anyio.fail_after(limits.total_timeout_s):
            for _ in range(limits.redirects + 1):
                answer = await _request(client, target, limits, max_bytes)
                if isinstance(answer, Blob):
                    return answer
                target = urldefrag(urljoin(target, answer)).url
    except TimeoutError as error:
        reason = f"it takes longer than {limits.total_timeout_s:g} s"
        raise AddressUnreachableError(redact_url(url), reason) from error
    finally:
        await close_in_time(client.aclose)
    raise AddressUnreachableError(redact_url(target), f"it redirects more than {limits.redirects} times")


async def _request(client: httpx2.AsyncClient, url: str, limits: FetchLimits, max_bytes: int) -> Blob | str:
    """Return the document, or the target of a redirect."""
    try:
        target = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressRefusedError(redact_url(url), "it is not a URL") from error
    if target.scheme not in _PORTS or not target.host:
        raise AddressRefusedError(redact_url(url), "it is not an http address")
    if target.userinfo:
        raise AddressRefusedError(redact_url(url), "it contains a user name or password")
    port = target.port or _PORTS[target.scheme]
    addresses = await resolve_public(url, target.host, port, limits.allowed_networks)
    failure: Exception | None = None
    for address in addresses[:_MAX_ADDRESSES]:
        request = client.build_request(
            "GET",
            target.copy_with(host=address),
            headers={
                "Host": target.netloc.decode("ascii"),
                "User-Agent": limits.user_agent,
                "Accept": "*/*",
                # The decompressed size is limited anyway; identity saves work on small machines.
                "Accept-Encoding": "identity",
            },
            # The certificate is verified against the name, not the address.
            extensions={"sni_hostname": target.raw_host.decode("ascii"), "timeout": client.timeout.as_dict()},
        )
        try:
            return await _document(client, request, url, max_bytes)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            failure = error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise AddressUnreachableError(redact_url(url), str(error) or type(error).__name__) from error
    raise AddressUnreachableError(redact_url(url), "the host does not answer") from failure


async def _document(client: httpx2.AsyncClient, request: httpx2.Request, url: str, max_bytes: int) -> Blob | str:
    response = await client.send(request, stream=True)
    try:
        location = response.headers.get("location", "")
        if response.status_code in _REDIRECTS and location:
            return location
        if response.status_code != _OK:
            raise AddressUnreachableError(redact_url(url), f"HTTP {response.status_code}")
        message = Message()
        message["Content-Type"] = response.headers.get("content-type", "") or "application/octet-stream"
        media_type, charset = message.get_content_type(), message.get_content_charset("")
        if media_type.partition("/")[0] in _MEDIA_KINDS:
            raise UnsupportedFormatError(redact_url(url), f"it is {media_type}")
        too_large = TooLargeError(redact_url(url), f"it has more than {max_bytes // 1_000_000:,} MB")
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > max_bytes:
            raise too_large
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > max_bytes:
                raise too_large
    finally:
        await close_in_time(response.aclose)
    parts = urlsplit(url)
    name = unquote(PurePosixPath(parts.path).name) or parts.hostname or url
    return Blob(bytes(content), name, media_type, charset, url)


@dataclass(frozen=True)
class Reader:
    """Reads documents; created by ``open_reader``."""

    parsers: Parsers
    limits: ParseLimits
    fetching: FetchLimits

    async def read_document(self, source: Path | str | Blob, owner: str = "") -> ParsedDocument:
        """Read a path, a URL or bytes; raise DocumentImportError, or MissingExtraError for a missing library.

        Documents of one ``owner``, the name of a tenant, are read one by one.
        """
        if isinstance(source, Blob):
            blob = source
        elif isinstance(source, str) and "://" in source:
            blob = await fetch(source, self.fetching, self.limits.document_bytes)
        else:
            blob = await self.load(Path(source))
        return await self.parsers.parse(blob, owner)

    async def load(self, path: Path, *, follows_links: bool = True) -> Blob:
        """Return a file's bytes; raise UnreadableFileError or TooLargeError."""
        return await anyio.to_thread.run_sync(_load_file, path, self.limits.document_bytes, follows_links)


@asynccontextmanager
async def open_reader(
    limits: ParseLimits | None = None, fetching: FetchLimits | None = None
) -> AsyncGenerator[Reader, None]:
    """Yield a reader; its processes start with the first document."""
    limits = limits or ParseLimits()
    small = replace(limits, memory_bytes=limits.memory_bytes or MIN_MEMORY)
    async with open_parser(small) as for_small, open_parser(limits) as for_large:
        yield Reader(Parsers(for_small, for_large), limits, fetching or FetchLimits())


def _load_file(path: Path, max_bytes: int, follows_links: bool) -> Blob:
    try:
        # Not resolve(), which replaces the name of a link.
        path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows_links else os.O_NOFOLLOW))
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(_printable(path), reason) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFileError(_printable(path), "it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(max_bytes + 1)
        except OSError as error:
            raise UnreadableFileError(_printable(path), error.strerror or str(error)) from error
    if len(content) > max_bytes:
        raise TooLargeError(_printable(path.name), f"it has more than {max_bytes // 1_000_000:,} MB")
    return Blob(content, _printable(path.name), uri=path.as_uri())


def _printable(path: Path | str) -> str:
    """Return a file name as valid text."""
    return os.fsencode(path).decode("utf-8", "replace")
