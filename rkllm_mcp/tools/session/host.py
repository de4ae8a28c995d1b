"""What the host gives every connection to a server: a memory, answers to what servers ask, a log, a way to log in."""

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

# Told the server, the list of calls under way on its connection, which changes as they come and go, newest last, and
# where a line about a question that came to nothing goes.
CallbacksFor: TypeAlias = Callable[[ServerSpec, Sequence[CallContext], Callable[[str], None]], Callbacks]


def _no_callbacks(_spec: ServerSpec, _in_flight: Sequence[CallContext], _note: Callable[[str], None]) -> Callbacks:
    return Callbacks()


@dataclass(frozen=True)
class Host:
    """What connections may use.

    Args:
        remembered: keeps what is known of servers from one start to the next.
        callbacks_for: what each server may ask of the host.
        wire: where every message is written; nowhere when None.
        sign_in: how OAuth servers are logged in to.
    """

    remembered: Remembered = field(default_factory=Forgetful)
    callbacks_for: CallbacksFor = _no_callbacks
    wire: WireLog | None = None
    sign_in: SignIn = field(default_factory=SignIn)


@contextmanager
def open_host(
    folder: Path, *, remembered: Remembered | None = None, consent: Consent = NOBODY, log_wire: bool = False
) -> Generator[Host]:
    """What connections may use, with its files in one folder: ``oauth.json``, and ``wire.log`` where it is wanted.

    Args:
        folder: where; made when something is written.
        remembered: see ``Host``.
        consent: how a person is asked to log in.
        log_wire: whether messages are logged.

    Raises:
        OSError: the log cannot be written.
    """
    wire = WireLog(folder / "wire.log") if log_wire else None
    try:
        yield Host(remembered or Forgetful(), wire=wire, sign_in=SignIn(TokenFile(folder / "oauth.json"), consent))
    finally:
        if wire is not None:
            wire.close()
