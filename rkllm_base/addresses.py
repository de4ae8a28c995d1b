"""Where a network address leads: the public network, a private one, this machine, or a metadata service."""

from __future__ import annotations

import enum
import ipaddress
from typing import TypeAlias

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
# NAT64: the last four bytes are the IPv4 address that is reached.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Metadata services of clouds outside the link-local network: AWS, Azure, Alibaba and Oracle.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "168.63.129.16", "100.100.100.200", "192.0.0.192")))


class Zone(enum.IntEnum):
    """How far inward an address leads."""

    PUBLIC = 0
    PRIVATE = 1
    MACHINE = 2
    LINK = 3


# Where an address of a zone is.
ZONE_PHRASES = {
    Zone.PUBLIC: "in the public network",
    Zone.PRIVATE: "in a private network",
    Zone.MACHINE: "on this machine",
    Zone.LINK: "a link-local or metadata address",
}


def zone_of(address: str) -> Zone:
    """Return the zone of a numeric address; IPv4 addresses inside IPv6 ones are recognised. A ValueError for others."""
    reached = reached_address(address)
    if reached.is_loopback or reached.is_unspecified:
        return Zone.MACHINE
    if reached.is_link_local or reached.is_multicast or reached.is_reserved or reached in _METADATA:
        return Zone.LINK
    is_site = isinstance(reached, ipaddress.IPv6Address) and reached.is_site_local
    return Zone.PUBLIC if reached.is_global and not is_site else Zone.PRIVATE


def reached_address(address: str) -> Address:
    """Return the IPv4 address inside a mapped, 6to4, Teredo or NAT64 address, else the address itself."""
    written = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(written, ipaddress.IPv4Address):
        return written
    if written.ipv4_mapped or written.sixtofour:
        return written.ipv4_mapped or written.sixtofour or written
    if written.teredo:
        return written.teredo[1]
    return ipaddress.IPv4Address(int(written) & 0xFFFFFFFF) if written in _NAT64 else written


def is_loopback(host: str) -> bool:
    """Return True if a name or address, also one in brackets, refers to this machine only."""
    try:
        # A host name can also start with 127. without being a loopback address.
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
