"""A run -> how much likelier it is, at each open place, that a long vowel mark was meant than that the mark was.

A run is read as words with marks between some of them: words of the lexicon at one price, unknown words at a higher
one by their letters, a mark that stays what it is at a price by what comes behind it. So バス-トイレ is two words and
a hyphen, コンピュ-タ one word, and a word that nobody listed is still read by how words look. ー is never read where
Japanese has none: behind ン, ッ, another ー, or a mark of repetition. A mark that is read as ー costs what a ー in the
text costs, so that a corrected run is read as it was.

All ways to read a run are the paths through a graph; the cheapest way forward to each node and from there to the end
gives the cheapest reading with a ー at a place, and without one. The prices are ours, set by trying (bench/ocr.py);
one is worth a factor of e in likelihood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mcp_servers.knowledge.ocr.lexicon import BEFORE_WORD, LONG, ONE, WORD_END, Follower, KatakanaRun, Lexicon

# A listed word, and one of two letters: of these there are few, and many of them stand in other words by chance.
_WORD, _SHORT_WORD, _SHORT = 8.0, 9.5, 2
# A word that is not listed, before its letters are paid for; and ending in a mark before a letter or digit.
_UNKNOWN, _UNKNOWN_BEFORE_LABEL = 6.0, 6.0
# A word directly behind another, as in compounds.
_JOINT = 1.0
# A listed word with a ー behind it that is not listed, before that ー is paid for as a letter: コンピュータ and
# コンピューター are one word. Between two words a hyphen is nearly as likely.
_LENGTHENED, _LENGTHENED_INSIDE = 3.0, 4.8
# A mark that stays: a hyphen by what follows it. Before katakana it often joins (バス-トイレ), before other words
# sometimes (ドル-円), before a suffix, a particle or a full stop hardly ever, before letters and digits mostly
# (タイプ-C).
_HYPHEN: Mapping[Follower, float] = {
    "katakana": 6.0,
    "suffix": 13.0,
    "word": 6.0,
    "letter": 1.0,
    "digit": -1.0,
    "other": 13.0,
}
# What more a hyphen between words costs in a run where another mark is ー for certain: コミュニティ-ネットワ-ク. Who
# misread one misread the other as well.
_AMONG_MISREAD, _CERTAIN = 2.0, 4.0
# The number one stands before what it counts: データ一覧, アジア一の.
_NUMBER: Mapping[Follower, float] = {
    "katakana": 6.0,
    "suffix": -6.0,
    "word": -6.0,
    "letter": 3.0,
    "digit": 3.0,
    "other": 4.0,
}
# メ-カ-2社: who misread one ー of a word misread the other as well.
_DIGIT_AFTER_OTHERS = 1.0
_NEVER_LONG = frozenset("ンッーヽヾ")
# Sums in another order differ by less.
_EPSILON = 1e-9
_UNREACHABLE = float("inf")


class _Node(NamedTuple):
    """Before a letter: between words, or with the last two letters of the unknown word that goes on."""

    at: int
    tail: str = ""


class _Edge(NamedTuple):
    """One step of a reading.

    Args:
        places: the open places on the way.
        is_long: whether they are read as ー.
    """

    start: _Node
    end: _Node
    price: float
    places: tuple[int, ...]
    is_long: bool


def long_mark_scores(run: KatakanaRun, lexicon: Lexicon) -> dict[int, float]:
    """For each open place, the natural logarithm of how much likelier ー is than the mark; 0 when neither is."""
    found = _scores(run, _ScoreGraph(run, lexicon).edges)
    if min(found.values()) > 0 or max(found.values()) <= _CERTAIN:
        return found
    # A corrected run has no such place any more, and what was kept in it is kept the more.
    return _scores(run, _ScoreGraph(run, lexicon, _AMONG_MISREAD).edges)


def _scores(run: KatakanaRun, edges: list[_Edge]) -> dict[int, float]:
    costs_to = _costs_to(edges)
    costs_from = _costs_from(edges, _Node(len(run.letters)))
    as_long = dict.fromkeys(run.marks, _UNREACHABLE)
    as_mark = dict.fromkeys(run.marks, _UNREACHABLE)
    for edge in edges:
        cost = costs_to[edge.start] + edge.price + costs_from.get(edge.end, _UNREACHABLE)
        cheapest = as_long if edge.is_long else as_mark
        for place in edge.places:
            cheapest[place] = min(cheapest[place], cost)
    differences = {place: as_mark[place] - as_long[place] for place in run.marks}
    return {place: 0.0 if abs(difference) < _EPSILON else difference for place, difference in differences.items()}


def _costs_to(edges: Iterable[_Edge]) -> dict[_Node, float]:
    """The cheapest way to each node; edges come in the order in which they can be gone."""
    costs = {_Node(0): 0.0}
    for edge in edges:
        cost = costs[edge.start] + edge.price
        if cost < costs.get(edge.end, _UNREACHABLE):
            costs[edge.end] = cost
    return costs


def _costs_from(edges: list[_Edge], goal: _Node) -> dict[_Node, float]:
    """The cheapest way from each node to the goal."""
    costs = {goal: 0.0}
    for edge in reversed(edges):
        cost = edge.price + costs.get(edge.end, _UNREACHABLE)
        if cost < costs.get(edge.start, _UNREACHABLE):
            costs[edge.start] = cost
    return costs


class _ScoreGraph:
    """The graph of a run's readings: ``edges``, in the order in which they can be gone."""

    def __init__(self, run: KatakanaRun, lexicon: Lexicon, surcharge: float = 0.0) -> None:
        self._run, self._lexicon = run, lexicon
        # On a hyphen between two words.
        self._surcharge = surcharge
        self._never = {at for at in run.marks if run.letters[at - 1] in _NEVER_LONG}
        self.edges: list[_Edge] = []
        # What can stand before each letter.
        self._tails: list[set[str]] = [set() for _ in range(len(run.letters) + 1)]
        self._tails[0].add("")
        for at in range(len(run.letters)):
            tails = sorted(self._tails[at])
            if tails[:1] == [""]:
                self._begin(_Node(at))
            for tail in filter(None, tails):
                self._go_on(_Node(at, tail))
            self._end_words(at + 1)

    def _begin(self, node: _Node) -> None:
        """A mark, a listed word, or the first letter of another one."""
        at, run = node.at, self._run
        if at in run.marks:
            self._add(node, _Node(at + 1), self._price_of_mark(at), (at,), is_long=False)
            return
        joint = _JOINT if at else 0.0
        for end in self._lexicon.words_at(run.letters, at):
            places = self._places(at, end)
            if self._never.isdisjoint(places):
                price = joint + (_SHORT_WORD if end - at == _SHORT else _WORD)
                self._add(node, _Node(end), price, places)
                self._lengthen(node, end, price, places)
        self._add_letter(node, BEFORE_WORD, joint + _UNKNOWN)

    def _lengthen(self, node: _Node, end: int, price: float, places: tuple[int, ...]) -> None:
        """A listed word with a ー behind it."""
        letters = self._run.letters
        is_possible = letters[end : end + 1] == LONG and letters[end - 1] not in _NEVER_LONG
        if is_possible and not self._is_before_label(end):
            price += _LENGTHENED if end + 1 == len(letters) else _LENGTHENED_INSIDE
            price += self._lexicon.letter_cost(letters[end - 2 : end], LONG)
            self._add(node, _Node(end + 1), price, (*places, *self._places(end, end + 1)))

    def _go_on(self, node: _Node) -> None:
        """The next letter of an unknown word."""
        if node.at not in self._never:
            self._add_letter(node, node.tail, 0.0)

    def _end_words(self, at: int) -> None:
        """Unknown words may end anywhere; hardly by a mark that stands before a letter or digit."""
        price = _UNKNOWN_BEFORE_LABEL if self._is_before_label(at - 1) else 0.0
        for tail in sorted(self._tails[at] - {""}):
            self._add(_Node(at, tail), _Node(at), price + self._lexicon.letter_cost(tail, WORD_END), ())

    def _is_before_label(self, at: int) -> bool:
        """Whether a ー, as it was read or as it may have been meant, stands before a letter or digit: タイプ-C."""
        letters = self._run.letters
        return at + 1 == len(letters) and letters[at] == LONG and self._run.after in {"letter", "digit"}

    def _price_of_mark(self, at: int) -> float:
        run = self._run
        if at + 1 == len(run.letters):
            return self._price_at_end(at)
        # The word behind it pays for standing behind something; so much of that is due to the mark.
        if run.marks[at] == ONE:
            return _NUMBER["katakana"] - _JOINT
        return _HYPHEN["katakana"] - _JOINT + self._surcharge

    def _price_at_end(self, at: int) -> float:
        run = self._run
        if run.marks[at] == ONE:
            return _NUMBER[run.after]
        if run.after == "digit" and any(place < at and place not in self._never for place in run.marks):
            return _DIGIT_AFTER_OTHERS
        return _HYPHEN[run.after] + (self._surcharge if run.after in {"katakana", "word"} else 0.0)

    def _places(self, start: int, end: int) -> tuple[int, ...]:
        return tuple(at for at in self._run.marks if start <= at < end)

    def _add_letter(self, node: _Node, tail: str, price: float) -> None:
        letter = self._run.letters[node.at]
        price += self._lexicon.letter_cost(tail, letter)
        self._add(node, _Node(node.at + 1, tail[-1] + letter), price, self._places(node.at, node.at + 1))

    def _add(self, start: _Node, end: _Node, price: float, places: tuple[int, ...], *, is_long: bool = True) -> None:
        self.edges.append(_Edge(start, end, price, places, is_long))
        self._tails[end.at].add(end.tail)
