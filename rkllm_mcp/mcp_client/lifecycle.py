"""The life of a server: state, backoff, idle stop and pings; and the services that the host gives connections."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import anyio

from rkllm_mcp.config.header_templates import redact
from rkllm_mcp.config.secrets import redacted_text
from rkllm_mcp.config.servers import MCPServerConfig, ServerBase, ServerConfig
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.callbacks import OWN_CALL, Callbacks
from rkllm_mcp.mcp_client.errors import FailureKind, is_connection_closed
from rkllm_mcp.mcp_client.oauth import NO_CONSENT, Consent, SignIn, TokenFile
from rkllm_mcp.mcp_client.sandbox import NO_FOLDERS, SandboxFolders
from rkllm_mcp.mcp_client.server_cache import Forgetful, Remembered
from rkllm_mcp.mcp_client.wire_log import LastLines, WireLog
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, Deadline

if TYPE_CHECKING:
    from mcp import Client


# An idle server answers in milliseconds; after a cancelled call it may have to finish its work first.
PING_PATIENCE_S = 30.0
# Upper limit of the backoff.
_LONGEST_PAUSE_S = 60.0
# Multiple of the first pause, between a failed start and the next one in the background.
_UNASKED_PAUSES = 10


State: TypeAlias = Literal["waiting", "connecting", "ready", "failed", "died", "stopped"]


@dataclass(frozen=True)
class ServerState:
    """State of a server at one moment.

    ``waiting``: connects on its next use, or with the first request that brings its token. ``failed``: never became
    ready. ``died``: was ready, and reconnects on its next call.
    """

    name: str
    state: State
    reason: str = ""  # why it is not ready, and the remedy
    last_lines: tuple[str, ...] = ()  # of stderr, log messages and invalid output on stdout
    tool_count: int = 0  # after allowed_tools and excluded_tools
    protocol_version: str = ""  # empty before the handshake
    connect_seconds: float = 0.0  # from start to the first tools/list


@dataclass(eq=False)
class Backoff:
    """Exponential backoff of restarts: the first restart is immediate, the second waits ``pause_s`` seconds."""

    pause_s: float
    ends_in_a_row: int = 0  # ends and failed starts since the last request that succeeded
    pause: Deadline = field(default_factory=partial(Deadline, 0.0))  # until the next start is allowed
    unasked: Deadline = field(default_factory=partial(Deadline, 0.0))  # until one without a request is, too

    def on_end(self) -> None:
        """Record that the server ended or failed to start."""
        self.ends_in_a_row += 1
        pause_s = self.pause_s * 2 ** (self.ends_in_a_row - 2) if self.ends_in_a_row > 1 else 0.0
        self.pause = Deadline(min(pause_s, _LONGEST_PAUSE_S), anyio.current_time)
        unasked_s = min(_UNASKED_PAUSES * self.pause_s, _LONGEST_PAUSE_S)
        self.unasked = Deadline(unasked_s, anyio.current_time)


@dataclass(eq=False)
class Use:
    """Active calls of a connection."""

    contexts: list[CallContext] = field(default_factory=list[CallContext])  # newest last
    given_up: anyio.Event = field(default_factory=anyio.Event)  # set when a call was cancelled
    ended_at: float = -math.inf  # when a call ended last
    _none_left: anyio.Event = field(default_factory=anyio.Event)

    @contextmanager
    def during(self, context: CallContext) -> Generator[None]:
        """Count a call as active inside this block, for requests that the server makes meanwhile too."""
        self.contexts.append(context)
        token = OWN_CALL.set(context)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            self.given_up.set()
            raise
        finally:
            OWN_CALL.reset(token)
            # By identity, and only one: calls may share a context.
            del self.contexts[next(i for i, other in enumerate(self.contexts) if other is context)]
            self.ended_at = anyio.current_time()
            if not self.contexts:
                self._none_left.set()

    async def none(self) -> None:
        """Wait until no call is active."""
        while self.contexts:
            self._none_left = anyio.Event()
            await self._none_left.wait()


async def answers(client: Client, patience_s: float) -> bool:
    """Ping the server; return False if it does not answer within ``patience_s`` seconds. An error is an answer."""
    with anyio.move_on_after(patience_s):
        try:
            if client.session.discover_result is None:
                await client.session.send_ping()
            else:
                await client.session.send_discover(str(client.protocol_version))
        except sdk.mcp.MCPError as error:
            return not is_connection_closed(error)
        return True
    return False


# Takes the server, the live list of the connection's active calls (newest last), and a function for notes about
# requests that failed.
CallbacksFor: TypeAlias = Callable[[MCPServerConfig, Sequence[CallContext], Callable[[str], None]], Callbacks]


@dataclass(frozen=True)
class ConnectionServices:
    """Services that connections may use."""

    remembered: Remembered = field(default_factory=Forgetful)
    callbacks_for: CallbacksFor = lambda _spec, _in_flight, _note: Callbacks()
    wire: WireLog | None = None  # None: no wire log
    sign_in: SignIn = field(default_factory=SignIn)
    allowed_commands: Sequence[str] | None = None  # programs that may be started as servers; None: any
    sandbox: SandboxFolders = NO_FOLDERS
    stop_grace_s: float = 2.0  # wait after closing a server's stdin, and again after SIGTERM, seconds
    restart_pause_s: float = 1.0  # first pause of the exponential backoff, which is limited to a minute, seconds
    # Servers in this process, by name, instead of what the configuration names: an MCPServer of the SDK, a function
    # that makes one, or ``module:name``.
    in_process: Mapping[str, object] = field(default_factory=dict[str, object])


@contextmanager
def open_connection_services(
    folder: Path,
    *,
    remembered: Remembered | None = None,
    consent: Consent = NO_CONSENT,
    log_wire: bool = False,
    allowed_commands: Sequence[str] | None = None,
    sandbox: SandboxFolders = NO_FOLDERS,
) -> Generator[ConnectionServices]:
    """Open the services with their files in ``folder``: ``oauth.json``, and ``wire.log`` if ``log_wire``."""
    wire = WireLog(folder / "wire.log") if log_wire else None
    try:
        yield ConnectionServices(
            remembered or Forgetful(),
            wire=wire,
            sign_in=SignIn(TokenFile(folder / "oauth.json"), consent),
            allowed_commands=allowed_commands,
            sandbox=sandbox,
        )
    finally:
        if wire is not None:
            wire.close()


class ConnectionLife:
    """Events of a server's connections, one by one.

    ``first``: the first attempt to connect is over. Of the present connection: ``settled`` once it is ready or has
    failed, ``over`` when it has to close, ``ended`` when it is cleaned up. ``start_requested``: another is wanted.
    """

    def __init__(self) -> None:
        self.settled, self.over, self.ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.start_requested, self.first = anyio.Event(), self.settled

    def end(self) -> None:
        """Note that the connection is cleaned up, or that none was made."""
        for event in (self.over, self.first, self.settled, self.ended):
            event.set()


_Spec_co = TypeVar("_Spec_co", bound=ServerBase, covariant=True)
_Opened = TypeVar("_Opened")


class ToolServer(ABC, Generic[_Spec_co, _Opened]):
    """A server as the toolbox uses it. One task runs ``run``; the other methods may be called from any task.

    ``on_change`` runs in that task after ``state`` or ``tools`` changed; it must not block or raise. With ``restarts``
    a call starts a server again that has failed or died.
    """

    def __init__(
        self,
        spec: _Spec_co,
        on_change: Callable[[Any], None] | None,
        restart_pause_s: float,
        *,
        restarts: bool = True,
        secrets: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.state: State = "connecting"
        self.reason = ""
        self.failure: FailureKind = ""  # of the last attempt to connect
        self.notes = LastLines()  # recent output and log lines of the server, redacted
        self.tools: tuple[ToolSpec, ...] = ()  # under the server's own names
        # What was remembered of an earlier run: its tools, and that its last attempt to connect failed.
        self.remembered_tools: tuple[ToolSpec, ...] = ()
        self.failed_before = False
        self.resource_names: tuple[str, ...] = ()  # names and URIs of its first resources
        self.on_change, self._restarts, self._secrets = on_change, restarts, tuple(secrets)
        self._announced: tuple[State, str, tuple[ToolSpec, ...]] | None = None
        self._protocol_version, self._connect_seconds = "", 0.0
        self._opened: _Opened | None = None
        self._scope = anyio.CancelScope()
        self._stopping = False
        self.backoff = Backoff(restart_pause_s)
        self.life = ConnectionLife()

    def describe(self) -> ServerState:
        """Return the server's current state."""
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
        """Return the reason why the server is not ready and the remedy; empty if it is ready."""
        again = self.state == "died" and self._restarts
        return f"{self.reason}; it is started again when it is next called" if again else self.reason

    async def run(self) -> None:
        """Connect and serve calls until ``stop``; this task owns the server."""
        try:
            if self.state == "waiting":
                self._become("waiting", "it is started when it is first used")
                await self.life.start_requested.wait()
            while not self._stopping:
                if self.life.settled.is_set():
                    self.life.settled = anyio.Event()
                self.life.ended, self.life.start_requested = anyio.Event(), anyio.Event()
                self._become("connecting")
                await self._live_once()
                self.life.end()
                if not self._stopping:
                    await self.life.start_requested.wait()
        finally:
            self._become("stopped", "it was stopped")
            self.life.end()

    def stop(self) -> None:
        """Make ``run`` close everything and return; may be called any number of times."""
        self._stopping = True
        self.life.over.set()
        self.life.start_requested.set()
        if self._opened is None:
            self._scope.cancel()

    async def wait_until_settled(self, limit_s: float = math.inf) -> None:
        """Wait for the end of the first attempt to connect; a lazy server without a stored tool list is connected.

        ``limit_s`` is the longest wait, in seconds; the attempt goes on after it.
        """
        if self.state == "waiting" and not self.life.first.is_set():
            self._want()
        with anyio.move_on_after(limit_s):
            await self.life.first.wait()

    @property
    def is_starting(self) -> bool:
        """True during the first attempt to connect."""
        return self.state == "connecting" and not self.life.first.is_set()

    def retry(self, *, now: bool = False) -> None:
        """Start a server that has failed again, in the background, if that is due; ``now``, also before."""
        wait_s = max(self.backoff.pause.left_s, self.backoff.unasked.left_s)
        if self.state == "failed" and self._restarts and (now or wait_s <= 0):
            self._want()

    async def available(self) -> _Opened:
        """Connect the server if necessary and return what was opened; a ServerUnavailableError if that fails."""
        while True:
            if self.life.over.is_set() and self._opened is not None:
                await self.life.ended.wait()
            if self.state == "waiting" or (self.state in ("died", "failed") and self._restarts):
                wait_s = self.backoff.pause.left_s
                if wait_s > 0:
                    problem = f"is down and can be tried again in {math.ceil(wait_s)} s"
                    raise ServerUnavailableError(f"Server '{self.spec.name}' {problem}: {self.reason}.")
                self._want()
            await self.life.settled.wait()
            if self._opened is None:
                raise ServerUnavailableError(f"Server '{self.spec.name}' is not available: {self.reason}.")
            # The connection may have closed during the wait, for example after the idle timeout.
            if not self.life.over.is_set():
                return self._opened

    async def shares_in_data(self, question: str) -> Mapping[str, float]:
        """Return by tool which part of a question's own words its data has, from 0 to 1, of tools that have data."""
        del question
        return {}

    @abstractmethod
    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """Call a tool by the server's own name; return the JSON of a ``tools/call`` result.

        Cancelling the caller cancels this call only. A refused or invalid call is a result with ``isError``. A
        ServerUnavailableError if the server is not available, or was lost during the call.
        """

    async def _live_once(self) -> None:
        """Open the server, serve calls until ``life.over`` is set, and close it; for ``run``."""

    def _want(self) -> None:
        """Request another connection: callers that arrive from here on wait for the same attempt."""
        self.state = "connecting"
        if self.life.settled.is_set():
            self.life.settled = anyio.Event()
        self.life.over = anyio.Event()
        self.life.start_requested.set()

    def _become(self, state: State, reason: str = "") -> None:
        self.state, self.reason = state, self._clean(reason)
        # Report a state only if state, reason or tools differ from the last report.
        news = (state, self.reason, self.tools)
        is_news = news != self._announced
        if state != "connecting":
            self._announced = news
        if self.on_change is not None and is_news:
            self.on_change(self)
        if state == "ready":
            self.life.first.set()
            self.life.settled.set()

    def _clean(self, text: str) -> str:
        # All tenants and the log see it: a message of the network quotes the address with the keys in it.
        return redacted_text(redact(text, self._secrets))


AnyToolServer: TypeAlias = "ToolServer[ServerConfig, Any]"
