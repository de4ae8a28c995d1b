"""A list to choose from, and the keys of the prompt, at a terminal that a test types at."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.surfaces.chat.files import take_files
from rkllm_mcp.surfaces.chat.input import TerminalLines, edit_text
from rkllm_mcp.surfaces.chat.picker import Choice, pick

pytestmark = pytest.mark.anyio

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "\x1b[A", "\x1b[B", "\r", "\x1b", "\x7f"
PHRASES = read_catalogue("en")
CHOICES = [
    Choice("1", "Trip to Kyoto", "2026-11-26"),
    Choice("2", "買い物の一覧", "2026-11-25"),
    Choice("3", "Kyoto again", "2026-11-24"),
]


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (ENTER, "2"),  # where the list opens
        (DOWN + ENTER, "3"),
        (UP + UP + UP + ENTER, "1"),
        ("kyoto" + DOWN + ENTER, "3"),
        ("買い" + ENTER, "2"),
        ("again kyoto" + ENTER, "3"),
        ("nothing" + ENTER + BACKSPACE * 7 + ENTER, "1"),
        ("\x1b[200~11-24\x1b[201~" + ENTER, "3"),
        (ESCAPE, None),
        ("\x03", None),
        ("\x04", None),
    ],
)
async def test_arrow_keys_walk_a_list_and_letters_filter_it(keys: str, chosen: str | None) -> None:
    with create_pipe_input() as source, anyio.fail_after(10):
        source.send_text(keys)
        assert await pick("Which?", CHOICES, "2", PHRASES, source=source, target=DummyOutput()) == chosen


async def test_a_second_ctrl_c_at_an_empty_line_leaves_and_the_first_says_so(tmp_path: Path) -> None:
    async def nothing(text: str) -> tuple[str, Mapping[str, str]]:
        return text, {}

    hints: list[str] = []
    with create_pipe_input() as source, create_app_session(input=source, output=DummyOutput()), anyio.fail_after(10):
        lines = TerminalLines(nothing, {"HOME": str(tmp_path)}, hint=lambda: hints.append("again"))
        read: list[str | None] = []
        # A line that is given up is no first time, and one that is sent begins anew.
        for keys in ("half\x03", "\x03", "Hello\r", "\x03", "\x03"):
            source.send_text(keys)
            read.append(await lines.read())
    assert read == ["", "", "Hello", "", None]
    assert hints == ["again", "again"]


async def test_a_text_is_edited_with_the_persons_editor(tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\necho "$1" >> "$0.log"\nprintf " and more\\n" >> "$2"\n', encoding="utf-8")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    assert await edit_text("京都", {"EDITOR": f"'{editor}' -w"}) == "京都 and more"
    assert (tmp_path / "my editor.log").read_text("utf-8") == "-w\n"
    assert await edit_text("x", {"VISUAL": "false", "EDITOR": str(editor)}) is None
    assert await edit_text("x", {"EDITOR": "/nothing/there"}) is None


@pytest.mark.parametrize(
    ("typed", "text", "paths"),
    [
        ("Sum up @notes.txt.", "Sum up notes.txt.", ["notes.txt"]),
        ("@notes.txtを要約して", "notes.txtを要約して", ["notes.txt"]),
        ("これを@sub/b.mdと比べて", "これをb.mdと比べて", ["sub/b.md"]),
        ('see @"my notes.txt" and @"my notes.txt"', "see my notes.txt and my notes.txt", ["my notes.txt"]),
        ("write to me@notes.txt", "write to me@notes.txt", []),
        ("@desk:memo://monday", "@desk:memo://monday", []),
        ("hello @bob, @sub", "hello @bob, @sub", []),
        ("@./absent.txt", "absent.txt", ["./absent.txt"]),
        ("@~/notes.txt!", "notes.txt!", ["~/notes.txt"]),
        (f"@{'x' * 5000}", f"@{'x' * 5000}", []),
    ],
)
def test_a_question_mentions_files(
    typed: str, text: str, paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "sub").mkdir()
    for file in ("notes.txt", "my notes.txt", "sub/b.md"):
        (tmp_path / file).touch()
    assert take_files(typed, ["desk"]) == (text, paths)
