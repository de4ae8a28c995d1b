"""Correction of misread long vowel marks: by rules for indexes and queries, with a model for normalize_ocr_text.

Only open positions change (a single dash or 一 after katakana), one character for one; half-width katakana gets the
half-width mark. Corrected text stays unchanged, and the result is deterministic, because documents and queries both
pass through here.

The rules decide every position. ``NormalizedText.status`` tells the source of the result:

    success                                   no uncertain positions, no model, or the model decided
    success (rules only: …)                   the model's answer was unusable for some positions
    LLM service unavailable: …                the model did not answer; result of the rules
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mcp_servers.knowledge.errors import ModelServiceUnavailableError, TextTooLongError
from mcp_servers.knowledge.ocr.judge import INSTRUCTIONS, Judge, excerpts, parse_answer
from mcp_servers.knowledge.ocr.lexicon import LONG, KatakanaRun, Lexicon, default_lexicon, katakana_runs, long_mark
from mcp_servers.knowledge.ocr.scoring import long_mark_scores

# Shorter prefixes are common to many words by chance.
_MIN_PREFIX = 3
# Below this, a careful reader would consider the alternative (counted by bench/ocr.py).
_SURE = 4.0


@dataclass(frozen=True)
class UncertainPosition:
    """An open position and the decision of the rules."""

    position: int  # index in the text
    is_long: bool  # decided as ー
    margin: float  # log odds of the decision
    has_alternative: bool = False  # the text has a word with another letter here: キャリ- and キャリア

    @property
    def is_close(self) -> bool:
        """True if the margin is too small to be certain."""
        return self.margin < _SURE

    @property
    def is_sure(self) -> bool:
        """True if no model needs to be asked."""
        return not (self.is_close or self.has_alternative)


def correct_long_marks(text: str, lexicon: Lexicon | None = None) -> str:
    """Return ``text`` with misread long vowel marks corrected by rules."""
    corrections: dict[int, str] = {}
    for run in katakana_runs(text):
        for at in _long_positions(run, lexicon or default_lexicon()):
            position = run.places[at]
            corrections[position] = long_mark(text[position - 1])
    return replace_characters(text, corrections)


def uncertain_positions(text: str, lexicon: Lexicon | None = None) -> list[UncertainPosition]:
    """Return every open position of ``text`` with its decision, in order."""
    words = lexicon or default_lexicon()
    prefixes = _word_prefixes(text, words)
    return [place for run in katakana_runs(text) for place in _positions(run, words, prefixes)]


def replace_characters(text: str, changes: Mapping[int, str]) -> str:
    """Return ``text`` with the characters at some positions replaced."""
    if not changes:
        return text
    characters = list(text)
    for position, character in changes.items():
        characters[position] = character
    return "".join(characters)


def _long_positions(run: KatakanaRun, lexicon: Lexicon) -> Iterable[int]:
    # Shortcut for most runs: a listed word not followed by anything that needs a hyphen. The search gives the same
    # result more slowly.
    if run.letters in lexicon and (run.after == "other" or len(run.letters) - 1 not in run.marks):
        return run.marks
    return [at for at, score in long_mark_scores(run, lexicon).items() if score > 0]


def _positions(run: KatakanaRun, lexicon: Lexicon, prefixes: Collection[str]) -> Iterator[UncertainPosition]:
    for at, score in long_mark_scores(run, lexicon).items():
        ends_run = at + 1 == len(run.letters)
        has_alternative = score > 0 and ends_run and any(run.letters[start:at] in prefixes for start in range(at))
        yield UncertainPosition(run.places[at], score > 0, abs(score), has_alternative)


def _word_prefixes(text: str, lexicon: Lexicon) -> Collection[str]:
    """Return the listed words in ``text`` without their last letter."""
    return {
        text[at : end - 1]
        for at, letter in enumerate(text)
        if "ァ" <= letter <= "ヺ"
        for end in lexicon.words_at(text, at)
        if end - 1 - at >= _MIN_PREFIX and text[end - 1] != LONG
    }


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
    places = uncertain_positions(text)
    by_rules = replace_characters(text, _corrections(text, places))
    open_to_doubt = {place.position: place for place in places if not place.is_sure}
    unsure = tuple(open_to_doubt)
    if judge is None or not unsure:
        return NormalizedText(text, by_rules, unsure=unsure)
    asked = excerpts(replace_characters(text, _corrections(text, [place for place in places if place.is_sure])), unsure)
    try:
        answer = await judge.answer(INSTRUCTIONS, "\n".join(excerpt.text for excerpt in asked))
    except ModelServiceUnavailableError as problem:
        return NormalizedText(text, by_rules, f"{problem.words}; decided by rules alone", unsure)
    judged = {
        position: character
        for position, character in parse_answer(asked, answer).items()
        # If only the letter is uncertain, an unchanged dash is not an answer.
        if open_to_doubt[position].is_close or character != text[position]
    }
    left = tuple(position for position in unsure if position not in judged)
    return NormalizedText(text, replace_characters(by_rules, judged), _status(len(left), len(unsure)), left)


def _corrections(text: str, places: list[UncertainPosition]) -> dict[int, str]:
    return {place.position: long_mark(text[place.position - 1]) for place in places if place.is_long}


def _status(left: int, asked: int) -> str:
    if not left:
        return _SUCCESS
    return f"{_SUCCESS} (rules only: the model's answer was not usable for {left} of {asked} unsure places)"
