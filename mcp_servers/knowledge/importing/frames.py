"""What the two sides of the parser's pipe say to each other: JSON behind its length, then a document's bytes.

JSON and nothing cleverer, because the side that reads foreign documents is not trusted: what it answers is data, and
is checked like data.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, fields
from typing import Any, cast

from mcp_servers.knowledge.importing import problems
from mcp_servers.knowledge.importing.documents import Blob, ReadDocument, ReadingLimits
from mcp_servers.knowledge.problems import KnowledgeProblem, MissingExtraError
from mcp_servers.knowledge.values import Passage

# Length of the JSON, length of the bytes behind it.
HEAD = struct.Struct("!QQ")
# How the parser's process ends when there was no memory left even to say so.
EXIT_MEMORY = 71
NO_MEMORY = "it needs more memory than one document may"

_PROBLEMS: dict[str, type[KnowledgeProblem]] = {
    kind.__name__: kind
    for kind in (
        problems.UnsupportedFormatError,
        problems.DamagedDocumentError,
        problems.EncryptedDocumentError,
        problems.NoTextError,
        problems.TooLargeError,
        problems.TooSlowError,
        MissingExtraError,
    )
}


def pack_request(blob: Blob, limits: ReadingLimits) -> bytes:
    """A document to be read."""
    about = {name: value for name, value in vars(blob).items() if name != "content"}
    return _pack({"blob": about, "limits": asdict(limits)}, blob.content)


def unpack_request(head: bytes, content: bytes) -> tuple[Blob, ReadingLimits]:
    """The document to be read, and how much it may cost."""
    request = json.loads(head)
    return Blob(content=content, **request["blob"]), ReadingLimits(**request["limits"])


def pack_document(document: ReadDocument) -> bytes:
    """A document that was read."""
    passages = [[passage.text, passage.headings, passage.page, passage.is_whole] for passage in document.passages]
    return _pack({**vars(document), "passages": passages})


def pack_problem(problem: KnowledgeProblem) -> bytes:
    """Why a document was not read."""
    values = {each.name: getattr(problem, each.name) for each in fields(cast("Any", problem))}
    return _pack({"problem": type(problem).__name__, "fields": values})


def unpack_answer(head: bytes) -> ReadDocument:
    """The document that was read.

    Raises:
        KnowledgeProblem: it was not; as the other side raised it.
        ValueError, LookupError, TypeError: what came is no answer.
    """
    answer = json.loads(head)
    if "problem" in answer:
        raise _PROBLEMS[answer["problem"]](**{name: str(value) for name, value in answer["fields"].items()})
    return ReadDocument(
        title=str(answer["title"]),
        passages=tuple(_passage(*passage) for passage in answer["passages"]),
        content_hash=str(answer["content_hash"]),
        media_type=str(answer["media_type"]),
        warnings=tuple(map(str, answer["warnings"])),
        uri=str(answer["uri"]),
    )


def _passage(text: object, headings: list[object], page: object, is_whole: object) -> Passage:
    return Passage(str(text), tuple(map(str, headings)), page if isinstance(page, int) else None, bool(is_whole))


def _pack(value: dict[str, Any], content: bytes = b"") -> bytes:
    # A file name may hold bytes that are no text; json.loads takes them back the same way.
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return HEAD.pack(len(text), len(content)) + text + content
