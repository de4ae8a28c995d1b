from __future__ import annotations

import hashlib
import io
import json
import zipfile

import pytest

from mcp_servers.knowledge.errors import (
    DamagedDocumentError,
    DocumentImportError,
    EncryptedDocumentError,
    NoTextError,
    TooLargeError,
    UnsupportedFormatError,
)
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import format_of, parse_blob
from tests.support.imported import docx, paragraph, pdf

LIMITS = ParseLimits()


def archive(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as zipped:
        zipped.writestr(name, "x")
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "media_type", "content", "reader"),
    [
        ("a.pdf", "", pdf([[]]), "pdf"),
        ("report", "text/plain", pdf([[]]), "pdf"),
        ("a.docx", "", docx(paragraph("a")), "docx"),
        ("a.htm", "", b"x", "html"),
        ("page", "", b"<!-- c --> <!DOCTYPE html><p>x", "html"),
        ("page", "text/html", b"<p>x", "html"),
        ("README.md", "text/plain", b"# x", "markdown"),
        ("a.CSV", "", b"a,b", "csv"),
        ("data", "application/json", b"{}", "json"),
        ("a.py", "text/html", b"x", "source"),
        ("notes.txt", "", b"x", "plain"),
        ("LICENSE", "application/octet-stream", b"x", "plain"),
        ("a.unknown", "", b"x", "plain"),
        ("a.yaml", "", b"a: 1", "plain"),
    ],
)
def test_the_bytes_are_believed_before_the_name_and_the_name_before_the_sender(
    name: str, media_type: str, content: bytes, reader: str
) -> None:
    assert format_of(Blob(content, name, media_type)).reader == reader


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "it is an old Office file"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "it is an old Office file"),
        ("a.zip", archive("readme.txt"), "it is an archive"),
        ("a.bin", bytes(range(256)) * 9, "it is binary"),
    ],
)
def test_an_unreadable_file_is_named_by_its_kind(name: str, content: bytes, sentence: str) -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        parse_blob(Blob(content, name), LIMITS)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.pdf", b"not at all", DamagedDocumentError),
        ("a.docx", b"PK\x03\x04 and no more", DamagedDocumentError),
        (
            "a.docx",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le"),
            EncryptedDocumentError,
        ),
        ("a.txt", b"", NoTextError),
        ("a.txt", b" \n\t\r\n", NoTextError),
        ("a.html", b"<script>x</script>", NoTextError),
        ("a.md", b"```\n```", NoTextError),
        ("a.csv", b",,,\n,,\n", NoTextError),
        ("a.txt", b"x" * 101, TooLargeError),
    ],
)
def test_a_document_that_cannot_be_read_is_a_sentence_with_its_name_and_advice(
    name: str, content: bytes, problem: type[DocumentImportError]
) -> None:
    limits = ParseLimits(document_bytes=100) if problem is TooLargeError else LIMITS
    with pytest.raises(problem) as caught:
        parse_blob(Blob(content, name), limits)
    sentence = str(caught.value)
    assert sentence.startswith(name)
    assert sentence.count(". ") >= 1
    assert sentence.endswith(".")


def test_a_document_is_named_hashed_and_typed() -> None:
    content = "題名のない文。".encode("cp932")
    document = parse_blob(Blob(content, "メモ.txt", uri="file:///tmp/a"), LIMITS)
    assert (document.title, document.uri, document.media_type) == ("メモ", "file:///tmp/a", "text/plain")
    assert document.content_hash == hashlib.sha256(content).hexdigest()


def test_json_can_be_searched_even_when_written_in_escapes_on_one_line() -> None:
    content = json.dumps({"都市": ["東京", "大阪"], "n": 1}).encode()
    document = parse_blob(Blob(content, "a.json"), LIMITS)
    assert document.passages[0].text == '{\n "都市": [\n  "東京",\n  "大阪"\n ],\n "n": 1\n}'
    assert parse_blob(Blob(b'{"broken', "a.json"), LIMITS).passages[0].text == '{"broken'
    assert parse_blob(Blob(b"[" * 100_000, "a.json"), LIMITS).passages[0].text.startswith("[[[")


def test_damage_and_omitted_parts_give_warnings() -> None:
    damaged = parse_blob(Blob("日本語の文章です。\n".encode() * 9 + b"\xe3\x81", "a.txt"), LIMITS)
    assert damaged.warnings == ("1 places could not be read as utf-8 and are shown as �.",)
    long = parse_blob(Blob(b"word " * 100, "a.txt"), ParseLimits(characters=50))
    assert long.warnings == ("Only the first 50 of 500 characters were read.",)


def test_invalid_characters_never_reach_a_passage() -> None:
    document = parse_blob(Blob("a\x07b\x0cc\ufeffd\x85e".encode(), "a.txt"), LIMITS)
    assert "\n".join(passage.text for passage in document.passages) == "ab\ncde"


@pytest.mark.parametrize("name", ["a.txt", "a.html"])
def test_ten_megabytes_in_one_line_are_read(name: str) -> None:
    document = parse_blob(Blob(b"some words " * 950_000, name), LIMITS)
    assert sum(len(passage.text) for passage in document.passages) > 10_000_000
