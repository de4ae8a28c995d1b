"""What is spoken of a text: its sentences, without code, tables and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

# Sentences shorter than this go with the next one: a voice begins anew with each.
_LEAST_CHARS = 12
# Longer ones are cut at a comma or a space, so that the first sound does not wait.
MOST_CHARS = 240
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_TABLE_LINE = re.compile(r"^[ \t]*\|.*\|[ \t]*$", re.MULTILINE)
_MATHS = re.compile(r"\$\$.*?\$\$|\\\[.*?\\\]|\\\([^\n]*?\\\)", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])")
_NOTE = re.compile(r"[ \t]?\[\^?[0-9]{1,3}\]")
# Of ASCII, since Japanese may follow at once; a mark at its end is that of the sentence.
_URL = r"(?:https?://|\bwww\.)[!-;=?-~]*[A-Za-z0-9/#%&=+~_-]"
_ADDRESS = re.compile(rf"[ \t]*(?:<{_URL}>|\({_URL}\)|（{_URL}）|{_URL})", re.ASCII)
_LINE_BREAK = re.compile(r"<br[ \t]*/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^>\n]*>")
_LINE_MARKS = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+(?:\[[ xX]\][ \t]+)?|[・•][ \t]*|[0-9]{1,3}[.)][ \t]+)", re.MULTILINE
)
_RULE = re.compile(r"^[ \t]*(?:-{3,}|\*{3,}|_{3,})[ \t]*$", re.MULTILINE)
# Not the signs of 5*3 and 2**10.
_EMPHASIS = re.compile(r"(?<![0-9*])(\*\*|__|\*|~~|`)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
_SYMBOLS = (
    "\u20e3\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\ufe0f\u200d"
    "\U0001f000-\U0001faff\U000e0020-\U000e007f"
)
# It may stand for the mark at the end of a sentence; between words it is a space.
_EMOJI_BEFORE_MARK = re.compile(rf"[ \t]*[{_SYMBOLS}]+(?=[ \t]*(?:[。、！？.,!?）)」]|$))", re.MULTILINE)
_EMOJI = re.compile(f"[{_SYMBOLS}]+")
# The end of a sentence. Japanese marks end it at once, others before a space and no small letter; a quotation that ends
# goes on with hiragana: 「はい。」と言った。
_CLOSING = '」』）”’")'
_END = re.compile(
    rf"(?:[!?]*[。！？｡][。！？｡!?]*|[!?]+(?=[{_CLOSING}]*(?:\s*$|\s+[^\sa-z\U00010000-\U0010ffff]|[^\x00-\x7f」』）”’])))"
    rf"(?:[{_CLOSING}]+(?![ぁ-ん]))?(?![。！？｡!?{_CLOSING}])|"
    rf"(?<![0-9０-９])．|\.[{_CLOSING}]*(?=\s*$|\s+[^\sa-z\U00010000-\U0010ffff])|\n+"
)
_SHORT = re.compile(
    r"\b(?:[A-Za-z]|e\.g|i\.e|vs|cf|approx|No|Nos|pp|Dr|Mr|Ms|Mrs|Prof|St|Mt|Jr|Sr|Inc|Ltd|Co|Corp|Fig|Vol|Jan|Feb|Mar|"
    r"Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)$",
    re.ASCII,
)
_ENDS = frozenset('.!?:。！？：｡．…」』）”’")')
_BREAK = re.compile(r"[、，；：]\s*|\s+")


def sentences_of(text: str, most_chars: int = MOST_CHARS) -> Iterator[str]:
    """Yield the sentences of a Markdown text for a voice: short ones with their next, long ones in parts.

    Code, tables, formulas, addresses and marks are not read aloud.
    """
    for pattern in (_FENCE, _TABLE_LINE, _RULE):
        text = pattern.sub("\n", text)
    for pattern in (_MATHS, _PICTURE):
        text = pattern.sub(" ", text)
    text = _LINK.sub(r"\1", _LINE_MARKS.sub("", text))
    text = _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text))
    for pattern, words in ((_NOTE, ""), (_ADDRESS, ""), (_LINE_BREAK, " "), (_TAG, ""), (_EMOJI_BEFORE_MARK, "")):
        text = pattern.sub(words, text)
    spoken = re.sub(r"[ \t]+", " ", re.sub(r"\s*\n\s*", "\n", _EMOJI.sub(" ", text))).strip()
    finished: list[str] = []
    waiting = ""
    for start, end in pairwise([0, *_ends_of(spoken), len(spoken)]):
        sentence = spoken[start:end].strip()
        if not any(character.isalnum() for character in sentence):
            continue
        waiting += sentence
        if waiting[-1] in _ENDS and len(waiting) >= _LEAST_CHARS:
            finished.append(waiting)
            waiting = ""
        elif waiting[-1].isascii():
            waiting += " " if waiting[-1] in _ENDS else ", "
        elif waiting[-1] not in _ENDS:
            # An item of a list, or a heading: a voice pauses there.
            waiting += "、"
    if waiting := waiting.rstrip(" ,、"):
        full_stop = "" if waiting[-1] in _ENDS else "." if waiting[-1].isascii() else "。"
        finished.append(waiting + full_stop)
    for sentence in finished:
        while len(sentence) > most_chars:
            breaks = [match.end() for match in _BREAK.finditer(sentence, _LEAST_CHARS, most_chars)]
            at = breaks[-1] if breaks else most_chars
            yield sentence[:at].strip()
            sentence = sentence[at:].strip()
        if sentence:
            yield sentence


def whole_sentences(text: str) -> str:
    """Return the beginning of a text that still grows, up to the end of its last whole sentence."""
    # A block of code that is still open ends later.
    if text.count("```") % 2:
        text = text[: text.rindex("```")]
    # The next letter tells whether a mark ends its sentence.
    ends = [end for end in _ends_of(text) if text[end:].strip()]
    return text[: ends[-1]] if ends else ""


def _ends_of(text: str) -> list[int]:
    found = _END.finditer(text)
    return [
        each.end()
        for each in found
        if each[0][0] != "." or not _SHORT.search(text, max(0, each.start() - 8), each.start())
    ]
