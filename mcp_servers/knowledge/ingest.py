"""Adding documents: text, file, folder, web page or upload -> Library, with progress.

``path`` names a file of the server's machine, so only an unrestricted caller may use it, limited to ``import_from``.
"""

from __future__ import annotations

import base64
import errno
import re
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote

import anyio.to_thread

from mcp_servers.knowledge.errors import BadArgumentError, KnowledgeError, TooLargeError
from mcp_servers.knowledge.importing.chunking import chunk_passages
from mcp_servers.knowledge.importing.documents import MEGABYTE, Blob, ParsedDocument, Progress
from mcp_servers.knowledge.importing.folders import FolderRules, import_folder
from mcp_servers.knowledge.importing.reader import Reader
from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.results import AddedDocument, AddedOutput, FileOutcome, build_model
from mcp_servers.knowledge.types import DEFAULT_COLLECTION, UNRESTRICTED, Access, NewDocument
from mcp_servers.knowledge.validation import ToolArguments, valid_unicode


def document_attributes(arguments: ToolArguments) -> NewDocument:
    """Return the attributes of documents to be added; empty values keep the document's own."""
    return NewDocument(
        title=arguments.text("title", "").strip(),
        chunks=(),
        content_hash="",
        uri=arguments.text("uri", "").strip(),
        collection=arguments.text("collection", DEFAULT_COLLECTION),
        department=arguments.text("department", ""),
        clearance=arguments.integer("clearance", 0),
        fields=arguments.mapping("fields"),
    )


NO_ATTRIBUTES = document_attributes(ToolArguments({}))


@dataclass
class DocumentWriter:
    """Write parsed documents to one knowledge base; implements ``folders.DocumentStore``."""

    library: Library
    base_id: str
    attributes: NewDocument = NO_ATTRIBUTES
    access: Access = UNRESTRICTED
    written: list[AddedDocument] = field(default_factory=list[AddedDocument])

    async def content_hashes(self, prefix: str) -> Mapping[str, str]:
        """Return URI -> content hash of the documents whose URI starts with ``prefix``."""
        documents = await self.library.documents(self.base_id, self.access, every_place=True)
        return {document.uri: document.content_hash for document in documents if document.uri.startswith(prefix)}

    async def add(self, document: ParsedDocument) -> None:
        """Store a document, replacing the one with the same URI; raises as ``Library.add``."""
        chunks = await anyio.to_thread.run_sync(chunk_passages, document.passages)
        new = replace(
            self.attributes,
            title=self.attributes.title or document.title,
            chunks=tuple(chunks),
            content_hash=document.content_hash,
            uri=self.attributes.uri or document.uri,
        )
        self.written.append(build_model(AddedDocument, new, await self.library.add(self.base_id, new, self.access)))

    async def remove(self, uri: str) -> None:
        """Remove the document at this URI, if there is one; its other places remain."""
        documents = await self.library.documents(self.base_id, self.access, uri=uri)
        if documents:
            await self.library.remove(documents[0].id, self.access, every_place=False)


_STEPS = 2
MAX_UPLOADS = 4
_UPLOAD_IDLE_S = 600.0
_NAME_CHARACTERS = 255


@dataclass
class _Upload:
    access: Access
    file_name: str
    file: IO[bytes]
    touched: float


class Uploads:
    """Files that are being received, at most ``MAX_UPLOADS`` of a tenant, in files that have no name."""

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = max_bytes
        self._clock = clock
        self._open: dict[str, _Upload] = {}
        self._receiving: Counter[str] = Counter()

    @contextmanager
    def receiving(self, access: Access) -> Generator[None, None, None]:
        """Count a file that comes in one request; raise KnowledgeError if there are too many."""
        self._check_room(access)
        self._receiving[access.tenant] += 1
        try:
            yield
        finally:
            self._receiving[access.tenant] -= 1

    def take(self, arguments: ToolArguments, access: Access) -> tuple[str, int, Blob | None]:
        """Store a part; return the id of its upload, the bytes received, and after the last part the file.

        ``data`` is in base64. The first part has ``file_name``, the others ``upload_id``; ``offset`` is checked if it
        is given, and ``more`` says that another part follows. Raises KnowledgeError for a part that is not accepted.
        """
        try:
            data = base64.b64decode(arguments.text("data", ""), validate=True)
        except ValueError:
            raise BadArgumentError("data", "is not base64", "Encode the bytes of the file in base64") from None
        upload_id = arguments.text("upload_id", "")
        if not upload_id:
            file_name = arguments.text("file_name", "")
            if not file_name.strip():
                raise BadArgumentError("file_name", "is missing", "Give the name of the file, with its ending")
            self._check_room(access)
            upload_id = uuid.uuid4().hex
            file = tempfile.SpooledTemporaryFile(MEGABYTE)  # noqa: SIM115  # closed by _end
            self._open[upload_id] = _Upload(access, file_name, cast("IO[bytes]", file), self._clock())
        upload = self._open.get(upload_id)
        if upload is None or upload.access != access:
            raise BadArgumentError("upload_id", "is not of an open upload", "Begin again with file_name and without it")
        received = upload.file.tell()
        offset = arguments.integer("offset", received)
        if offset != received:
            raise BadArgumentError("offset", f"is {offset}", f"Send the bytes from {received} on")
        if received + len(data) > self.max_bytes:
            self._end(upload_id)
            raise TooLargeError(upload.file_name, f"it has more than {self.max_bytes // MEGABYTE:,} MB")
        try:
            upload.file.write(data)
        except OSError as error:
            self._end(upload_id)
            advice = "; free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise TooLargeError(upload.file_name, f"it cannot be stored ({error.strerror}){advice}") from None
        upload.touched = self._clock()
        received += len(data)
        if arguments.boolean("more"):
            return upload_id, received, None
        upload.file.seek(0)
        blob = uploaded_blob(upload.file.read(), upload.file_name, access)
        self._end(upload_id)
        return upload_id, received, blob

    def close(self) -> None:
        """Drop all unfinished uploads."""
        for upload_id in list(self._open):
            self._end(upload_id)

    def _check_room(self, access: Access) -> None:
        now = self._clock()
        for upload_id in [key for key, upload in self._open.items() if now - upload.touched > _UPLOAD_IDLE_S]:
            self._end(upload_id)
        count = sum(upload.access.tenant == access.tenant for upload in self._open.values())
        if count + self._receiving[access.tenant] >= MAX_UPLOADS:
            raise KnowledgeError("TooManyUploads", maximum=MAX_UPLOADS)

    def _end(self, upload_id: str) -> None:
        self._open.pop(upload_id).file.close()


def uploaded_blob(content: bytes, file_name: str, access: Access, media_type: str = "") -> Blob:
    """Return an uploaded file; a later one of the same name and tenant replaces its document."""
    name = valid_unicode(
        "".join(character for character in re.split(r"[/\\]", file_name)[-1] if character.isprintable())
    )
    name = name.strip()[-_NAME_CHARACTERS:] or "file"
    return Blob(content, name, media_type, uri=f"upload://{quote(access.tenant, safe='')}/{quote(name)}")


def allowed_path(path_text: str, folders: tuple[Path, ...], access: Access) -> Path:
    """Return the path if the caller may read it: links resolved, below one of ``folders``, if any."""
    if not access.is_unrestricted:
        raise KnowledgeError("PathRefused", reason="it is on the server's machine")
    try:
        path = Path(path_text).expanduser()
        real = path.resolve()
        allowed = [folder.expanduser().resolve() for folder in folders]
    except (OSError, RuntimeError, ValueError):
        raise BadArgumentError("path", "cannot be a path", "Give one of a file or a folder") from None
    if allowed and not any(real.is_relative_to(folder) for folder in allowed):
        raise KnowledgeError("PathRefused", reason=f"files are added from {', '.join(map(str, allowed))} only")
    return path


async def add_document(
    source: Path | str | Blob, writer: DocumentWriter, reader: Reader, on_progress: Progress
) -> AddedOutput:
    """Add one document, or all files of a folder; documents of deleted files stay.

    A failure of a single document raises, and nothing is stored; failures inside a folder are listed in the result.
    """
    if isinstance(source, Path) and await anyio.to_thread.run_sync(source.is_dir):
        report = await import_folder(source, writer, reader, FolderRules(removes=False), on_progress=on_progress)
        noteworthy = [file for file in report.files if file.reason or file.outcome == "failed"]
        files = [build_model(FileOutcome, file) for file in noteworthy]
        return added_output(writer, unchanged=report.count("unchanged"), files=files)
    await on_progress(0, _STEPS, "reading")
    document = await reader.read_document(source, writer.access.tenant)
    await on_progress(1, _STEPS, "indexing")
    await writer.add(document)
    await on_progress(_STEPS, _STEPS, "done")
    return added_output(writer, warnings=list(document.warnings))


def added_output(writer: DocumentWriter, **more: Any) -> AddedOutput:
    """Return the documents of a writer as the result of ``add_document``."""
    documents = list(writer.written)
    return AddedOutput(knowledge_base_id=writer.base_id, documents=documents, count=len(documents), **more)
