"""The same content at several places of a base is indexed once, and remains as long as one of them does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_servers.knowledge.importing.folders import import_folder
from mcp_servers.knowledge.importing.reader import open_reader
from mcp_servers.knowledge.ingest import DocumentWriter
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.types import Access, NewChunk, NewDocument, SearchRequest
from tests.support.knowledge_server import open_tools

pytestmark = pytest.mark.anyio

BINS = NewDocument("bins.txt", (NewChunk("The bins are emptied on Thursday."),), "aa", uri="file:///bins.txt")
COPY = NewDocument("copy.txt", BINS.chunks, "aa", uri="upload:///copy.txt")
OTHER = NewDocument("bins.txt", (NewChunk("The bins are emptied on Friday."),), "bb", uri=BINS.uri)


async def titles(library: Library, base_id: str, query: str = "When are the bins emptied?") -> list[tuple[str, str]]:
    result = await library.search(SearchRequest(query, base_id))
    return [(hit.title, hit.content) for hit in result.hits]


async def test_a_copy_is_already_there_and_found_once(tmp_path: Path, database_url: str) -> None:
    async with open_library(tmp_path, LibrarySettings(database_url=database_url)) as library:
        base = await library.create("house")
        first = await library.add(base.id, BINS)
        for _ in range(2):
            again = await library.add(base.id, COPY)
            assert (again.document_id, again.chunks, again.is_new) == (first.document_id, 1, False)
        (document,) = await library.documents(base.id)
        assert (document.uri, document.places) == (BINS.uri, (COPY.uri,))
        assert (await library.summary(base.id)).total_documents == 1
        assert await titles(library, base.id) == [("bins.txt", "The bins are emptied on Thursday.")]
        text = await library.add(base.id, NewDocument("text", BINS.chunks, "aa"))
        assert (text.document_id, len(await library.documents(base.id, every_place=True))) == (first.document_id, 2)


async def test_what_is_removed_at_one_place_remains_at_the_other(tmp_path: Path, database_url: str) -> None:
    async with open_library(tmp_path, LibrarySettings(database_url=database_url)) as library:
        base = await library.create("house")
        writer = DocumentWriter(library, base.id)
        await library.add(base.id, BINS)
        await library.add(base.id, COPY)
        assert await titles(library, base.id) == [("bins.txt", "The bins are emptied on Thursday.")]
        await writer.remove(BINS.uri)
        assert await titles(library, base.id) == [("copy.txt", "The bins are emptied on Thursday.")]
        assert [document.uri for document in await library.documents(base.id)] == [COPY.uri]
        await library.add(base.id, BINS)
        await writer.remove(BINS.uri)
        assert [document.places for document in await library.documents(base.id)] == [()]
        await writer.remove(COPY.uri)
        assert await titles(library, base.id) == []


async def test_what_changes_at_one_place_is_as_before_at_the_other(tmp_path: Path, database_url: str) -> None:
    async with open_library(tmp_path, LibrarySettings(database_url=database_url)) as library:
        base = await library.create("house")
        first = await library.add(base.id, BINS)
        await library.add(base.id, COPY)
        changed = await library.add(base.id, OTHER)
        assert (changed.document_id, changed.version, changed.is_new) == (first.document_id, 2, True)
        assert sorted(await titles(library, base.id)) == [
            ("bins.txt", "The bins are emptied on Friday."),
            ("copy.txt", "The bins are emptied on Thursday."),
        ]
        back = await library.add(base.id, BINS)
        assert back.is_new is False
        assert await titles(library, base.id) == [("copy.txt", "The bins are emptied on Thursday.")]


async def test_a_document_is_removed_at_all_of_its_places(tmp_path: Path) -> None:
    async with open_library(tmp_path) as library:
        base = await library.create("house")
        first = await library.add(base.id, BINS)
        await library.add(base.id, COPY)
        await library.remove(first.document_id)
        assert await library.documents(base.id, every_place=True) == ()


async def test_other_readers_get_their_own_document(tmp_path: Path) -> None:
    async with open_library(tmp_path) as library:
        base = await library.create("house")
        await library.add(base.id, NewDocument("secret.txt", BINS.chunks, "aa", uri="file:///secret", clearance=3))
        seen = await library.add(base.id, BINS)
        assert seen.is_new
        result = await library.search(SearchRequest("bins", base.id), Access("somebody", None, 0))
        assert [hit.document_id for hit in result.hits] == [seen.document_id]


async def test_an_export_keeps_the_places(tmp_path: Path) -> None:
    async with open_library(tmp_path / "one") as library:
        base = await library.create("house")
        await library.add(base.id, BINS)
        await library.add(base.id, COPY)
        await library.export_base(base.id, tmp_path / "house.jsonl")
    async with open_library(tmp_path / "two") as library:
        imported, _, _ = await library.import_base(tmp_path / "house.jsonl")
        assert [document.places for document in await library.documents(imported)] == [(COPY.uri,)]


async def test_a_file_of_a_folder_that_was_uploaded_before_is_listed_once_with_both_places(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rules.md").write_text("# Rules\n\nThe bins are emptied on Thursday.", "utf-8")
    async with open_tools(tmp_path) as tools, open_reader() as reader:
        base_id = await tools.base()
        upload = {"file_name": "rules.md", "data": "IyBSdWxlcwoKVGhlIGJpbnMgYXJlIGVtcHRpZWQgb24gVGh1cnNkYXku"}
        first = await tools.call("add_document", knowledge_base_id=base_id, **upload)
        report = await import_folder(folder, DocumentWriter(tools.service.library, base_id), reader)
        assert (first.facts["documents"][0]["is_new"], report.count("imported")) == (True, 1)
        listed = await tools.call("list_knowledge_bases", knowledge_base_id=base_id)
        (document,) = listed.facts["documents"]
        assert (document["uri"], document["places"]) == ("upload:///rules.md", [(folder / "rules.md").as_uri()])
        # Nothing is read again at the next round.
        again = await import_folder(folder, DocumentWriter(tools.service.library, base_id), reader)
        assert again.count("unchanged") == 1
