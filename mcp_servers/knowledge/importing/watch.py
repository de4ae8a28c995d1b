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

from mcp_servers.knowledge.errors import KnowledgeProblem
from mcp_servers.knowledge.importing.documents import Progress
from mcp_servers.knowledge.importing.folders import (
    FolderReport,
    FolderRules,
    Importer,
    SeenFiles,
    WalkRules,
    import_folder,
    is_ignored,
    nobody_listens,
)
from mcp_servers.knowledge.importing.reader import Reader

# What a round did, or why there was none.
Told = Callable[[FolderReport | KnowledgeProblem], Awaitable[None]]

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
    is_notified: bool = True


async def watch_folder(
    folder: Path,
    importer: Importer,
    reader: Reader,
    rules: WatchRules,
    on_round: Told,
    *,
    on_progress: Progress = nobody_listens,
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
    told = ""

    async def go_round() -> None:
        nonlocal told
        report = await import_folder(folder, importer, reader, rules.importing, on_progress=on_progress, seen=seen)
        told = ""
        if any(file.outcome in {"imported", "removed", "failed"} for file in report.files):
            await on_round(report)

    while True:
        problem = await _rounds(folder, rules, go_round)
        if problem and str(problem) != told:
            told = str(problem)
            await on_round(problem)
        await anyio.sleep(rules.interval_s)


async def _rounds(folder: Path, rules: WatchRules, go_round: Callable[[], Awaitable[None]]) -> KnowledgeProblem | None:
    """Go round at once and at every change; ends with what kept a round from being made."""
    problem: KnowledgeProblem | None = None
    changed, changes = anyio.create_memory_object_stream[None](1)
    stop = anyio.Event()
    async with changed, changes, anyio.create_task_group() as tasks:
        # Watching begins before the first look, so that what changes during the round is not missed.
        tasks.start_soon(_notice, folder, rules, changed.clone(), stop)
        await anyio.lowlevel.checkpoint()
        try:
            problem = await _until_problem(go_round, changes)
        finally:
            # The thread that waits for changes cannot be cancelled; this ends it at its next step.
            stop.set()
        tasks.cancel_scope.cancel()
    return problem


async def _until_problem(
    go_round: Callable[[], Awaitable[None]], changes: MemoryObjectReceiveStream[None]
) -> KnowledgeProblem:
    while True:
        try:
            await go_round()
        except KnowledgeProblem as problem:
            return problem
        await changes.receive()


async def _notice(folder: Path, rules: WatchRules, changed: MemoryObjectSendStream[None], stop: anyio.Event) -> None:
    """Tell of changes; several that nobody has taken are one."""
    with changed:
        while not stop.is_set():
            if rules.is_notified:
                with suppress(ImportError, OSError):
                    await _notified(folder, rules, changed, stop)
            await anyio.sleep(rules.interval_s)
            _tell(changed)


async def _notified(folder: Path, rules: WatchRules, changed: MemoryObjectSendStream[None], stop: anyio.Event) -> None:
    """Tell what the operating system tells.

    Raises:
        ImportError: watchfiles is not installed.
        OSError: the system cannot watch the folder, or no further one.
    """
    import watchfiles

    def is_counted(_: object, path: str) -> bool:
        return not _is_ignored(Path(path), folder, rules.importing.walking)

    told = cast("Any", watchfiles).awatch(
        folder,
        watch_filter=is_counted,
        debounce=int(rules.debounce_s * 1000),
        step=_STEP_MS,
        stop_event=stop,
        rust_timeout=int(rules.rescan_s * 1000),
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    async with aclosing(told) as rounds:
        async for _ in rounds:
            _tell(changed)


def _tell(changed: MemoryObjectSendStream[None]) -> None:
    with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
        changed.send_nowait(None)


def _is_ignored(path: Path, folder: Path, rules: WalkRules) -> bool:
    try:
        parts = path.relative_to(folder).parts
    except ValueError:
        return False
    return any(is_ignored(part, rules) for part in parts)
