"""One server's whole life in one task: connect, list its tools, serve calls from other tasks, start it again, end it.

    connecting ──▶ ready ──▶ died ──▶ connecting …      (again at the next call, after a pause that doubles)
         └───────▶ failed ───┘                          every state ──▶ stopped

``run`` is that task. It alone enters and leaves the ``mcp.Client``, whose cancel scopes allow nothing else; other tasks
call through it and end it with ``stop``. The deadline of connecting surrounds the client and is disarmed, not left,
once it is ready.

Followed: MCP 2025-11-25 and 2026-07-28 through ``mcp.Client`` 2.3.0, which negotiates the era.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from rkllm_mcp.calling import NO_CONTEXT, CallContext, OnProgress
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.callbacks import logging_to, tool_changes_to
from rkllm_mcp.tools.failures import call_failure, connect_failure, is_connection_closed
from rkllm_mcp.tools.lines import LastLines
from rkllm_mcp.tools.listing import list_tools
from rkllm_mcp.tools.servers import ServerSpec, ServerState, State
from rkllm_mcp.tools.tap import tapped
from rkllm_mcp.tools.transports import Channel, open_channel

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

# The first restart comes at once, the next after a pause that doubles; what never stays up is tried once a minute.
_LONGEST_PAUSE_S = 60.0


class Connection:
    """A server as the toolbox sees it.

    Args:
        spec: which server.
        on_change: called after ``state`` or ``tools`` has changed, in the connection's own task; must not wait or
            raise.
        restarts: whether a call to a dead server starts it again.
    """

    def __init__(
        self, spec: ServerSpec, *, on_change: Callable[[Connection], None] | None = None, restarts: bool = True
    ) -> None:
        self.spec = spec
        self.state: State = "connecting"
        self.reason = ""
        self.timed_out = False
        self.tools: tuple[ToolSpec, ...] = ()
        self.notes = LastLines()
        self._on_change = on_change
        self._restarts = restarts
        self._protocol_version = ""
        self._connect_seconds = 0.0
        self._client: Client | None = None
        self._scope = anyio.CancelScope()
        self._stopping = False
        self._ends_in_a_row = 0
        self._not_before = -math.inf
        # One life: settled once it is ready or failed, over when it has to end, ended when all of it is cleaned up.
        self._settled, self._over, self._ended = anyio.Event(), anyio.Event(), anyio.Event()
        self._wanted, self._tools_changed = anyio.Event(), anyio.Event()

    def describe(self) -> ServerState:
        """How it is now."""
        return ServerState(
            name=self.spec.name,
            state=self.state,
            reason=self.explanation(),
            last_lines=self.notes.shown(),
            tool_count=len(self.tools),
            protocol_version=self._protocol_version,
            connect_seconds=self._connect_seconds,
        )

    def explanation(self) -> str:
        """Why it is not ready, and what to do or what will be done; empty when it is."""
        again = self.state == "died" and self._restarts
        return f"{self.reason}; it is started again when it is next called" if again else self.reason

    async def run(self) -> None:
        """Live until ``stop``; the task that runs this owns the server."""
        try:
            while not self._stopping:
                await self._live_once()
                if not self._stopping:
                    await self._wanted.wait()
        finally:
            self._become("stopped", "it was stopped")
            for event in (self._settled, self._over, self._ended):
                event.set()

    def stop(self) -> None:
        """Ask ``run`` to end the server and return; callable from any task, any number of times."""
        self._stopping = True
        self._over.set()
        self._wanted.set()
        if self._client is None:
            self._scope.cancel()

    async def settled(self) -> None:
        """Wait until the present attempt to connect has come to something."""
        await self._settled.wait()

    async def available(self) -> None:
        """Wait until it can take a call, starting it again when it has died.

        Raises:
            ServerUnavailableError: it cannot.
        """
        await self._available_client()

    async def _available_client(self) -> Client:
        if self._over.is_set():
            await self._ended.wait()
        if self.state in ("died", "failed") and self._restarts:
            self._want_restart()
        await self._settled.wait()
        if self._client is None:
            raise ServerUnavailableError(f"Server '{self.spec.name}' is not available: {self.reason}.")
        return self._client

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """Run a tool, by the server's own name of it. Cancelling the caller cancels the call and nothing else.

        Returns:
            the JSON of a ``tools/call`` result: ``content``, ``isError`` and perhaps ``structuredContent``. A refused
            or unreadable call is such a result too.

        Raises:
            ServerUnavailableError: there is no connection, or it was lost during the call.
        """
        client = await self._available_client()
        over, ended = self._over, self._ended
        try:
            result = await client.call_tool(tool, dict(arguments), progress_callback=_reporter(context.on_progress))
        except Exception as error:  # the SDK raises several unrelated kinds; each becomes a sentence
            if not is_connection_closed(error):
                return {"content": [{"type": "text", "text": call_failure(error)}], "isError": True}
            over.set()
            await ended.wait()
            raise ServerUnavailableError(
                f"The connection to server '{self.spec.name}' was lost during the call: {self.explanation()}."
            ) from error
        self._ends_in_a_row = 0
        answer: dict[str, Any] = {
            "content": [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in result.content],
            "isError": result.is_error,
        }
        if result.structured_content is not None:
            answer["structuredContent"] = result.structured_content
        return answer

    # --- the life of a server, in the task of run() ----------------------------------------------------------------

    async def _live_once(self) -> None:
        started = anyio.current_time()
        self._settled = anyio.Event() if self._settled.is_set() else self._settled
        self._over, self._ended, self._wanted = anyio.Event(), anyio.Event(), anyio.Event()
        self._become("connecting")
        error: Exception | None = None
        channel: Channel | None = None
        with anyio.CancelScope(deadline=started + self.spec.connect_timeout_s) as self._scope:
            try:
                async with open_channel(self.spec, self.notes) as channel:
                    await self._serve(channel, started)
            except Exception as caught:  # noqa: BLE001  (whatever goes wrong with one server stays with that server)
                error = caught
        self._end(error, channel.ending() if channel else "")

    async def _serve(self, channel: Channel, started: float) -> None:
        # The import takes 0.6 s of one core; the server starts on another meanwhile, and the event loop goes on.
        await anyio.to_thread.run_sync(importlib.import_module, "mcp", abandon_on_cancel=True)
        async with self._make_client(channel) as client:
            await self._take_tools(client)
            self._client = client
            self._scope.deadline = math.inf
            self._protocol_version = str(client.protocol_version)
            self._connect_seconds = anyio.current_time() - started
            self._become("ready")
            self._settled.set()
            async with anyio.create_task_group() as following:
                following.start_soon(self._follow_changes, client)
                await self._over.wait()
                following.cancel_scope.cancel()

    def _make_client(self, channel: Channel) -> Client:
        from mcp import Client
        from mcp_types import Implementation

        # The events of this life: a late signal from a former one must not end the next.
        over, changed = self._over, self._note_tool_change
        return Client(
            tapped(channel.streams(), over.set, self.notes.add),
            client_info=Implementation(name="rkllm-mcp", version=_version()),
            logging_callback=logging_to(self.notes.add),
            message_handler=tool_changes_to(changed),
            cache=None,
        )

    def _note_tool_change(self) -> None:
        self._tools_changed.set()

    async def _take_tools(self, client: Client) -> None:
        self._tools_changed = anyio.Event()
        self.tools = await list_tools(client, self.spec, self.notes.add)

    async def _follow_changes(self, client: Client) -> None:
        """List the tools again whenever the server says that they have changed."""
        from mcp.client.subscriptions import ListenNotSupportedError

        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return await self._list_again_on_change(client)
        try:
            async with client.listen(tools_list_changed=True):
                await self._list_again_on_change(client)
        except ListenNotSupportedError:
            # Until 2025-11-25 a server tells without being asked.
            await self._list_again_on_change(client)
        except Exception as error:  # noqa: BLE001  (without the subscription the tools stay as they are, and serve)
            self.notes.add(f"(changes of its tools are not followed: {call_failure(error)})")

    async def _list_again_on_change(self, client: Client) -> None:
        while True:
            await self._tools_changed.wait()
            try:
                with anyio.fail_after(self.spec.connect_timeout_s):
                    await self._take_tools(client)
            except Exception as error:  # noqa: BLE001  (a list that cannot be had leaves the one before)
                self.notes.add(f"(its changed tools could not be listed: {call_failure(error)})")
                continue
            self._become("ready")

    def _end(self, error: Exception | None, ending: str) -> None:
        was_ready, self._client = self._client is not None, None
        self._ends_in_a_row += 1
        pause_s = self.spec.restart_pause_s * 2 ** (self._ends_in_a_row - 2) if self._ends_in_a_row > 1 else 0.0
        self._not_before = anyio.current_time() + min(pause_s, _LONGEST_PAUSE_S)
        if self._stopping:
            self._become("stopped", "it was stopped")
        elif was_ready:
            self._become("died", f"it {ending or 'closed the connection'}")
        elif error is None:
            self.timed_out = True
            limit_s = self.spec.connect_timeout_s
            self._become(
                "failed", f"it was not ready within {limit_s:g} s; raise connect_timeout_s if it only needs longer"
            )
        else:
            self._become("failed", connect_failure(self.spec, error, ending))
        self._over.set()
        self._settled.set()
        self._ended.set()

    def _want_restart(self) -> None:
        wait_s = self._not_before - anyio.current_time()
        if wait_s > 0:
            raise ServerUnavailableError(
                f"Server '{self.spec.name}' is down and can be tried again in {math.ceil(wait_s)} s: {self.reason}."
            )
        # From here on other callers wait for the same attempt.
        self.state = "connecting"
        self._settled = anyio.Event()
        self._over = anyio.Event()
        self._wanted.set()

    def _become(self, state: State, reason: str = "") -> None:
        self.state, self.reason = state, reason
        if self._on_change is not None:
            self._on_change(self)


def _version() -> str:
    try:
        return importlib.metadata.version("rkllm-mcp")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _reporter(on_progress: OnProgress | None) -> ProgressFnT | None:
    """``on_progress`` under the parameter names that the SDK's type wants."""
    if on_progress is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return report
