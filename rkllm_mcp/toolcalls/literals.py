"""Values as programs write them: Python's literals, and Gemma's with delimiters around strings, become plain JSON.

Rules: ``true`` and ``True`` are the same, numbers may have zeros before them, unknown escapes stay as typed, a string
may hold raw line breaks. What is none of these is refused, or taken for text where ``bare_text`` allows it. Nesting is
bounded; every character is read once. Nothing here knows tools or calls.
"""

from __future__ import annotations

import re
from typing import Any

from rkllm_mcp.toolcalls.repair import MAX_DEPTH, SourceFloat, UnreadableError

_SPACE = re.compile(r"[\s\ufeff]*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?(?![\w.])", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,400}", re.ASCII)
_WORD = re.compile(r"[A-Za-z]+(?![\w.])")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_KEY = re.compile(r"[^\s\"'{}\[\](),:=<>][^\s\"'{}\[\](),:=<>]{0,255}")
_BARE = re.compile(r"[^,{}\[\]]+")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'", "/": "/", "\n": ""}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(.))", re.DOTALL)

_QUOTED = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
    '"""': re.compile(r'"{3}([^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*)"{3}', re.DOTALL),
    "'''": re.compile(r"'{3}([^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*)'{3}", re.DOTALL),
}

# How an unescaped quote inside a string is told from the one that ends it: what follows looks like more of a call.
_AFTER_STRING = re.compile(r"\s*(?:,\s*[A-Za-z_]\w*\s*=|\)\s*(?:[\]\n;,]|\Z))")
_NEXT_KEYWORD = re.compile(r"\s*,\s*[A-Za-z_]\w*\s*=")


class LiteralReader:
    """Reads values from a text, one after the other.

    Args:
        text: the text.
        delimiters: what may stand at both ends of a string beside quotes.
        bare_text: words without quotes are text, as a model leaves them out.
        raw_quotes: a string may hold its own quote unescaped, where only one place can end it.
    """

    def __init__(
        self, text: str, delimiters: tuple[str, ...] = (), *, bare_text: bool = False, raw_quotes: bool = False
    ) -> None:
        self.text = text
        self.at = 0
        self.repaired = False
        self.guessed = False
        self._delimiters = delimiters
        self._bare_text = bare_text
        self._raw_quotes = raw_quotes

    def skip_space(self) -> None:
        """Go on to the next character that is no white space."""
        found = _SPACE.match(self.text, self.at)
        self.at = self.at if found is None else found.end()

    def takes(self, token: str) -> bool:
        """Whether ``token`` comes next; it is read then, with the white space before it."""
        self.skip_space()
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        """Read ``token``, which may be missing at the end where bare text may be."""
        if self.takes(token):
            return
        if not self._bare_text or self.at < len(self.text):
            raise UnreadableError(f"'{token}' is missing")
        self.repaired = True

    def key(self, separator: str) -> str | None:
        """The key before ``separator``; None, and nothing read, when there is none."""
        self.skip_space()
        place = self.at
        mark = self._mark()
        if mark:
            name = self._delimited(mark) if mark in self._delimiters else self._quoted(mark)
        else:
            found = _KEY.match(self.text, self.at)
            name = "" if found is None else found.group()
            self.at += len(name)
        if name and self.takes(separator):
            return name
        self.at = place
        return None

    def value(self, depth: int = 0) -> Any:
        """The value that comes next.

        Raises:
            UnreadableError: there is none.
        """
        if depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH}")
        self.skip_space()
        mark = self._mark()
        if mark:
            return self._string(mark, depth)
        if self.takes("["):
            return self._items("]", depth)
        if self.takes("("):
            return self._items(")", depth)
        if self.takes("{"):
            return self.pairs("}", ":", depth)
        return self._word()

    def pairs(self, closer: str, separator: str, depth: int = 0) -> dict[str, Any]:
        """Keys and values up to ``closer``, which is read."""
        result: dict[str, Any] = {}
        while not self.takes(closer):
            key = self.key(separator)
            if key is None or key in result:
                raise UnreadableError("a value has no name" if key is None else f"'{key}' is given twice")
            result[key] = self.value(depth + 1)
            if not self.takes(","):
                self.expect(closer)
                break
        return result

    def _items(self, closer: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self.takes(closer):
            items.append(self.value(depth + 1))
            if not self.takes(","):
                self.expect(closer)
                break
        return items

    def _mark(self) -> str:
        """The quote or delimiter that stands here, if one does."""
        for mark in (*self._delimiters, '"""', "'''", '"', "'"):
            if self.text.startswith(mark, self.at):
                # Two quotes are an empty string, three and more a long one.
                return mark
        return ""

    def _string(self, mark: str, depth: int) -> str:
        if mark in self._delimiters:
            return self._delimited(mark)
        if self._raw_quotes and depth <= 1 and len(mark) == 1:
            return self._with_raw_quotes(mark)
        text = self._quoted(mark)
        # A delimiter that closes what a quote opened.
        self._skip_delimiters()
        return text

    def _delimited(self, mark: str) -> str:
        begin = self.at + len(mark)
        end = self.text.find(mark, begin)
        if end < 0:
            if not self._bare_text:
                raise UnreadableError("a string is not closed")
            # The delimiter was forgotten; the braces at the end are the call's.
            end = len(self.text.rstrip("}] \t\r\n"))
            self.at, self.repaired = end, True
            return self.text[begin:end]
        self.at = end + len(mark)
        return self.text[begin:end]

    def _quoted(self, mark: str) -> str:
        found = _QUOTED[mark].match(self.text, self.at)
        if found is None:
            raise UnreadableError("a string is not closed")
        self.at = found.end()
        return _unescaped(found.group(1))

    def _with_raw_quotes(self, mark: str) -> str:
        begin = at = self.at + 1
        ends: list[int] = []
        while (end := self.text.find(mark, at)) >= 0 and len(ends) < 2:
            at = end + 1
            if self.text[end - 1] != "\\" and _AFTER_STRING.match(self.text, at):
                ends.append(end)
                if _NEXT_KEYWORD.match(self.text, at):
                    break
        if len(ends) != 1:
            raise UnreadableError("a string holds quotes, and it is not clear which one ends it")
        text = self.text[begin : ends[0]]
        self.guessed = self.guessed or mark in text.replace(f"\\{mark}", "")
        self.at = ends[0] + 1
        return _unescaped(text)

    def _word(self) -> Any:
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            return int(number.group()) if _WHOLE.fullmatch(number.group()) else SourceFloat(number.group())
        word = _WORD.match(self.text, self.at)
        if word is not None and word.group() in _WORDS:
            self.at = word.end()
            return _WORDS[word.group()]
        bare = _BARE.match(self.text, self.at) if self._bare_text else None
        if bare is None or not bare.group().strip():
            raise UnreadableError("a value is missing or is not quoted")
        # A delimiter that was forgotten where the text begins still ends it.
        ends = [place for mark in self._delimiters if (place := bare.group().find(mark)) >= 0]
        text = bare.group()[: min(ends, default=None)]
        self.at, self.repaired = self.at + len(text), True
        self._skip_delimiters()
        return text.strip()

    def _skip_delimiters(self) -> None:
        while any(self.takes(stray) for stray in self._delimiters):
            self.repaired = True


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    two, four, eight, other = escape.groups()
    code = two or four or eight
    if code:
        return chr(int(code, 16))
    # A pattern's backslash, such as \d or \, stays as typed.
    return _ESCAPES.get(other, escape.group())
