"""Notifications to systemd (sd_notify(3)): readiness, status and watchdog; nothing outside of systemd."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

import anyio


class Notifier:
    """Sends to ``NOTIFY_SOCKET``, and to the watchdog of ``WATCHDOG_USEC`` and ``WATCHDOG_PID``."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # A leading @ means the zero byte of an abstract address.
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        # The interval of the watchdog, seconds; 0 without one.
        self.watchdog_s = 0.0
        microseconds = environment.get("WATCHDOG_USEC", "")
        if name and microseconds.isdigit() and environment.get("WATCHDOG_PID", "") in ("", str(os.getpid())):
            self.watchdog_s = int(microseconds) / 1_000_000

    def ready(self, status: str) -> None:
        """Report that the service is ready; units that wait for it start."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """A new configuration is being read; ``ready`` ends this."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """On the way to the end."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    def extend_start(self, seconds: float) -> None:
        """Starting takes longer than the unit says: systemd is to wait so much more, from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        self._send("WATCHDOG=1")

    async def feed(self, is_stuck: Callable[[], bool]) -> None:
        """Give signs of life until cancelled, and none while ``is_stuck`` says that no answer will come any more.

        It runs in the event loop of the service, so a loop that hangs gives none either.
        """
        if not self.watchdog_s:
            return
        while True:
            if not is_stuck():
                self.alive()
            await anyio.sleep(self.watchdog_s / 3)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.sendto(text.replace("\n\n", "\n").encode(), self._address)
            except OSError:
                # systemd is gone or does not read: the service continues, and the watchdog decides.
                return
