"""Task groups that raise an exception itself; anyio's raise it in an ``ExceptionGroup``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup


def first_exception(error: BaseException) -> BaseException:
    """Return the first exception in a group, at any depth; another exception as it is."""
    # Python 3.10 has no class for groups.
    while members := getattr(error, "exceptions", None):
        error = members[0]
    return error


@asynccontextmanager
async def open_task_group(*, cancel_at_end: bool = False) -> AsyncGenerator[TaskGroup, None]:
    """Open a task group that raises the first exception of its block or its tasks itself.

    Args:
        cancel_at_end: cancel the tasks when the block ends. Otherwise the block has to end them, even if it fails:
            they are waited for.
    """
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:  # noqa: BLE001  (raised below: the group would wrap it)
                failure = error
            if cancel_at_end:
                tasks.cancel_scope.cancel()
    except Exception as error:  # noqa: BLE001  (raised below)
        failure = failure or error
    if failure is not None:
        # An exception keeps its own cause and context.
        raise first_exception(failure)


async def run_concurrently(jobs: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run ``jobs`` at the same time; the first exception cancels the others and is raised."""
    async with open_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(job)
