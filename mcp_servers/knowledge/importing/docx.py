"""Word documents (docx) -> title and passages, through HTML.

Images are omitted, and there are no page numbers: pagination depends on the printer.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any, cast

from mcp_servers.knowledge.errors import MissingExtraError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.errors import DamagedDocumentError, EncryptedDocumentError, TooLargeError
from mcp_servers.knowledge.importing.html import read_html
from mcp_servers.knowledge.importing.office import ENTITIES, checked_archive, title_in
from mcp_servers.knowledge.types import Passage

# The run below the reading takes the place of both.
_RUBY = re.compile(
    rb"<w:ruby>(?:(?!<w:rubyBase>|</w:ruby>).)*<w:rubyBase>((?:(?!</w:rubyBase>).)*)</w:rubyBase>\s*</w:ruby>",
    re.DOTALL,
)
_TEXT_PARTS = frozenset({"word/document.xml", "word/footnotes.xml", "word/endnotes.xml"})
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
        library = cast("Any", mammoth)
        with checked_archive(blob, limits) as archive:
            title = title_in(archive, "docProps/core.xml")
            content = _without_ruby(archive)
        page = library.convert_to_html(
            content, style_map=_STYLES, convert_image=library.images.img_element(_without_picture)
        )
        heading, passages = read_html(str(page.value))
    except (DamagedDocumentError, EncryptedDocumentError, TooLargeError):
        raise
    except Exception as error:  # mammoth raises exceptions of all kinds
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    return title or heading, passages


def _without_picture(_: object) -> dict[str, str]:
    return {}


def _without_ruby(archive: zipfile.ZipFile) -> io.BytesIO:
    """Return a copy of the archive whose text has no ruby; the library drops the words under it as well."""
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as written:
        for part in archive.infolist():
            content = archive.read(part)
            if part.filename.endswith((".xml", ".rels")) and ENTITIES.search(content):
                raise ValueError(f"{part.filename} declares a document type")
            written.writestr(part.filename, _RUBY.sub(rb"\1", content) if part.filename in _TEXT_PARTS else content)
    copy.seek(0)
    return copy
