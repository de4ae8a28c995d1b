"""A report about a board: ``rkllm-mcp report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.chat.forms import TerminalApprover, is_interactive
from rkllm_mcp.surfaces.cli.options import command, flag, option
from rkllm_mcp.surfaces.invocation import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNUSABLE, Session
from rkllm_mcp.surfaces.running_service import service_for

app = typer.Typer()


@command(app, "report")
def report_command(
    session: Session,
    out: Annotated[str, option("Folder to write the two files to.", "FOLDER")] = ".",
    again: Annotated[
        bool, flag("Measure everything again instead of going on with the report there.", "--again")
    ] = False,
    yes: Annotated[bool, flag("Begin without asking.", "--yes", "-y")] = False,
) -> int:
    """Run doctor, its probe, bench and 20 questions with tools; takes up to 15 minutes on a board.

    The two files are written after each part, and Ctrl-C ends the report there: the same command goes on. They have no
    names, keys, addresses or folders of yours; read the page before you send it. Exit code 3 if a part failed.
    """
    from rkllm_mcp.diagnostics.report import PARTS, BoardReport

    config = session.config()
    phrases = session.phrases
    if config.provider.kind != "rkllm":
        raise UsageError("a report is about the NPU of a board, and a remote service answers here; see [provider]")
    if service_for(config) is not None:
        raise UsageError(
            "the service of this configuration has the NPU; "
            "stop it with 'rkllm-mcp service stop', and start it afterwards"
        )
    report = BoardReport.open(config, Path(out).expanduser(), again=again)
    waiting = report.waiting
    for name, minutes in PARTS.items():
        key = "report.part" if name in waiting else "report.part_done"
        what = phrases.table("report.parts")[name]
        session.status(phrases.sentence(key, name=name, what=what, minutes=f"{minutes:g}"))
    if waiting and not yes and is_interactive():
        total = sum(PARTS[name] for name in waiting)
        if not TerminalApprover(session.terminal).confirm(
            phrases.sentence("report.begin", minutes=f"{total:g}"), "--yes"
        ):
            return EXIT_DONE
    failed = False
    try:
        for name in waiting:
            if report.is_over_time:
                session.status(phrases.sentence("report.over_time"))
                break
            session.status(phrases.sentence("report.running", name=name))
            problem = report.run_part(name, lambda step: session.status(f"  {step}"))
            seconds = f"{report.values['parts'][name]['seconds']:.0f}"
            key = "report.failed" if problem else "report.done"
            session.status(phrases.sentence(key, name=name, seconds=seconds, problem=session.terminal.word(problem)))
            failed = failed or bool(problem)
    except KeyboardInterrupt:
        report.save()
        session.terminal.error(phrases.sentence("report.stopped"), "")
        return EXIT_INTERRUPTED
    report.save()
    session.terminal.answer(phrases.sentence("report.written", page=report.page_file, json=report.json_file) + "\n")
    return EXIT_UNUSABLE if failed else EXIT_DONE
