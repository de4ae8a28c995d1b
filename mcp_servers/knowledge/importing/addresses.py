"""Which hosts a document may be fetched from.

A program that fetches what others name must not become their way into the network it stands in. So a name is looked
up, every address it has is judged, and the connection goes to exactly the address that was judged: a second look-up
could answer something else.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

import anyio

from mcp_servers.knowledge.importing.problems import AddressRefusedError, AddressUnreachableError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# The last four bytes of these are an IPv4 address that a translator will talk to.
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")


def shown(url: str) -> str:
    """An address as it may be shown: without a login and without a query, which may hold keys."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the address"
    return f"{parts.scheme}://{host}{port}{parts.path}"[:300]


async def addresses_of(url: str, host: str, port: int, allowed: Sequence[str]) -> list[str]:
    """The numeric addresses of a host, judged.

    Args:
        url: for the sentence.
        host: a name or an address, in whatever notation the system understands.
        port: to connect to.
        allowed: networks that may be asked although they are not public, e.g. ``192.168.0.0/16``.

    Raises:
        AddressRefusedError: one of them is not public, or not even an address of one host.
        AddressUnreachableError: the name is unknown.
    """
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressUnreachableError(shown(url), f"the host {host} is not known") from error
    numeric = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    networks = [ipaddress.ip_network(network) for network in allowed]
    for address in numeric:
        if not is_allowed(address, networks):
            raise AddressRefusedError(shown(url), f"{host} is in a private network")
    return numeric


def is_allowed(address: str, networks: Sequence[_Network] = ()) -> bool:
    """Whether an address is public, or in one of the networks."""
    judged = _meant(ipaddress.ip_address(address))
    if any(judged in network for network in networks):
        return True
    is_special = judged.is_multicast or judged.is_reserved or judged.is_unspecified
    is_site = isinstance(judged, ipaddress.IPv6Address) and judged.is_site_local
    return judged.is_global and not is_special and not is_site


def _meant(address: _Address) -> _Address:
    """The IPv4 address inside an IPv6 one that leads there; else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour or address
    if address.teredo:
        return address.teredo[1]
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
