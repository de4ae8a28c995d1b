"""Layers of a PDF that are switched off, which PDFium does not tell: their names, and the objects of a page in them.

Whether an object is drawn may depend on several layers, or on those of the drawing that it is part of. PDFium knows
when it renders, so such an object is rendered alone and its picture examined.
"""

from __future__ import annotations

import ctypes
import re
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from mcp_servers.knowledge.importing.documents import HiddenParts

_STREAM = re.compile(rb"stream\r?\n")
_NUMBERS = re.compile(rb"/(N|First)\s+(\d{1,9})\b")
_REFERENCE = re.compile(rb"(\d{1,9})\s+\d{1,5}\s+R\b")
_OBJECT = re.compile(rb"(?<!\d)(\d{1,9})\s+\d{1,5}\s+obj\b(.{0,20000}?)endobj", re.DOTALL)
_NAME = re.compile(rb"/Name\s*(?:\(((?:[^()\\]|\\.){0,400})\)|<([0-9A-Fa-f\s]{0,800})>)", re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_SPACES = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_MAX_UNPACKED, _MAX_HEAD = 20_000_000, 1_000
# Texts of a page that are rendered, the longer side of their pictures, drawings inside each other.
_MAX_RENDERED, _MAX_PIXELS, _MAX_DEPTH = 1_000, 600, 10
# A picture with a darker point shows something.
_WHITE = bytes(range(250, 256))


class Layers(NamedTuple):
    """Names of layers."""

    off: frozenset[str] = frozenset()  # that the document's own view does not show
    shared: frozenset[str] = frozenset()  # of these, the names that a layer which is shown has as well


def find_layers(content: bytes) -> Layers:
    """Return the layers of a document that are switched off."""
    # The compressed objects, and where the first of them begins.
    streams: list[tuple[int, bytes]] = []
    room = _MAX_UNPACKED
    for match in re.finditer(rb"/ObjStm\b", content):
        begin = _STREAM.search(content, match.end(), match.end() + _MAX_HEAD)
        if begin is None or room <= 0:
            continue
        head = content[max(content.rfind(b"obj", 0, match.start()), match.start() - _MAX_HEAD) : begin.start()]
        numbers = dict(_NUMBERS.findall(head))
        try:
            part = zlib.decompressobj().decompress(content[begin.end() : begin.end() + room], room)
        except zlib.error:
            continue
        room -= len(part)
        if b"First" in numbers:
            streams.append((int(numbers[b"First"]), part))
    if b"/OCProperties" not in content and not any(b"/OCProperties" in part for _, part in streams):
        return Layers()
    objects = {int(number): body for number, body in _OBJECT.findall(content)}
    for first, part in streams:
        pairs = re.findall(rb"(\d+)\s+(\d+)", part[:first])
        offsets = [*(int(offset) for _, offset in pairs), len(part) - first]
        for at, (number, _) in enumerate(pairs):
            objects.setdefault(int(number), part[first + offsets[at] : first + offsets[at + 1]])
    catalog = next((body for body in objects.values() if b"/OCProperties" in body), b"")
    view = _value(catalog[catalog.find(b"/OCProperties") + 13 :], objects)
    if b"/D" not in view:
        return Layers()
    every = _references(view, b"/OCGs", objects)
    off = _references(_value(_after(view, b"/D"), objects), b"/OFF", objects)
    if re.search(rb"/BaseState\s*/OFF", _value(_after(view, b"/D"), objects)):
        visible = _references(_value(_after(view, b"/D"), objects), b"/ON", objects)
        off = [number for number in every if number not in visible]
    names = frozenset(filter(None, (_name(objects.get(number, b"")) for number in off)))
    visible_names = {_name(objects.get(number, b"")) for number in every if number not in off}
    return Layers(names, names & visible_names)


def _after(body: bytes, key: bytes) -> bytes:
    match = re.search(re.escape(key) + rb"(?![A-Za-z])", body)
    return body[match.end() :] if match else b""


def _value(text: bytes, objects: dict[int, bytes]) -> bytes:
    """Return a dictionary or array at the beginning of a text, or the object that is referred to."""
    text = text.lstrip()
    reference = _REFERENCE.match(text)
    return objects.get(int(reference[1]), b"") if reference else text


def _references(body: bytes, key: bytes, objects: dict[int, bytes]) -> list[int]:
    array = _value(_after(body, key), objects).lstrip()
    if not array.startswith(b"["):
        return []
    return [int(number) for number in _REFERENCE.findall(array[: array.find(b"]")])]


def _name(body: bytes) -> str:
    match = _NAME.search(body)
    if match is None:
        return ""
    if match[1] is None:
        written = bytes.fromhex(match[2].decode("ascii"))
    else:
        # After a backslash is the code of a character, the letter of white space, or the character itself.
        written = _ESCAPE.sub(
            lambda sign: bytes([int(sign[1], 8) & 0xFF]) if sign[1].isdigit() else _SPACES.get(sign[1], sign[1]),
            match[1],
        )
    return written[2:].decode("utf-16-be", "replace") if written.startswith(b"\xfe\xff") else written.decode("latin-1")


class _Leaf(NamedTuple):
    """An object of a page that contains no others."""

    item: Any
    layers: frozenset[str]  # with an empty name for a condition on several layers
    drawing: Any = None  # that it is part of; None for the page itself
    number: int = 0  # of the object of the page that has it


def hide_layers(page: Any, raw: Any, layers: Layers, parts: HiddenParts) -> None:
    """Remove the text of a page that is in layers which are switched off, unless hidden parts are read."""
    count = raw.FPDFPage_CountObjects(page.raw)
    leaves = [leaf for at in range(count) for leaf in _leaves(raw.FPDFPage_GetObject(page.raw, at), raw, at)]
    with closing(page.get_textpage()) as text_page:
        texts: list[_Leaf] = []
        for leaf in leaves:
            if raw.FPDFPageObj_GetType(leaf.item) == raw.FPDF_PAGEOBJ_TEXT:
                size = raw.FPDFTextObj_GetText(leaf.item, text_page.raw, None, 0)
                buffer = (ctypes.c_ushort * (size // 2))()
                raw.FPDFTextObj_GetText(leaf.item, text_page.raw, buffer, size)
                # Not of spaces alone.
                if bytes(buffer).decode("utf-16-le", "replace").strip("\0 "):
                    texts.append(leaf)
    unknown = layers.shared | {""}
    doubtful = [leaf for leaf in texts if leaf.drawing is not None or leaf.layers & unknown][:_MAX_RENDERED]
    examined = {id(leaf) for leaf in doubtful}
    hidden = [leaf for leaf in texts if leaf.layers & layers.off and id(leaf) not in examined]
    if doubtful:
        for leaf in leaves:
            raw.FPDFPageObj_SetIsActive(leaf.item, False)
        groups: dict[object, list[_Leaf]] = {}
        for leaf in doubtful:
            # The texts of a drawing that are in the same known layers are drawn, or not, together.
            key = id(leaf) if leaf.layers & unknown else (leaf.number, leaf.layers)
            groups.setdefault(key, []).append(leaf)
        scale = min(1.0, _MAX_PIXELS / max(*page.get_size(), 1))
        for group in groups.values():
            # Drawn alone on an empty page, in black whatever their colour, texts that are shown leave a trace.
            for leaf in group:
                raw.FPDFPageObj_SetIsActive(leaf.item, True)
                raw.FPDFPageObj_SetFillColor(leaf.item, 0, 0, 0, 255)
                raw.FPDFTextObj_SetTextRenderMode(leaf.item, raw.FPDF_TEXTRENDERMODE_FILL)
            with closing(page.render(scale=scale, grayscale=True)) as bitmap:
                is_drawn = bytes(bitmap.buffer).translate(None, _WHITE) != b""
            for leaf in group:
                raw.FPDFPageObj_SetIsActive(leaf.item, False)
            if not is_drawn:
                hidden += group
        for leaf in leaves:
            raw.FPDFPageObj_SetIsActive(leaf.item, True)
    # Where a drawing or a condition hides a text, it is not known by which of the layers.
    names = {name for leaf in hidden for name in leaf.layers & layers.off or layers.off}
    is_left_out = False
    for name in sorted(names):
        is_left_out = parts.leaves_out(f"layer {name}")
    for leaf in hidden if is_left_out else ():
        is_of_page = leaf.drawing is None
        remove = raw.FPDFPage_RemoveObject if is_of_page else raw.FPDFFormObj_RemoveObject
        if remove(page.raw if is_of_page else leaf.drawing, leaf.item):
            raw.FPDFPageObj_Destroy(leaf.item)


def _leaves(
    item: Any, raw: Any, number: int, drawing: Any = None, layers: frozenset[str] = frozenset(), depth: int = 0
) -> Iterator[_Leaf]:
    buffer, size = (ctypes.c_ushort * 400)(), ctypes.c_ulong()
    room = ctypes.sizeof(buffer)
    for at in range(raw.FPDFPageObj_CountMarks(item)):
        mark = raw.FPDFPageObj_GetMark(item, at)
        is_marked = raw.FPDFPageObjMark_GetName(mark, buffer, room, size)
        if is_marked and bytes(buffer)[: size.value].decode("utf-16-le", "replace").strip("\0") == "OC":
            # Without a name it is a condition.
            is_named = raw.FPDFPageObjMark_GetParamStringValue(mark, b"Name", buffer, room, size)
            name = bytes(buffer)[: size.value].decode("utf-16-le", "replace").strip("\0") if is_named else ""
            layers |= {name}
    if raw.FPDFPageObj_GetType(item) != raw.FPDF_PAGEOBJ_FORM:
        yield _Leaf(item, layers, drawing, number)
    elif depth < _MAX_DEPTH:
        for at in range(raw.FPDFFormObj_CountObjects(item)):
            yield from _leaves(raw.FPDFFormObj_GetObject(item, at), raw, number, item, layers, depth + 1)
