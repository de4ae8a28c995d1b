"""A document that was read -> the library: the port that ``importing.folders`` wants, and one document at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import anyio.to_thread

from mcp_servers.knowledge.errors import BadArgumentError, KnowledgeProblem
from mcp_servers.knowledge.importing.chunking import chunks_of
from mcp_servers.knowledge.importing.documents import Blob, Progress, ReadDocument
from mcp_servers.knowledge.importing.folders import FolderRules, import_folder
from mcp_servers.knowledge.importing.reader import Reader
from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.results import AddedAnswer, AddedDocument, FileOutcome
from mcp_servers.knowledge.types import DEFAULT_COLLECTION, EVERYONE, Access, Added, NewChunk, NewDocument


@dataclass(frozen=True)
class Placing:
    """What a document is to be besides what it says.

    Args:
        collection: the collection's name.
        title: instead of the document's own; empty for that.
        uri: instead of where it was read from; empty for that.
        department: who it is for; empty for everybody.
        clearance: what a reader needs.
        fields: free metadata.
    """

    collection: str = DEFAULT_COLLECTION
    title: str = ""
    uri: str = ""
    department: str = ""
    clearance: int = 0
    fields: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Filed:
    """A document that was put into the library.

    Args:
        title: as kept.
        uri: as kept.
        added: what became of it.
    """

    title: str
    uri: str
    added: Added


class Filing:
    """Puts documents into one knowledge base.

    Args:
        library: where.
        base_id: the knowledge base.
        placing: what they are to be.
        access: whose they are.

    Attributes:
        base_id: the knowledge base.
        filed: what was put there.
    """

    def __init__(
        self, library: Library, base_id: str, placing: Placing | None = None, access: Access = EVERYONE
    ) -> None:
        self._library = library
        self.base_id = base_id
        self._placing = placing or Placing()
        self._access = access
        self.filed: list[Filed] = []

    async def known(self, prefix: str) -> Mapping[str, str]:
        """The content hash of every document whose address begins so, by address."""
        documents = await self._library.documents(self.base_id, self._access)
        return {document.uri: document.content_hash for document in documents if document.uri.startswith(prefix)}

    async def add(self, document: ReadDocument, chunks: tuple[NewChunk, ...]) -> None:
        """Keep a document, instead of the one of the same address.

        Raises:
            KnowledgeProblem: as ``Library.add``.
        """
        placing = self._placing
        new = NewDocument(
            title=placing.title or document.title,
            chunks=chunks,
            content_hash=document.content_hash,
            uri=placing.uri or document.uri,
            collection=placing.collection,
            department=placing.department,
            clearance=placing.clearance,
            fields=placing.fields,
        )
        self.filed.append(Filed(new.title, new.uri, await self._library.add(self.base_id, new, self._access)))

    async def remove(self, uri: str) -> None:
        """Forget the document of an address; nothing when there is none."""
        document = await self._library.find(self.base_id, uri, self._access)
        if document:
            await self._library.remove(document.id, self._access)


_STEPS = 2
_TITLE_CHARACTERS = 80


@dataclass(eq=False)
class PathRefusedError(KnowledgeProblem):
    """A file of this program's machine that the caller may not have read.

    Args:
        reason: why.
    """

    reason: str
    status: ClassVar[int] = 403
    _WORDS: ClassVar[str] = "The path is not read{e.because}"
    _ADVICE: ClassVar[str] = "Send the text, or a url"


@dataclass(frozen=True)
class Source:
    """Where a document comes from: exactly one of the three.

    Args:
        text: itself.
        path: a file or a folder of this machine.
        url: a web page.
    """

    text: str = ""
    path: str = ""
    url: str = ""

    def checked(self) -> Source:
        """The source, if it is one.

        Raises:
            BadArgumentError: nothing was given, or too much.
        """
        if sum(map(bool, (self.text.strip(), self.path, self.url))) != 1:
            raise BadArgumentError("the document", "is not given, or more than once", "Give one of text, path or url")
        if self.url and "://" not in self.url:
            raise BadArgumentError("url", "is no address", "Give one that begins with http:// or https://")
        return self


def allowed_path(given: str, folders: tuple[Path, ...], access: Access) -> Path:
    """A path that may be read.

    Args:
        given: as asked.
        folders: the only ones to read from; every one when empty.
        access: who asks.

    Raises:
        PathRefusedError: the caller may name none, or it is elsewhere, perhaps behind a link.
        BadArgumentError: it can be no path.
    """
    if not access.is_everyone:
        raise PathRefusedError("it is one of the server's own machine")
    try:
        path = Path(given).expanduser()
        real = path.resolve()
        allowed = [folder.expanduser().resolve() for folder in folders]
    except (OSError, RuntimeError, ValueError):
        raise BadArgumentError("path", "cannot be a path", "Give one of a file or a folder") from None
    if allowed and not any(real.is_relative_to(folder) for folder in allowed):
        raise PathRefusedError(f"files are added from {', '.join(map(str, allowed))} only")
    return path


async def add_path(path: Path, filing: Filing, reader: Reader, on_progress: Progress) -> AddedAnswer:
    """A file, or everything in a folder and below; nothing is removed, also where a file is gone.

    Raises:
        KnowledgeProblem: the one file cannot be read or kept. Of a folder, the answer says it for each file.
    """
    if not await anyio.to_thread.run_sync(path.is_dir):
        return await add_document(path, filing, reader, on_progress)
    report = await import_folder(path, filing, reader, FolderRules(removes=False), on_progress=on_progress)
    told = [file for file in report.files if file.reason or file.outcome == "failed"]
    files = [FileOutcome(path=file.path, outcome=file.outcome, reason=file.reason) for file in told]
    return _answer(filing).model_copy(update={"unchanged": report.count("unchanged"), "files": files})


async def add_document(source: Path | str | Blob, filing: Filing, reader: Reader, on_progress: Progress) -> AddedAnswer:
    """One document.

    Raises:
        KnowledgeProblem: it cannot be read or kept; then nothing of it is.
    """
    await on_progress(0, _STEPS, "reading")
    document = await reader.read_document(source)
    await on_progress(1, _STEPS, "indexing")
    chunks = await anyio.to_thread.run_sync(chunks_of, document.passages)
    await filing.add(document, tuple(chunks))
    await on_progress(_STEPS, _STEPS, "done")
    return _answer(filing).model_copy(update={"warnings": list(document.warnings)})


def text_blob(text: str) -> Blob:
    """A text as a document: Markdown is what models write, and plain text is plain Markdown."""
    line = next((line.strip("# \t") for line in text.splitlines() if line.strip("# \t")), "")
    name = line[:_TITLE_CHARACTERS].replace("/", " ") or "text"
    return Blob(text.encode(), f"{name}.md", charset="utf-8")


def _answer(filing: Filing) -> AddedAnswer:
    documents = [
        AddedDocument(
            document_id=filed.added.document_id,
            title=filed.title,
            uri=filed.uri,
            version=filed.added.version,
            chunks=filed.added.chunks,
            is_new=filed.added.is_new,
        )
        for filed in filing.filed
    ]
    return AddedAnswer(knowledge_base_id=filing.base_id, documents=documents, count=len(documents))
