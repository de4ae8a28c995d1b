"""What is spoken of a text: its sentences, without code, tables and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

# Sentences shorter than this go with the next one: a voice begins anew with each.
_LEAST_CHARS = 12
# Longer ones are cut at a comma or a space, so that the first sound does not wait.
_MOST_CHARS = 240
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_TABLE_LINE = re.compile(r"^[ \t]*\|.*\|[ \t]*$", re.MULTILINE)
_MATHS = re.compile(r"\$\$.*?\$\$|\\\[.*?\\\]", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])")
_ADDRESS = re.compile(r"<?https?://[^\s<>）」』、。]+>?")
_TAG = re.compile(r"</?[A-Za-z][^>\n]*>")
_LINE_MARKS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+|\d{1,3}[.)][ \t]+)", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*(?:-{3,}|\*{3,}|_{3,})[ \t]*$", re.MULTILINE)
_EMPHASIS = re.compile(r"(\*\*|__|\*|~~|`)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
_EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f\u200d]+")
# The end of a sentence: Japanese marks at once, others before a space; not inside 3.14, and not after e.g. or Dr.
_END = re.compile(
    r"(?<=[。！？!?])[」』）”’\")]*(?=[^。！？!?」』）”’\")]|$)|"
    r"(?<!\b[A-Z])(?<!\be\.g)(?<!\bi\.e)(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bvs)(?<!\bNo)(?<!\betc)\.(?=\s|$)|\n+"
)
_ENDS = frozenset('.!?:。！？：」』）”’")')
_BREAK = re.compile(r"[、，,;；:：]\s*|\s+")


def spoken_text(text: str) -> str:
    """Return a Markdown text without what is not read aloud: code, tables, formulas, addresses and marks."""
    for pattern in (_FENCE, _TABLE_LINE, _RULE):
        text = pattern.sub("\n", text)
    for pattern in (_MATHS, _PICTURE):
        text = pattern.sub(" ", text)
    text = _LINK.sub(r"\1", text)
    for pattern in (_ADDRESS, _TAG, _LINE_MARKS, _EMOJI):
        text = pattern.sub("", text)
    text = _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text))
    return re.sub(r"[ \t]+", " ", re.sub(r"\s*\n\s*", "\n", text)).strip()


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text for a voice: short ones with their next, long ones in parts."""
    waiting = ""
    for sentence in _split(spoken_text(text)):
        waiting += sentence
        if waiting[-1] in _ENDS and len(waiting) >= _LEAST_CHARS:
            yield from _parts_of(waiting)
            waiting = ""
        elif waiting[-1].isascii():
            waiting += " " if waiting[-1] in _ENDS else ", "
        elif waiting[-1] not in _ENDS:
            # An item of a list, or a heading: a voice pauses there.
            waiting += "、"
    if waiting := waiting.rstrip(" ,、"):
        end = "" if waiting[-1] in _ENDS else "." if waiting[-1].isascii() else "。"
        yield from _parts_of(waiting + end)


def whole_sentences(text: str) -> str:
    """Return the beginning of a text that still grows, up to the end of its last whole sentence."""
    # A block of code that is still open ends later.
    if text.count("```") % 2:
        text = text[: text.rindex("```")]
    ends = [match.end() for match in _END.finditer(text) if match.end() < len(text)]
    return text[: ends[-1]] if ends else ""


def _split(text: str) -> Iterator[str]:
    ends = [match.end() for match in _END.finditer(text)]
    for start, end in pairwise([0, *ends, len(text)]):
        sentence = text[start:end].strip()
        if any(character.isalnum() for character in sentence):
            yield sentence


def _parts_of(sentence: str) -> Iterator[str]:
    while len(sentence) > _MOST_CHARS:
        breaks = [match.end() for match in _BREAK.finditer(sentence, _LEAST_CHARS, _MOST_CHARS)]
        at = breaks[-1] if breaks else _MOST_CHARS
        yield sentence[:at].strip()
        sentence = sentence[at:].strip()
    if sentence:
        yield sentence
