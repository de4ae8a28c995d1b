"""An answer waits for its turn and then streams: what every route that generates does between a request and its events.

    request ─▶ 503 not ready, 429 too many ─▶ Queued, Queued, … ─▶ the events of the answer

Whoever leaves at any point gives its place back, and its own run is stopped; nobody else's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import TypeVar

import anyio
from starlette.requests import Request

from rkllm_mcp.app import App
from rkllm_mcp.events import EVENT_TYPES, Queued, Text, Thinking, Usage
from rkllm_mcp.surfaces.http.context import Service, service_of, stopping, tenant_of
from rkllm_mcp.surfaces.http.problems import Problem
from rkllm_mcp.surfaces.http.turnstile import Place, QueueFullError, Turnstile, TurnstileClosedError
from rkllm_mcp.tenancy import Tenant

# An event, or whatever else a kind of answer consists of
_T = TypeVar("_T")


@contextmanager
def queued(request: Request, turnstile: Turnstile) -> Generator[Place, None, None]:
    """A place in a queue for whoever sent the request.

    Raises:
        Problem: 503 the service cannot answer now; 429 too many wait.
    """
    service_of(request).check_ready()
    try:
        place = turnstile.enter(request.state.key)
    except QueueFullError as error:
        raise Problem(429, str(error), retry_after_s=error.retry_after_s) from None
    with place:
        try:
            yield place
        except TurnstileClosedError:
            raise stopping() from None


async def in_turn(
    request: Request, answering: Callable[[App], AsyncGenerator[_T, None]], placed: Callable[[], object] | None = None
) -> AsyncGenerator[_T | Queued, None]:
    """The events of an answer once it is its turn, and where it stands before; consume it under ``aclosing``.

    Args:
        request: who asks.
        answering: begins the answer; called when it is its turn, with the assistant that is there then: a changed
            configuration may have replaced it meanwhile.
        placed: is called once the request has its place and will not be refused any more.

    Raises:
        Problem: before the first event: 503 the service cannot answer now; 429 too many wait. At any time: 429 today's
            tokens are used up.
    """
    service, tenant = service_of(request), tenant_of(request)
    service.check_ready()
    await service.allowances.check(tenant)
    with queued(request, service.turnstile) as place:
        if placed is not None:
            placed()
        while (position := await place.changed()) is not None:
            yield Queued(position)
        # Those who waited together may have used it up one after the other.
        await service.allowances.check(tenant)
        async with aclosing(_counted(service, tenant, answering(tenant_of(request).app))) as events:
            async for event in events:
                yield event


async def _counted(service: Service, tenant: Tenant, events: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
    """The same events; what they cost is counted, also where somebody leaves before that is told."""
    unpaid = 0
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, EVENT_TYPES):
                    service.metrics.take(event)
                    service.traces.take(event)
                if isinstance(event, (Text, Thinking)):
                    unpaid += 1
                elif isinstance(event, Usage):
                    unpaid = 0
                    service.meter.take(event)
                    await service.allowances.spend(tenant, event.prefilled_tokens + event.generated_tokens)
                yield event
    finally:
        if unpaid:
            with anyio.CancelScope(shield=True):
                await service.allowances.spend(tenant, unpaid)
