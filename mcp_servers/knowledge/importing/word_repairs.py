"""Word documents as the library reads them: references that lead nowhere are left out, hidden text becomes text.

Word repairs such documents in silence; the library raises KeyError for the whole of it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.importing.archives import attribute, local_name, named, parse_part, relations, whole_number

# Styles that paragraphs with an outline level of their own get.
OUTLINE_STYLE = "OutlineLevel"
_MAX_HEADING, _BODY_LEVEL, _MAX_BASES = 6, 9, 10
_REFERENCE = re.compile(rb'\s\w+:(?:id|embed|link|pict|dm|lo|qs|cs)="([^"<>]*)"')
_RELATED = re.compile(rb"<(?:w:hyperlink|a:blip|a:hlinkClick|a:hlinkHover|v:imagedata)\s[^<>]*>")
_NOTE = re.compile(rb"<w:(footnote|endnote|comment)Reference(?:\s[^<>]*)?/>")
_NOTE_ID = re.compile(rb"""\sw:id=["']([^"']*)["']""")
_SPAN = re.compile(rb'(<w:gridSpan\s+w:val=")([^"]*)"')
_SYMBOL = re.compile(rb'<w:sym(?![^<>]*\sw:char="[0-9A-Fa-f]{1,6}")(?:\s[^<>]*)?/>')
_LINE_BREAK = re.compile(rb"<w:cr(?:\s[^<>]*)?/>")
_TAB = re.compile(rb"<w:ptab(?:\s[^<>]*)?/>")
# One between two rows ends the merging of cells.
_BOOKMARK = re.compile(rb"<w:bookmarkStart(?:\s[^<>]*)?/>")
_LONE_CHOICE = re.compile(
    rb"<mc:AlternateContent(?:\s[^<>]*)?>\s*<mc:Choice(?:\s[^<>]*)?>((?:(?!</?mc:).)*)</mc:Choice>\s*"
    rb"</mc:AlternateContent>",
    re.DOTALL,
)
_CHOSEN = re.compile(rb"<w:ddList>((?:(?!</?w:ddList[\s>]).)*)</w:ddList>", re.DOTALL)
_FIELD_START = re.compile(rb"<w:fldChar(?:\s[^<>]*[^<>/])?>(?:(?!</?w:fldChar[\s>]).)*</w:fldChar>", re.DOTALL)
_CHOICE_NUMBER = re.compile(rb'<w:(?:result|default)\s+w:val="(\d+)"')
_ENTRY = re.compile(rb'<w:listEntry\s+w:val="([^"]*)"')
# A field of signs (EQ), which has its characters in its instruction: enclosed ones, fractions, older readings.
_SIGNS = re.compile(
    rb"""<w:fldChar\s[^<>]*["']begin["'][^<>]*/>((?:(?!<w:fldChar\s).)*)<w:fldChar\s[^<>]*["']end["'][^<>]*/>""",
    re.DOTALL,
)
_INSTRUCTION = re.compile(rb"<w:(?:instrText|t)(?:\s[^<>]*)?>([^<]*)</w:(?:instrText|t)>")
_READING = re.compile(rb"\\s\s*\\up\s*\d+\s*\([^()]*\)")
_SWITCH = re.compile(rb'\\\*\s*(?:"[^"]*"|\w+)|\\[a-zA-Z]+\s*\d*|(?i:^\s*eq)\b')
_RING = re.compile("○|◯|〇|□|◇|△".encode())
_WORD_ART = re.compile(rb'<v:textpath\s(?:[^<>]*\s)?string="([^"]*)"[^<>]*/>')
_STYLE = re.compile(
    rb"<w:style(?:\s[^<>]*)?/>|<w:style(?:\s[^<>]*[^<>/])?>(?:(?!</?w:style[\s>]).)*</w:style>", re.DOTALL
)
_LIST = re.compile(rb"<w:num(?:\s[^<>]*)?/>|<w:num(?:\s[^<>]*)?>(?:(?!</?w:num[\s>]).)*</w:num>", re.DOTALL)
_PROPERTIES = re.compile(rb"<w:pPr>((?:(?!</?w:pPr[\s>]).)*)</w:pPr>", re.DOTALL)
_OUTLINE = re.compile(rb'<w:outlineLvl\s+w:val="([0-8])"\s*/>')
_STYLE_OF_PARAGRAPH = re.compile(rb"<w:pStyle(?:\s[^<>]*)?/>")
_NAMED_HEADING = re.compile(r"(?:heading|見出し)\s?([1-9])", re.IGNORECASE)


def repaired_text(archive: zipfile.ZipFile, part: str, content: bytes) -> bytes:
    """Return the XML of the main part, or of notes, with what the library stumbles over or leaves out mended."""
    folder, _, name = part.rpartition("/")
    related = f"{folder}/_rels/{name}.rels"
    tree = parse_part(archive, related) if related in archive.namelist() else ET.Element("none")
    ids = {relationship.get("Id", "").encode() for relationship in named(tree, "Relationship")}
    notes = _note_ids(archive, part)

    def without_lost(element: re.Match[bytes]) -> bytes:
        return _REFERENCE.sub(lambda reference: reference[0] if reference[1] in ids else b"", element[0])

    def note(reference: re.Match[bytes]) -> bytes:
        number = _NOTE_ID.search(reference[0])
        return reference[0] if number and (reference[1], number[1]) in notes else b""

    content = _TAB.sub(b"<w:tab/>", _LINE_BREAK.sub(b"<w:br/>", content))
    content = _LONE_CHOICE.sub(rb"\1", _BOOKMARK.sub(b"", _SYMBOL.sub(b"", content)))
    content = _SIGNS.sub(_signs, content)
    content = _WORD_ART.sub(_word_art, _FIELD_START.sub(_with_choice, content))
    content = _NOTE.sub(note, _RELATED.sub(without_lost, content))
    content = _SPAN.sub(lambda span: b'%s%d"' % (span[1], whole_number(span[2].decode("latin-1"), 1)), content)
    return _PROPERTIES.sub(_with_outline_style, content)


def without_faulty_styles(content: bytes) -> bytes:
    """Return the XML of the styles without those that have no type or no id."""

    def checked(style: re.Match[bytes]) -> bytes:
        head = style[0].partition(b">")[0]
        return style[0] if b"w:type=" in head and b"w:styleId=" in head else b""

    return _STYLE.sub(checked, content)


def without_faulty_lists(content: bytes) -> bytes:
    """Return the XML of the lists without those that have no id or no definition."""

    def checked(numbered: re.Match[bytes]) -> bytes:
        is_whole = b"w:numId=" in numbered[0].partition(b">")[0] and b"<w:abstractNumId w:val=" in numbered[0]
        return numbered[0] if is_whole else b""

    return _LIST.sub(checked, content)


def heading_styles(archive: zipfile.ZipFile, part: str) -> Iterator[tuple[str, int]]:
    """Yield the selector of the library for each style of headings, and the level of these headings from 1.

    A style is one of headings if it has an outline level, which Word's navigation shows, is named as one, or is based
    on one.
    """
    for level in range(1, _BODY_LEVEL + 1):
        yield f"p.{OUTLINE_STYLE}{level}", min(level, _MAX_HEADING)
    named_part = next((name for kind, name in relations(archive, part).values() if kind == "styles"), "")
    if not named_part:
        return
    levels: dict[str, int | None] = {}
    bases: dict[str, str] = {}
    names: dict[str, str] = {}
    for style in named(parse_part(archive, named_part), "style"):
        if attribute(style, "type") != "paragraph":
            continue
        style_id = attribute(style, "styleId")
        values = {local_name(child): attribute(child, "val") for child in style}
        names[style_id], bases[style_id] = values.get("name", ""), values.get("basedOn", "")
        levels[style_id] = _own_level(style, names[style_id])
    for style_id, name in names.items():
        base, level = style_id, levels[style_id]
        for _ in range(_MAX_BASES):
            if level is not None or base not in bases:
                break
            base = bases[base]
            level = levels.get(base)
        if name and level is not None and level < _BODY_LEVEL:
            quoted = name.replace("\\", "\\\\").replace("'", "\\'")
            yield f"p[style-name='{quoted}']", min(level + 1, _MAX_HEADING)


def _own_level(style: ET.Element, name: str) -> int | None:
    """Return the outline level from 0 that a style states or has by its name; None for neither."""
    stated = next((attribute(level, "val") for level in named(style, "outlineLvl")), "")
    if stated:
        return whole_number(stated, _BODY_LEVEL)
    match = _NAMED_HEADING.fullmatch(name)
    return int(match[1]) - 1 if match else None


def _note_ids(archive: zipfile.ZipFile, part: str) -> set[tuple[bytes, bytes]]:
    """Return the kind and the id of each note and comment that a document has."""
    ids: set[tuple[bytes, bytes]] = set()
    for kind, name in relations(archive, part).values():
        singular = kind.removesuffix("s")
        if singular in {"footnote", "endnote", "comment"}:
            notes = named(parse_part(archive, name), singular)
            ids |= {(singular.encode(), attribute(note, "id").encode()) for note in notes}
    return ids


def _with_outline_style(properties: re.Match[bytes]) -> bytes:
    """Give a paragraph that states an outline level a style of headings."""
    level = _OUTLINE.search(properties[1])
    if not level:
        return properties[0]
    style = f'<w:pStyle w:val="{OUTLINE_STYLE}{int(level[1]) + 1}"/>'.encode()
    return b"<w:pPr>" + style + _STYLE_OF_PARAGRAPH.sub(b"", properties[1]) + b"</w:pPr>"


def _with_choice(field: re.Match[bytes]) -> bytes:
    """Return the beginning of a form field, behind what is chosen from its list as text."""
    chosen = _CHOSEN.search(field[0])
    if not chosen:
        return field[0]
    number = _CHOICE_NUMBER.search(chosen[1])
    entries = _ENTRY.findall(chosen[1])
    at = int(number[1]) if number else 0
    return (b"<w:t>" + entries[at] + b"</w:t>" if at < len(entries) else b"") + field[0]


def _signs(field: re.Match[bytes]) -> bytes:
    """Return the characters of a field of signs as text, without readings and the rings around others."""
    instruction = b"".join(_INSTRUCTION.findall(field[1]))
    if not instruction.strip().lower().startswith((b"eq ", b"eq\\")):
        return field[0]
    signs = _SWITCH.sub(b"", _READING.sub(b"", instruction)).replace(b"(", b",").replace(b")", b",").split(b",")
    shown = [sign.strip() for sign in signs if sign.strip() and not _RING.fullmatch(sign.strip())]
    return b"<w:t>" + b" ".join(shown) + b"</w:t>"


def _word_art(shape: re.Match[bytes]) -> bytes:
    """Return the text of WordArt, which is an attribute, as a text box."""
    text = b"<w:p><w:r><w:t>" + shape[1] + b"</w:t></w:r></w:p>"
    return b"<v:textbox><w:txbxContent>" + text + b"</w:txbxContent></v:textbox>"
