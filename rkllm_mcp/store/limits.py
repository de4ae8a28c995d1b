"""How long stored data is kept: as this board's configuration says, or as the boards of a database agree."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rkllm_mcp.store.database import Transaction


@dataclass(frozen=True)
class HistoryLimits:
    """Limits of the stored conversations."""

    # maximum age of the last answer; None for no limit. A clock correction of more than a year ages no conversation
    days: float | None = None
    conversations: int | None = None  # the least recently changed beyond this number are deleted; None for no limit
    keep_results: bool = False  # results of tools are stored with the conversation, for ``RESULT_DAYS``


@dataclass(frozen=True)
class Retention:
    """Limits of the call history."""

    days: float = 90.0  # older calls are deleted; 0 stores none. A clock correction of more than a year ages no call
    calls: int = 10_000  # the oldest beyond this number are deleted


@dataclass(frozen=True)
class StoreLimits:
    """All limits of a store."""

    history: HistoryLimits = HistoryLimits()
    calls: Retention = Retention()

    def as_settings(self) -> dict[str, float | bool | None]:
        """Return them under the names that they have in a configuration."""
        return {
            "service.history_days": self.history.days,
            "service.history_conversations": self.history.conversations,
            "service.keep_results": self.history.keep_results,
            "security.history_days": self.calls.days,
            "security.history_calls": self.calls.calls,
        }

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> StoreLimits:
        """Return the limits that ``as_settings`` has written; those that are missing are the default ones."""
        values: dict[str, Any] = {**cls().as_settings(), **settings}
        return cls(
            HistoryLimits(
                values["service.history_days"], values["service.history_conversations"], values["service.keep_results"]
            ),
            Retention(values["security.history_days"], values["security.history_calls"]),
        )


class Limits:
    """The limits of a store that one board has to itself, and its time."""

    def __init__(
        self, own: StoreLimits | None = None, now: Callable[[Transaction], float] = lambda _: time.time()
    ) -> None:
        self.current: StoreLimits = own or StoreLimits()
        self.now = now  # the time by which stored data ages, seconds since 1970

    def read(self, transaction: Transaction) -> StoreLimits | None:
        """Return the limits by which this board may delete; None if it may delete nothing."""
        del transaction
        return self.current


def shown_limit(value: object) -> str:
    """Return a limit as a person reads it, and as ``store settings`` takes it."""
    return "unlimited" if value is None else json.dumps(value)
