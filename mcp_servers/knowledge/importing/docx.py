"""Word documents (docx) -> title and passages, through HTML.

Headers, footers, comments, charts and diagrams follow the text. Images are omitted, and there are no page numbers:
pagination depends on the printer.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any, cast

from mcp_servers.knowledge.errors import DamagedDocumentError, EncryptedDocumentError, MissingExtraError, TooLargeError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.html import read_html
from mcp_servers.knowledge.importing.office import (
    ENTITIES,
    chart_of,
    checked_archive,
    numbered,
    paragraphs_of,
    title_in,
)
from mcp_servers.knowledge.types import Passage

# The run below the reading takes the place of both.
_RUBY = re.compile(
    rb"<w:ruby>(?:(?!<w:rubyBase>|</w:ruby>).)*<w:rubyBase>((?:(?!</w:rubyBase>).)*)</w:rubyBase>\s*</w:ruby>",
    re.DOTALL,
)
# The library knows no equations: their characters become text.
_EQUATION = re.compile(rb"<m:oMath(?:\s[^>]*)?>(.*?)</m:oMath>", re.DOTALL)
_EQUATION_PARAGRAPH = re.compile(rb"</?m:oMathPara(?:\s[^>]*)?>|<m:oMathParaPr>.*?</m:oMathParaPr>", re.DOTALL)
_EQUATION_TEXT = re.compile(rb"<m:t(?:\s[^>]*)?>([^<]*)</m:t>")
_BESIDE = r"word/(?:(?:header|footer)\d*|comments|diagrams/data\d*)\.xml"
_CHARTS = r"word/charts/chart\d*\.xml"
_IGNORED = "An unrecognised element was ignored: "
_TEXT_PARTS = frozenset({"word/document.xml", "word/footnotes.xml", "word/endnotes.xml"})
_STYLES = "\n".join(
    (
        "p[style-name='Title'] => h1:fresh",
        "p[style-name='Subtitle'] => p:fresh",
        "p[style-name='表題'] => h1:fresh",
        *(f"p[style-name='見出し {level}'] => h{level}:fresh" for level in range(1, 7)),
    )
)


def read_docx(blob: Blob, limits: ParseLimits) -> tuple[str, list[Passage], tuple[str, ...]]:
    """Return title (may be empty), passages and warnings.

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
            content = _readable(archive)
            beside = dict.fromkeys(paragraphs_of(archive, part) for part in numbered(archive, _BESIDE))
            charts = [chart_of(archive, part) for part in numbered(archive, _CHARTS)]
        without_pictures = library.images.img_element(_without_picture)
        page = library.convert_to_html(content, style_map=_STYLES, convert_image=without_pictures)
        heading, passages = read_html(str(page.value))
    except (DamagedDocumentError, EncryptedDocumentError, TooLargeError):
        raise
    except Exception as error:  # mammoth raises exceptions of all kinds
        raise DamagedDocumentError(blob.name, f"{type(error).__name__}: {error}"[:200]) from error
    messages: set[str] = {each.message for each in page.messages}
    ignored = sorted(each.removeprefix(_IGNORED) for each in messages if each.startswith(_IGNORED))
    warnings = (f"Parts of it were not read: {', '.join(ignored)}.",) if ignored else ()
    passages += [Passage(text) for text in beside if text]
    passages += [Passage(f"{name}\n{table}".strip(), is_atomic=True) for name, table in charts if table]
    return title or heading, passages, warnings


def _equation(found: re.Match[bytes]) -> bytes:
    text = b" ".join(_EQUATION_TEXT.findall(found[1]))
    return b'<w:r><w:t xml:space="preserve">' + text + b"</w:t></w:r>"


def _without_picture(_: object) -> dict[str, str]:
    return {}


def _readable(archive: zipfile.ZipFile) -> io.BytesIO:
    """Return a copy of the archive with equations as text and without ruby, whose words the library drops as well."""
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as written:
        for part in archive.infolist():
            content = archive.read(part)
            if part.filename.endswith((".xml", ".rels")) and ENTITIES.search(content):
                raise ValueError(f"{part.filename} declares entities")
            if part.filename in _TEXT_PARTS:
                content = _EQUATION.sub(_equation, _EQUATION_PARAGRAPH.sub(b"", _RUBY.sub(rb"\1", content)))
            written.writestr(part.filename, content)
    copy.seek(0)
    return copy
