"""A connection on which a request has to begin in time: whoever opens many and sends nothing keeps nobody else out.

uvicorn gives up a connection that is idle between requests, and ``bodies`` a body that stops coming. What neither sees
is the head of a request that never ends, or never begins; there are only so many connections.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# From the first byte, or from the beginning of the connection, to the end of the head, seconds. Browsers open
# connections in advance and come back to them within a few.
HEAD_S = 30.0


class PatientConnection(H11Protocol):
    """uvicorn's connection, closed when the head of a request is not there in time."""

    head_s = HEAD_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # as in uvicorn
        """It is open."""
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end()
        elif self._deadline is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(self.head_s, self.transport.close)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
