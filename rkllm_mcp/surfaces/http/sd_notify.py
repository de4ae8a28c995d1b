"""Notifications to systemd (sd_notify(3)): readiness, status and watchdog; nothing outside of systemd."""

from __future__ import annotations

import os
import socket
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

    async def feed(self, is_stuck: Callable[[], bool]) -> None:
        """Give signs of life until cancelled, and none while ``is_stuck`` says that no answer will come any more.

        It runs in the event loop of the service, so a loop that hangs gives none either.
        """
        if not self.watchdog_s:
            return
        while True:
            if not is_stuck():
                self.notify(WATCHDOG=1)
            await anyio.sleep(self.watchdog_s / 3)

    def notify(self, **variables: object) -> None:
        """Set variables of sd_notify(3), such as ``READY=1``."""
        if not self._address:
            return
        text = "\n".join(f"{name}={value}" for name, value in variables.items())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.sendto(text.replace("\n\n", "\n").encode(), self._address)
            except OSError:
                # systemd is gone or does not read: the service continues, and the watchdog decides.
                return
