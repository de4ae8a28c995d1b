"""What answers have cost since the service began: read off their events as they pass, for the board's page and metrics.

Only what the runtime reported is counted, round by round. The rates are those of the latest rounds that had work enough
to tell.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

from rkllm_mcp.errors import StoreError
from rkllm_mcp.surfaces.http.errors import HTTPError

if TYPE_CHECKING:
    from rkllm_mcp.app.tenants import Tenant
    from rkllm_mcp.events import Usage


class Quota:
    """Daily token quotas of all tenants."""

    def __init__(self) -> None:
        # By tenant and day: tokens counted in this process.
        self._known = Counter[tuple[str, str]]()

    def limit(self, tenant: Tenant) -> int | None:
        """Return a tenant's tokens per day; None without a limit."""
        return tenant.section.daily_tokens if tenant.section else None

    async def check(self, tenant: Tenant) -> None:
        """Refuse a tenant that has no tokens left today, with 429 and the time until midnight."""
        limit = self.limit(tenant)
        if limit is not None and await self._added(tenant) >= limit:
            message = f"the {limit} tokens of today are used up; ask again tomorrow, or have daily_tokens raised"
            now = datetime.now().astimezone()
            midnight = datetime.combine(now.date() + timedelta(days=1), time(), now.tzinfo)
            rest_s = (midnight - now).total_seconds()
            raise HTTPError(429, message, code="daily_tokens_exceeded", retry_after_s=rest_s)

    async def spend(self, tenant: Tenant, tokens: int) -> None:
        """An answer has cost so many tokens."""
        if self.limit(tenant) is not None:
            await self._added(tenant, tokens)

    async def _added(self, tenant: Tenant, tokens: int = 0) -> int:
        day = datetime.now().date().isoformat()
        place = (tenant.name, day)
        self._known[place] += tokens
        # Where nothing can be remembered the owner has been told so, and what is known here has to do.
        with suppress(StoreError):
            kept = await tenant.app.store.tally.add(day, tokens)
            self._known[place] = max(self._known[place], kept)
        return self._known[place]


# A rate is told of so many rounds, and of none that was shorter than this: those are mostly fixed cost.
ROUNDS = 8
TELLING_TOKENS = 8


@dataclass
class UsageTotals:
    """The sums and the latest rates."""

    prefilled_tokens: int = 0  # evaluated
    reused_tokens: int = 0  # found in the KV cache
    generated_tokens: int = 0  # written
    _prefills: deque[tuple[int, float]] = field(default_factory=lambda: deque[tuple[int, float]](maxlen=ROUNDS))
    _decodes: deque[tuple[int, float]] = field(default_factory=lambda: deque[tuple[int, float]](maxlen=ROUNDS))

    def take(self, usage: Usage) -> None:
        """A round has ended."""
        self.prefilled_tokens += usage.prefilled_tokens
        self.reused_tokens += usage.cached_tokens
        self.generated_tokens += usage.generated_tokens
        if usage.prefilled_tokens >= TELLING_TOKENS and usage.prefill_ms > 0:
            self._prefills.append((usage.prefilled_tokens, usage.prefill_ms))
        if usage.generated_tokens >= TELLING_TOKENS and usage.decode_ms > 0:
            self._decodes.append((usage.generated_tokens, usage.decode_ms))

    @property
    def prefill_tps(self) -> float | None:
        """Prefilled tokens per second; None before the first round."""
        return _rate(self._prefills)

    @property
    def decode_tps(self) -> float | None:
        """Generated tokens per second; None before the first round."""
        return _rate(self._decodes)


def _rate(rounds: deque[tuple[int, float]]) -> float | None:
    milliseconds = sum(each for _, each in rounds)
    return round(sum(tokens for tokens, _ in rounds) / milliseconds * 1000, 2) if milliseconds else None
