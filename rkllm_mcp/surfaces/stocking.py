"""Fetching, adding and removing models: ``rkllm-mcp models pull``, ``add`` and ``remove``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rkllm_mcp.surfaces.questions import Nobody, Somebody, somebody_is_there
from rkllm_mcp.surfaces.session import EXIT_DONE, Session

if TYPE_CHECKING:
    from rkllm_mcp.acquisition.adding import Addition
    from rkllm_mcp.acquisition.pulling import Pull
    from rkllm_mcp.acquisition.stock import Report, Stock
    from rkllm_mcp.config.models import ModelFolder


def pull(session: Session, wish: Pull) -> int:
    """Fetch a model and print its folder.

    Raises:
        RkllmMcpError: it cannot be had; what has arrived is kept for the next try.
    """
    from rkllm_mcp.acquisition.pulling import pull as action

    try:
        with _progress(session) as report:
            folder = action(_stock(session), wish, report)
    except KeyboardInterrupt:
        session.status("What has arrived is kept; the same command goes on with it.")
        raise
    return _print_folder(session, folder)


def add(session: Session, wish: Addition) -> int:
    """Add a file that is here and print the model's folder.

    Raises:
        RkllmMcpError: it is no model, or something about it is not known.
    """
    from rkllm_mcp.acquisition.adding import add as action

    asker = Somebody(session.terminal) if somebody_is_there() else Nobody()
    with _progress(session) as report:
        folder = action(_stock(session), wish, asker, report)
    return _print_folder(session, folder)


def remove(session: Session, name: str, *, sure: bool) -> int:
    """Remove a model of the user's, after asking.

    Raises:
        UsageError: it is none of the user's, or nobody agreed.
    """
    from rkllm_mcp.acquisition.stock import gib

    stock = _stock(session)
    folder = stock.removable(name)
    if not sure:
        asker = Somebody(session.terminal) if somebody_is_there() else Nobody()
        if not asker.confirm(f"Remove {folder} with everything in it?", "--yes"):
            session.status("Nothing was removed.")
            return EXIT_DONE
    freed = stock.shelf.remove(name)
    sys.stdout.write(f"{name}: removed from {stock.shelf.root}\n")
    session.status(f"{gib(freed)} became free.")
    return EXIT_DONE


def _stock(session: Session) -> Stock:
    from rkllm_mcp.acquisition.stock import Stock

    return Stock(say=session.status)


def _print_folder(session: Session, folder: ModelFolder) -> int:
    sys.stdout.write(f"{folder.name}: {folder.folder}\n")
    session.status(f"Try it: rkllm-mcp chat --model {folder.folder.name}")
    return EXIT_DONE


@contextmanager
def _progress(session: Session) -> Generator[Report]:
    """A bar for each file, on standard error; nothing where nobody watches."""
    # Its warnings tell of every connection that broke and was taken up again.
    log = logging.getLogger("huggingface_hub")
    log.setLevel(max(log.level, logging.ERROR) if not logging.getLogger().isEnabledFor(logging.DEBUG) else log.level)
    if not session.terminal.shows_progress:
        yield _silently
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name.rpartition("/")[2], total=total)
            progress.update(tasks[name], completed=done, total=total)

        yield report


def _silently(name: str, done: int, total: int | None) -> None:
    del name, done, total
