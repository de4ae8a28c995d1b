"""Task groups that raise an exception itself, and costly functions one at a time in a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import RunVar

T = TypeVar("T")

_costly_calls: RunVar[anyio.CapacityLimiter] = RunVar("costly_calls")


def first_exception(error: BaseException) -> BaseException:
    """Return the first exception in a group, at any depth; another exception as it is."""
    # Python 3.10 has no class for groups.
    while members := getattr(error, "exceptions", None):
        error = members[0]
    return error


@asynccontextmanager
async def open_task_group(*, cancel_at_end: bool = False) -> AsyncGenerator[TaskGroup, None]:
    """Open a task group that raises the first exception of its block or its tasks itself.

    The groups of anyio raise it in an ``ExceptionGroup``.

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


async def run_costly(function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of ``function``, run in a thread; one such call runs at a time, the others wait in order.

    All work whose cost a client chooses, such as encoding a long text, goes this way and takes one core at most. A
    cancelled call leaves the queue; if its function has begun, that is waited for.
    """
    try:
        limiter = _costly_calls.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(1)
        _costly_calls.set(limiter)
    return await to_thread.run_sync(function, *arguments, limiter=limiter)
