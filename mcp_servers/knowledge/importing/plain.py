"""Plain text -> its paragraphs.

Blank lines part paragraphs. Inside one, lines that somebody's program broke at a fixed width are joined again; lines
that end where they like (a poem, an address, a log) stay lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcp_servers.knowledge.importing.joining import columns, ends_sentence, is_list_item, join_lines
from mcp_servers.knowledge.values import Passage

_BLANK = re.compile(r"\n[ \t\u3000]*\n")
# Wider lines were broken by no program; and a line is full when the next word would not have fitted.
_WIDEST_COLUMNS, _FEWEST_COLUMNS = 120, 40
_FULL = 0.8
# A wrapped block longer than this is not looked at in detail.
_LONGEST_BLOCK = 200_000


def read_plain(text: str) -> list[Passage]:
    """The paragraphs of a text."""
    return [Passage(unwrapped(block)) for block in blocks(text)]


def blocks(text: str) -> Iterator[str]:
    """What stands between blank lines, without them."""
    for block in _BLANK.split(text.replace("\f", "\n\n")):
        block = block.strip("\n")
        if block.strip():
            yield block.rstrip()


def unwrapped(block: str) -> str:
    """A block with the lines joined that were broken at a fixed width."""
    lines = block.split("\n")
    if len(lines) == 1 or len(block) > _LONGEST_BLOCK:
        return block.strip()
    widths = [columns(line.rstrip()) for line in lines]
    widest = max(widths)
    if not _FEWEST_COLUMNS <= widest <= _WIDEST_COLUMNS:
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
