"""Score of each open position: how much more likely ー is than the mark itself.

A run is segmented into words with marks between some of them. Listed words have a fixed cost, unknown words a higher
one by their letters, a mark that stays has a cost by the following text. So バス-トイレ becomes two words and a hyphen,
コンピュ-タ one word, and an unlisted word is judged by its letters. ー never follows ン, ッ, another ー or an iteration
mark. A mark read as ー costs as much as ー in the text, so correcting a corrected run changes nothing.

All segmentations are paths in a graph; forward and backward shortest paths give the cheapest one with and without ー at
each position. Costs were tuned by hand with bench/ocr.py; a difference of one is a factor of e in likelihood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mcp_servers.knowledge.ocr.lexicon import BEFORE_WORD, LONG, ONE, WORD_END, Follower, KatakanaRun, Lexicon

# Cost of a listed word, and of a listed word of two letters, which often occur inside other words by chance.
_WORD, _SHORT_WORD, _SHORT = 8.0, 9.5, 2
# Base cost of an unlisted word, and of one that ends in a mark before a letter or digit.
_UNKNOWN, _UNKNOWN_BEFORE_LABEL = 6.0, 6.0
# A word directly after another, as in compounds.
_JOINT = 1.0
# A listed word followed by an unlisted ー (コンピュータ and コンピューター), in addition to the letter cost of ー.
# Between two words a hyphen is nearly as likely.
_LENGTHENED, _LENGTHENED_INSIDE = 3.0, 4.8
# Cost of a mark that stays a hyphen, by the following text: often before katakana (バス-トイレ), sometimes before other
# words (ドル-円), rarely before a suffix, particle or full stop, mostly before letters and digits (タイプ-C).
_HYPHEN: Mapping[Follower, float] = {
    "katakana": 6.0,
    "suffix": 13.0,
    "word": 6.0,
    "letter": 1.0,
    "digit": -1.0,
    "other": 13.0,
}
# Additional cost of a hyphen between words if another mark of the run is certainly ー: コミュニティ-ネットワ-ク.
# Misreadings of one text are correlated.
_AMONG_MISREAD, _CERTAIN = 2.0, 4.0
# Cost of 一 as the number one, before what it counts: データ一覧, アジア一の.
_NUMBER: Mapping[Follower, float] = {
    "katakana": 6.0,
    "suffix": -6.0,
    "word": -6.0,
    "letter": 3.0,
    "digit": 3.0,
    "other": 4.0,
}
# メ-カ-2社: misreadings of one word are correlated.
_DIGIT_AFTER_OTHERS = 1.0
_NEVER_LONG = frozenset("ンッーヽヾ")
# Rounding differences are smaller.
_EPSILON = 1e-9
_UNREACHABLE = float("inf")


class _Node(NamedTuple):
    """Position before a letter: between words, or inside an unknown word with its last two letters."""

    at: int
    tail: str = ""


class _Edge(NamedTuple):
    """One step of a segmentation; ``is_long`` is True if its open positions are read as ー."""

    start: _Node
    end: _Node
    price: float
    places: tuple[int, ...]
    is_long: bool


def long_mark_scores(run: KatakanaRun, lexicon: Lexicon) -> dict[int, float]:
    """Return for each open position the log odds of ー against the mark; 0 if neither is possible."""
    found = _scores(run, _ScoreGraph(run, lexicon).edges)
    if min(found.values()) > 0 or max(found.values()) <= _CERTAIN:
        return found
    # After correction the run has no such position, and the marks kept here score further from ー.
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
    """Return the cheapest path to each node; edges are in topological order."""
    costs = {_Node(0): 0.0}
    for edge in edges:
        cost = costs[edge.start] + edge.price
        if cost < costs.get(edge.end, _UNREACHABLE):
            costs[edge.end] = cost
    return costs


def _costs_from(edges: list[_Edge], goal: _Node) -> dict[_Node, float]:
    """Return the cheapest path from each node to the goal."""
    costs = {goal: 0.0}
    for edge in reversed(edges):
        cost = edge.price + costs.get(edge.end, _UNREACHABLE)
        if cost < costs.get(edge.start, _UNREACHABLE):
            costs[edge.start] = cost
    return costs


class _ScoreGraph:
    """Graph of a run's segmentations, with ``edges`` in topological order."""

    def __init__(self, run: KatakanaRun, lexicon: Lexicon, surcharge: float = 0.0) -> None:
        self._run, self._lexicon = run, lexicon
        # Added to a hyphen between two words.
        self._surcharge = surcharge
        self._never = {at for at in run.marks if run.letters[at - 1] in _NEVER_LONG}
        self.edges: list[_Edge] = []
        # Possible contexts before each letter.
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
        """Add a mark, the listed words, and the first letter of an unknown word."""
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
        """Add a listed word followed by ー."""
        letters = self._run.letters
        is_possible = letters[end : end + 1] == LONG and letters[end - 1] not in _NEVER_LONG
        if is_possible and not self._is_before_label(end):
            price += _LENGTHENED if end + 1 == len(letters) else _LENGTHENED_INSIDE
            price += self._lexicon.letter_cost(letters[end - 2 : end], LONG)
            self._add(node, _Node(end + 1), price, (*places, *self._places(end, end + 1)))

    def _go_on(self, node: _Node) -> None:
        """Add the next letter of an unknown word."""
        if node.at not in self._never:
            self._add_letter(node, node.tail, 0.0)

    def _end_words(self, at: int) -> None:
        """End unknown words; expensive after a mark before a letter or digit."""
        price = _UNKNOWN_BEFORE_LABEL if self._is_before_label(at - 1) else 0.0
        for tail in sorted(self._tails[at] - {""}):
            self._add(_Node(at, tail), _Node(at), price + self._lexicon.letter_cost(tail, WORD_END), ())

    def _is_before_label(self, at: int) -> bool:
        """True for ー, original or possible, before a letter or digit: タイプ-C."""
        letters = self._run.letters
        return at + 1 == len(letters) and letters[at] == LONG and self._run.after in {"letter", "digit"}

    def _price_of_mark(self, at: int) -> float:
        run = self._run
        if at + 1 == len(run.letters):
            return self._price_at_end(at)
        # The following word pays _JOINT for being second; that part is due to the mark.
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
