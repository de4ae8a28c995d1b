"""A text, a file, a folder or a web page -> documents of a knowledge base, with progress.

A path is one of this program's machine, so only its owner may name one, and only below the folders the owner allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import anyio.to_thread

from mcp_servers.knowledge.answers import AddedAnswer, AddedDocument, FileOutcome
from mcp_servers.knowledge.filing import Filing
from mcp_servers.knowledge.importing.chunking import chunks_of
from mcp_servers.knowledge.importing.documents import Blob, Progress
from mcp_servers.knowledge.importing.folders import FolderRules, import_folder
from mcp_servers.knowledge.importing.reader import Reader
from mcp_servers.knowledge.problems import BadArgumentError, KnowledgeProblem
from mcp_servers.knowledge.values import Access

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
