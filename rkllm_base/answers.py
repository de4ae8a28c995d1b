"""Answers from outside, the asking side of HTTP: each is limited in time, size, count of values and depth.

    client, request ─▶ fetch ─▶ Answer(status, headers, content) ─▶ read_json ─▶ values

A server chooses what it answers, how long that is and how slowly it comes, so every answer that is read whole is read
here: the boards of ``[[boards]]``, registries, the list of files of a hub, weather, specifications of APIs, logins.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import anyio

if TYPE_CHECKING:
    import httpx2

# Of JSON: numbers, texts, lists, objects and the names in them.
MOST_VALUES = 120_000
# The parser refuses what is nested deeper; it is not an argument.
DEPTH = 200
# Counted at once, so that the lock of the interpreter is released between.
COUNTED_BYTES = 262_144
_VALUE_MARKS = (b",", b":", b"[", b"{")
_CLOSE_S = 1.0
_PACKED_BYTES = 65_536
_TOO_LONG = "its answer is longer than {:,} bytes"
_TOO_SLOW = "its answer took longer than {:g} s"


@dataclass(frozen=True)
class AnswerLimits:
    """Limits of an answer."""

    total_s: float  # from the request to the last byte
    size_bytes: int  # of the body
    values: int = MOST_VALUES  # in its JSON


class AnswerRefusedError(ValueError):
    """An answer from outside is beyond its limits, or is not the JSON that was expected."""


class AnswerTooSlowError(AnswerRefusedError):
    """An answer from outside was not complete in time."""


@dataclass(frozen=True)
class Answer:
    """An answer that was read whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Return True for a status of 200 to 299."""
        return 200 <= self.status < 300


async def fetch(client: httpx2.AsyncClient, method: str, url: str, limits: AnswerLimits, **request: Any) -> Answer:
    """Send a request and return its answer, read whole; ``request`` are further arguments of ``build_request``.

    Raises:
        AnswerRefusedError: the answer is beyond its limits.
        httpx2.HTTPError: no answer came.
    """
    sent = client.build_request(method, url, **request)
    # What unpacks to much would be unpacked before its size is known.
    sent.headers["Accept-Encoding"] = "identity"
    content = bytearray()
    try:
        with anyio.fail_after(limits.total_s):
            response = await client.send(sent, stream=True)
            try:
                _check_announced(response, limits)
                async for piece in response.aiter_raw():
                    content += piece
                    if len(content) > limits.size_bytes:
                        raise AnswerRefusedError(_TOO_LONG.format(limits.size_bytes))
            finally:
                with anyio.move_on_after(_CLOSE_S, shield=True), suppress(Exception):
                    await response.aclose()
    except TimeoutError:
        raise AnswerTooSlowError(_TOO_SLOW.format(limits.total_s)) from None
    return Answer(response.status_code, response.headers, bytes(content))


def limit_stream(
    response: httpx2.Response, limits: AnswerLimits, refuse: Callable[[AnswerRefusedError], Exception]
) -> None:
    """Limit an open response that a library will read whole; ``refuse`` makes the exception that its reader gets.

    A compressed one may have 64 KiB: what it unpacks to is not known before.
    """
    from httpx2 import AsyncByteStream

    inner, end = cast("AsyncByteStream", response.stream), time.monotonic() + limits.total_s
    is_packed = response.headers.get("content-encoding", "identity").lower() not in ("identity", "")
    most = min(limits.size_bytes, _PACKED_BYTES) if is_packed else limits.size_bytes

    class Limited(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in inner:
                size += len(piece)
                if size > most:
                    raise refuse(AnswerRefusedError(_TOO_LONG.format(limits.size_bytes)))
                if time.monotonic() > end:
                    raise refuse(AnswerTooSlowError(_TOO_SLOW.format(limits.total_s)))
                yield piece

        async def aclose(self) -> None:
            await inner.aclose()

    response.stream = Limited()


def fetch_now(
    client: httpx2.Client,
    method: str,
    url: str,
    limits: AnswerLimits,
    check: Callable[[httpx2.Response], object] = lambda _: None,
    **request: Any,
) -> Answer:
    """Return an answer like ``fetch``, for a command that has no event loop; it ends at most a read timeout late.

    ``check`` raises for a response whose body is not wanted.
    """
    end, content = time.monotonic() + limits.total_s, bytearray()
    headers = {**request.pop("headers", {}), "Accept-Encoding": "identity"}
    with client.stream(method, url, headers=headers, **request) as response:
        check(response)
        _check_announced(response, limits)
        for piece in response.iter_raw():
            content += piece
            if len(content) > limits.size_bytes:
                raise AnswerRefusedError(_TOO_LONG.format(limits.size_bytes))
            if time.monotonic() > end:
                raise AnswerTooSlowError(_TOO_SLOW.format(limits.total_s))
        return Answer(response.status_code, response.headers, bytes(content))


def read_json(content: bytes, most_values: int = MOST_VALUES) -> Any:
    """Return the values of JSON from outside.

    Raises:
        AnswerRefusedError: it is not JSON, is nested deeper than 200, or has more values.
    """
    from pydantic_core import from_json

    if count_values(content) > most_values:
        raise AnswerRefusedError(f"its answer has more than {most_values:,} values")
    try:
        return from_json(content.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
    except ValueError as error:
        raise AnswerRefusedError(f"its answer is not JSON that can be read ({error})") from None


def count_values(content: bytes) -> int:
    """Return about the number of values in JSON: its commas, colons and opening brackets outside of texts."""
    total, start, quotes = 1, 0, 0
    while start < len(content):
        part = content[start : start + COUNTED_BYTES]
        # A backslash stays with the character that it escapes.
        end = start + len(part) + (len(part) - len(part.rstrip(b"\\"))) % 2
        pieces = content[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[quotes % 2 :: 2])
        total += sum(map(outside.count, _VALUE_MARKS))
        start, quotes = end, quotes + len(pieces) - 1
    return total


def _check_announced(response: httpx2.Response, limits: AnswerLimits) -> None:
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limits.size_bytes and response.request.method != "HEAD":
        raise AnswerRefusedError(_TOO_LONG.format(limits.size_bytes))
    if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
        raise AnswerRefusedError("its answer is compressed, which was not asked for")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of the header Retry-After; None without it, or where it is a date."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
