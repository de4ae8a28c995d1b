"""How many tokens a tenant may still cost today: ``[[tenants]] daily_tokens``.

What the board really did is counted, tokens evaluated and tokens written; what was found in the KV cache is free. The
sum is kept with the tenant's other memory, so a restart does not forget it. A day is one of the board's clock. An
answer that has begun is never cut: the next one is refused. One that is left before its figures come is counted as
``agent.bill`` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, time, timedelta

from rkllm_mcp.surfaces.http.problems import Problem
from rkllm_mcp.tenancy import Tenant

_KIND = "daily tokens"


def _now() -> datetime:
    return datetime.now().astimezone()


class Allowances:
    """The allowances of all tenants.

    Args:
        now: the time on the board's clock.
    """

    def __init__(self, now: Callable[[], datetime] = _now) -> None:
        self._now = now
        # By tenant: the day, and what it has cost so far.
        self._spent: dict[str, tuple[str, int]] = {}
        self._reading = asyncio.Lock()

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
        spent = await self._today(tenant)
        if spent >= limit:
            message = f"the {limit} tokens of today are used up; ask again tomorrow, or have daily_tokens raised"
            raise Problem(429, message, code="daily_tokens_exceeded", retry_after_s=self._until_midnight_s())

    async def spend(self, tenant: Tenant, tokens: int) -> None:
        """An answer has cost so many tokens."""
        if self.limit(tenant) is None:
            return
        spent = await self._today(tenant) + tokens
        day = self._now().date().isoformat()
        self._spent[tenant.name] = (day, spent)
        (await tenant.app.memory.texts(_KIND)).write("spent", f"{day} {spent}")

    async def _today(self, tenant: Tenant) -> int:
        day = self._now().date().isoformat()
        async with self._reading:
            if tenant.name not in self._spent:
                kept = (await tenant.app.memory.texts(_KIND)).read("spent") or ""
                kept_day, _, spent = kept.partition(" ")
                self._spent[tenant.name] = (kept_day, int(spent) if spent.isdigit() else 0)
        kept_day, spent = self._spent[tenant.name]
        return spent if kept_day == day else 0

    def _until_midnight_s(self) -> float:
        now = self._now()
        midnight = datetime.combine(now.date() + timedelta(days=1), time(), now.tzinfo)
        return (midnight - now).total_seconds()
