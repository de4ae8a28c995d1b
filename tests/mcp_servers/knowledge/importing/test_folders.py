from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcp_servers.knowledge.errors import BadArgumentError, StorageFullError, TooLargeError, UnreadableFileError
from mcp_servers.knowledge.importing.documents import ParseLimits
from mcp_servers.knowledge.importing.folders import (
    FolderReport,
    FolderRules,
    FoundFile,
    SeenFiles,
    SkippedPath,
    import_folder,
    walk,
)
from mcp_servers.knowledge.importing.reader import Reader, open_reader
from tests.support.imported import RememberingImporter, column, pdf

pytestmark = pytest.mark.anyio


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.stem} の文。", encoding="utf-8")


@asynccontextmanager
async def reading(limits: ParseLimits | None = None) -> AsyncGenerator[Reader]:
    with anyio.fail_after(60):
        async with open_reader(limits or ParseLimits()) as reader:
            yield reader


def outcomes(report: FolderReport, folder: Path) -> dict[str, str]:
    return {str(Path(file.path).relative_to(folder)): file.outcome for file in report.files}


async def test_a_folder_is_imported_and_every_file_reported(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "sub/deep/a.md", ".hidden.txt", ".git/config", "node_modules/x.js", "~$b.docx")
    (tmp_path / "c.pdf").write_bytes(pdf([column(["頁の文。"])], title="仕様書"))
    (tmp_path / "d.gif").write_bytes(b"GIF89a\x00\x00")
    (tmp_path / "e.txt").touch()
    (tmp_path / "f.txt").symlink_to(tmp_path / "b.txt")
    told: list[tuple[int, int, str]] = []

    async def on_progress(done: int, total: int, message: str) -> None:
        told.append((done, total, message))

    importer = RememberingImporter()
    async with reading() as reader:
        report = await import_folder(tmp_path, importer, reader, on_progress=on_progress)
    assert outcomes(report, tmp_path) == {
        "b.txt": "imported",
        "c.pdf": "imported",
        "d.gif": "failed",
        "e.txt": "failed",
        "f.txt": "skipped",
        "sub/deep/a.md": "imported",
    }
    assert importer.titles == ["a", "b", "仕様書"]
    assert importer.chunks[(tmp_path / "c.pdf").as_uri()][0].page == 1
    names = ["b.txt", "c.pdf", "d.gif", "e.txt", "sub/deep/a.md"]
    assert told == [*((number, 5, name) for number, name in enumerate(names)), (5, 5, "done")]
    assert str(report).startswith("3 imported, 1 skipped, 2 failed. d.gif cannot be imported: it is an image.")


async def test_importing_again_adds_nothing_and_what_changed_is_replaced_or_removed(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "b.txt", "c.txt")
    importer = RememberingImporter()
    async with reading() as reader:
        await import_folder(tmp_path, importer, reader)
        importer.added.clear()
        assert str(await import_folder(tmp_path, importer, reader)) == "3 unchanged."
        (tmp_path / "a.txt").write_text("新しい文。", encoding="utf-8")
        (tmp_path / "b.txt").unlink()
        write(tmp_path, "d.txt")
        report = await import_folder(tmp_path, importer, reader)
    assert outcomes(report, tmp_path) == {
        "a.txt": "imported",
        "c.txt": "unchanged",
        "d.txt": "imported",
        "b.txt": "removed",
    }
    assert importer.added == ["a", "d"]
    assert importer.chunks[(tmp_path / "a.txt").as_uri()][0].text == "新しい文。"


async def test_an_import_that_was_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "b.txt", "c.txt")
    importer = RememberingImporter()

    async def break_off(done: int, total: int, message: str) -> None:
        if done == 2:
            raise ConnectionError

    async with reading() as reader:
        with pytest.raises(ConnectionError):
            await import_folder(tmp_path, importer, reader, on_progress=break_off)
        assert importer.added == ["a", "b"]
        await import_folder(tmp_path, importer, reader)
    assert importer.added == ["a", "b", "c"]


async def test_files_that_look_the_same_are_not_opened_again(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    (tmp_path / "bad.pdf").write_text("no", encoding="utf-8")
    importer, seen = RememberingImporter(), SeenFiles()
    async with reading() as reader:
        await import_folder(tmp_path, importer, reader, known_files=seen)
        stamp = (tmp_path / "a.txt").stat()
        (tmp_path / "a.txt").write_text("z の文。", encoding="utf-8")
        os.utime(tmp_path / "a.txt", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        report = await import_folder(tmp_path, importer, reader, known_files=seen)
    assert outcomes(report, tmp_path) == {"a.txt": "unchanged", "bad.pdf": "skipped"}
    assert "has not changed since this: bad.pdf is damaged" in report.files[1].reason


async def test_a_document_that_became_unreadable_stays_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    importer = RememberingImporter()
    async with reading() as reader:
        await import_folder(tmp_path, importer, reader)
        (tmp_path / "a.txt").write_bytes(bytes(range(256)))
        report = await import_folder(tmp_path, importer, reader)
    assert outcomes(report, tmp_path) == {"a.txt": "failed"}
    assert importer.titles == ["a"]


async def test_the_files_of_an_unreadable_folder_do_not_count_as_removed(tmp_path: Path) -> None:
    write(tmp_path, "sub/a.txt")
    importer = RememberingImporter()
    async with reading() as reader:
        await import_folder(tmp_path, importer, reader)
        (tmp_path / "sub").rename(tmp_path.parent / "elsewhere")
        (tmp_path / "sub").symlink_to(tmp_path.parent / "elsewhere")
        report = await import_folder(tmp_path, importer, reader)
    assert outcomes(report, tmp_path) == {"sub": "skipped"}
    assert importer.titles == ["a"]


async def test_a_folder_that_is_gone_removes_nothing(tmp_path: Path) -> None:
    write(tmp_path, "docs/a.txt")
    importer = RememberingImporter()
    async with reading() as reader:
        await import_folder(tmp_path / "docs", importer, reader)
        (tmp_path / "docs").rename(tmp_path / "moved")
        with pytest.raises(UnreadableFileError, match="the folder does not exist"):
            await import_folder(tmp_path / "docs", importer, reader)
    assert importer.titles == ["a"]


async def test_documents_outside_the_folder_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "docs/a.txt", "docs2/b.txt")
    importer = RememberingImporter()
    async with reading() as reader:
        await import_folder(tmp_path, importer, reader)
        await import_folder(tmp_path / "docs", importer, reader, FolderRules(removes=False))
        (tmp_path / "docs" / "a.txt").unlink()
        assert str(await import_folder(tmp_path / "docs", importer, reader)) == "1 removed."
    assert importer.titles == ["b"]


async def test_one_document_the_knowledge_base_refuses_does_not_stop_the_rest_but_a_full_disk_does(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a.txt", "b.txt")
    importer = RememberingImporter(problem=BadArgumentError("title", "is empty", "Give one"))
    async with reading() as reader:
        report = await import_folder(tmp_path, importer, reader)
        assert report.count("failed") == 2
        importer.problem = StorageFullError("kb", "full")
        with pytest.raises(StorageFullError):
            await import_folder(tmp_path, importer, reader)


async def test_files_of_every_odd_kind_are_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path, "large.txt")
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table t (a)")
    database.close()
    async with reading(ParseLimits(document_bytes=10)) as reader:
        for name, sentence in (
            ("pipe", "it is not a regular file"),
            ("none.txt", "No such file"),
            ("", "it is not a regular file"),
        ):
            with pytest.raises(UnreadableFileError, match=sentence):
                await reader.read_document(tmp_path / name)
        with pytest.raises(UnreadableFileError, match="embedded null"):
            await reader.read_document("a\0b")
        with pytest.raises(TooLargeError, match=r"large\.txt is too large"):
            await reader.read_document(tmp_path / "large.txt")
        report = await import_folder(tmp_path, RememberingImporter(), reader)
    assert outcomes(report, tmp_path) == {"pipe": "skipped", "a.db": "failed", "large.txt": "failed"}


async def test_a_file_that_becomes_a_link_after_the_folder_was_listed_is_not_followed(tmp_path: Path) -> None:
    folder, secret = tmp_path / "watched", tmp_path / "secret.txt"
    secret.write_text("a secret", "utf-8")
    write(folder, "a.txt", "b.txt")

    async def swap(finished: int, total: int, message: str) -> None:
        del total, message
        if finished == 1:
            (folder / "b.txt").unlink()
            (folder / "b.txt").symlink_to(secret)

    store = RememberingImporter()
    async with open_reader() as reader:
        report = await import_folder(folder, store, reader, on_progress=swap)
    assert outcomes(report, folder) == {"a.txt": "imported", "b.txt": "failed"}
    assert not any("secret" in str(document) for document in store.__dict__.values())


def test_links_are_reported_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "a/one.txt")
    (tmp_path / "a" / "back").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "a" / "file").symlink_to("one.txt")
    found = list(walk(tmp_path))
    assert [each.path.name for each in found if isinstance(each, FoundFile)] == ["one.txt"]
    left = {each.path.name: each.reason for each in found if isinstance(each, SkippedPath)}
    assert left == dict.fromkeys(("back", "self", "file"), "is a link")


def test_files_above_the_limit_are_reported(tmp_path: Path) -> None:
    write(tmp_path, *(f"{number}.txt" for number in range(5)))
    found = list(walk(tmp_path, max_files=3))
    assert len(found) == 4
    assert found[-1] == SkippedPath(tmp_path, "has more than 3 files")


def test_a_name_that_is_not_a_text_is_reported_and_skipped(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).touch()
    assert [str(each.reason) for each in walk(tmp_path) if isinstance(each, SkippedPath)] == [
        "has a name that is not valid UTF-8"
    ]
