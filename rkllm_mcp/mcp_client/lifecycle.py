"""State, backoff, idle stop and pings of a connection, and the services that the host gives it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio

from rkllm_mcp.config.servers import MCPServerConfig
from rkllm_mcp.mcp_client.callbacks import Callbacks
from rkllm_mcp.mcp_client.errors import is_connection_closed
from rkllm_mcp.mcp_client.oauth import NO_CONSENT, Consent, SignIn, TokenFile
from rkllm_mcp.mcp_client.sandbox import NO_FOLDERS, SandboxFolders
from rkllm_mcp.mcp_client.server_cache import Forgetful, Remembered
from rkllm_mcp.mcp_client.timeouts import own_call
from rkllm_mcp.mcp_client.wire_log import WireLog
from rkllm_mcp.protocols import CallContext, Deadline

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


class Backoff:
    """Exponential backoff of restarts: the first restart is immediate, the second waits ``pause_s`` seconds."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._ends_in_a_row = 0
        self._pause = self._unasked = Deadline(0.0)

    @property
    def has_failed(self) -> bool:
        """True if the last start or request failed."""
        return self._ends_in_a_row > 0

    @property
    def is_due(self) -> bool:
        """True if the server may be started without a request for it."""
        return max(self._pause.left_s, self._unasked.left_s) <= 0

    def ended(self) -> None:
        """Record that the server ended or failed to start."""
        self._ends_in_a_row += 1
        pause_s = self._pause_s * 2 ** (self._ends_in_a_row - 2) if self._ends_in_a_row > 1 else 0.0
        self._pause = Deadline(min(pause_s, _LONGEST_PAUSE_S), anyio.current_time)
        unasked_s = min(_UNASKED_PAUSES * self._pause_s, _LONGEST_PAUSE_S)
        self._unasked = Deadline(unasked_s, anyio.current_time)

    def worked(self) -> None:
        """Reset the backoff after a successful request."""
        self._ends_in_a_row = 0

    def wait_s(self) -> float:
        """Return the time until the next start is allowed, seconds."""
        return self._pause.left_s


class Use:
    """Active calls of a connection: ``contexts``, newest last; ``given_up`` is set when a call was cancelled."""

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []
        self.given_up = anyio.Event()
        self._ended_at = -math.inf
        self._none_left = anyio.Event()

    @contextmanager
    def during(self, context: CallContext) -> Generator[None]:
        """Count a call as active inside this block."""
        self.contexts.append(context)
        try:
            with own_call(context):
                yield
        except anyio.get_cancelled_exc_class():
            self.given_up.set()
            raise
        finally:
            # By identity, and only one: calls may share a context.
            del self.contexts[next(i for i, other in enumerate(self.contexts) if other is context)]
            self._ended_at = anyio.current_time()
            if not self.contexts:
                self._none_left.set()

    async def none(self) -> None:
        """Wait until no call is active."""
        while self.contexts:
            self._none_left = anyio.Event()
            await self._none_left.wait()

    async def none_for(self, seconds: float) -> None:
        """Wait until no call has been active for ``seconds``."""
        started_at = anyio.current_time()
        while True:
            await self.none()
            left_s = max(self._ended_at, started_at) + seconds - anyio.current_time()
            if left_s <= 0:
                return
            await anyio.sleep(left_s)


async def answers(client: Client, patience_s: float) -> bool:
    """Ping the server; return False if it does not answer within ``patience_s`` seconds. An error is an answer."""
    from mcp import MCPError

    with anyio.move_on_after(patience_s):
        try:
            if client.session.discover_result is None:
                await client.session.send_ping()
            else:
                await client.session.send_discover(str(client.protocol_version))
        except MCPError as error:
            return not is_connection_closed(error)
        return True
    return False


# Takes the server, the live list of the connection's active calls (newest last), and a function for notes about
# requests that failed.
CallbacksFor: TypeAlias = Callable[[MCPServerConfig, Sequence[CallContext], Callable[[str], None]], Callbacks]


def _no_callbacks(_spec: MCPServerConfig, _in_flight: Sequence[CallContext], _note: Callable[[str], None]) -> Callbacks:
    return Callbacks()


@dataclass(frozen=True)
class Timings:
    """Pauses of all connections, seconds."""

    stop_grace_s: float = 2.0  # wait after closing stdin, and again after SIGTERM
    restart_pause_s: float = 1.0  # first pause of the exponential backoff, which is limited to a minute


@dataclass(frozen=True)
class ConnectionServices:
    """Services that connections may use."""

    remembered: Remembered = field(default_factory=Forgetful)
    callbacks_for: CallbacksFor = _no_callbacks
    wire: WireLog | None = None  # None: no wire log
    sign_in: SignIn = field(default_factory=SignIn)
    allowed_commands: Sequence[str] | None = None  # programs that may be started as servers; None: any
    sandbox: SandboxFolders = NO_FOLDERS
    timings: Timings = field(default_factory=Timings)
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
    """Open the services with their files in ``folder``: ``oauth.json``, and ``wire.log`` if ``log_wire``.

    Raises:
        OSError: the log cannot be written.
    """
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
