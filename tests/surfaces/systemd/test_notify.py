"""What the service tells systemd, read from a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.surfaces.http.sd_notify import Notifier

pytestmark = pytest.mark.anyio


@pytest.fixture
def listener(tmp_path: Path) -> Generator[socket.socket, None, None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def test_ready_reloading_and_stopping_are_notified(listener: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": listener.getsockname()})
    notifier.notify(READY=1, STATUS="serving")
    notifier.notify(RELOADING=1, MONOTONIC_USEC=12)
    notifier.notify(STOPPING=1, STATUS="until the answers have ended")
    notifier.notify(EXTEND_TIMEOUT_USEC=1_500_000)
    assert listener.recv(1000) == b"READY=1\nSTATUS=serving"
    assert listener.recv(1000) == b"RELOADING=1\nMONOTONIC_USEC=12"
    assert listener.recv(1000) == b"STOPPING=1\nSTATUS=until the answers have ended"
    assert listener.recv(1000) == b"EXTEND_TIMEOUT_USEC=1500000"


def test_an_abstract_address_is_understood() -> None:
    name = f"rkllm-mcp-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(60)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).notify(WATCHDOG=1)
        assert listening.recv(100) == b"WATCHDOG=1"


def test_without_systemd_and_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).notify(READY=1, STATUS="serving")
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).notify(READY=1, STATUS="serving")


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_is_the_one_that_waits_for_this_process(variables: dict[str, str], seconds: float) -> None:
    assert Notifier({"NOTIFY_SOCKET": "@x", **variables}).watchdog_s == seconds


async def test_signs_of_life_come_until_no_answer_will(listener: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "3000"}
    is_stuck = False
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Notifier(environment).feed, lambda: is_stuck)
            for _ in range(3):
                assert await anyio.to_thread.run_sync(listener.recv, 100) == b"WATCHDOG=1"
            is_stuck = True
            await anyio.lowlevel.checkpoint()
            with listener.dup() as sent, suppress(BlockingIOError):
                sent.setblocking(False)
                while sent.recv(100):
                    pass
            with anyio.move_on_after(0.05):
                await anyio.wait_readable(listener)
                raise AssertionError("a sign of life of a service that is stuck")
            tasks.cancel_scope.cancel()
