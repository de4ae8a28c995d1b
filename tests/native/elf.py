"""Reads what a shared library exports from its bytes, because a bare machine has no ``nm``.

Knows just enough of ELF for this: little-endian, 64 bits, section headers present.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_SHT_STRTAB, _SHT_DYNAMIC, _SHT_DYNSYM = 3, 6, 11
_DT_SONAME = 14
_UNDEFINED = 0


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def _sections(data: bytes) -> list[_Section]:
    assert data[:6] == b"\x7fELF\x02\x01", "a 64-bit little-endian ELF file"
    table, size, count = struct.unpack_from("<Q10xHH", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3A)
    found: list[_Section] = []
    for index in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", data, table + index * size)
        found.append(_Section(kind, offset, length, link))
    return found


def _text(data: bytes, strings: _Section, at: int) -> str:
    start = strings.offset + at
    return data[start : data.index(b"\0", start)].decode()


def exported_names(library: Path) -> set[str]:
    """The names of the symbols that a program can find in the library."""
    data = library.read_bytes()
    sections = _sections(data)
    table = next(section for section in sections if section.kind == _SHT_DYNSYM)
    names: set[str] = set()
    for at in range(table.offset, table.offset + table.size, 24):
        name, _info, _other, where = struct.unpack_from("<IBBH", data, at)
        if where != _UNDEFINED:
            names.add(_text(data, sections[table.link], name))
    return names


def soname(library: Path) -> str | None:
    """The name that programs linked with the library will ask for."""
    data = library.read_bytes()
    sections = _sections(data)
    dynamic = next(section for section in sections if section.kind == _SHT_DYNAMIC)
    for at in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
        tag, value = struct.unpack_from("<qQ", data, at)
        if tag == _DT_SONAME:
            return _text(data, sections[dynamic.link], value)
    return None
