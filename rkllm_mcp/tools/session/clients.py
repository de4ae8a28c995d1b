"""Around the SDK's ``mcp.Client``: how one is made, how changes of its tools are followed, how its results are written.

Followed: ``mcp.Client`` 2.3.0. Changes are subscribed to since 2026-07-28; until 2025-11-25 a server tells unasked.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from rkllm_mcp.calling import CallContext, OnProgress
from rkllm_mcp.tools.asked.callbacks import Callbacks, logging_to, tool_changes_to
from rkllm_mcp.tools.asked.elicitation import visited
from rkllm_mcp.tools.servers import LogLevel, ServerSpec
from rkllm_mcp.tools.session.eras import Era
from rkllm_mcp.tools.session.tap import Ear, tapped
from rkllm_mcp.tools.transports.channel import Channel

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult


class Changes:
    """Whether a server has said that its tools are others now."""

    def __init__(self) -> None:
        self._said = anyio.Event()

    def note(self) -> None:
        """It has."""
        self._said.set()

    def forget(self) -> None:
        """They are listed now."""
        self._said = anyio.Event()

    async def wait(self) -> None:
        """Wait until it has."""
        await self._said.wait()


def make_client(
    channel: Channel, era: Era, ear: Ear, callbacks: Callbacks, changes: Changes, log_level: LogLevel | None
) -> Client:
    """A client for one session, not yet entered.

    Args:
        channel: the way to the server.
        era: how it is spoken to.
        ear: who listens to its messages.
        callbacks: what the server may ask.
        changes: is told when its tools change.
        log_level: from which level on it is asked for its log; None for whatever it sends.
    """
    from mcp import Client
    from mcp_types import Implementation

    return Client(
        channel.served or tapped(channel.streams(), ear),
        mode=era.mode(),
        prior_discover=era.prior(),
        client_info=Implementation(name="rkllm-mcp", version=_version()),
        logging_callback=logging_to(ear.note),
        log_level=log_level or "info",
        message_handler=tool_changes_to(changes.note, callbacks.message),
        sampling_callback=callbacks.sampling,
        sampling_capabilities=callbacks.sampling_capabilities,
        elicitation_callback=callbacks.elicitation,
        list_roots_callback=callbacks.roots,
        extensions=callbacks.extensions,
        cache=None,
    )


async def follow_changes(
    client: Client, changes: Changes, list_again: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]
) -> None:
    """List a server's tools again whenever it says that they have changed; runs until it is cancelled.

    Args:
        client: a connected client.
        changes: hears of changes.
        list_again: must not raise.
        failed: called with the reason when changes cannot be subscribed to.
    """
    from mcp.client.subscriptions import ListenNotSupportedError

    async def follow() -> None:
        while True:
            await changes.wait()
            await list_again()

    tools = client.server_capabilities.tools
    if tools is None or not tools.list_changed:
        return await follow()
    try:
        async with client.listen(tools_list_changed=True):
            await follow()
    except ListenNotSupportedError:
        await follow()
    except Exception as error:  # noqa: BLE001  (without the subscription the tools stay as they are, and serve)
        failed(error)


async def call_tool(
    client: Client,
    spec: ServerSpec,
    tool: str,
    arguments: Mapping[str, Any],
    context: CallContext,
    as_task_s: float | None,
) -> dict[str, Any]:
    """Run a tool, by the server's own name of it.

    Args:
        client: a connected client.
        spec: the server.
        tool: its name.
        arguments: what it is given.
        context: who is told how far it is, and asked what the server wants first.
        as_task_s: how long to wait for it where it only runs as a task of 2025-11-25, seconds; None where it does not.

    Returns:
        the JSON of a ``tools/call`` result: ``content``, ``isError`` and perhaps ``structuredContent``.

    Raises:
        Exception: several unrelated kinds; ``failures`` reads them.
    """
    from mcp import MCPError

    async def run() -> CallToolResult:
        if as_task_s is not None and client.session.discover_result is None:
            from rkllm_mcp.tools.asked.tasks import call_as_task

            return await call_as_task(client, tool, arguments, context, as_task_s)
        return await client.call_tool(tool, dict(arguments), progress_callback=_progress_to(context.on_progress))

    try:
        result = await run()
    except MCPError as error:
        if not await visited(error, spec, context):
            raise
        result = await run()
    answer: dict[str, Any] = {
        "content": [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in result.content],
        "isError": result.is_error,
    }
    if result.structured_content is not None:
        answer["structuredContent"] = result.structured_content
    return answer


def _progress_to(on_progress: OnProgress | None) -> ProgressFnT | None:
    """``on_progress`` under the parameter names that the SDK's type wants."""
    if on_progress is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return report


def _version() -> str:
    try:
        return importlib.metadata.version("rkllm-mcp")
    except importlib.metadata.PackageNotFoundError:
        return "0"
