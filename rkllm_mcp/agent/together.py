"""Several things at the same time, all of them or none: what ``anyio`` does, with the error as it was raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import anyio


async def together(jobs: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run ``jobs`` at the same time; the first that raises ends the others, and its error is raised as it is."""
    failures: list[Exception] = []

    async def one(job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for job in jobs:
            group.start_soon(one, job)
    if failures:
        raise failures[0]
