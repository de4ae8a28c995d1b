"""A folder that is imported again as soon as something in it changes.

Every round is a whole ``import_folder``; what watches only says when. So nothing depends on the operating system
telling every change: a restart is a round like any other, and finds what changed meanwhile. Without ``watchfiles``, or
where the system tells nothing, a round comes at a fixed interval.
"""

from __future__ import annotations

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
    WalkRules,
    import_folder,
    is_ignored,
    no_progress,
)
from mcp_servers.knowledge.importing.reader import Reader

# What a round did, or why there was none.
RoundListener = Callable[[FolderReport | KnowledgeError], Awaitable[None]]

# How often the thread that waits for the operating system looks whether it should end.
_STEP_MS = 50


@dataclass(frozen=True)
class WatchRules:
    """How a folder is watched.

    Args:
        importing: how its files are imported.
        debounce_s: changes that follow each other within this time are one change: a file is read when it was copied.
        interval_s: between rounds where nobody tells of changes, and after a round that failed as a whole.
        rescan_s: between rounds even when no change was told; systems forget some.
        is_notified: let the operating system tell of changes; network drives do not.
    """

    importing: FolderRules = field(default_factory=FolderRules)
    debounce_s: float = 1.6
    interval_s: float = 30.0
    rescan_s: float = 600.0
    uses_notifications: bool = True


async def watch_folder(
    folder: Path,
    store: DocumentStore,
    reader: Reader,
    rules: WatchRules,
    on_round: RoundListener,
    *,
    on_progress: Progress = no_progress,
) -> None:
    """Import a folder now and whenever it changes, until cancelled.

    Args:
        folder: watched with everything below.
        importer: where the documents go.
        reader: reads them.
        rules: how.
        on_round: told every round that did something, and what keeps rounds from being made, once each time.
        on_progress: as ``import_folder``.
    """
    seen: SeenFiles = {}
    last_reported = ""

    async def run_round() -> None:
        nonlocal last_reported
        report = await import_folder(folder, store, reader, rules.importing, on_progress=on_progress, seen=seen)
        last_reported = ""
        if any(file.outcome in {"imported", "removed", "failed"} for file in report.files):
            await on_round(report)

    while True:
        problem = await _rounds(folder, rules, run_round)
        if problem and str(problem) != last_reported:
            last_reported = str(problem)
            await on_round(problem)
        await anyio.sleep(rules.interval_s)


async def _rounds(folder: Path, rules: WatchRules, run_round: Callable[[], Awaitable[None]]) -> KnowledgeError | None:
    """Go round at once and at every change; ends with what kept a round from being made."""
    problem: KnowledgeError | None = None
    changed, changes = anyio.create_memory_object_stream[None](1)
    stop = anyio.Event()
    async with changed, changes, anyio.create_task_group() as tasks:
        # Watching begins before the first look, so that what changes during the round is not missed.
        tasks.start_soon(_signal_changes, folder, rules, changed.clone(), stop)
        await anyio.lowlevel.checkpoint()
        try:
            problem = await _until_problem(run_round, changes)
        finally:
            # The thread that waits for changes cannot be cancelled; this ends it at its next step.
            stop.set()
        tasks.cancel_scope.cancel()
    return problem


async def _until_problem(
    run_round: Callable[[], Awaitable[None]], changes: MemoryObjectReceiveStream[None]
) -> KnowledgeError:
    while True:
        try:
            await run_round()
        except KnowledgeError as problem:
            return problem
        await changes.receive()


async def _signal_changes(
    folder: Path, rules: WatchRules, changed: MemoryObjectSendStream[None], stop: anyio.Event
) -> None:
    """Tell of changes; several that nobody has taken are one."""
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
    """Tell what the operating system tells.

    Raises:
        ImportError: watchfiles is not installed.
        OSError: the system cannot watch the folder, or no further one.
    """
    import watchfiles

    def is_counted(_: object, path: str) -> bool:
        return not _is_ignored(Path(path), folder, rules.importing.walking)

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


def _is_ignored(path: Path, folder: Path, rules: WalkRules) -> bool:
    try:
        parts = path.relative_to(folder).parts
    except ValueError:
        return False
    return any(is_ignored(part, rules) for part in parts)
