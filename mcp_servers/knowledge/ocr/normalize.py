"""A text -> the same text with ー for every dash that is likelier to be one; and the places where that is a guess.

Rules: characters change at open places only (a single dash, or 一, behind katakana), one for one; a corrected text is
corrected already; the same text always gives the same one, because an index and its queries go through here. Half-width
katakana gets the half-width mark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mcp_servers.knowledge.errors import ModelServiceUnavailableError, TextTooLongError
from mcp_servers.knowledge.ocr.judge import INSTRUCTIONS, Judge, excerpts, parse_answer
from mcp_servers.knowledge.ocr.lexicon import LONG, KatakanaRun, Lexicon, default_lexicon, katakana_runs, long_mark
from mcp_servers.knowledge.ocr.scoring import long_mark_scores

# A beginning shorter than this is common to many words by chance.
_MIN_PREFIX = 3
# Below this the other reading is one that a careful person would think of (bench/ocr.py shows how many places that is).
_SURE = 4.0


@dataclass(frozen=True)
class UncertainPosition:
    """A mark behind katakana, and what the rules make of it.

    Args:
        position: its index in the text.
        is_long: whether it is read as ー.
        margin: the natural logarithm of how much likelier that is than the other reading.
        has_rival: the text has a word with another letter there: キャリ- beside キャリア.
    """

    position: int
    is_long: bool
    margin: float
    has_alternative: bool = False

    @property
    def is_close(self) -> bool:
        """Whether the rules would hear of the other reading, whichever of the two it is."""
        return self.margin < _SURE

    @property
    def is_sure(self) -> bool:
        """Whether nobody needs to be asked."""
        return not (self.is_close or self.has_alternative)


def correct_long_marks(text: str, lexicon: Lexicon | None = None) -> str:
    """``text`` with its misread long vowel marks put right.

    Args:
        text: any length.
        lexicon: the words; the project's own when not given.
    """
    corrections: dict[int, str] = {}
    for run in katakana_runs(text):
        for at in _long_positions(run, lexicon or default_lexicon()):
            position = run.places[at]
            corrections[position] = long_mark(text[position - 1])
    return replace_characters(text, corrections)


def uncertain_positions(text: str, lexicon: Lexicon | None = None) -> list[UncertainPosition]:
    """Every mark of ``text`` that could be a long vowel mark, in order."""
    words = lexicon or default_lexicon()
    prefixes = _word_prefixes(text, words)
    return [place for run in katakana_runs(text) for place in _positions(run, words, prefixes)]


def replace_characters(text: str, changes: Mapping[int, str]) -> str:
    """``text`` with other characters at some positions."""
    if not changes:
        return text
    characters = list(text)
    for position, character in changes.items():
        characters[position] = character
    return "".join(characters)


def _long_positions(run: KatakanaRun, lexicon: Lexicon) -> Iterable[int]:
    # What most runs are, listed words with nothing behind them that a hyphen could belong to; the search would find
    # the same, more slowly.
    if run.letters in lexicon and (run.after == "other" or len(run.letters) - 1 not in run.marks):
        return run.marks
    return [at for at, score in long_mark_scores(run, lexicon).items() if score > 0]


def _positions(run: KatakanaRun, lexicon: Lexicon, prefixes: Collection[str]) -> Iterator[UncertainPosition]:
    for at, score in long_mark_scores(run, lexicon).items():
        ends_run = at + 1 == len(run.letters)
        has_alternative = score > 0 and ends_run and any(run.letters[start:at] in prefixes for start in range(at))
        yield UncertainPosition(run.places[at], score > 0, abs(score), has_alternative)


def _word_prefixes(text: str, lexicon: Lexicon) -> Collection[str]:
    """What the listed words in ``text`` begin with, all but their last letter."""
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


async def normalize(text: str, judge: Judge | None = None) -> NormalizedText:
    """Put misread long vowel marks right.

    Args:
        text: at most 10,000 characters.
        judge: asked about the places the rules are unsure of; without one they decide alone.

    Raises:
        TextTooLongError: there is more.
    """
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
        # Where the rules only wonder which letter it was, a dash that is left as it was is no answer.
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
