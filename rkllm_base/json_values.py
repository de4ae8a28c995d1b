"""The size of parsed JSON in bytes, without writing it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, cast

LONG_BYTES = 64 * 1024
"""The size of JSON from which the work on it is done in a thread."""
_VALUE_BYTES = 8


def size_of(value: object, limit: int) -> int:
    """Return about the bytes that a value takes as JSON, at most ``limit``; takes no longer than the limit allows."""
    size, waiting = 0, [value]
    while waiting and size < limit:
        item = waiting.pop()
        size += _VALUE_BYTES
        if isinstance(item, str):
            # UTF-8 has up to three times as many bytes, which is not a reason to encode the text.
            size += len(item)
        elif isinstance(item, Mapping):
            pairs = islice(cast("Mapping[Any, Any]", item).items(), limit // _VALUE_BYTES)
            waiting += (part for pair in pairs for part in pair)
        elif isinstance(item, (list, tuple)):
            waiting += islice(cast("list[Any]", item), limit // _VALUE_BYTES)
    return min(size, limit)


def is_long(value: object) -> bool:
    """Return True if work on a value takes long enough to be done in a thread."""
    return size_of(value, LONG_BYTES) >= LONG_BYTES
