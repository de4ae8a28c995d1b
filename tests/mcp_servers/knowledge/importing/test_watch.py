from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from mcp_servers.knowledge.errors import KnowledgeError
from mcp_servers.knowledge.importing.folders import (
    FolderReport,
    FolderRules,
    SeenFiles,
    WatchRules,
    import_folder,
    watch_folder,
)
from mcp_servers.knowledge.importing.reader import open_reader
from tests.support.imported import RememberingImporter

pytestmark = pytest.mark.anyio

Rounds = MemoryObjectReceiveStream[FolderReport | KnowledgeError]
QUICK = WatchRules(FolderRules(), debounce_s=0.1, interval_s=0.05)


@asynccontextmanager
async def watching(folder: Path, importer: RememberingImporter, rules: WatchRules) -> AsyncGenerator[Rounds]:
    send, receive = anyio.create_memory_object_stream[FolderReport | KnowledgeError](100)
    with anyio.fail_after(60):
        async with send, receive, open_reader() as reader, anyio.create_task_group() as tasks:
            tasks.start_soon(watch_folder, folder, importer, reader, rules, send.send)
            yield receive
            tasks.cancel_scope.cancel()


def write(folder: Path, name: str, text: str) -> None:
    """Put a file there as a whole: a reader must not find half of one."""
    beside = folder.with_name(f"{folder.name}-{name}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(folder / name)


@pytest.mark.parametrize("uses_notifications", [True, False], ids=["told by the system", "at intervals"])
async def test_a_watched_folder_follows_what_happens_in_it(tmp_path: Path, uses_notifications: bool) -> None:
    write(tmp_path, "a.txt", "一。")
    importer = RememberingImporter()
    rules = WatchRules(FolderRules(), debounce_s=0.1, interval_s=0.05, uses_notifications=uses_notifications)
    async with watching(tmp_path, importer, rules) as rounds:
        assert str(await rounds.receive()) == "1 imported."
        write(tmp_path, "b.txt", "二。")
        assert str(await rounds.receive()).startswith("1 imported")
        write(tmp_path, "a.txt", "三番目。")
        assert str(await rounds.receive()).startswith("1 imported")
        (tmp_path / "b.txt").unlink()
        assert str(await rounds.receive()).endswith("1 removed.")
    assert importer.titles == ["a"]
    assert importer.chunks[(tmp_path / "a.txt").as_uri()][0].text == "三番目。"


async def test_a_missing_folder_is_reported_once_and_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    importer = RememberingImporter()
    async with watching(folder, importer, QUICK) as rounds:
        assert "the folder does not exist" in str(await rounds.receive())
        folder.mkdir()
        write(folder, "a.txt", "一。")
        told = await rounds.receive()
        assert isinstance(told, FolderReport), told
    assert importer.titles == ["a"]


async def test_leaving_does_not_wait_for_a_change(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "一。")
    with anyio.fail_after(60):
        async with watching(tmp_path, RememberingImporter(), WatchRules(rescan_s=3600)) as rounds:
            await rounds.receive()


async def test_a_file_that_grows_is_read_once_when_it_has_settled(tmp_path: Path) -> None:
    importer, seen = RememberingImporter(), SeenFiles()
    write(tmp_path, "a.txt", "一。")
    growing, settled = FolderRules(settle_s=3600.0), FolderRules()
    async with open_reader() as reader:
        first = await import_folder(tmp_path, importer, reader, growing, known_files=seen)
        assert (str(first), [file.reason for file in first.files]) == ("1 imported.", [""])
        for text in ("一。二。", "一。二。三。", "一。二。三。"):
            write(tmp_path, "a.txt", text)
            report = await import_folder(tmp_path, importer, reader, growing, known_files=seen)
            reasons = [file.reason for file in report.files]
            assert (str(report), reasons) == ("1 skipped.", ["is still being written"])
        assert importer.chunks[(tmp_path / "a.txt").as_uri()][0].text == "一。"
        assert str(await import_folder(tmp_path, importer, reader, settled, known_files=seen)) == "1 imported."
        assert str(await import_folder(tmp_path, importer, reader, growing, known_files=seen)) == "1 unchanged."
    assert importer.chunks[(tmp_path / "a.txt").as_uri()][0].text == "一。二。三。"


async def test_a_change_is_read_after_it_has_settled_without_another_notification(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "一。")
    importer = RememberingImporter()
    rules = WatchRules(FolderRules(settle_s=0.3), debounce_s=0.1, interval_s=0.05)
    async with watching(tmp_path, importer, rules) as rounds:
        assert str(await rounds.receive()) == "1 imported."
        write(tmp_path, "a.txt", "二番目。")
        assert str(await rounds.receive()) == "1 imported."
    assert importer.chunks[(tmp_path / "a.txt").as_uri()][0].text == "二番目。"
