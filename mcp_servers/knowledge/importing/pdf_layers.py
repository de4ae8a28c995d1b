"""Layers of a PDF that are switched off, which PDFium does not tell: their names, and the objects of a page in them."""

from __future__ import annotations

import ctypes
import re
import zlib
from collections.abc import Iterator
from typing import Any

_STREAM = re.compile(rb"stream\r?\n")
_NUMBERS = re.compile(rb"/(N|First)\s+(\d{1,9})\b")
_REFERENCE = re.compile(rb"(\d{1,9})\s+\d{1,5}\s+R\b")
_OBJECT = re.compile(rb"(?<!\d)(\d{1,9})\s+\d{1,5}\s+obj\b(.{0,20000}?)endobj", re.DOTALL)
_NAME = re.compile(rb"/Name\s*(?:\(((?:[^()\\]|\\.){0,400})\)|<([0-9A-Fa-f\s]{0,800})>)", re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_SPACES = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_MAX_UNPACKED, _MAX_HEAD = 20_000_000, 1_000


def layers_off(content: bytes) -> frozenset[str]:
    """Return the names of the layers that the document's own view does not show."""
    streams = list(_object_streams(content))
    if b"/OCProperties" not in content and not any(b"/OCProperties" in part for _, part in streams):
        return frozenset()
    objects = {int(number): body for number, body in _OBJECT.findall(content)}
    for first, part in streams:
        pairs = re.findall(rb"(\d+)\s+(\d+)", part[:first])
        offsets = [*(int(offset) for _, offset in pairs), len(part) - first]
        for at, (number, _) in enumerate(pairs):
            objects.setdefault(int(number), part[first + offsets[at] : first + offsets[at + 1]])
    catalog = next((body for body in objects.values() if b"/OCProperties" in body), b"")
    view = _value(catalog[catalog.find(b"/OCProperties") + 13 :], objects)
    if b"/D" in view:
        off = _references(_value(_after(view, b"/D"), objects), b"/OFF", objects)
        if re.search(rb"/BaseState\s*/OFF", _value(_after(view, b"/D"), objects)):
            visible = _references(_value(_after(view, b"/D"), objects), b"/ON", objects)
            off = [number for number in _references(view, b"/OCGs", objects) if number not in visible]
        return frozenset(filter(None, (_name(objects.get(number, b"")) for number in off)))
    return frozenset()


def _object_streams(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the compressed objects, and where the first of them begins."""
    room = _MAX_UNPACKED
    for match in re.finditer(rb"/ObjStm\b", content):
        begin = _STREAM.search(content, match.end(), match.end() + _MAX_HEAD)
        if begin is None:
            continue
        head = content[max(content.rfind(b"obj", 0, match.start()), match.start() - _MAX_HEAD) : begin.start()]
        numbers = dict(_NUMBERS.findall(head))
        try:
            part = zlib.decompressobj().decompress(content[begin.end() : begin.end() + room], room)
        except zlib.error:
            continue
        room -= len(part)
        if b"First" in numbers:
            yield int(numbers[b"First"]), part
        if room <= 0:
            return


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


def remove_layers(page: Any, raw: Any, names: frozenset[str]) -> set[str]:
    """Remove the objects of a page that are in these layers; return the layers that it had."""
    removed: set[str] = set()
    for at in reversed(range(raw.FPDFPage_CountObjects(page.raw))):
        item = raw.FPDFPage_GetObject(page.raw, at)
        layers = {_layer(raw.FPDFPageObj_GetMark(item, mark), raw) for mark in range(raw.FPDFPageObj_CountMarks(item))}
        if layers & names and raw.FPDFPage_RemoveObject(page.raw, item):
            raw.FPDFPageObj_Destroy(item)
            removed |= layers & names
    return removed


def _layer(mark: Any, raw: Any) -> str:
    buffer, size = (ctypes.c_ushort * 400)(), ctypes.c_ulong()
    if not raw.FPDFPageObjMark_GetName(mark, buffer, ctypes.sizeof(buffer), size) or _text(buffer, size) != "OC":
        return ""
    is_named = raw.FPDFPageObjMark_GetParamStringValue(mark, b"Name", buffer, ctypes.sizeof(buffer), size)
    return _text(buffer, size) if is_named else ""


def _text(buffer: Any, size: Any) -> str:
    return bytes(buffer)[: size.value].decode("utf-16-le", "replace").strip("\0")
