"""Where addresses lead."""

from __future__ import annotations

import pytest

from rkllm_base.addresses import Zone, is_loopback, zone_of

ZONES = (
    ("93.184.215.14", Zone.PUBLIC),
    ("2606:2800:21f::1", Zone.PUBLIC),
    ("10.1.2.3", Zone.PRIVATE),
    ("192.168.178.1", Zone.PRIVATE),
    ("100.64.0.7", Zone.PRIVATE),
    ("fd12::1", Zone.PRIVATE),
    ("fec0::1", Zone.PRIVATE),
    ("127.8.8.8", Zone.MACHINE),
    ("0.0.0.0", Zone.MACHINE),
    ("::", Zone.MACHINE),
    ("::1", Zone.MACHINE),
    ("::ffff:127.0.0.1", Zone.MACHINE),
    ("64:ff9b::7f00:1", Zone.MACHINE),
    ("2002:7f00:1::", Zone.MACHINE),
    ("169.254.169.254", Zone.LINK),
    ("fe80::1%eth0", Zone.LINK),
    ("fd00:ec2::254", Zone.LINK),
    ("168.63.129.16", Zone.LINK),
    ("::ffff:169.254.169.254", Zone.LINK),
    ("255.255.255.255", Zone.LINK),
    ("224.0.0.251", Zone.LINK),
    ("8.8.8.8", Zone.PUBLIC),
    ("2606:4700::1111", Zone.PUBLIC),
    ("::ffff:8.8.8.8", Zone.PUBLIC),
    ("64:ff9b::808:808", Zone.PUBLIC),
    ("172.16.0.1", Zone.PRIVATE),
    ("fc00::1", Zone.PRIVATE),
    ("2001:0:0:0:0:0:80ff:fffe", Zone.MACHINE),
    ("ff02::1", Zone.LINK),
    ("240.0.0.1", Zone.LINK),
    ("100.100.100.200", Zone.LINK),
)


@pytest.mark.parametrize(("address", "zone"), ZONES)
def test_an_address_is_in_the_zone_that_it_reaches(address: str, zone: Zone) -> None:
    assert zone_of(address) is zone


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("localhost", True), ("LocalHost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("[::1]", True)]
    + [(name, False) for name in ("0.0.0.0", "::", "127.evil.example", "board", "192.168.0.2", "", "127.1")],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own
