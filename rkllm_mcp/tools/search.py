"""Search for tools by text, by past calls and by semantic similarity.

    request ─▶ terms ─▶ ranking of the tools' texts ──┐
            └▶ similar requests and their tools ──────┼─▶ score of each tool
            └▶ embedding, if a model is configured ───┘

Without a model and without past calls the text alone decides; an embedder that fails only removes its part of the
score. The module depends on two ports, ``records.PastCalls`` and ``Embedder``, not on servers or the store.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.records import PastCalls
from rkllm_mcp.tools.search_terms import Glossary, own_glossary, terms_of

# Saturation of repeated terms, and penalty for long texts.
_K1 = 1.2
_LENGTH = 0.5
# A request with less evidence than two rare words has no certain meaning, even if a tool matches it.
_LEAST_EVIDENCE = 4.0
# A synonym is less certain than the word itself.
_SIMILARITY_WEIGHT = 0.7


@dataclass(frozen=True)
class RankedField:
    """One part of a document: its terms and their weight."""

    terms: Sequence[str]
    weight: float = 1.0


class Ranking:
    """Index of documents, each given as its fields."""

    def __init__(self, documents: Sequence[Sequence[RankedField]]) -> None:
        self._counts = [_weighted_counts(fields) for fields in documents]
        lengths = [sum(counts.values()) for counts in self._counts]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._norms = [1 - _LENGTH + _LENGTH * length / (average or 1.0) for length in lengths]
        self._document_counts = Counter(term for counts in self._counts for term in counts)

    def scores(self, request: Sequence[str]) -> list[float]:
        """Return a score from 0 to 1 for each document."""
        weights = {term: self.rarity(term) for term in set(request)}
        known = sum(weight for term, weight in weights.items() if term in self._document_counts)
        highest = max(known, _LEAST_EVIDENCE) * (_K1 + 1)
        sums = (
            sum(weight * _saturated(counts[term] / norm) for term, weight in weights.items() if term in counts)
            for counts, norm in zip(self._counts, self._norms, strict=True)
        )
        return [found / highest for found in sums]

    def rarity(self, term: str) -> float:
        """Return the inverse document frequency of a term."""
        total, having = len(self._counts), self._document_counts[term]
        rarity = math.log(1 + (total - having + 0.5) / (having + 0.5))
        return rarity * _SIMILARITY_WEIGHT if term.startswith("@") else rarity


def _weighted_counts(fields: Sequence[RankedField]) -> Mapping[str, float]:
    counts: dict[str, float] = {}
    for field in fields:
        for term in field.terms:
            counts[term] = counts.get(term, 0.0) + field.weight
    return counts


def _saturated(count: float) -> float:
    return count * (_K1 + 1) / (count + _K1)


# Weights by field; names describe a tool best.
_NAME_WEIGHT = 3.0
_SERVER_WEIGHT = 1.0
_DESCRIPTION_WEIGHT = 1.0
_PARAMETER_WEIGHT = 0.2
# Descriptions start with the purpose of the tool; rules of use follow.
_DESCRIPTION_CHARS = 400
# Maximum contribution of the two other scores to a score between 0 and 1: our choice for past calls; for similarity the
# value measured with documents (reference: knowledge 3), because no model was available to measure it with tools.
_PAST_WEIGHT = 0.35
_MEANING_WEIGHT = 0.2
# Of a longer text the start and the end are used; they contain the request. Characters.
_REQUEST_CHARS = 2000
# Number of past calls to consider.
_PAST_CALLS = 500


class Embedder(Protocol):
    """A model that maps texts to vectors; similar meanings have similar vectors."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector of length 1 for each text.

        Raises:
            RkllmMcpError: the model failed.
        """
        ...


class ToolSearch:
    """Finds tools for a request; ``past`` and ``embedder`` are optional."""

    def __init__(self, past: PastCalls | None = None, embedder: Embedder | None = None) -> None:
        self._past = past
        self._embedder = embedder
        self._tools: tuple[ToolSpec, ...] | None = None
        self._ranking = Ranking(())
        self._vectors: dict[str, Sequence[float]] = {}

    @cached_property
    def _glossary(self) -> Glossary:
        # Loaded on first use: many conversations never have too many tools.
        return own_glossary()

    async def search(self, request: str, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, float]]:
        """Return the tools that match ``request`` with their scores, best first.

        Tools with equal scores stay in the given order.
        """
        request = _relevant_part(request)
        self._index(tuple(tools))
        terms = terms_of(request, self._glossary, is_request=True)
        scores = self._ranking.scores(terms)
        for extra in (await self._past_scores(terms, tools), await self._meaning_scores(request, tools)):
            scores = [score + more for score, more in zip(scores, extra, strict=True)]
        found = [(tool, score) for tool, score in zip(tools, scores, strict=True) if score > 0]
        return sorted(found, key=lambda pair: -pair[1])

    def _index(self, tools: tuple[ToolSpec, ...]) -> None:
        if tools != self._tools:
            self._ranking = Ranking([self._fields(tool) for tool in tools])
            self._tools = tools

    def _fields(self, tool: ToolSpec) -> list[RankedField]:
        name = terms_of(tool.wire_name or tool.name, self._glossary)
        # Repeated words of a name count once: read_file and read_text_file match "file" equally.
        return [
            RankedField(tuple(dict.fromkeys(name)), _NAME_WEIGHT),
            RankedField(terms_of(tool.server, self._glossary), _SERVER_WEIGHT),
            RankedField(terms_of(tool.description[:_DESCRIPTION_CHARS], self._glossary), _DESCRIPTION_WEIGHT),
            RankedField(terms_of(" ".join(_parameter_texts(tool)), self._glossary), _PARAMETER_WEIGHT),
        ]

    async def _past_scores(self, terms: Sequence[str], tools: Sequence[ToolSpec]) -> list[float]:
        """Return, for each tool, the similarity of the most similar past request that used it."""
        best: dict[str, float] = {}
        if self._past is not None:
            wanted = frozenset(terms)
            for request, tool in await self._past.served(_PAST_CALLS):
                likeness = self._similarity(wanted, frozenset(terms_of(request, self._glossary, is_request=True)))
                best[tool] = max(best.get(tool, 0.0), likeness)
        return [_PAST_WEIGHT * best.get(tool.qualified_name, 0.0) for tool in tools]

    def _similarity(self, one: frozenset[str], other: frozenset[str]) -> float:
        """Return the share of common terms of two requests, weighted by rarity, 0 to 1."""
        everything = sum(map(self._ranking.rarity, one | other))
        return sum(map(self._ranking.rarity, one & other)) / everything if everything else 0.0

    async def _meaning_scores(self, request: str, tools: Sequence[ToolSpec]) -> list[float]:
        """Return the semantic similarity of each tool's text to the request."""
        nothing = [0.0] * len(tools)
        if self._embedder is None:
            return nothing
        texts = [f"{tool.name}: {tool.description[:_DESCRIPTION_CHARS]}" for tool in tools]
        try:
            new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
            self._vectors |= dict(zip(new, await self._embedder.embed(new), strict=True) if new else ())
            (wanted,) = await self._embedder.embed([request])
        except RkllmMcpError:
            return nothing
        return [_MEANING_WEIGHT * max(0.0, _dot(wanted, self._vectors[text])) for text in texts]


def _relevant_part(request: str) -> str:
    """Return the part of a request that is used: processing megabytes would delay other users."""
    if len(request) <= 2 * _REQUEST_CHARS:
        return request
    return f"{request[:_REQUEST_CHARS]}\n{request[-_REQUEST_CHARS:]}"


def _parameter_texts(tool: ToolSpec) -> Iterable[str]:
    """Yield the names and descriptions of a tool's parameters."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    for name, schema in properties.items():
        yield name
        if isinstance(schema, dict):
            yield str(cast("Mapping[str, Any]", schema).get("description", ""))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))
