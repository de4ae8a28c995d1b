"""Correction of misread long vowel marks for normalize_ocr_text: by rules, with a model where these are unsure.

``NormalizedText.status`` tells the source of the result:

    success                                   the rules are sure, or the model decided
    success (rules only: …)                   there is no model, or its answer was unusable for some positions
    LLM service unavailable: …                the model did not answer; result of the rules
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp_servers.knowledge.errors import ModelServiceUnavailableError, TextTooLongError
from mcp_servers.knowledge.ocr.judge import INSTRUCTIONS, Judge, excerpts, parse_answer
from mcp_servers.knowledge.ocr.rules import decisions, is_before_label, replace_characters

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
    unsure = tuple(each.position for each in decided if not each.is_sure)
    by_rules = replace_characters(text, {each.position: each.character for each in decided})
    if not unsure:
        return NormalizedText(text, by_rules)
    if judge is None:
        return NormalizedText(
            text,
            by_rules,
            f"{_SUCCESS} (rules only: a model would decide {len(unsure)} unsure place{'s'[: len(unsure) - 1]})",
            unsure,
        )
    asked = excerpts(replace_characters(by_rules, {position: text[position] for position in unsure}), unsure)
    try:
        answer = await judge.answer(INSTRUCTIONS, "\n".join(excerpt.text for excerpt in asked))
    except ModelServiceUnavailableError as problem:
        return NormalizedText(text, by_rules, f"{problem.words}; decided by rules alone", unsure)
    judged = {
        position: character
        for position, character in parse_answer(asked, answer).items()
        # If only the letter is uncertain, an unchanged dash is not an answer.
        if character != text[position] or is_before_label(text, position)
    }
    left = tuple(position for position in unsure if position not in judged)
    return NormalizedText(text, replace_characters(by_rules, judged), _status(len(left), len(unsure)), left)


def _status(left: int, asked: int) -> str:
    if not left:
        return _SUCCESS
    return f"{_SUCCESS} (rules only: the model's answer was not usable for {left} of {asked} unsure places)"
