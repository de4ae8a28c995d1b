"""Functions that a configuration may name as tools; each does one thing that functions do."""

from __future__ import annotations

import threading
from typing import Any

import anyio.lowlevel

NOT_A_FUNCTION = 5
# What waits here waits until the test lets it go, or for ever.
gate = threading.Event()
# Counts those that have come to it.
waiting = threading.Semaphore(0)


def add(a: int, b: int = 1) -> dict[str, int]:
    """A dict is shown as JSON."""
    return {"sum": a + b}


async def wait_a_moment(text: str) -> str:
    """Runs in the event loop."""
    await anyio.lowlevel.checkpoint()
    return text


def promise(text: str) -> Any:
    """Not async itself, but what it returns is."""
    return wait_a_moment(text)


def nothing() -> None:
    """Says nothing."""


def fail() -> None:
    """Fails as foreign code does."""
    raise RuntimeError("the disk is full")


def leave() -> None:
    """Tries to end the process."""
    raise SystemExit(3)


def hang() -> None:
    """Does not return by itself."""
    waiting.release()
    gate.wait()


def thing() -> object:
    """Returns what is not JSON."""
    return {1, 2}.__class__


class Tools:
    """A place for functions."""

    @staticmethod
    def inner() -> str:
        """Is reached by a dotted name."""
        return "inner"
