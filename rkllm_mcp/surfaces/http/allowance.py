"""How many tokens a tenant may still cost today: ``[[tenants]] daily_tokens``.

What the board really did is counted, tokens evaluated and tokens written; what was found in the KV cache is free. The
sum is kept with the tenant's other memory, so a restart does not forget it, and several services on one state folder
share it. A day is one of the board's clock. An answer that has begun is never cut: the next one is refused. One that is
left before its figures come is counted as ``agent.bill`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, time, timedelta

from rkllm_mcp.errors import StoreError
from rkllm_mcp.surfaces.http.problems import Problem
from rkllm_mcp.tenancy import Tenant


def _now() -> datetime:
    return datetime.now().astimezone()


class Allowances:
    """The allowances of all tenants.

    Args:
        now: the time on the board's clock.
    """

    def __init__(self, now: Callable[[], datetime] = _now) -> None:
        self._now = now
        # By tenant and day: what it has cost, as far as is known here.
        self._known: dict[tuple[str, str], int] = {}

    def limit(self, tenant: Tenant) -> int | None:
        """What a tenant may cost in a day, tokens; None where there is no limit."""
        return tenant.section.daily_tokens if tenant.section else None

    async def check(self, tenant: Tenant) -> None:
        """See that a tenant has something left today.

        Raises:
            Problem: 429, with the time until midnight.
        """
        limit = self.limit(tenant)
        if limit is None:
            return
        if await self._added(tenant) >= limit:
            message = f"the {limit} tokens of today are used up; ask again tomorrow, or have daily_tokens raised"
            raise Problem(429, message, code="daily_tokens_exceeded", retry_after_s=self._until_midnight_s())

    async def spend(self, tenant: Tenant, tokens: int) -> None:
        """An answer has cost so many tokens."""
        if self.limit(tenant) is None:
            return
        await self._added(tenant, tokens)

    async def _added(self, tenant: Tenant, tokens: int = 0) -> int:
        """What today has cost, these tokens included."""
        day = self._now().date().isoformat()
        self._known[tenant.name, day] = self._known.get((tenant.name, day), 0) + tokens
        # Where nothing can be remembered the owner has been told so, and what is known here has to do.
        with suppress(StoreError):
            kept = await tenant.app.memory.tally.add(day, tokens)
            self._known[tenant.name, day] = max(self._known[tenant.name, day], kept)
        return self._known[tenant.name, day]

    def _until_midnight_s(self) -> float:
        now = self._now()
        midnight = datetime.combine(now.date() + timedelta(days=1), time(), now.tzinfo)
        return (midnight - now).total_seconds()
