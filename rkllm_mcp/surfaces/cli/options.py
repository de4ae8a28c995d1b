"""Options that several commands have, and the event loop of those that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Concatenate, NoReturn, ParamSpec

import typer

from rkllm_mcp.surfaces.invocation import EXIT_DONE, Session, run_async

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: [service] host.")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, metavar="N", help="Port, 0 for any free one. Default: [service] port."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask for confirmation.")]

_P = ParamSpec("_P")


def leave_after(session: Session, work: Callable[[], Awaitable[int | None]]) -> NoReturn:
    """Run ``work`` in an event loop and leave with its exit code; None is success."""
    # A person may be asked for a token, and could not interrupt that inside of the loop.
    _ = session.tokens

    async def done() -> int:
        return await work() or EXIT_DONE

    raise typer.Exit(run_async(done))


def may_remove(session: Session, what: str, *, yes: bool) -> bool:
    """Return True with ``--yes``, or if the person agrees to the removal; a UsageError if no person is there."""
    from rkllm_mcp.surfaces.chat.forms import TerminalApprover

    if yes or TerminalApprover(session.terminal).confirm(f"Remove {what}?", "--yes"):
        return True
    session.status("Nothing was removed.")
    return False


def asynchronous(
    command: Callable[Concatenate[typer.Context, _P], Awaitable[int | None]],
) -> Callable[Concatenate[typer.Context, _P], None]:
    """Return a command that runs a coroutine function; see ``leave_after``."""

    @wraps(command)
    def run(context: typer.Context, *words: _P.args, **options: _P.kwargs) -> None:
        leave_after(context.obj, lambda: command(context, *words, **options))

    return run
