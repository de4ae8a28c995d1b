"""Offers: the host's guess which tool a question needs, as a probability with its reasons.

A small model decides badly whether it needs a tool, and which. So the host shows it only the tools that may matter,
with the question, and begins the call where the best of them is probable enough; the model writes the arguments and the
answer. The guess is made here and nowhere else. It acts only above thresholds, and its call is checked like a call of
the model's own.

The weights and thresholds are from ``python -m bench.offers``, for the tasks of bench/own that are read while something
is built: all but ``fresh7.txt``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rkllm_mcp.catalogue import read_catalogue, translate
from rkllm_mcp.messages import ToolSpec, as_list, as_mapping
from rkllm_mcp.protocols import ToolEvidence
from rkllm_mcp.text import Language

# What each part of the evidence adds to the logarithm of a tool's odds.
WEIGHTS: Mapping[str, float] = {
    "words": 7.2,
    "read": 5.4,
    "kind": 1.5,
    "missing": -2.0,
    "followed": 3.0,
    "data": 1.3,
    "said": -2.7,
    "strange": -1.2,
}
NO_TOOL = -1.0  # the same for no tool at all
# Kinds that are read from the question as a whole, and not only found in it.
_READ = frozenset({"arithmetic", "quantity", "file"})
# Kinds of values that may be of any tool; without words they speak for none.
_LOOSE = frozenset({"place", "time", "number"})
BEGINS = 0.45  # from this probability on the host begins the call of the best tool
IS_LIKELY = 0.2  # from this one on a tool is called after another has failed
MOST_SHOWN = 3
_AGAINST = ("missing", "said", "strange")  # parts that speak for no tool
_MOST_STRANGE = 3
_IS_IN_DATA = 0.5  # from this part of its words on, a question is about the data of a tool


@dataclass(frozen=True)
class Guess:
    """A tool, the probability that the question needs it, and the evidence with a weight."""

    tool: ToolSpec
    probability: float
    reasons: tuple[str, ...] = ()
    lacks: bool = False  # it requires a kind of value that the question does not have
    takes_more: bool = False  # the question has a value that it may take, without requiring it
    known: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the arguments that the question gives

    @property
    def has_value(self) -> bool:
        """True if the question has a value for the tool, or words of its data."""
        return bool(set(self.reasons) - {"words"})


@dataclass(frozen=True)
class Offer:
    """The tools that a question is shown with, and the one whose call the host begins.

    Attributes:
        guesses: the tools that may be needed, the most probable first.
        begins: the name of the tool whose call the host begins; empty if the model chooses.
        language: that of the question, in which the tools are shown.
        words: the question in words, for the tools that take those; a follow-up with what it leaves out.
    """

    guesses: tuple[Guess, ...] = ()
    begins: str = ""
    language: Language = "en"
    words: str = ""

    @property
    def cards(self) -> tuple[ToolSpec, ...]:
        """The tools to show: the one whose call is begun, or those that the model chooses from."""
        guesses = self.guesses[: 1 if self.begins else MOST_SHOWN]
        return tuple(card_of(guess.tool.in_language(self.language)) for guess in guesses)

    def line(self, language: Language) -> str:
        """Return a line for people about what the host does; empty if it offers nothing."""
        if not self.guesses:
            return ""
        if not self.begins:
            return translate("answer.offers", language, tools=", ".join(tool.name for tool in self.cards))
        best, names = self.guesses[0], read_catalogue(language).table("answer.evidence")
        evidence = ", ".join(names[reason] for reason in best.reasons)
        percent = round(100 * best.probability)
        return translate("answer.begins", language, tool=best.tool.name, percent=percent, evidence=evidence)

    def after(self, tried: Sequence[str]) -> ToolSpec | None:
        """Return the tool to call after those that were ``tried`` and failed: a likely other one, else the last."""
        untried = (guess for guess in self.guesses if guess.tool.name not in tried)
        likely = (guess.tool for guess in untried if guess.probability >= IS_LIKELY)
        again = (guess.tool for guess in self.guesses if guess.tool.name == tried[-1]) if tried else iter(())
        return next(likely, None) or next(again, None)


NO_OFFER = Offer()


def parts_of(evidence: ToolEvidence, *, is_followed: bool) -> dict[str, float]:
    """Return the parts of the evidence that have a weight."""
    return {
        "words": evidence.words,
        "read": float(len(evidence.kinds & _READ)),
        "kind": float(len(evidence.kinds - _READ)),
        "missing": float(len(evidence.missing)),
        "followed": float(is_followed),
        "data": evidence.data,
        "said": float(evidence.is_said),
        "strange": float(min(evidence.strange, _MOST_STRANGE)) * (1 - evidence.data),
    }


def probabilities(parts: Sequence[Mapping[str, float]], weights: Mapping[str, float], no_tool: float) -> list[float]:
    """Return the probability of each tool; what is left of 1 is that of none.

    Nothing speaks for a tool that only lacks something.
    """
    odds = [
        math.exp(sum(weights[name] * value for name, value in part.items()))
        if any(value for name, value in part.items() if name not in _AGAINST)
        else 0.0
        for part in parts
    ]
    total = sum(odds) + math.exp(no_tool)
    return [odds_of_tool / total for odds_of_tool in odds]


def offer_of(evidence: Sequence[ToolEvidence], followed: str = "") -> Offer:
    """Return the offer for a question; ``followed`` is the tool of the question that it continues."""
    parts = [parts_of(candidate, is_followed=candidate.tool.name == followed) for candidate in evidence]
    rated = zip(evidence, probabilities(parts, WEIGHTS, NO_TOOL), parts, strict=True)
    guesses: list[Guess] = []
    for candidate, probability, shares in rated:
        if probability < IS_LIKELY:
            continue
        reasons = ["followed"] if shares["followed"] else []
        reasons += ["words"] if candidate.words else []
        reasons += ["data"] if candidate.data >= _IS_IN_DATA else []
        reasons += sorted(candidate.kinds)
        # A tool that reads the question itself may still find a file or a place in its words.
        reads = bool(candidate.tool.question_argument)
        lacks = bool(candidate.missing & {"arithmetic", "quantity"} if reads else candidate.missing)
        takes_more = bool(candidate.optional)
        guesses.append(Guess(candidate.tool, probability, tuple(reasons), lacks, takes_more, candidate.known))
    best = sorted(guesses, key=lambda guess: -guess.probability)
    if best and best[0].tool.read_only is True:
        guess, tool = best[0], best[0].tool
        # With it count those of its server that read the same words for the same value.
        probability = sum(
            other.probability
            for other in best
            if other is guess
            or (
                other.tool.server == tool.server
                and other.tool.question_argument == tool.question_argument
                and tool.question_argument in as_list(other.tool.input_schema.get("required"))
            )
        )
        is_enough = bool(set(guess.reasons) - _LOOSE) and (not guess.lacks or "followed" in guess.reasons)
        if is_enough and probability >= BEGINS:
            return Offer(tuple(best), tool.name)
    # Tools that may change something, and those that do not read a question themselves, are the model's own choice.
    shown = (guess for guess in best if not guess.tool.question_argument and set(guess.reasons) - _LOOSE)
    return Offer(tuple(guess for guess in shown if not guess.lacks or guess.probability >= BEGINS))


def offer_of_all(tools: Sequence[ToolSpec]) -> Offer:
    """Return the offer of tools that a person or a program has asked for."""
    return Offer(tuple(Guess(tool, 1.0) for tool in tools))


def card_of(tool: ToolSpec) -> ToolSpec:
    """Return a tool as a small model reads it: with its required parameters, or its first one if none is required."""
    properties = as_mapping(tool.input_schema.get("properties"))
    required = [name for name in map(str, as_list(tool.input_schema.get("required"))) if name in properties]
    fields: dict[str, Any] = {}
    for name in required or list(properties)[:1]:
        # A small model would copy these values.
        copied = ("default", "examples", "example")
        fields[name] = {key: value for key, value in as_mapping(properties[name]).items() if key not in copied}
    schema = {**tool.input_schema, "properties": fields, "required": required}
    return replace(tool, input_schema=schema)
