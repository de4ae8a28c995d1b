from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.surfaces.chat.input import PipedLines, TerminalLines, history_path


async def nothing(text: str) -> tuple[str, dict[str, str]]:
    return text, {}


@pytest.mark.anyio
async def test_lines_of_a_pipe_come_as_they_are_written() -> None:
    read_end, write_end = os.pipe()
    lines: list[str | None] = []
    with anyio.fail_after(60):
        reader = PipedLines(read_end)
        os.write(write_end, "東京".encode()[:4])
        async with anyio.create_task_group() as tasks:

            async def first() -> None:
                lines.append(await reader.read())

            tasks.start_soon(first)
            await anyio.lowlevel.checkpoint()
            assert lines == []
            os.write(write_end, "東京".encode()[4:] + b"\nsecond\nlast")
        os.close(write_end)
        assert [*lines, await reader.read(), await reader.read(), await reader.read()] == [
            "東京",
            "second",
            "last",
            None,
        ]
    os.close(read_end)


@pytest.mark.anyio
async def test_lines_of_a_file_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "questions").write_text("one\n\ntwo\n")
    with (tmp_path / "questions").open() as file, anyio.fail_after(60):
        reader = PipedLines(file.fileno())
        assert [await reader.read() for _ in range(4)] == ["one", "", "two", None]


def test_the_history_is_its_owners_alone(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    TerminalLines(nothing, env)
    path = history_path(env)
    assert path == tmp_path / "state" / "rkllm-mcp" / "history"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
