"""Create ``mcp.Client`` (2.3.0), follow tools/list_changed, and call tools.

Since 2026-07-28 changes are subscribed to; until 2025-11-25 the server sends notifications unasked.
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
    """Flag for a changed tool list, set by notifications and awaited by ``follow_changes``."""

    def __init__(self) -> None:
        self._changed = anyio.Event()

    def note(self) -> None:
        """Record a change."""
        self._changed.set()

    def forget(self) -> None:
        """Clear the flag before the tools are listed again."""
        self._changed = anyio.Event()

    async def wait(self) -> None:
        """Wait for a change."""
        await self._changed.wait()


def make_client(
    channel: Channel, era: Era, ear: Ear, callbacks: Callbacks, changes: Changes, log_level: LogLevel | None
) -> Client:
    """Return a client for one session, not yet entered.

    ``log_level`` None requests ``info`` from servers that read the level in each request.
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
    """List a server's tools again after each change; runs until cancelled.

    ``list_again`` must not raise; ``failed`` receives the reason if changes cannot be subscribed to.
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
    except Exception as error:  # noqa: BLE001  (without the subscription the present tools remain usable)
        failed(error)


async def call_tool(
    client: Client,
    spec: ServerSpec,
    tool: str,
    arguments: Mapping[str, Any],
    context: CallContext,
    as_task_s: float | None,
) -> dict[str, Any]:
    """Call a tool by its wire name; return the JSON of a ``tools/call`` result.

    ``as_task_s`` is the limit of a tool that requires a task of 2025-11-25, seconds; None for other tools.

    Raises:
        Exception: several unrelated types; see ``session.errors``.
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
    """Adapt ``on_progress`` to the parameter names of the SDK's type."""
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
