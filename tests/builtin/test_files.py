"""The tools of a folder: what they answer, and that nothing leads outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.builtin.files import MOST_LISTED, MOST_READ_BYTES, MOST_WRITTEN_BYTES
from rkllm_mcp.builtin.server import open_builtin
from rkllm_mcp.config.servers import BuiltinServer, BuiltinTool
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client.wire_log import LastLines
from rkllm_mcp.protocols import NO_CONTEXT

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "files"
    (place / "letters").mkdir(parents=True)
    (place / "notes.txt").write_text("one\ntwo\n電話 03-1234\n", "utf-8")
    (place / "letters" / "old.txt").write_bytes("お元気ですか".encode("cp932"))
    (place / "photo.bin").write_bytes(b"\x00\xff")
    (place / ".hidden").write_text("h", "utf-8")
    (tmp_path / "secret.txt").write_text("secret", "utf-8")
    (place / "link.txt").symlink_to(tmp_path / "secret.txt")
    (place / "out").symlink_to(tmp_path)
    os.mkfifo(place / "pipe")
    return place


async def call(folder: Path, tool: str, *, write: bool = True, **arguments: Any) -> str:
    """The text of a result, ``error: `` before it when it is one."""
    async with open_builtin(BuiltinServer(name="files", folder=folder, write=write), LastLines().add) as tools:
        result = await tools.call(tool, arguments, NO_CONTEXT)
    text = result["content"][0]["text"]
    return f"error: {text}" if result["isError"] else text


OUTSIDE = "error: '{path}' is not in the user's folder; write a path without / at its beginning."
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("list_directory", {}, "letters/\nnotes.txt (23 bytes)\nphoto.bin (2 bytes)"),
    ("list_directory", {"path": "./letters/"}, "old.txt (12 bytes)"),
    ("list_directory", {"path": ".."}, OUTSIDE.format(path="..")),
    ("list_directory", {"path": "out"}, "error: out cannot be used: Not a directory."),
    ("list_directory", {"path": "none"}, "error: There is no none; there is notes.txt."),
    ("read_text_file", {"path": "notes.txt"}, "one\ntwo\n電話 03-1234\n"),
    ("read_text_file", {"path": "notes.txt", "first_line": 3}, "電話 03-1234\n"),
    ("read_text_file", {"path": "notes.txt", "first_line": 4}, "error: notes.txt has 3 lines; begin at one of them."),
    ("read_text_file", {"path": "letters/old.txt"}, "お元気ですか"),
    ("read_text_file", {"path": "letters"}, "error: letters is a folder; name a file."),
    ("read_text_file", {"path": "."}, "error: That is the folder itself; name a file."),
    ("read_text_file", {"path": "photo.bin"}, "error: photo.bin is no text file."),
    ("read_text_file", {"path": "pipe"}, "error: pipe is no ordinary file; name a file."),
    ("read_text_file", {"path": "link.txt"}, "error: link.txt is no ordinary file; name a file."),
    ("read_text_file", {"path": "out/secret.txt"}, "error: out cannot be used: Not a directory."),
    ("read_text_file", {"path": "/etc/passwd"}, OUTSIDE.format(path="/etc/passwd")),
    ("read_text_file", {"path": "a/../../secret.txt"}, OUTSIDE.format(path="a/../../secret.txt")),
    ("search_files", {"text": "電話"}, "notes.txt: 電話 03-1234"),
    ("search_files", {"text": "OLD"}, "letters/old.txt"),
    ("search_files", {"text": "secret"}, "No file has 'secret' in its name or content."),
    ("search_files", {"text": " "}, "error: There is nothing to look for; give words in 'text'."),
    ("write_file", {"path": "link.txt", "content": "x"}, "error: link.txt is no ordinary file; name a file."),
    ("write_file", {"path": "out/new.txt", "content": "x"}, "error: out cannot be used: Not a directory."),
    (
        "write_file",
        {"path": "big.txt", "content": "x" * (MOST_WRITTEN_BYTES + 1)},
        "error: 262145 bytes are too many; at most 262144 can be written.",
    ),
]


@pytest.mark.parametrize(("tool", "arguments", "text"), CASES)
async def test_a_tool_of_a_folder_answers_or_names_its_problem(
    folder: Path, tool: str, arguments: dict[str, Any], text: str
) -> None:
    assert await call(folder, tool, **arguments) == text
    assert (folder.parent / "secret.txt").read_text() == "secret"


async def test_a_file_is_written_in_one_piece_and_only_where_that_is_allowed(folder: Path) -> None:
    assert await call(folder, "write_file", path="letters/new.txt", content="やあ") == (
        "Wrote letters/new.txt (6 bytes)."
    )
    assert (folder / "letters" / "new.txt").read_text("utf-8") == "やあ"
    assert sorted(path.name for path in (folder / "letters").iterdir()) == ["new.txt", "old.txt"]
    async with open_builtin(BuiltinServer(name="files", folder=folder), LastLines().add) as tools:
        assert [(tool.name, tool.read_only) for tool in tools.tools] == [
            ("list_directory", True),
            ("read_text_file", True),
            ("search_files", True),
        ]


async def test_a_large_file_and_a_large_folder_are_cut_with_a_word_about_it(folder: Path) -> None:
    (folder / "large.txt").write_text("あ" * MOST_READ_BYTES, "utf-8")
    text = await call(folder, "read_text_file", path="large.txt")
    assert text == "あ" * (MOST_READ_BYTES // 3) + "\n… the file is longer than what can be read"
    for number in range(MOST_LISTED):
        (folder / "letters" / f"{number:03}.txt").touch()
    listed = (await call(folder, "list_directory", path="letters")).splitlines()
    assert (len(listed), listed[-1]) == (MOST_LISTED + 1, "… and 1 more")


async def test_a_folder_works_with_other_tools_and_a_missing_one_is_named(folder: Path) -> None:
    spec = BuiltinServer(name="b", folder=folder, tools=(BuiltinTool(name="clock"),))
    async with open_builtin(spec, LastLines().add) as tools:
        names = ["list_directory", "read_text_file", "search_files", "clock"]
        assert [tool.name for tool in tools.tools] == names
    with pytest.raises(ServerUnavailableError, match="there is no folder /none; make it, or correct 'folder'"):
        async with open_builtin(BuiltinServer(name="b", folder=Path("/none")), LastLines().add):
            pass
