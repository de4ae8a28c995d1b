"""How a command is declared: its options and arguments, and the event loop of those that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from rkllm_mcp.surfaces.invocation import EXIT_DONE, Session, run_async


def argument(text: str, metavar: str | None = None) -> Any:
    """Return an argument with its help; its name stands for the value unless ``metavar`` does."""
    return typer.Argument(metavar=metavar, help=text)


def option(text: str, metavar: str, *names: str, **limits: Any) -> Any:
    """Return an option with its help and the word for its value; the parameter names it unless ``names`` do."""
    return typer.Option(*names, metavar=metavar, help=text, **limits)


def flag(text: str, *names: str, **settings: Any) -> Any:
    """Return an option without a value, with its help."""
    return typer.Option(*names, metavar="", help=text, **settings)


AsJson = Annotated[bool, flag("Print JSON.", "--json")]
Host = Annotated[str | None, option("Address to listen on. Default: [service] host.", "ADDRESS")]
Port = Annotated[int | None, option("Port, 0 for any free one. Default: [service] port.", "N", min=0, max=65535)]
Yes = Annotated[bool, flag("Do not ask for confirmation.", "--yes", "-y")]

_P = ParamSpec("_P")
_Action = TypeVar("_Action", bound=Callable[..., Any])


def command(app: typer.Typer, name: str) -> Callable[[_Action], _Action]:
    """Register a function of a session as a command: it returns the exit code, None for success.

    A coroutine function runs in an event loop, see ``in_loop``.
    """

    def register(action: _Action) -> _Action:
        @wraps(action)
        def run(session: typer.Context, **given: Any) -> None:
            code = in_loop(session.obj, lambda: action(session.obj, **given)) if waits else action(session.obj, **given)
            raise typer.Exit(code or EXIT_DONE)

        waits = iscoroutinefunction(action)
        # Typer hands its context to the parameter of that type.
        run.__annotations__ = {**action.__annotations__, "session": typer.Context}
        app.command(name)(run)
        return action

    return register


def in_loop(session: Session, work: Callable[[], Awaitable[int | None]]) -> int:
    """Run ``work`` in an event loop and return its exit code; None is success."""
    # A person may be asked for a token, and could not interrupt that inside of the loop.
    _ = session.tokens

    async def done() -> int:
        return await work() or EXIT_DONE

    return run_async(done)


def may_remove(session: Session, what: str, *, yes: bool) -> bool:
    """Return True with ``--yes``, or if the person agrees to the removal; a UsageError if no person is there."""
    from rkllm_mcp.surfaces.chat.forms import TerminalApprover

    if yes or TerminalApprover(session.terminal).confirm(f"Remove {what}?", "--yes"):
        return True
    session.status("Nothing was removed.")
    return False
