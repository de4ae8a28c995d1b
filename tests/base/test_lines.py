"""Lines of a descriptor, however they come."""

from __future__ import annotations

import os

import anyio
import pytest

from rkllm_base.lines import Lines

pytestmark = pytest.mark.anyio


async def test_a_read_that_is_cancelled_loses_nothing() -> None:
    read_end, write_end = os.pipe()
    lines = Lines(read_end)
    os.write(write_end, b"beg")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lines.read)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        os.write(write_end, b"un\nsecond\r\n\nlast")
        os.close(write_end)
        assert [line async for line in lines] == ["begun", "second\r", "", "last"]
        assert await lines.read() is None
    os.close(read_end)
