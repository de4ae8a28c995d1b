from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from rkllm_base.folders import user_folder
from rkllm_base.lines import Lines
from rkllm_mcp.surfaces.chat.input import TerminalLines


async def nothing(text: str) -> tuple[str, dict[str, str]]:
    return text, {}


@pytest.mark.anyio
async def test_lines_of_a_pipe_come_as_they_are_written() -> None:
    read_end, write_end = os.pipe()
    lines: list[str | None] = []
    with anyio.fail_after(60):
        reader = Lines(read_end)
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
        reader = Lines(file.fileno())
        assert [await reader.read() for _ in range(4)] == ["one", "", "two", None]


@pytest.mark.anyio
async def test_pasted_lines_are_one_question(tmp_path: Path) -> None:
    with create_pipe_input() as source, create_app_session(input=source, output=DummyOutput()), anyio.fail_after(10):
        lines = TerminalLines(nothing, {"XDG_STATE_HOME": str(tmp_path)})
        source.send_text("Why? \x1b[200~one\r\n\ttwo 👩‍💻 é\n/quit\n\x1b[201~\r")
        assert await lines.read() == "Why? one\n\ttwo 👩‍💻 é\n/quit\n"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("key", "line"),
    [
        *(
            (key, "one\ntwo")
            for key in ("\x1b\r", "\x1b\n", "\x1b[27;2;13~", "\x1b[13;2u", "\x1b[27;3;13~", "\x1b[13;3u")
        ),
        *((key, "one") for key in ("\r", "\n", "\x1bOM", "\x1b[27;5;13~", "\x1b[13;5u")),
    ],
)
async def test_shift_and_alt_with_enter_begin_a_line_and_every_other_enter_sends(
    key: str, line: str, tmp_path: Path
) -> None:
    with create_pipe_input() as source, create_app_session(input=source, output=DummyOutput()), anyio.fail_after(10):
        lines = TerminalLines(nothing, {"XDG_STATE_HOME": str(tmp_path)})
        source.send_text(f"one{key}two\r")
        assert await lines.read() == line


@pytest.mark.anyio
async def test_a_history_that_cannot_be_written_costs_no_line(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    with create_pipe_input() as source, create_app_session(input=source, output=DummyOutput()), anyio.fail_after(10):
        lines = TerminalLines(nothing, env)
        # Writing fails from now on, as on a full disk.
        history = user_folder("state", env) / "history"
        history.unlink()
        history.mkdir()
        source.send_text("once\r")
        assert await lines.read() == "once"
        source.send_text("\x1b[A, twice\r")
        assert await lines.read() == "once, twice"


def test_the_history_is_its_owners_alone(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    TerminalLines(nothing, env)
    path = user_folder("state", env) / "history"
    assert path == tmp_path / "state" / "rkllm-mcp" / "history"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_a_history_that_is_a_device_leaves_its_mode_alone(tmp_path: Path) -> None:
    master, device = os.openpty()
    try:
        os.fchmod(device, 0o620)
        env = {"XDG_STATE_HOME": str(tmp_path)}
        history = user_folder("state", env) / "history"
        history.parent.mkdir()
        history.symlink_to(os.ttyname(device))
        TerminalLines(nothing, env)
        assert stat.S_IMODE(os.fstat(device).st_mode) == 0o620
    finally:
        os.close(master)
        os.close(device)
