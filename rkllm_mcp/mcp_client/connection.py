"""One MCP server's life in one task: connect, list tools, serve calls from other tasks, reconnect, close.

    idle ──▶ connecting ──▶ ready ──▶ died ──▶ connecting …      (on the next use, after an exponential backoff)
     ▲            └───────▶ failed ───┘        every state ──▶ stopped
     └─────────────────────── ready                            (idle timeout)

Only ``run`` enters and exits ``mcp.Client``, whose cancel scopes require one task; other tasks call through it and end
it with ``stop``. The connect deadline surrounds the client and is lifted once the client is ready.

Follows MCP 2025-11-25 and 2026-07-28 through ``mcp.Client`` 2.3.0, which negotiates the protocol revision.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import ValidationError

from rkllm_mcp import __version__
from rkllm_mcp.config.header_templates import secrets_of
from rkllm_mcp.config.secrets import SHORTEST_REDACTED_CHARS, secrets_in_address
from rkllm_mcp.config.servers import MCPServerConfig, StdioServer
from rkllm_mcp.errors import ServerRefusedError, ServerUnavailableError
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.callbacks import Callbacks
from rkllm_mcp.mcp_client.errors import (
    call_failure,
    connect_failure,
    failure_kind,
    is_connection_closed,
    is_session_lost,
)
from rkllm_mcp.mcp_client.lifecycle import PING_PATIENCE_S, ConnectionServices, ToolServer, Use, answers
from rkllm_mcp.mcp_client.message_filter import MessageListener, filter_messages
from rkllm_mcp.mcp_client.server_cache import LEGACY, ProtocolRevision, ServerCache, revision_of, transport_fallback
from rkllm_mcp.mcp_client.session import call_tool, list_tools, resource_names
from rkllm_mcp.mcp_client.transports import open_channel
from rkllm_mcp.mcp_client.transports.channel import Channel
from rkllm_mcp.mcp_client.wire_log import sdk_logs
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, Deadline
from rkllm_mcp.toolcalls.results import text_result

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import session as client_session
    from mcp_types import DiscoverResult


_Result = TypeVar("_Result")
_NOTE_CHARS = 4000
_PAUSE_PER_LISTING, _LONGEST_PAUSE_S = 10, 5.0


@dataclass(frozen=True)
class _Outcome:
    error: Exception | None
    ending: str = ""  # how the server's process ended
    was_heard: bool = True  # the server may have received a message


class Connection(ToolServer[MCPServerConfig, "Client"]):
    """A connection to one MCP server, reopened as needed.

    ``headers`` are sent to a remote server, by default its ``headers_template`` as it is. ``secrets`` are redacted in
    everything the server sends.
    """

    def __init__(
        self,
        spec: MCPServerConfig,
        host: ConnectionServices | None = None,
        *,
        on_change: Callable[[Any], None] | None = None,
        restarts: bool = True,
        ping_patience_s: float = PING_PATIENCE_S,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        configured = {} if isinstance(spec, StdioServer) else spec.headers_template
        self._headers = configured if headers is None else headers
        self._host = host or ConnectionServices()
        pause_s = self._host.restart_pause_s
        address = () if isinstance(spec, StdioServer) else secrets_in_address(spec.url)
        # Those that are long enough to be redacted safely.
        keys = (secret for secret in secrets_of(self._headers, {}) if len(secret) >= SHORTEST_REDACTED_CHARS)
        hidden = (*secrets, *keys, *address)
        super().__init__(spec, on_change, pause_s, restarts=restarts, secrets=hidden)
        self.timed_out = False
        self._memory = ServerCache(spec, self._host.remembered)
        # Only of connections that all requests of a toolbox share.
        self._lists_resources = restarts and headers is None
        self._ping_patience_s = ping_patience_s
        # Why the host closed the connection: idle timeout, or no answer to a ping.
        self._unused, self._verdict = False, ""
        self.use, self._tools_changed = Use(), anyio.Event()
        known = self._memory.known
        self.remembered_tools, self.failed_before = known.tools or (), known.has_failed
        if spec.lazy:
            self.state, self.tools = "waiting", self.remembered_tools
        if spec.lazy and known.tools is not None:
            self.life.first.set()

    async def request(
        self, operation: Callable[[Client], Awaitable[_Result]], context: CallContext = NO_CONTEXT
    ) -> _Result:
        """Run any operation of the SDK's client. Cancelling the caller cancels this operation only.

        If the server has lost the session, the operation is repeated once on a new one.

        Raises:
            ServerUnavailableError: the server is not connected, or the connection was lost during the operation.
            ServerRefusedError: the server returned an error, or an invalid response.
        """
        is_again, backoff = False, self.backoff
        while True:
            client = await self.available()
            over, ended = self.life.over, self.life.ended
            try:
                with self.use.during(context):
                    result = await operation(client)
            except Exception as error:  # the SDK raises several unrelated types
                if not is_connection_closed(error):
                    backoff.ends_in_a_row = 0
                    raise ServerRefusedError(self._clean(call_failure(self.spec, error))) from error
                over.set()
                await ended.wait()
                if is_again or not (self._restarts and is_session_lost(error)):
                    raise ServerUnavailableError(
                        f"The connection to server '{self.spec.name}' was lost during the call: {self.explanation()}."
                    ) from error
                is_again = True
            else:
                backoff.ends_in_a_row = 0
                return result

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """See ``ToolServer``."""
        as_task = any(spec.as_task for spec in self.tools if spec.wire_name == tool)
        run = partial(call_tool, spec=self.spec, tool=tool, arguments=arguments, context=context, as_task=as_task)
        try:
            return await self.request(run, context)
        except ServerRefusedError as error:
            return text_result(str(error), is_error=True)

    # --- one connection, in the task of run() ------------------------------------------------------------------------

    async def _live_once(self) -> None:
        self._unused, self._verdict, self.failure = False, "", ""
        deadline = Deadline(self.spec.connect_timeout_s, anyio.current_time)
        era: ProtocolRevision | None = self._memory.known.era
        reported = outcome = await self._attempt(era, deadline)
        # A program that ended before it read anything cannot be started at all.
        while (
            self._opened is None
            and not self._stopping
            and deadline.left_s > 0
            and outcome.was_heard
            and (era := transport_fallback(self.spec, self._memory, era, outcome.error))
        ):
            self.notes.forget()
            outcome = await self._attempt(era, deadline)
            # The error of a transport that was not configured would mislead: report the one before.
            reported = reported if era.transport else outcome
        error, ending = reported.error, reported.ending
        was_ready, self._opened = self._opened is not None, None
        if self._unused and not self._stopping:
            self._become("waiting", "it was not used for a while and is started again when it is next called")
            return
        self.backoff.on_end()
        self.failure = "" if was_ready or self._stopping else failure_kind(self.spec, error)
        if self._stopping:
            self._become("stopped", "it was stopped")
        elif was_ready:
            self._become("died", f"it {self._verdict or ending or 'closed the connection'}")
        else:
            # Until the next successful connection.
            self._memory.write(replace(self._memory.known, has_failed=True))
            self.failed_before = True
            self.timed_out = self.timed_out or error is None
            limit_s = self.spec.connect_timeout_s
            reason = f"it was not ready within {limit_s:g} s; raise connect_timeout_s if it only needs longer"
            self._become("failed", reason if error is None else connect_failure(self.spec, error, ending))

    async def _attempt(self, era: ProtocolRevision, deadline: Deadline) -> _Outcome:
        """Try one protocol revision and transport; ``_opened`` is set afterwards if the attempt had succeeded."""
        error: Exception | None = None
        channel: Channel | None = None
        self.life.over = anyio.Event()  # set by an earlier attempt, which must not end this one
        with deadline.bind(anyio.CancelScope()) as self._scope:
            try:
                async with open_channel(
                    self.spec, self.notes, self._host, deadline.pause, era.transport, headers=self._headers
                ) as channel:
                    # The import takes 0.6 s of CPU; in a thread the event loop goes on and the server starts meanwhile.
                    await anyio.to_thread.run_sync(importlib.import_module, "mcp", abandon_on_cancel=True)
                    with sdk_logs(self._secrets):
                        await self._run_session(channel, era, deadline)
            except Exception as caught:  # noqa: BLE001  (a failure of one server must not end the others)
                error = caught
        if channel is None:
            return _Outcome(error, was_heard=not isinstance(self.spec, StdioServer))
        return _Outcome(error, channel.ending(), channel.was_heard())

    async def _run_session(self, channel: Channel, era: ProtocolRevision, deadline: Deadline) -> None:
        wire = partial(self._host.wire.write, self.spec.name, self._clean) if self._host.wire else None
        # Bound to this connection's event: a late signal must not close the next connection.
        listener = MessageListener(self.life.over.set, self._note_stderr, wire, self._secrets)
        callbacks = self._host.callbacks_for(self.spec, self.use.contexts, self._note_stderr)
        # A discovery result that is missing or invalid is asked for again.
        prior: DiscoverResult | None = None
        if era.discovered is not None:
            with contextlib.suppress(ValidationError):
                prior = sdk.types.DiscoverResult.model_validate(era.discovered)
        is_known = era.version == LEGACY or (era.version and prior is not None)
        mode = era.version if is_known else "auto"
        async with sdk.mcp.Client(
            channel.served if channel.streams is None else filter_messages(channel.streams(), listener),
            mode=mode,
            prior_discover=prior,
            client_info=sdk.types.Implementation(name="rkllm-mcp", version=__version__),
            log_level=self.spec.log_level or "info",  # servers since 2026-07-28 read it in each request
            message_handler=partial(self._on_message, callbacks),
            sampling_callback=callbacks.sampling,
            elicitation_callback=callbacks.elicitation,
            list_roots_callback=callbacks.roots,
            extensions=callbacks.extensions,
            cache=None,
        ) as client:
            level = self.spec.log_level if client.session.discover_result is None else None
            if level is not None and client.server_capabilities.logging is not None:
                request = sdk.types.SetLevelRequest(params=sdk.types.SetLevelRequestParams(level=level))
                try:
                    await client.session.send_request(request, sdk.types.EmptyResult)
                except sdk.mcp.MCPError as error:
                    self._note_stderr(f"(logging/setLevel was refused: {error})")
            await self._list_tools(client, must_be_modern=mode not in ("auto", LEGACY))
            self._memory.keep(revision_of(client, era.transport), self.tools)
            self.remembered_tools, self.failed_before = self.tools, False
            self._opened = client
            deadline.lift()
            self._protocol_version = str(client.protocol_version)
            self._connect_seconds = deadline.elapsed_s
            self._become("ready")
            async with anyio.create_task_group() as following:
                following.start_soon(self._follow_changes, client)
                following.start_soon(self._ping_regularly, client)
                if self.spec.idle_stop_s is not None:
                    following.start_soon(self._close_when_idle, self.spec.idle_stop_s)
                await self.life.over.wait()
                following.cancel_scope.cancel()

    async def _on_message(self, callbacks: Callbacks, message: client_session.IncomingMessage) -> None:
        """Note a line of the server's log, and that a list or a resource has changed."""
        if isinstance(message, sdk.types.LoggingMessageNotification):
            logger = f" {message.params.logger}:" if message.params.logger else ""
            self._note_stderr(f"{message.params.level}:{logger} {message.params.data}".replace("\n", " "))
        if isinstance(message, (sdk.types.ToolListChangedNotification, sdk.types.ResourceListChangedNotification)):
            self._tools_changed.set()
        if isinstance(message, sdk.types.ResourceUpdatedNotification) and callbacks.resource_updated is not None:
            callbacks.resource_updated(self.spec.name, str(message.params.uri))

    def _note_stderr(self, line: str) -> None:
        # Redacting takes time for each character, and less is kept.
        self.notes.add(self._clean(line[:_NOTE_CHARS]))

    async def _list_tools(self, client: Client, *, must_be_modern: bool = False) -> None:
        self._tools_changed = anyio.Event()
        self.tools = await list_tools(client, self.spec, self._note_stderr, must_be_modern=must_be_modern)
        if self._lists_resources:
            self.resource_names = await resource_names(client)

    async def _ping_regularly(self, client: Client) -> None:
        """Ping the server every ``ping_s`` seconds and after a cancelled call."""
        if self.spec.transport == "http" and client.session.discover_result is not None:
            return  # this revision of Streamable HTTP has no connection between requests
        while True:
            self.use.given_up = anyio.Event()
            with anyio.move_on_after(self.spec.ping_s or math.inf):
                await self.use.given_up.wait()
            # A server that runs a call may be too busy to answer a ping.
            await self.use.none()
            if not await answers(client, self._ping_patience_s):
                self._verdict = f"did not answer a ping within {self._ping_patience_s:g} s"
                self.life.over.set()
                return

    async def _close_when_idle(self, idle_stop_s: float) -> None:
        """Close the connection when no call has been active for ``idle_stop_s``."""
        started_at = anyio.current_time()
        while True:
            await self.use.none()
            left_s = max(self.use.ended_at, started_at) + idle_stop_s - anyio.current_time()
            if left_s <= 0:
                break
            await anyio.sleep(left_s)
        self._unused = True
        self.life.over.set()

    async def _follow_changes(self, client: Client) -> None:
        """List the tools again after each change, with a subscription where it is needed."""
        tools = client.server_capabilities.tools
        async with contextlib.AsyncExitStack() as subscription:
            if tools is not None and tools.list_changed:
                try:
                    await subscription.enter_async_context(client.listen(tools_list_changed=True))
                except sdk.subscriptions.ListenNotSupportedError:
                    pass  # notifications come without a subscription
                except Exception as error:  # noqa: BLE001  (without the subscription the present tools remain usable)
                    self._note_stderr(f"(changes of its tools are not followed: {call_failure(self.spec, error)})")
                    return
            while True:
                await self._tools_changed.wait()
                watch = Deadline(now=anyio.current_time)
                try:
                    with anyio.fail_after(self.spec.connect_timeout_s):
                        await self._list_tools(client)
                except Exception as error:  # noqa: BLE001  (on failure the previous list stays in use)
                    self._note_stderr(f"(its changed tools could not be listed: {call_failure(self.spec, error)})")
                else:
                    self._become("ready")
                # A server that changes its tools without end takes a part of the time only.
                await anyio.sleep(min(_PAUSE_PER_LISTING * watch.elapsed_s, _LONGEST_PAUSE_S))
