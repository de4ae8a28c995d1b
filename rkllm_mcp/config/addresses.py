"""The limit to addresses that a document or a server names.

Addresses in the configuration may lead anywhere. One that comes from somewhere else, such as the ``servers`` of an
OpenAPI document or the token endpoint of an authorization server, may not lead further inward than its source: a public
server names no address of the local network, and a server of the local network none of this machine.

The address that is connected to is checked, before anything is sent: a name may resolve to another one each time.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from rkllm_base.addresses import ZONE_PHRASES, Zone, zone_of
from rkllm_mcp.errors import ServerUnavailableError

if TYPE_CHECKING:
    import httpx2

# Names of this machine for which no resolver is needed; a proxy would resolve them itself.
_LOCAL_NAME = "localhost"


def origin_of(url: str) -> str:
    """Return scheme, host and port in normalised form; empty for an address without them."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return ""
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}" if parts.hostname else ""


class Reach:
    """The addresses that a document or server may lead to.

    Args:
        source: where the document or server is; empty if the owner gave the document itself.
        named: addresses in the configuration, which may be anywhere.
        remedy: the setting that names an address; part of the error.
    """

    def __init__(self, source: str, addresses: Iterable[str | None], remedy: str) -> None:
        self._source = origin_of(source)
        self._origins = frozenset(origin_of(address) for address in addresses if address)
        self._remedy = remedy
        # The zone of the source, from the first connection to it.
        self._zone: Zone | None = None

    def refusal(self, url: str, zone: Zone | None = None) -> ServerUnavailableError | None:
        """Return the error if an address leads too far inward, else None.

        ``zone`` is where it was found to lead; without it that is known only of what the address itself shows.
        """
        if zone is None:
            zone = _literal_zone(urlsplit(url).hostname or "")
        if zone is None:
            return None
        origin = origin_of(url)
        is_first = origin == self._source and self._zone is None
        if origin in self._origins or is_first or zone <= (self._zone or Zone.PUBLIC):
            return None
        message = f"{origin} is {ZONE_PHRASES[zone]}, and an address that comes from {self._source} may not lead there"
        return ServerUnavailableError(f"{message}; {self._remedy}")

    async def check_resolved(self, url: str) -> None:
        """Raise a ServerUnavailableError if the address, or one that its name has now, leads too far inward."""
        parts = urlsplit(url)
        try:
            results = await anyio.getaddrinfo(parts.hostname or "", parts.port or 0, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            # The connection fails with the reason.
            results = []
        zones = [zone_of(str(entry[4][0])) for entry in results]
        if error := self.refusal(url) or next(filter(None, (self.refusal(url, zone) for zone in zones)), None):
            raise error

    def restrict(self, request: httpx2.Request) -> None:
        """Let a request connect only to addresses that may be reached; a ServerUnavailableError if it shows at once.

        The connection raises a ServerUnavailableError otherwise. A proxy of the environment resolves names itself.
        """
        url = str(request.url.copy_with(userinfo=b"", query=None, fragment=None))
        if error := self.refusal(url):
            raise error
        is_direct = False

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            nonlocal is_direct
            if event == "connection.connect_tcp.started":
                is_direct = str(info.get("host", "")).strip("[]").lower() == request.url.host.lower()
                if is_direct and not (origin_of(url) == self._source and self._zone is None):
                    await self.check_resolved(url)
            elif event == "connection.connect_tcp.complete" and is_direct:
                stream = info["return_value"]
                peer, local = (stream.get_extra_info(name)[0] for name in ("server_addr", "client_addr"))
                # An own address is this machine.
                zone = Zone.MACHINE if peer == local else zone_of(str(peer))
                if error := self.refusal(url, zone):
                    with anyio.CancelScope(shield=True):
                        await stream.aclose()
                    raise error
                if self._zone is None and origin_of(url) == self._source:
                    self._zone = zone

        request.extensions["trace"] = trace


def _literal_zone(host: str) -> Zone | None:
    """Return the zone of a host that is written as an address or as the name of this machine; None for others."""
    name = host.lower().rstrip(".")
    if name == _LOCAL_NAME or name.endswith(f".{_LOCAL_NAME}"):
        return Zone.MACHINE
    try:
        return zone_of(name)
    except ValueError:
        pass
    try:
        # 127.1, 0x7f000001 and 2130706433 are accepted by resolvers.
        return zone_of(socket.inet_ntoa(socket.inet_aton(name)))
    except (OSError, UnicodeError):
        return None
