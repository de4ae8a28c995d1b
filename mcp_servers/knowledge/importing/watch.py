"""Watching a folder: a full ``import_folder`` at the start and after each change.

Notifications only trigger rounds, so a missed one is made up by the next round. Without ``watchfiles``, or where the
system sends none, rounds run at a fixed interval.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mcp_servers.knowledge.errors import KnowledgeError
from mcp_servers.knowledge.importing.documents import Progress
from mcp_servers.knowledge.importing.folders import (
    DocumentStore,
    FolderReport,
    FolderRules,
    SeenFiles,
    import_folder,
    is_ignored,
    no_progress,
)
from mcp_servers.knowledge.importing.reader import Reader

# Receives the report of a round, or the error that prevented it.
RoundListener = Callable[[FolderReport | KnowledgeError], Awaitable[None]]

# Interval at which the notification thread checks for its end.
_STEP_MS = 50


@dataclass(frozen=True)
class WatchRules:
    """Options of a watched folder."""

    importing: FolderRules = field(default_factory=lambda: FolderRules(settle_s=2.0))
    debounce_s: float = 1.6  # changes closer together count as one, so files are read after copying
    interval_s: float = 30.0  # between rounds without notifications, and after a failed round
    rescan_s: float = 600.0  # between rounds without changes; systems miss some
    uses_notifications: bool = True  # False for network drives, which send none


async def watch_folder(
    folder: Path,
    store: DocumentStore,
    reader: Reader,
    rules: WatchRules,
    on_round: RoundListener,
    *,
    on_progress: Progress = no_progress,
) -> None:
    """Import a folder now and after each change, until cancelled.

    ``on_round`` receives each round that changed something, and each new error once.
    """
    seen: SeenFiles = {}
    last_reported = ""

    async def run_round() -> bool:
        nonlocal last_reported
        report = await import_folder(folder, store, reader, rules.importing, on_progress=on_progress, seen=seen)
        last_reported = ""
        if any(file.outcome in {"imported", "removed", "failed"} for file in report.files):
            await on_round(report)
        return report.is_settled

    while True:
        problem = await _rounds(folder, rules, run_round)
        if problem and str(problem) != last_reported:
            last_reported = str(problem)
            await on_round(problem)
        await anyio.sleep(rules.interval_s)


async def _rounds(folder: Path, rules: WatchRules, run_round: Callable[[], Awaitable[bool]]) -> KnowledgeError | None:
    """Run rounds until one fails; return its error."""
    problem: KnowledgeError | None = None
    changed, changes = anyio.create_memory_object_stream[None](1)
    stop = anyio.Event()
    async with changed, changes, anyio.create_task_group() as tasks:
        # Started before the first round, so changes during it are noticed.
        tasks.start_soon(_signal_changes, folder, rules, changed.clone(), stop)
        await anyio.lowlevel.checkpoint()
        try:
            problem = await _until_problem(run_round, changes, rules.importing.settle_s)
        finally:
            # The thread cannot be cancelled; this ends it at its next step.
            stop.set()
        tasks.cancel_scope.cancel()
    return problem


async def _until_problem(
    run_round: Callable[[], Awaitable[bool]], changes: MemoryObjectReceiveStream[None], settle_s: float
) -> KnowledgeError:
    while True:
        try:
            is_settled = await run_round()
        except KnowledgeError as problem:
            return problem
        with anyio.move_on_after(math.inf if is_settled else settle_s):
            await changes.receive()


async def _signal_changes(
    folder: Path, rules: WatchRules, changed: MemoryObjectSendStream[None], stop: anyio.Event
) -> None:
    """Signal changes; pending signals are merged."""
    with changed:
        while not stop.is_set():
            if rules.uses_notifications:
                with suppress(ImportError, OSError):
                    await _signal_notifications(folder, rules, changed, stop)
            await anyio.sleep(rules.interval_s)
            _signal(changed)


async def _signal_notifications(
    folder: Path, rules: WatchRules, changed: MemoryObjectSendStream[None], stop: anyio.Event
) -> None:
    """Signal the notifications of the operating system.

    Raises ImportError without watchfiles, OSError if the folder cannot be watched.
    """
    import watchfiles

    def is_counted(_: object, path: str) -> bool:
        return not _is_ignored(Path(path), folder)

    last_reported = cast("Any", watchfiles).awatch(
        folder,
        watch_filter=is_counted,
        debounce=int(rules.debounce_s * 1000),
        step=_STEP_MS,
        stop_event=stop,
        rust_timeout=int(rules.rescan_s * 1000),
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    async with aclosing(last_reported) as rounds:
        async for _ in rounds:
            _signal(changed)


def _signal(changed: MemoryObjectSendStream[None]) -> None:
    with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
        changed.send_nowait(None)


def _is_ignored(path: Path, folder: Path) -> bool:
    try:
        parts = path.relative_to(folder).parts
    except ValueError:
        return False
    return any(map(is_ignored, parts))
