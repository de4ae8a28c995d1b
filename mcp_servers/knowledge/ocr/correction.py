"""What normalize_ocr_text answers: the rules' text, and a language model's word where the rules are unsure of theirs.

The rules decide every place, sure or not, so there is always a text. ``status`` says how it came about:

    success                                   nobody had to be asked, nobody was there to ask, or the model decided
    success (rules only: …)                   the model answered, but of some places nothing that can be used
    LLM service unavailable: …                the model could not be asked; the text is the rules' own
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp_servers.knowledge.ocr.judge import INSTRUCTIONS, Judge, excerpts, verdicts
from mcp_servers.knowledge.ocr.letters import long_mark
from mcp_servers.knowledge.ocr.rules import OpenPlace, open_places, replaced
from mcp_servers.knowledge.problems import ModelServiceUnavailableError, TextTooLongError

MOST_CHARACTERS = 10_000
_SUCCESS = "success"


@dataclass(frozen=True)
class Normalized:
    """A text as a scanner read it, and corrected.

    Args:
        original_text: as given.
        normalized_text: of the same length.
        status: how it came about.
        unsure: positions that the rules decided without being sure, and nobody else did.
    """

    original_text: str
    normalized_text: str
    status: str = _SUCCESS
    unsure: tuple[int, ...] = ()


async def normalize(text: str, judge: Judge | None = None) -> Normalized:
    """Put misread long vowel marks right.

    Args:
        text: at most 10,000 characters.
        judge: asked about the places the rules are unsure of; without one they decide alone.

    Raises:
        TextTooLongError: there is more.
    """
    if len(text) > MOST_CHARACTERS:
        raise TextTooLongError(len(text), MOST_CHARACTERS)
    places = open_places(text)
    by_rules = replaced(text, _longs(text, places))
    open_to_doubt = {place.position: place for place in places if not place.is_sure}
    unsure = tuple(open_to_doubt)
    if judge is None or not unsure:
        return Normalized(text, by_rules, unsure=unsure)
    asked = excerpts(replaced(text, _longs(text, [place for place in places if place.is_sure])), unsure)
    try:
        answer = await judge.answer(INSTRUCTIONS, "\n".join(excerpt.text for excerpt in asked))
    except ModelServiceUnavailableError as problem:
        return Normalized(text, by_rules, f"{problem.words}; decided by rules alone", unsure)
    judged = {
        position: character
        for position, character in verdicts(asked, answer).items()
        # Where the rules only wonder which letter it was, a dash that is left as it was is no answer.
        if open_to_doubt[position].is_close or character != text[position]
    }
    left = tuple(position for position in unsure if position not in judged)
    return Normalized(text, replaced(by_rules, judged), _status(len(left), len(unsure)), left)


def _longs(text: str, places: list[OpenPlace]) -> dict[int, str]:
    return {place.position: long_mark(text[place.position - 1]) for place in places if place.is_long}


def _status(left: int, asked: int) -> str:
    if not left:
        return _SUCCESS
    return f"{_SUCCESS} (rules only: the model's answer was not usable for {left} of {asked} unsure places)"
