"""Bodies of requests, the answering side of HTTP: limited in size, in pauses and in the time of all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import anyio

# The longest silence in the middle of a body, seconds.
SILENCE_S = 30.0
# A body holds its room while it comes, so beyond a minute it has to come at this rate on average; a modem is as fast.
_SLOW_START_S = 60.0
_LEAST_BYTES_PER_S = 4_096

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


def limit_receive(
    receive: Receive,
    limit: int,
    *,
    too_large: Callable[[], Exception],
    stalled: Callable[[str], Exception],
    silence_s: float = SILENCE_S,
) -> Receive:
    """Return ``receive`` of ASGI with a limit on the bytes of a body and on its time.

    Args:
        receive: of the request.
        limit: bytes that are read.
        too_large: makes the exception for a longer body.
        stalled: makes the exception for one that stops coming or comes too slowly, of the words that say so.
        silence_s: the longest pause.
    """
    size, started = 0, anyio.current_time()

    async def receive_in_time() -> MutableMapping[str, Any]:
        nonlocal size
        left_s = started + _SLOW_START_S + size / _LEAST_BYTES_PER_S - anyio.current_time()
        try:
            with anyio.fail_after(min(silence_s, left_s)):
                message = await receive()
        except TimeoutError:
            words = f"stopped coming for {silence_s:g} seconds" if silence_s <= left_s else "comes too slowly"
            raise stalled(words) from None
        size += len(message.get("body", b""))
        if size > limit:
            raise too_large()
        return message

    return receive_in_time
