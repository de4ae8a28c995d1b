"""Word documents (docx) -> title and passages, through HTML.

Declared sizes are checked before unpacking, because a small archive may expand to gigabytes. Images are omitted, and
there are no page numbers: pagination depends on the printer.
"""

from __future__ import annotations

import html
import io
import re
import zipfile
from typing import Any, cast

from mcp_servers.knowledge.errors import MissingExtraError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.errors import DamagedDocumentError, EncryptedDocumentError, TooLargeError
from mcp_servers.knowledge.importing.html import read_html
from mcp_servers.knowledge.types import Passage

_TITLE = re.compile(r"<dc:title\b[^>]*>([^<]{1,1000})<")
_CORE_PROPERTIES = "docProps/core.xml"
_MAX_PARTS = 10_000
_ENCRYPTED = 0x1
_STYLES = "\n".join(
    (
        "p[style-name='Title'] => h1:fresh",
        "p[style-name='Subtitle'] => p:fresh",
        "p[style-name='表題'] => h1:fresh",
        *(f"p[style-name='見出し {level}'] => h{level}:fresh" for level in range(1, 7)),
    )
)


def read_docx(blob: Blob, limits: ParseLimits) -> tuple[str, list[Passage]]:
    """Return title (may be empty) and passages.

    Raises MissingExtraError without mammoth, TooLargeError, EncryptedDocumentError or DamagedDocumentError.
    """
    try:
        import mammoth
    except ImportError as error:
        raise MissingExtraError("Reading Word documents", "mammoth") from error
    try:
        title = _checked_title(blob, limits)
        library = cast("Any", mammoth)
        page = library.convert_to_html(
            io.BytesIO(blob.content), style_map=_STYLES, convert_image=library.images.img_element(_without_picture)
        )
        heading, passages = read_html(str(page.value))
    except (DamagedDocumentError, EncryptedDocumentError, TooLargeError):
        raise
    except Exception as error:  # mammoth raises exceptions of all kinds
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    return title or heading, passages


def _without_picture(_: object) -> dict[str, str]:
    return {}


def _checked_title(blob: Blob, limits: ParseLimits) -> str:
    with zipfile.ZipFile(io.BytesIO(blob.content)) as archive:
        parts = archive.infolist()
        if any(part.flag_bits & _ENCRYPTED for part in parts):
            raise EncryptedDocumentError(blob.name)
        # The library reads at most the declared size, so it can be trusted.
        unpacked = sum(part.file_size for part in parts)
        if unpacked > limits.unpacked_bytes or len(parts) > _MAX_PARTS:
            reason = f"it unpacks to {unpacked // 1_000_000:,} MB in {len(parts):,} parts"
            raise TooLargeError(blob.name, reason)
        if _CORE_PROPERTIES not in archive.namelist():
            return ""
        found = _TITLE.search(archive.read(_CORE_PROPERTIES).decode("utf-8", errors="replace"))
        return " ".join(html.unescape(found.group(1)).split()) if found else ""
