"""Documents of the agency <-> files in a cache folder, so that they outlive the process.

One file per address: a line of JSON about the document, then the document as it came. Files are replaced whole, never
written in place. A folder that cannot be written or a file that cannot be read only costs a request.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class StoredDocument:
    """One document as it was received.

    Args:
        url: where it came from.
        checked_at: when the agency last said that this is the newest, seconds since 1970.
        etag: as received, or empty.
        last_modified: as received, or empty.
        body: the bytes.
    """

    url: str
    checked_at: float
    etag: str
    last_modified: str
    body: bytes


class DocumentStore:
    """The files of one cache folder; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def load(self, url: str) -> StoredDocument | None:
        """The document last kept for this address, or None."""
        if self._folder is None:
            return None
        try:
            head, _, body = self._path(self._folder, url).read_bytes().partition(b"\n")
            about = json.loads(head)
            stored = StoredDocument(
                url=str(about["url"]),
                checked_at=float(about["checked_at"]),
                etag=str(about["etag"]),
                last_modified=str(about["last_modified"]),
                body=body,
            )
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return stored if stored.url == url else None

    def save(self, document: StoredDocument) -> None:
        """Keeps a document; where that is impossible, does nothing."""
        if self._folder is None:
            return
        head = asdict(document)
        body = head.pop("body")
        temporary = ""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(head).encode() + b"\n" + body)
            Path(temporary).replace(self._path(self._folder, document.url))
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True) if temporary else None

    @staticmethod
    def _path(folder: Path, url: str) -> Path:
        digest = hashlib.sha256(url.encode()).hexdigest()[:16]
        return folder / f"{url.rpartition('/')[2]}.{digest}"
