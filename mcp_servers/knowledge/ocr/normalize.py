"""Correction of misread long vowel marks for normalize_ocr_text: by rules, with a model where these are unsure.

The model gets short excerpts, one per line, and writes them again. A line of the answer is accepted only if it differs
from its excerpt at the uncertain positions alone, each time in one character: ー, a dash or a katakana (キャリ- may be
キャリア). All other lines are discarded, so neither the model nor instructions in the text can change anything else.

``NormalizedText.status`` tells the source of the result:

    success                       decided by the rules, or by the model at positions where they are unsure
    LLM service unavailable: …    the model did not answer; result of the rules

``unsure`` has the positions that the rules decided although they are unsure, because there is no model, or its answer
was unusable.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mcp_servers.knowledge.errors import ModelServiceUnavailableError, TextTooLongError
from mcp_servers.knowledge.ocr.rules import (
    HALF_LONG,
    LABEL,
    LONG,
    decisions,
    is_mark,
    long_mark,
    replace_characters,
)

INSTRUCTIONS = (
    "次の各行はOCRで読み取ったテキストです。カタカナの長音符（ー）がハイフンや漢数字の一に誤認識されている箇所を、"
    "文脈から判断して長音符（ー）に直してください。語と語をつなぐハイフン、型番、番号はそのまま残してください。"
    "ほかの文字は一切変えず、行の数と順序を保ち、直した行だけを出力してください。説明は不要です。"
)
_CONTEXT = 30
# Limits the length of the answer, which the caller waits for.
_MAX_PLACES = 40
_NUMBERING = re.compile(r"\s*(?:[-*•]\s+|\d+[.):：．]\s*)")
_KATAKANA = re.compile("[ァ-ヴｦ-ﾟ]")


# A language model for uncertain positions: returns its answer to a system and a user message, or raises
# ModelServiceUnavailableError.
Judge: TypeAlias = Callable[[str, str], Awaitable[str]]


@dataclass(frozen=True)
class Excerpt:
    """Part of one line of the text with uncertain positions."""

    start: int  # index in the text
    text: str  # certain positions are already corrected
    places: tuple[int, ...]  # indices in the text


def excerpts(text: str, positions: Sequence[int]) -> list[Excerpt]:
    """Return excerpts around positions; neighbouring positions share one."""
    excerpt_list: list[Excerpt] = []
    for position in positions[:_MAX_PLACES]:
        start = max(text.rfind("\n", 0, position) + 1, position - _CONTEXT)
        line_end = text.find("\n", position)
        end = min(len(text) if line_end < 0 else line_end, position + 1 + _CONTEXT)
        last = excerpt_list[-1] if excerpt_list else None
        if last is not None and start < last.start + len(last.text):
            excerpt_list[-1] = Excerpt(last.start, text[last.start : end], (*last.places, position))
        else:
            excerpt_list.append(Excerpt(start, text[start:end], (position,)))
    return excerpt_list


def parse_answer(excerpts_sent: Sequence[Excerpt], answer: str) -> Mapping[int, str]:
    """Return position -> character of the accepted lines of an answer."""
    lines = answer.splitlines()
    characters: dict[int, str] = {}
    for excerpt in excerpts_sent:
        for number, line in enumerate(lines):
            judged = _judge_line(excerpt, line)
            if judged is not None:
                characters |= judged
                # In order, because two excerpts may be equal.
                lines = lines[number + 1 :]
                break
    return characters


def _judge_line(excerpt: Excerpt, line: str) -> Mapping[int, str] | None:
    """Return the characters of a line at the excerpt's positions, or None if it is another line."""
    bare = _NUMBERING.sub("", line, count=1).strip()
    for candidate in (line, line.strip(), bare, bare.strip("「」\"'`")):
        if len(candidate) != len(excerpt.text):
            continue
        pairs = zip(excerpt.text, candidate, strict=True)
        changed = {excerpt.start + at for at, (before, after) in enumerate(pairs) if before != after}
        if changed <= set(excerpt.places):
            judged: dict[int, str] = {}
            for position in excerpt.places:
                at = position - excerpt.start
                if candidate[at] in {LONG, HALF_LONG}:
                    # In the width of its neighbour.
                    judged[position] = long_mark(excerpt.text[at - 1])
                elif is_mark(candidate[at]):
                    # Any dash means the original mark.
                    judged[position] = excerpt.text[at]
                elif _KATAKANA.match(candidate[at]):
                    judged[position] = candidate[at]
            return judged
    return None


MAX_CHARACTERS = 10_000
_SUCCESS = "success"


@dataclass(frozen=True)
class NormalizedText:
    """An OCR text, its correction and the source of the result."""

    original_text: str
    normalized_text: str  # same length
    status: str = _SUCCESS
    unsure: tuple[int, ...] = ()  # uncertain positions that no model decided


async def normalize(text: str, judge: Judge | None = None) -> NormalizedText:
    """Correct misread long vowel marks of at most 10,000 characters; ``judge`` decides uncertain positions."""
    if len(text) > MAX_CHARACTERS:
        raise TextTooLongError(len(text), MAX_CHARACTERS)
    decided = decisions(text)
    unsure = tuple(decision.position for decision in decided if not decision.is_sure)
    by_rules = replace_characters(text, {decision.position: decision.character for decision in decided})
    if not unsure:
        return NormalizedText(text, by_rules)
    if judge is None:
        return NormalizedText(text, by_rules, unsure=unsure)
    unsure_excerpts = excerpts(replace_characters(by_rules, {position: text[position] for position in unsure}), unsure)
    try:
        answer = await judge(INSTRUCTIONS, "\n".join(excerpt.text for excerpt in unsure_excerpts))
    except ModelServiceUnavailableError as problem:
        return NormalizedText(text, by_rules, f"{problem.words}; decided by rules alone", unsure)
    judged = {
        position: character
        for position, character in parse_answer(unsure_excerpts, answer).items()
        # If only the letter is uncertain, an unchanged dash is not an answer.
        if character != text[position] or LABEL.match(text, position + 1)
    }
    undecided = tuple(position for position in unsure if position not in judged)
    return NormalizedText(text, replace_characters(by_rules, judged), unsure=undecided)
