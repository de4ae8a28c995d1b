"""A TCP line to a service on this machine that a test can cut and mend, as a phone's that falls asleep."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class CutLine:
    """Forwards connections while it is whole; ``cut`` ends those that there are and refuses others.

    Args:
        service: a TCP port of this machine, or the path of a socket.
    """

    def __init__(self, service: int | str) -> None:
        self._kind = socket.AF_UNIX if isinstance(service, str) else socket.AF_INET
        self._address = service if isinstance(service, str) else ("127.0.0.1", service)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_whole = True
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        """The port of this end of the line."""
        return int(self._listening.getsockname()[1])

    @property
    def url(self) -> str:
        """The address of this end of the line."""
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End every connection; new ones end at once."""
        with self._lock:
            self._is_whole = False
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Take connections again."""
        self._is_whole = True

    def __enter__(self) -> CutLine:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join(timeout=20)

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.socket(self._kind) as service:
            service.connect(self._address)
            with self._lock:
                if not self._is_whole:
                    return
                self._open |= {client, service}
            back = threading.Thread(target=self._forward, args=(service, client), daemon=True)
            back.start()
            self._forward(client, service)
            back.join()
            with self._lock:
                self._open -= {client, service}

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
