r"""Rich Text (rtf) -> paragraphs and rows of tables; footnotes and comments follow their paragraph.

Characters outside ASCII are bytes in the charset of their font, or units of UTF-16 (``\u``), each with a fallback that
is passed over. Groups that are not text (fonts, styles, pictures) are left out. A brace too many does not end the
document.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp_servers.knowledge.importing.documents import CELL, HiddenParts
from mcp_servers.knowledge.importing.equations import field_signs, raised_mark

_TOKEN = re.compile(
    r"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n\0]+|([^\\{}\r\n\0]+)"
)
# ``left_out``: groups whose content is no text, as are those that begin with \* and are in no other list. The text of
# ``aside`` follows the paragraph that it is in, except instructions of fields; that of ``running`` the document.
_TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("rich_text.json").read_text("utf-8"))
_LEFT_OUT, _ASIDE, _RUNNING = (frozenset[str](_TABLES[name]) for name in ("left_out", "aside", "running"))
_KNOWN = frozenset[str](_TABLES["known"]) | _ASIDE | _RUNNING
_SIGNS: dict[str, str] = _TABLES["signs"]
_CHARSETS: dict[str, str] = _TABLES["charsets"]
# Word -> the field of the group that it sets, and to what; a word with 0 takes it back.
_FORMATS: dict[str, tuple[str, bool | str]] = {
    "v": ("is_hidden", True),
    "deleted": ("is_deleted", True),
    "super": ("raised", "super"),
    "up": ("raised", "super"),
    "sub": ("raised", "sub"),
    "dn": ("raised", "sub"),
    "nosupersub": ("raised", ""),
}
_SYMBOLS = {"~": "\xa0", "_": "‑", "\n": "\n", "\r": "\n", "{": "{", "}": "}", "\\": "\\"}
_FONT = re.compile(r"\\f(\d+)(?:(?!\\f\d)[^;]){0,300}?\\fcharset(\d+)")
_BINARY = re.compile(r"\\bin(\d{1,9}) ?")


@dataclass(frozen=True)
class _Group:
    """State of the text in one pair of braces."""

    is_left_out: bool = False
    is_hidden: bool = False
    is_deleted: bool = False  # by a change that is recorded
    skipped: int = 1  # characters of the fallback after \\u
    font: str = ""
    raised: str = ""  # ``super`` or ``sub``
    aside: str = ""  # the destination whose text does not belong to the line
    is_new: bool = True  # none of its words was read


def rich_text(content: bytes, hidden: HiddenParts) -> str:
    """Return the text, with `` | `` between the cells of a table."""
    source = content.decode("latin-1")
    parts, start = list[str](), 0
    while match := _BINARY.search(source, start):
        parts.append(source[start : match.start()])
        start = match.end() + int(match[1])
    source = "".join(parts) + source[start:]
    return _RichTextReader(source, hidden).read()


class _RichTextReader:
    def __init__(self, source: str, hidden: HiddenParts) -> None:
        self._source = source
        self._hidden = hidden
        self._charsets = {font: _CHARSETS.get(charset, "") for font, charset in _FONT.findall(source[:200_000])}
        self._codepage: str = "cp1252"
        self._default_font: str = ""
        self._group: _Group = _Group()
        self._outer: list[_Group] = []
        self._line: list[str] = []
        self._text: list[str] = []
        # Texts next to the line, the innermost last, and those that are complete.
        self._aside: list[list[str]] = []
        self._notes: list[str] = []
        self._running: dict[str, None] = {}
        self._bytes = bytearray()
        self._units = bytearray()
        self._skip: int = 0
        self._raised = ""  # how the last text of the line stands
        self._row: int | None = None  # of the lines before the open row of a table

    def read(self) -> str:
        for match in _TOKEN.finditer(self._source):
            word, number, byte, symbol, brace, text = match.groups()
            if brace == "}" and len(self._outer) <= 1 and self._source.find("}", match.end()) < 0:
                # What follows the document is not one of it.
                break
            if text and not (text := self._without_skipped(text)):
                continue
            if text and self._is_divided():
                # The second byte of a letter may be one of ASCII.
                self._bytes.append(ord(text[0]))
                text = text[1:]
            elif symbol in {"\\", "{", "}"} and self._is_divided():
                self._bytes.append(ord(symbol))
                continue
            # Halves of a letter in Unicode stay together; bytes before one are separate letters.
            if byte is None and (self._bytes or word not in {"u", "uc"}):
                self._end_characters()
            if word:
                self._read_word(word, int(number) if number else None)
            elif byte is not None:
                self._end_units()
                if self._skip:
                    self._skip -= 1
                else:
                    self._bytes.append(int(byte, 16))
            elif symbol is not None:
                if symbol == "*":
                    # Left out until a word says that it is known.
                    self._group = replace(self._group, is_left_out=True)
                else:
                    self._skip = 0
                    self._add(_SYMBOLS.get(symbol, ""))
            elif brace:
                self._read_brace(brace)
            elif text:
                if text.isascii():
                    self._add(text)
                else:
                    self._bytes += text.encode("latin-1")
        self._end_characters()
        self._end_line()
        return "".join([*self._text, *(f"\n\n{text}" for text in self._running)])

    def _read_brace(self, brace: str) -> None:
        self._skip = 0
        if brace == "{":
            self._outer.append(self._group)
            self._group = replace(self._group, is_new=True)
            return
        ended = self._group
        # A brace too many ends nothing.
        self._group = self._outer.pop() if self._outer else ended
        if ended.aside and ended.aside != self._group.aside and self._aside:
            text = "".join(self._aside.pop()).strip()
            if ended.aside == "fldinst":
                # Only a field of signs has its text there.
                self._add(field_signs(text))
            elif text and ended.aside in _RUNNING:
                self._running[text] = None
            elif text:
                self._notes.append(text)

    def _read_word(self, word: str, number: int | None) -> None:
        group, is_first = self._group, self._group.is_new
        self._group = group = replace(group, is_new=False)
        outer = self._outer[-1] if self._outer else group
        if word in _LEFT_OUT:
            self._group = replace(group, is_left_out=True)
        elif word in _KNOWN and is_first:
            # The group around the form in Unicode leaves out that for older programs.
            around = self._outer[-2] if word == "ud" and len(self._outer) > 1 else outer
            self._group = group = replace(group, is_left_out=around.is_left_out)
        if (word in _ASIDE or word in _RUNNING) and is_first and not self._group.is_left_out:
            self._group = replace(self._group, aside=word)
            self._aside.append([])
        elif word == "upr":
            self._group = replace(group, is_left_out=True)
        elif word in _FORMATS:
            name, value = _FORMATS[word]
            self._group = replace(group, **{name: type(value)() if number == 0 else value})
        elif word == "plain":
            self._group = replace(group, is_hidden=False, is_deleted=False, raised="", font=self._default_font)
        elif word == "trowd":
            self._row = len(self._text)
        elif word == "u" and number is not None:
            self._units += (number % 0x10000).to_bytes(2, "little")
            self._skip = group.skipped
        elif word == "uc" and number is not None:
            self._group = replace(group, skipped=number)
        else:
            self._skip = 0
            if word == "f" and number is not None:
                self._group = replace(self._group, font=str(number))
            elif word == "deff" and number is not None:
                self._default_font = str(number)
                self._group = replace(self._group, font=self._default_font)
            elif word == "ansicpg" and number:
                self._codepage = f"cp{number}" if number != 65001 else "utf-8"
            elif word == "mac":
                self._codepage = "mac_roman"
            elif word in _SIGNS:
                self._add(_SIGNS[word])

    def _without_skipped(self, text: str) -> str:
        """Return a text without the characters in place of a letter in Unicode before it."""
        skipped = min(self._skip, len(text))
        self._skip -= skipped
        return text[skipped:]

    def _is_divided(self) -> bool:
        """True if the last byte is the first one of a letter of two bytes."""
        if not self._bytes:
            return False
        try:
            bytes(self._bytes).decode(self._charset())
        except UnicodeDecodeError as error:
            return error.end == len(self._bytes) and error.start == error.end - 1
        return False

    def _charset(self) -> str:
        name = self._charsets.get(self._group.font) or self._codepage
        try:
            return codecs.lookup(name).name
        except LookupError:
            return "cp1252"

    def _end_units(self) -> None:
        units, self._units = bytes(self._units), bytearray()
        self._add(units.decode("utf-16-le", "replace"))

    def _end_characters(self) -> None:
        """Add the characters of which only the bytes were known: one may be divided between several words."""
        self._end_units()
        if self._bytes:
            content, self._bytes = bytes(self._bytes), bytearray()
            self._add(content.decode(self._charset(), "replace"))

    def _add(self, text: str) -> None:
        if not text or self._group.is_left_out or self._group.is_deleted:
            return
        if self._group.is_hidden and text.strip() and self._hidden.leaves_out("hidden text"):
            return
        if self._group.aside:
            self._aside[-1].append(text.replace("\v", "\t"))
            return
        if text == "\v" and not self._line and self._row is not None:
            # The paragraphs of the cell have ended before it.
            ended, self._text[self._row :] = "".join(self._text[self._row :]), []
            self._line.append(ended.strip("\n").replace("\n", " "))
        if self._group.raised not in {"", self._raised}:
            before = self._line[-1][-1:] if self._line else ""
            self._line.append(raised_mark(text, before, is_lowered=self._group.raised == "sub"))
        self._raised = self._group.raised
        self._line.append(text)
        if text.endswith("\n"):
            self._end_line()

    def _end_line(self) -> None:
        line, self._line, self._raised = "".join(self._line), [], ""
        self._text.append(line.rstrip("\v\n").replace("\v", CELL) + "\n" * line.count("\n") if "\v" in line else line)
        if self._notes and line.strip():
            notes, self._notes = self._notes, []
            self._text.append("".join(f"\n{note}\n\n" for note in notes))
