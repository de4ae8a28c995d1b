"""Services that the host gives every connection: cache, callbacks, wire log, OAuth login."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from rkllm_mcp.calling import CallContext
from rkllm_mcp.tools.asked.callbacks import Callbacks
from rkllm_mcp.tools.login.signin import NOBODY, Consent, SignIn, TokenFile
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.session.eras import Forgetful, Remembered
from rkllm_mcp.tools.session.wire import WireLog

# Takes the server, the live list of the connection's active calls (newest last), and a function for notes about
# requests that failed.
CallbacksFor: TypeAlias = Callable[[ServerSpec, Sequence[CallContext], Callable[[str], None]], Callbacks]


def _no_callbacks(_spec: ServerSpec, _in_flight: Sequence[CallContext], _note: Callable[[str], None]) -> Callbacks:
    return Callbacks()


@dataclass(frozen=True)
class Host:
    """Services that connections may use."""

    remembered: Remembered = field(default_factory=Forgetful)
    callbacks_for: CallbacksFor = _no_callbacks
    wire: WireLog | None = None  # None: no wire log
    sign_in: SignIn = field(default_factory=SignIn)


@contextmanager
def open_host(
    folder: Path, *, remembered: Remembered | None = None, consent: Consent = NOBODY, log_wire: bool = False
) -> Generator[Host]:
    """Open the services with their files in ``folder``: ``oauth.json``, and ``wire.log`` if ``log_wire``.

    Raises:
        OSError: the log cannot be written.
    """
    wire = WireLog(folder / "wire.log") if log_wire else None
    try:
        yield Host(remembered or Forgetful(), wire=wire, sign_in=SignIn(TokenFile(folder / "oauth.json"), consent))
    finally:
        if wire is not None:
            wire.close()
