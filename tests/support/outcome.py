"""What a command of ``rkllm-mcp`` leaves behind; ``tests.surfaces`` has the fixture ``command`` that runs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]
