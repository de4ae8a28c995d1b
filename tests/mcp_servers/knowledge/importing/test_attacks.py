"""Documents made to hold the parser, to take its memory, or to end the connection."""

from __future__ import annotations

import base64
import io
import json
import sys
import tarfile
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from mcp_servers.knowledge.errors import KnowledgeError, TooSlowError, UnsupportedFormatError
from mcp_servers.knowledge.importing import archives as archives_module
from mcp_servers.knowledge.importing import parser_process
from mcp_servers.knowledge.importing.documents import MEGABYTE, Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from mcp_servers.knowledge.importing.parser_process import (
    ParserProcess,
    Parsers,
    memory_share,
    open_parser,
    seconds_for,
)
from mcp_servers.knowledge.importing.reader import open_reader
from mcp_servers.knowledge.service import MAX_TEXT
from rkllm_mcp.mcp_client.client import MCPClient
from tests.support.attacks import ATTACKS, pdf_of, zipped

pytestmark = pytest.mark.anyio

# Those whose cost grew with the square of it took minutes at this size.
REPEATED = {
    "attributes": 200_000,
    "attributes behind a quote": 200_000,
    "tags without an end": 300_000,
    "headings of a page": 40_000,
    "headings": 40_000,
    "empty headings": 40_000,
    "spaces of a heading": 200_000,
    "lines of a paragraph": 400_000,
    "cells of a row": 2_000_000,
    "paragraphs": 40_000,
    "one line": 2_000_000,
    "definitions": 40_000,
    "nested arrays": 200_000,
    "recipients": 100_000,
    "comments in an address": 50_000,
    "far columns": 20_000,
    "one sheet many times": 4_000,
    "rows in rows": 20_000,
    "one chapter many times": 20_000,
    "tables in tables": 20_000,
    "repeated cells": 400,
    "ruby without an end": 40_000,
    "equations without an end": 40_000,
    "a long stream": 1_000_000,
    "one page many times": 100,
    "lines of a page": 2_000,
}
SMALL = Blob(b"Text.", "small.txt")


async def outcome(parser: ParserProcess, blob: Blob) -> str:
    """The first words of the document, or of the reason why it is refused."""
    try:
        return (await parser.parse(blob)).passages[0].text[:20]
    except TooSlowError as problem:
        pytest.fail(str(problem))
    except KnowledgeError as problem:
        return type(problem).__name__


async def test_no_document_holds_the_parser() -> None:
    assert REPEATED.keys() == ATTACKS.keys()
    with anyio.fail_after(300):
        async with open_parser(ParseLimits(seconds=30, memory_bytes=parser_process.MIN_MEMORY)) as parser:
            outcomes = {name: await outcome(parser, ATTACKS[name](count)) for name, count in REPEATED.items()}
    refused = {name for name, words in outcomes.items() if words.endswith("Error")}
    assert refused == {
        "rows in rows",
        "tables in tables",
        "ruby without an end",
        "equations without an end",
        "a long stream",
    }


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_large_attack_ends_in_the_time_of_its_size_and_the_next_document_is_read(name: str) -> None:
    with anyio.fail_after(400):
        async with open_parser(ParseLimits()) as parser:
            blob = ATTACKS[name](20 * REPEATED[name] if name != "attributes" else 1_800_000)
            try:
                await parser.parse(blob)
            except KnowledgeError as problem:
                assert problem.words
            assert (await parser.parse(SMALL)).title == "small"


async def test_a_small_file_that_unpacks_to_gigabytes_gets_the_memory_of_a_small_file() -> None:
    bomb = Blob(pdf_of(b" " * MEGABYTE, times=800), "bomb.pdf")
    assert len(bomb.content) < 4_000
    with anyio.fail_after(120):
        async with open_reader(ParseLimits()) as reader:
            with pytest.raises(TooSlowError, match=r"bomb\.pdf could not be read"):
                await reader.read_document(bomb)
            assert (await reader.read_document(SMALL)).title == "small"


def test_text_beyond_the_limits_is_left_out_with_a_warning() -> None:
    document = parse_blob(Blob(b"# a\n\nb\n\n" * 50, "a.md"), ParseLimits(passages=10))
    assert len(document.passages) == 10
    assert document.warnings == ("Only its first 10 passages were read: it is too large for one document.",)
    document = parse_blob(Blob(b"# Ten letter\n\n" + b"b\n\n" * 100, "a.md"), ParseLimits(characters=400))
    # Each costs its own letter and the eleven characters of its heading.
    assert len(document.passages) == 37
    assert document.warnings == ("Only its first 37 passages were read: it is too large for one document.",)


@pytest.mark.parametrize(
    ("size", "seconds"), [(5, 20), (100_000, 22), (MEGABYTE, 40), (5 * MEGABYTE, 120), (50 * MEGABYTE, 120)]
)
def test_the_time_of_a_document_follows_its_size(size: int, seconds: float) -> None:
    assert round(seconds_for(Blob(b"a" * size, "a.txt"), ParseLimits())) == seconds
    assert seconds_for(Blob(b"a" * size, "a.txt"), ParseLimits(seconds=3)) == 3


@pytest.mark.parametrize(
    ("available_kib", "groups", "expected"),
    [
        (12_000_000, {}, 2_000_000_000),
        (3_000_000, {}, 1_024_000_000),
        (400_000, {}, 512_000_000),
        (12_000_000, {"a": ("max", 5), "a/b": ("4000000000", "1000000000")}, 1_000_000_000),
        (12_000_000, {"a": ("3500000000", "500000000"), "a/b": ("max", 7)}, 1_000_000_000),
        (None, {}, 666_666_666),
    ],
)
def test_the_memory_of_the_parser_is_a_share_of_what_the_board_and_its_groups_have_left(
    tmp_path: Path, available_kib: int | None, groups: dict[str, tuple[object, object]], expected: int
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    if available_kib is not None:
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {available_kib} kB\n", "ascii")
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n", "ascii")
    for name, (limit, current) in groups.items():
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n", "ascii")
        (folder / "memory.current").write_text(f"{current}\n", "ascii")
    assert memory_share(tmp_path) == expected


async def test_the_kernel_ends_the_parser_before_other_processes() -> None:
    with anyio.fail_after(60):
        async with open_parser() as parser:
            await parser.parse(SMALL)
            assert parser.process is not None
            score = await anyio.Path(f"/proc/{parser.process.pid}/oom_score_adj").read_text("ascii")
    assert score == "1000\n"


class _HeldParser(ParserProcess):
    """A parser that notes the documents and reads them when it may."""

    def __init__(self, limits: ParseLimits) -> None:
        super().__init__(limits)
        self.begun: list[str] = []
        self.may_read = anyio.Event()

    async def parse(self, blob: Blob) -> Any:
        self.begun.append(blob.name)
        await self.may_read.wait()
        return blob.name


async def test_a_large_document_delays_no_small_one_and_an_owner_has_one_document_in_each_queue() -> None:
    small, large = _HeldParser(ParseLimits()), _HeldParser(ParseLimits())
    parsers = Parsers(small, large)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for owner in ("a", "b"):
                for at in range(3):
                    tasks.start_soon(parsers.parse, Blob(b"a", f"{owner}{at}"), owner)
                tasks.start_soon(parsers.parse, Blob(b"a" * 2 * MEGABYTE, f"{owner} large"), owner)
            await anyio.wait_all_tasks_blocked()
            assert (small.begun, large.begun) == (["a0", "b0"], ["a large", "b large"])
            small.may_read.set()
            large.may_read.set()
    assert sorted(small.begun) == ["a0", "a1", "a2", "b0", "b1", "b2"]


async def test_a_file_of_text_never_ends_the_connection_to_the_server(tmp_path: Path) -> None:
    content = 'あ"😀'.encode() * 700_000
    arguments = ("-m", "mcp_servers.knowledge", "--folder", str(tmp_path))
    with anyio.fail_after(120):
        async with MCPClient(sys.executable, arguments, timeout_s=100) as client:
            upload_id, read = "", dict[str, Any]()
            for start in range(0, len(content), MEGABYTE):
                part = {
                    "file_name": "kana.txt",
                    "data": base64.b64encode(content[start : start + MEGABYTE]).decode(),
                    "more": start + MEGABYTE < len(content),
                    **({"upload_id": upload_id} if upload_id else {}),
                }
                result = await client.call_tool("read_document", part)
                assert not result["isError"]
                read = json.loads(result["content"][0]["text"])
                upload_id = read.get("upload_id", "")
            assert read["text"] == content.decode()[:MAX_TEXT]
            assert read["warnings"] == [
                "Only its first 2,000,000 characters are given: add it to a knowledge base to search it all."
            ]
            assert not (await client.call_tool("list_knowledge_bases", {}))["isError"]


SECRET = "the secret of this machine"
_WORD = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>'


def archives(target: str, body: str, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, bytes]:
    """Documents of every format that is an archive; ``target`` is named wherever one names a part of itself."""
    related = f'<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="{target}"/></Relationships>'
    outside = {target: f"<p>{body}</p>", f"/{target}": body, "..\\..\\a.txt": body, "C:/a.txt": body}
    chapters = f'<item id="a" href="{target}"/><itemref idref="a"/><item id="b" href="b.html"/><itemref idref="b"/>'
    odf = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": f'<d xmlns:t="u"><t:p>{body}</t:p></d>',
    }
    parts: dict[str, dict[str, str]] = {
        "a.docx": {
            "_rels/.rels": related,
            "word/document.xml": f"{_WORD}{body}</w:t></w:r></w:p></w:body></w:document>",
        },
        "a.xlsx": {"_rels/.rels": related, "xl/workbook.xml": "<workbook/>", "xl/_rels/workbook.xml.rels": related},
        "a.pptx": {
            "_rels/.rels": related,
            "ppt/presentation.xml": "<p/>",
            "ppt/slides/slide1.xml": f"<p><t>{body}</t></p>",
        },
        "a.epub": {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfile full-path="c.opf"/></container>',
            "c.opf": f"<package>{chapters}</package>",
            "b.html": f"<p>{body}</p>",
        },
        "a.odt": odf,
    }
    return {name: zipped({**entries, **outside, **more}) for name, entries in parts.items()}


def text_of(blob: Blob) -> str:
    """Return the text of a document, or the name of the error."""
    try:
        return "\n".join(passage.text for passage in parse_blob(blob, ParseLimits(unpacked_bytes=20_000_000)).passages)
    except KnowledgeError as problem:
        return type(problem).__name__


def test_no_archive_leads_outside_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "secret.html").write_text(f"<p>{SECRET}</p>")
    before = sorted(tmp_path.rglob("*"))
    read = dict[str, str]()
    for target in (
        "../secret.html",
        "../" * 12 + f"{tmp_path}/secret.html",
        str(tmp_path / "secret.html"),
        "file:///etc/passwd",
    ):
        documents = archives(target, "Inside.")
        attached = "".join(
            f'--x\nContent-Type: application/octet-stream; name="../../{name}"\nContent-Transfer-Encoding: base64\n\n'
            f"{base64.encodebytes(content).decode()}\n"
            for name, content in documents.items()
        )
        mail = f"From: a@b.c\nSubject: Files\nContent-Type: multipart/mixed; boundary=x\n\n{attached}--x--\n".encode()
        documents |= {"a.eml": mail, "a.mht": mail, "a.mbox": b"From a@b.c Thu Nov 26 10:00:00 2026\n" + mail}
        for name, content in documents.items():
            read[name] = text_of(Blob(content, f"../../{name}"))
        assert SECRET not in str(read)
        assert "root:" not in str(read)
    assert {name for name, words in read.items() if "Inside." in words} == {
        "a.docx",
        "a.epub",
        "a.odt",
        "a.eml",
        "a.mht",
        "a.mbox",
    }, read
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("parts", "size"), [(1, 12_000_000), (24, 1_000_000), (101, 1)])
def test_every_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    parts: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives_module, "_MAX_PARTS", 100)
    documents = archives("a.xml", "Inside.", {f"word/{number}.xml": " " * size for number in range(parts)})
    for name, content in documents.items():
        tracemalloc.start()
        read = text_of(Blob(content, name))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (read, peak < 30_000_000) == ("TooLargeError", True), name


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archives_of_files_are_not_documents(mode: Any) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name in ("../a.txt", "/a.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 5
            archive.addfile(entry, io.BytesIO(b"Text."))
    with pytest.raises(UnsupportedFormatError):
        parse_blob(Blob(made.getvalue(), "a.tar"), ParseLimits())
