"""Frames leave through a socket without their sender ever waiting for it.

The sender is the runtime's callback, and while it runs the NPU stands still. A frame goes straight into the socket's
buffer; when that is full, it and all that follow queue up here and one thread writes them, in order, until the queue is
empty again. Nothing is dropped while the other side is there; when it is gone, nobody misses what is.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress

_WITHOUT_WAITING = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Outbox:
    """The sending side of a blocking stream socket; any thread may send.

    Args:
        connection: the socket, which stays its owner's.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._overflow: deque[bytes] = deque()
        self._overflowing = threading.Semaphore(0)
        self._is_open = True
        self._writer = threading.Thread(target=self._write_overflow, name="rkllm-outbox", daemon=True)
        self._writer.start()

    def send(self, frame: bytes) -> None:
        """Send a frame now, or as soon as the other side has read enough."""
        with self._lock:
            if not self._is_open:
                return
            if self._overflow:
                self._overflow.append(frame)
                return
            try:
                sent = self._connection.send(frame, _WITHOUT_WAITING)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._give_up()
                return
            if sent < len(frame):
                self._overflow.append(frame[sent:])
                self._overflowing.release()

    def close(self) -> None:
        """Stop sending; shut the connection down first, or this waits for the other side to read."""
        with self._lock:
            self._is_open = False
        self._overflowing.release()
        self._writer.join()

    def _write_overflow(self) -> None:
        while self._is_open:
            self._overflowing.acquire()
            try:
                while (frame := self._first_overflow()) is not None:
                    self._connection.sendall(frame)
                    # Only now: while a frame is in the queue, no other can overtake it.
                    self._forget_first()
            except OSError:
                with self._lock:
                    self._give_up()

    def _give_up(self) -> None:
        """Send no more, and make sure that both sides know: frames that are missing must not look like silence."""
        self._is_open = False
        self._overflow.clear()
        with suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def _first_overflow(self) -> bytes | None:
        with self._lock:
            return self._overflow[0] if self._overflow else None

    def _forget_first(self) -> None:
        with self._lock:
            self._overflow.popleft()
