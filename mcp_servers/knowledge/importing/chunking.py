"""Passages -> chunks: what a search finds and returns as one.

Chunks follow the document: one never crosses a heading or a page, begins with a paragraph where it can, and is filled
with whole paragraphs up to its size. A paragraph stays whole up to one and a half times the size, a table or a piece of
code up to twice; then the one is cut behind sentences, the other between lines, a table with its first row repeated.
The same passages give the same chunks.

Sizes are counted in shares of a full chunk, so that text in two languages is measured fairly. Measured on Japanese
articles, paragraphs merged up to 500 characters are found best, and an overlap hardly helps (hit@1 +2 points on chunks
that ignore paragraphs, nothing on chunks that follow them): it is off. Abstracts of 1,300 letters (SciFact) are found
worse in parts: .663 nDCG@10 with paragraphs cut at 1,300, .679 with these limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from mcp_servers.knowledge.importing.documents import is_table
from mcp_servers.knowledge.types import NewChunk, Passage

# A Japanese full stop with its closing brackets, or a Latin one before a space and no small letter; a line's end.
_SENTENCE_END = re.compile(r"[。！？｡][」』）)】〉》”’]*\s*|[.!?．][”\"’)]*\s+(?![a-z])|\n")
_CLAUSE_END = re.compile(r"[、，,;:]\s*|\s+")


@dataclass(frozen=True)
class ChunkLimits:
    """How large chunks are.

    Args:
        cjk_characters: a full chunk of Japanese; 500 was measured best.
        latin_characters: a full chunk of anything else.
        paragraph: how many times larger a single paragraph may be before it is cut.
        whole: how many times larger a table or a piece of code may be before it is cut.
        overlap: the share of a chunk that is repeated in the next of the same section, in whole sentences; 0 to 0.5.
    """

    cjk_characters: int = 500
    latin_characters: int = 1800
    paragraph: float = 1.5
    whole: float = 2.0
    overlap: float = 0.0


DEFAULT_LIMITS = ChunkLimits()


def chunk_passages(passages: Iterable[Passage], limits: ChunkLimits = DEFAULT_LIMITS) -> list[NewChunk]:
    """Cut a document.

    Args:
        passages: in reading order.
        limits: how large chunks are.
    """
    chunks: list[NewChunk] = []
    for (headings, page), section in groupby(passages, key=lambda passage: (passage.headings, passage.page)):
        texts = _filled(_pieces(section, limits), limits)
        chunks += [NewChunk(text, headings, page) for text in texts if text]
    return chunks


class _Piece(NamedTuple):
    """What is not cut further: a paragraph, a sentence of a long one, or a part of a table or of code."""

    text: str
    share: float
    is_alone: bool = False


def _pieces(passages: Iterable[Passage], limits: ChunkLimits) -> Iterator[_Piece]:
    for passage in passages:
        text = passage.text.strip("\n") + "\n"
        share = _share(text, limits)
        if passage.is_atomic:
            yield from _whole_pieces(text, share, limits)
        elif share <= limits.paragraph:
            yield _Piece(text, share, is_alone=share > 1)
        else:
            yield from (_Piece(part, _share(part, limits)) for part in _sentences(text, limits))


def _whole_pieces(text: str, share: float, limits: ChunkLimits) -> Iterator[_Piece]:
    if share <= limits.whole:
        yield _Piece(text, share, is_alone=share > 1)
        return
    head, _, rows = text.partition("\n")
    repeated = f"{head}\n" if is_table(text) and _share(head, limits) < 1 / 2 else ""
    room = 1 - _share(repeated, limits)
    lines = (_Piece(line, _share(line, limits)) for line in _lines(rows if repeated else text, limits, room))
    for part in _filled(lines, limits, room):
        yield _Piece(f"{repeated}{part}\n", 1, is_alone=True)


def _filled(pieces: Iterable[_Piece], limits: ChunkLimits, room: float = 1) -> Iterator[str]:
    """Texts of one chunk each, of as many pieces as fit."""
    current: list[_Piece] = []
    filled = 0.0
    for piece in pieces:
        if current and (piece.is_alone or filled + piece.share > room):
            yield _text(current)
            current = [] if piece.is_alone else _overlapping(current, limits, room - piece.share)
            filled = sum(each.share for each in current)
        current.append(piece)
        filled += piece.share
        if piece.is_alone:
            yield _text(current)
            current, filled = [], 0.0
    if current:
        yield _text(current)


def _text(pieces: Sequence[_Piece]) -> str:
    return "".join(piece.text for piece in pieces).strip("\n").rstrip()


def _overlapping(pieces: Sequence[_Piece], limits: ChunkLimits, room: float) -> list[_Piece]:
    """The last sentences of a chunk that begin the next."""
    repeated_sentences: list[_Piece] = []
    if limits.overlap <= 0:
        return repeated_sentences
    left = min(limits.overlap, 0.5, room)
    sentences = [_Piece(text, _share(text, limits)) for piece in pieces for text in _split(_SENTENCE_END, piece.text)]
    for sentence in reversed(sentences):
        left -= sentence.share
        if left < 0:
            break
        repeated_sentences.insert(0, sentence)
    return repeated_sentences


def _sentences(text: str, limits: ChunkLimits) -> Iterator[str]:
    """The sentences of a paragraph; those that fill more than a chunk, in clauses, then in characters."""
    for sentence in _split(_SENTENCE_END, text):
        if _share(sentence, limits) <= 1:
            yield sentence
            continue
        for clause in _split(_CLAUSE_END, sentence):
            yield from _parts(clause, limits, 1)


def _lines(text: str, limits: ChunkLimits, room: float) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        yield from _parts(line, limits, room)


def _parts(text: str, limits: ChunkLimits, room: float) -> Iterator[str]:
    """A text without any place to cut it."""
    if _share(text, limits) <= room:
        yield text
        return
    # So many characters fit whatever they are.
    size = max(1, int(min(limits.cjk_characters, limits.latin_characters) * room))
    yield from (text[start : start + size] for start in range(0, len(text), size))


def _split(end: re.Pattern[str], text: str) -> Iterator[str]:
    """The parts of a text, each with the end that it has."""
    start = 0
    for found in end.finditer(text):
        yield text[start : found.end()]
        start = found.end()
    if start < len(text):
        yield text[start:]


def _share(text: str, limits: ChunkLimits) -> float:
    """How much of a full chunk a text fills; 1 is all of it."""
    # UTF-8 needs two bytes more for kana and kanji, none for ASCII: a count that is exact enough, and quick.
    wide = (len(text.encode("utf-8", errors="replace")) - len(text)) // 2
    return wide / limits.cjk_characters + (len(text) - wide) / limits.latin_characters
