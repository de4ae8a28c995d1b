"""An answer waits for its turn and then streams: what every route that generates does between a request and its events.

    request ─▶ 503 not ready, 429 too many ─▶ Queued, Queued, … ─▶ the events of the answer

Whoever leaves at any point gives its place back, and its own run is stopped; nobody else's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import TypeVar

import anyio
from starlette.requests import Request

from rkllm_mcp.app import App
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.events import EVENT_TYPES, End, Queued, Usage
from rkllm_mcp.surfaces.http.context import Service, service_of, stopping, tenant_of
from rkllm_mcp.surfaces.http.problems import Problem, as_told
from rkllm_mcp.surfaces.http.streams import while_connected
from rkllm_mcp.surfaces.http.turnstile import Place, QueueFullError, Turnstile, TurnstileClosedError
from rkllm_mcp.tenancy import Tenant

# An event, or whatever else a kind of answer consists of
_T = TypeVar("_T")


@contextmanager
def queued(request: Request, turnstile: Turnstile, *, may_load: bool = False) -> Generator[Place, None, None]:
    """A place in a queue for whoever sent the request.

    Args:
        request: who asks.
        turnstile: the queue.
        may_load: the model may still be loading; its engine lets runs wait.

    Raises:
        Problem: 503 the service cannot answer now; 429 too many wait.
    """
    service_of(request).check_ready(may_load=may_load)
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
    request: Request,
    answering: Callable[[App], AsyncGenerator[_T, None]],
    placed: Callable[[], object] | None = None,
    *,
    may_load: bool = False,
) -> AsyncGenerator[_T | Queued | End, None]:
    """The events of an answer once it is its turn, and where it stands before; consume it under ``aclosing``.

    Args:
        request: who asks.
        answering: begins the answer; called when it is its turn, with the assistant that is there then: a changed
            configuration may have replaced it meanwhile.
        placed: is called once the request has its place and will not be refused any more.
        may_load: it waits while the model loads; else that is a refusal.

    Raises:
        Problem: before the first event: 503 the service cannot answer now; 429 too many wait. At any time: 429 today's
            tokens are used up.
    """
    service, tenant = service_of(request), tenant_of(request)
    service.check_ready(may_load=may_load)
    await service.allowances.check(tenant)
    with queued(request, service.turnstile, may_load=may_load) as place:
        if placed is not None:
            placed()
        while (position := await place.changed()) is not None:
            yield Queued(position)
        # Those who waited together may have used it up one after the other.
        await service.allowances.check(tenant)
        app = tenant_of(request).app
        async with aclosing(_counted(service, tenant, app.bill.settle, answering(app))) as events:
            async for event in events:
                yield event


async def evaluated(request: Request, work: Callable[[], Awaitable[_T]], cost: Callable[[], Awaitable[int]]) -> _T:
    """What an evaluation comes to, once it is its turn.

    Args:
        request: who asks; leaving it ends the work.
        work: evaluates.
        cost: how many tokens that is, also where somebody leaves before its end; asked where there is a limit.

    Raises:
        Problem: 503 the service cannot answer now; 429 too many wait, or today's tokens are used up.
        RkllmMcpError: it cannot be evaluated, which costs nothing.
    """
    service, tenant = service_of(request), tenant_of(request)
    await service.allowances.check(tenant)

    async def in_its_turn() -> _T:
        with queued(request, service.evaluations) as place:
            await place.turn()
            # Those who waited together may have used it up one after the other.
            await service.allowances.check(tenant)
            is_counted = service.allowances.limit(tenant) is not None
            try:
                return await work()
            except RkllmMcpError:
                is_counted = False
                raise
            finally:
                if is_counted:
                    with anyio.CancelScope(shield=True):
                        await service.allowances.spend(tenant, await cost())

    return await while_connected(request, in_its_turn)


async def _counted(
    service: Service, tenant: Tenant, cost: Callable[[], int], events: AsyncGenerator[_T, None]
) -> AsyncGenerator[_T | End, None]:
    """The same events; what they cost is counted, also where somebody leaves before that is told."""

    async def settle() -> None:
        if tokens := cost():
            await service.allowances.spend(tenant, tokens)

    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, EVENT_TYPES):
                    service.metrics.take(event)
                    service.traces.take(event)
                if isinstance(event, Usage):
                    service.count(tenant.name, event)
                    await settle()
                yield as_told(event)
    finally:
        with anyio.CancelScope(shield=True):
            await settle()
