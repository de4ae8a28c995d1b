"""Plain text -> paragraphs, and joining of wrapped lines, which other formats share.

Blank lines separate paragraphs. Lines wrapped at a fixed width are joined: without a space between Japanese or Chinese
characters, without the hyphen of a divided Latin word, otherwise with a space. Lines that end at will (poems,
addresses, logs) stay lines.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice

from mcp_servers.knowledge.types import MAX_PASSAGES, Passage

# Kana, kanji, their punctuation and full-width forms; not Hangul, which uses spaces.
CJK = (
    "\u2e80-\u303f\u3040-\u30ff\u3100-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uffa0"
    "\U00020000-\U0003134f"
)
_IS_CJK = re.compile(f"[{CJK}]")
_HYPHENATED = re.compile(r"[^\W\d_][-\u2010\u00ad\u0002\ufffe]$")
_LOWER = re.compile(r"[a-zà-öø-ÿß]")
# Inserted by text extraction where a word was divided.
SOFT_HYPHENS = "\u00ad\u0002\ufffe"

SENTENCE_END = re.compile(r"""[。．！？!?｡][」』）)】〉》”"’]*$|[.:：;；][”"’)]*$""")
_LIST_ITEM = re.compile(
    r"\s*(?:[-*+•・●○◎■□◆◇▪▶※→]|[①-⑳]|[(（]?(?:\d{1,3}|[一二三四五六七八九十]{1,3}|[a-zA-Zア-ン])(?:[)）．]|[.、](?!\d)))"
)


def is_cjk(character: str) -> bool:
    """True for characters that are not separated by spaces."""
    return _IS_CJK.match(character) is not None


def is_list_item(line: str) -> bool:
    """True if a line begins with a bullet or number."""
    return _LIST_ITEM.match(line) is not None


def ends_sentence(text: str) -> bool:
    """True if a line may end here without being full."""
    return SENTENCE_END.search(text.rstrip()) is not None


def join(before: str, after: str) -> str:
    """Join two lines of a paragraph."""
    before, after = before.rstrip(), after.lstrip()
    if not before or not after:
        return before + after
    if _HYPHENATED.search(before) and _LOWER.match(after):
        return before[:-1] + after
    before, after = _without_soft_hyphens(before), _without_soft_hyphens(after)
    if before and after and is_cjk(before[-1]) and is_cjk(after[0]):
        return before + after
    return f"{before} {after}"


def join_lines(lines: Iterable[str]) -> str:
    """Join all lines of a paragraph."""
    text, tail = list[str](), ""
    for line in lines:
        # The next join needs only the end: long paragraphs are not copied per line.
        joined = join(tail, line.strip())
        keep = max(0, len(joined) - 2)
        text.append(joined[:keep])
        tail = joined[keep:]
    return _without_soft_hyphens("".join(text) + tail)


def _without_soft_hyphens(text: str) -> str:
    # str.translate takes fifty times as long for Japanese.
    for character in SOFT_HYPHENS:
        text = text.replace(character, "")
    return text


_BLANK = re.compile(r"\n[ \t\u3000]*\n")
# Text outside this range is not wrapped; a line is full if the next word would not have fitted.
_MAX_COLUMNS, _MIN_COLUMNS = 120, 40
_FULL = 0.8
# Longer blocks are not examined.
_MAX_BLOCK = 200_000


def read_plain(text: str) -> list[Passage]:
    """Return the paragraphs of a text."""
    return [Passage(unwrap(block)) for block in islice(blocks(text), 2 * MAX_PASSAGES)]


def blocks(text: str) -> Iterator[str]:
    """Yield the text between blank lines."""
    text, start = text.replace("\f", "\n\n"), 0
    while start <= len(text):
        match = _BLANK.search(text, start)
        block = text[start : match.start() if match else None].strip("\n")
        if block.strip():
            yield block.rstrip()
        start = match.end() if match else len(text) + 1


def unwrap(block: str) -> str:
    """Join the lines of a block that were wrapped at a fixed width."""
    lines = block.split("\n")
    if len(lines) == 1 or len(block) > _MAX_BLOCK:
        return block.strip()
    # In half-width columns.
    widths: list[int] = []
    for line in map(str.rstrip, lines):
        kinds = [] if line.isascii() else list(map(unicodedata.east_asian_width, line))
        widths.append(len(line) + kinds.count("W") + kinds.count("F"))
    widest = max(widths)
    if not _MIN_COLUMNS <= widest <= _MAX_COLUMNS:
        return block.strip()
    paragraphs: list[list[str]] = [[lines[0]]]
    for before, width, line in zip(lines, widths, lines[1:], strict=False):
        is_full = width >= widest * _FULL
        starts_anew = line[:1].isspace() or line[:1] == "\u3000" or is_list_item(line)
        if is_full and not starts_anew and not (ends_sentence(before) and width < widest - 2):
            paragraphs[-1].append(line)
        else:
            paragraphs.append([line])
    return "\n".join(join_lines(paragraph) for paragraph in paragraphs).strip()
