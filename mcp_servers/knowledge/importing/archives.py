"""Zip archives with XML parts: checks before unpacking, and the parts that Office files share.

Declared sizes are checked first, because a small archive may expand to gigabytes; a part with a document type is
refused, because entities expand as well.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.errors import EncryptedDocumentError, TooLargeError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits, some_names

_MAX_PARTS = 10_000
# XML of real documents compresses to a twentieth at most; only crafted archives are far beyond.
_MAX_RATIO = 200
_RATIO_FROM = 10_000_000
_ENCRYPTED = 0x1
# An older document type without its own declarations cannot expand.
ENTITIES = re.compile(rb"<!ENTITY|<!DOCTYPE[^<>\[]*\[", re.IGNORECASE)
# Elements inside each other; the readers need time that grows with the square of the depth.
_MAX_DEPTH = 200
MAX_COLUMNS = 1_000
# A wider gap between the cells of a row becomes one of this many empty cells.
MAX_GAP = 50
# Characters that XML does not have, and ampersands that begin no reference: programs write both.
_NO_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&(?!#?\w{1,40};)")
_MAX_NUMBER_DIGITS = 9


def checked_archive(blob: Blob, limits: ParseLimits) -> zipfile.ZipFile:
    """Open an archive; raise EncryptedDocumentError, or TooLargeError if it unpacks to more than is allowed."""
    archive = zipfile.ZipFile(io.BytesIO(blob.content))
    parts = archive.infolist()
    if any(part.flag_bits & _ENCRYPTED for part in parts):
        raise EncryptedDocumentError(blob.name)
    # At most the declared size is read, so it can be trusted.
    unpacked = sum(part.file_size for part in parts)
    if unpacked > limits.unpacked_bytes or len(parts) > _MAX_PARTS:
        raise TooLargeError(blob.name, f"it unpacks to {unpacked // 1_000_000:,} MB in {len(parts):,} parts")
    if any(part.file_size > _RATIO_FROM and part.file_size > _MAX_RATIO * part.compress_size for part in parts):
        raise TooLargeError(blob.name, f"a part of it unpacks to more than {_MAX_RATIO} times its size")
    return archive


def parse_part(archive: zipfile.ZipFile, name: str) -> ET.Element:
    """Return the tree of a part; raise KeyError if none exists, ValueError if it is not safe to parse."""
    return parse_xml(archive.read(name), name)


def parse_xml(content: bytes, name: str) -> ET.Element:
    """Return the tree of XML; raise ValueError if it declares entities or is too deep.

    Characters that XML does not allow are passed over; of alternatives for different programs the first one with text
    is there.
    """
    if ENTITIES.search(content):
        raise ValueError(f"{name} declares entities")
    try:
        root = ET.fromstring(content)  # noqa: S314  # entities are refused above
    except ET.ParseError:
        root = ET.fromstring(_NO_XML.sub(lambda fault: b"&amp;" if fault[0] == b"&" else b"", content))  # noqa: S314
    for alternatives in list(elements_named(root, "AlternateContent")):
        forms = list(alternatives)
        best = next((form for form in forms if any(text.text for text in elements_named(form, "t"))), None)
        for form in forms:
            if best is not None and form is not best:
                alternatives.remove(form)
    level, depth = [root], 0
    while level:
        level, depth = [child for element in level for child in element], depth + 1
        if depth > _MAX_DEPTH:
            raise ValueError(f"{name} has more than {_MAX_DEPTH} elements inside each other")
    return root


def whole_number(text: str, otherwise: int) -> int:
    """Return the number that an attribute states; ``otherwise`` for one that is empty or malformed."""
    digits = text.strip()
    is_number = digits.removeprefix("-").isdecimal() and len(digits) <= _MAX_NUMBER_DIGITS
    return int(digits) if is_number else otherwise


def local_name(element: ET.Element) -> str:
    """Return the tag of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def attribute(element: ET.Element, name: str, default: str = "") -> str:
    """Return an attribute in any namespace: strict and transitional files differ in theirs."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), default)


def elements_named(element: ET.Element, *tags: str) -> Iterator[ET.Element]:
    """Yield the elements with one of these tags, in any namespace."""
    return (child for child in element.iter() if local_name(child) in tags)


def embedded_warnings(lost: Sequence[str]) -> list[str]:
    """Return a warning with the names of embedded files that were not read; empty for none."""
    return [f"Embedded files were not read: {some_names(lost)}."] if lost else []


def relation_id(element: ET.Element) -> str:
    """Return the id of a related part: ``r:id``; the element may also have an ``id`` without namespace."""
    return next((value for key, value in element.attrib.items() if key.endswith("/relationships}id")), "")


def numbered_parts(archive: zipfile.ZipFile, pattern: str) -> list[str]:
    """Return the parts whose whole name matches, by the numbers in their names."""
    names = [name for name in archive.namelist() if re.fullmatch(pattern, name)]
    return sorted(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def relations(archive: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Return the related parts of a part, or of the package for an empty name: id -> kind and name.

    Parts that are missing are left out.
    """
    folder, name = posixpath.split(part)
    related = posixpath.join(folder, "_rels", f"{name}.rels")
    names = set(archive.namelist())
    if related not in names:
        return {}
    targets: dict[str, tuple[str, str]] = {}
    for relationship in elements_named(parse_part(archive, related), "Relationship"):
        target = relationship.get("Target", "").replace("\\", "/")
        target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
        if relationship.get("TargetMode") == "External":
            continue
        with suppress(KeyError):
            # Names of parts are compared without case.
            target = target if target in names else find_part(archive, target)
            targets[relationship.get("Id", "")] = relationship.get("Type", "").rpartition("/")[2], target
    return targets


def main_part(archive: zipfile.ZipFile, usual: str) -> str:
    """Return the name of the main part, which some programs name differently: ``word/document2.xml``."""
    names = (name for kind, name in relations(archive, "").values() if kind == "officeDocument")
    return next((name for name in names if name in archive.namelist()), usual)


def find_part(archive: zipfile.ZipFile, name: str) -> str:
    """Return the name under which an archive has a referenced part: percent-encoded or not, in either case.

    Raises KeyError if none exists.
    """
    names = archive.namelist()
    bare = name.partition("#")[0]
    for candidate in (bare, unquote(bare)):
        if candidate in names:
            return candidate
    folded = unquote(bare).casefold()
    same = next((part_name for part_name in names if unquote(part_name).casefold() == folded), None)
    if same is None:
        raise KeyError(name)
    return same


def text_lines(tree: ET.Element) -> str:
    """Return the paragraphs of a part, a line each: of a header, a comment, a text box or a diagram."""
    paragraphs = list(elements_named(tree, "p")) or list(elements_named(tree, "text"))
    # The text of a thread of comments has no elements of its own.
    lines = ((paragraph_text(paragraph) or paragraph.text or "").strip() for paragraph in paragraphs)
    return "\n".join(line for line in lines if line and not line.isdecimal())


def paragraph_text(paragraph: ET.Element) -> str:
    """Return the text of a paragraph of Office, with its tabs and line breaks."""
    breaks = {"br": "\n", "cr": "\n", "tab": "\t"}
    return "".join(
        breaks.get(tag) or child.text or "" for child in paragraph.iter() if (tag := local_name(child)) in _TEXT
    )


_TEXT = frozenset({"t", "br", "cr", "tab"})


def chart_table(archive: zipfile.ZipFile, part: str) -> tuple[str, list[list[str]]]:
    """Return the titles of a chart and its axes, and the rows of its data: one per series, a column per category."""
    tree = parse_part(archive, part)
    rows: list[list[str]] = []
    for series in elements_named(tree, "ser"):
        parts = {local_name(child): child for child in series}
        labels, values = (
            [text for name in names if name in parts for text in _points(parts[name])]
            for names in (("cat", "xVal"), ("val", "yVal"))
        )
        if labels and ["", *labels] not in rows:
            rows.append(["", *labels])
        rows.append([" ".join(_points(parts["tx"])) if "tx" in parts else "", *values])
    # A title that is the text of a cell has a copy of it.
    titles = (
        "".join(part.text or "" for part in title.iter() if local_name(part) in {"t", "v"})
        for title in elements_named(tree, "title")
    )
    return ", ".join(dict.fromkeys(filter(None, titles))), rows


def _points(element: ET.Element) -> list[str]:
    """Return the stored values of a chart's data, with empty ones for those that are missing."""
    # Categories of several levels: the innermost first; an outer one holds until the next.
    levels: list[dict[int, str]] = []
    for level in list(elements_named(element, "lvl")) or [element]:
        values: dict[int, str] = {}
        for point in elements_named(level, "pt"):
            stored = next(elements_named(point, "v"), None)
            values[whole_number(point.get("idx", ""), 0)] = "" if stored is None else stored.text or ""
        levels.append(values)
    if not any(levels):
        return [point.text or "" for point in elements_named(element, "v")]
    inner, *outer = levels
    points: list[str] = []
    for index in range(min(max(map(max, filter(None, levels))) + 1, MAX_COLUMNS)):
        above = [
            level[max(at for at in level if at <= index)] for level in outer if min(level, default=index + 1) <= index
        ]
        points.append(" ".join(filter(None, (*reversed(above), inner.get(index, "")))))
    return points
