"""The clocks of the board: ``rkllm-mcp tune``."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from rkllm_mcp.diagnostics.clocks import apply_settings, clock_settings, lacks_root, undo_settings
from rkllm_mcp.surfaces.chat.forms import TerminalApprover, is_interactive
from rkllm_mcp.surfaces.cli.options import command, flag
from rkllm_mcp.surfaces.invocation import EXIT_DONE, EXIT_UNUSABLE, Session

app = typer.Typer()


@command(app, "tune")
def tune_command(
    session: Session,
    undo: Annotated[bool, flag("Put the clocks back as they were.", "--undo")] = False,
    yes: Annotated[bool, flag("Set them without asking.", "--yes", "-y")] = False,
) -> int:
    """Show what sets NPU, CPU, GPU and memory to their highest clocks, ask, and do it; needs root for that.

    It lasts until the board restarts, or until --undo. Without a fan, watch the temperature. Exit code 3 if something
    could not be set.
    """
    phrases, terminal = session.phrases, session.terminal
    words = ["sudo", sys.executable, "-m", "rkllm_mcp", "tune", *(["--undo"] if undo else [])]
    if undo:
        if lacks_root():
            terminal.answer(phrases.sentence("tune.as_root", command=shlex.join(words)) + "\n")
            return EXIT_UNUSABLE
        failed = undo_settings()
        files = ", ".join(f"/{file}" for file in failed)
        terminal.answer(phrases.sentence("tune.not_undone" if failed else "tune.undone", files=files) + "\n")
        return EXIT_UNUSABLE if failed else EXIT_DONE
    settings = clock_settings()
    rows = [
        [
            f"/{setting.file}",
            setting.now or "?",
            phrases.sentence("tune.same") if setting.now == setting.value else setting.value,
        ]
        for setting in settings
    ]
    terminal.answer(terminal.table(["FILE", "NOW", "TO SET"], rows))
    if lacks_root():
        terminal.answer(phrases.sentence("tune.as_root", command=shlex.join(words)) + "\n")
        return EXIT_DONE
    asks_first = is_interactive() and not yes
    if not yes and not (asks_first and TerminalApprover(terminal).confirm(phrases.sentence("tune.confirm"), "--yes")):
        terminal.answer(phrases.sentence("tune.unchanged") + "\n")
        return EXIT_DONE
    failed = apply_settings(settings)
    files = ", ".join(f"/{file}" for file in failed)
    terminal.answer(phrases.sentence("tune.not_set" if failed else "tune.set", files=files) + "\n")
    return EXIT_UNUSABLE if failed else EXIT_DONE
