"""Resource subscriptions in both protocol revisions: an event stream since 2026-07-28, notifications before.

A subscription ends with its connection; to continue, subscribe again and read the resource.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio.abc import TaskStatus

from rkllm_mcp.errors import ServerRefusedError, ServerUnavailableError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.subscriptions import Subscription

    from rkllm_mcp.mcp_client.callbacks import ResourceUpdates
    from rkllm_mcp.mcp_client.connection import Connection


OnUpdate: TypeAlias = Callable[[str], Awaitable[None]]

# Limit for resources/unsubscribe, seconds.
_UNSUBSCRIBE_TIMEOUT_S = 2.0


async def follow(
    connection: Connection, updates: ResourceUpdates, uri: str, on_update: OnUpdate, task_status: TaskStatus[None]
) -> None:
    """Call ``on_update`` with the URI of each change, until cancelled.

    ``task_status`` is started once the server has confirmed.

    Raises:
        ServerRefusedError: the server does not support subscriptions to the resource, or ended this one.
        ServerUnavailableError: the server is not connected, or the connection was lost.
    """
    if await connection.request(_is_modern):
        await _follow_events(connection, uri, on_update, task_status)
    else:
        await _follow_notifications(connection, updates, uri, on_update, task_status)


async def _is_modern(client: Client) -> bool:
    return client.session.discover_result is not None


async def _follow_events(connection: Connection, uri: str, on_update: OnUpdate, task_status: TaskStatus[None]) -> None:
    from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost

    async with _listening(connection, uri) as subscription:
        if uri not in (subscription.honored.resource_subscriptions or ()):
            raise ServerRefusedError(f"server '{connection.spec.name}' does not send updates of {uri}; read it again")
        task_status.started()
        try:
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    await on_update(str(event.uri))
        except SubscriptionLost:
            raise _lost(connection, uri) from None
    raise ServerRefusedError(f"server '{connection.spec.name}' has ended the subscription to {uri}; subscribe again")


@asynccontextmanager
async def _listening(connection: Connection, uri: str) -> AsyncGenerator[Subscription]:
    # The stream outlives the request that opens it, so that an idle subscription does not count as an active call.
    async def open_stream(client: Client) -> tuple[contextlib.AsyncExitStack, Subscription]:
        async with contextlib.AsyncExitStack() as opening:
            subscription = await opening.enter_async_context(client.listen(resource_subscriptions=[uri]))
            return opening.pop_all(), subscription

    opened, subscription = await connection.request(open_stream)
    async with opened:
        yield subscription


async def _follow_notifications(
    connection: Connection, updates: ResourceUpdates, uri: str, on_update: OnUpdate, task_status: TaskStatus[None]
) -> None:
    with updates.listening(connection.spec.name, uri) as changed:
        gone = await connection.request(lambda client: _subscribe(client, connection, uri))
        task_status.started()
        try:
            async with anyio.create_task_group() as watch:
                watch.start_soon(_end_when_gone, gone, watch.cancel_scope)
                async for address in changed:
                    await on_update(address)
        finally:
            if not gone.is_set():
                await _unsubscribe(connection, uri)
    raise _lost(connection, uri)


def _lost(connection: Connection, uri: str) -> ServerUnavailableError:
    name = connection.spec.name
    return ServerUnavailableError(f"the connection to server '{name}' was lost; subscribe to {uri} again")


async def _end_when_gone(gone: anyio.Event, scope: anyio.CancelScope) -> None:
    await gone.wait()
    scope.cancel()


async def _subscribe(client: Client, connection: Connection, uri: str) -> anyio.Event:
    from mcp_types import EmptyResult, SubscribeRequest, SubscribeRequestParams

    gone = connection.life_over
    await client.session.send_request(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), EmptyResult)
    return gone


async def _unsubscribe(connection: Connection, uri: str) -> None:
    from mcp_types import EmptyResult, UnsubscribeRequest, UnsubscribeRequestParams

    request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri))
    with (
        anyio.move_on_after(_UNSUBSCRIBE_TIMEOUT_S, shield=True),
        contextlib.suppress(ServerRefusedError, ServerUnavailableError),
    ):
        await connection.request(lambda client: client.session.send_request(request, EmptyResult))
