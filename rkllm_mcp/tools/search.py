"""Search for tools by text, by past calls and by semantic similarity.

    request ─▶ terms ─▶ ranking of the tools' texts ──┐
            └▶ similar requests and their tools ──────┼─▶ score of each tool
            └▶ embedding, if a model is configured ───┘

Without a model and without past calls the text alone decides; an embedder that fails only removes its part of the
score. The module depends on two ports, ``records.PastCalls`` and ``Embedder``, not on servers or the store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from rkllm_base.own_words import own_words
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.messages import ToolSpec, as_mapping
from rkllm_mcp.protocols import ToolEvidence
from rkllm_mcp.records import PastCalls
from rkllm_mcp.tasks import run_costly
from rkllm_mcp.tools.follow_ups import continued_question, continued_value, without_values
from rkllm_mcp.tools.kinds import is_statement, kinds_in, kinds_of, known_values, takes_words
from rkllm_mcp.tools.loan_words import LoanWords
from rkllm_mcp.tools.other_script import have_common_words
from rkllm_mcp.tools.risk import risk_of_name
from rkllm_mcp.tools.search_terms import Glossary, Wanted, own_glossary, root, stem, terms_of, wanted_terms, words_of

# Saturation of repeated terms, and penalty for long texts.
_K1 = 1.2
_LENGTH = 0.5
# A request with less evidence than two rare words has no certain meaning, even if a tool matches it.
_LEAST_EVIDENCE = 4.0
_SIMILARITY_WEIGHT = 0.7  # a synonym is less certain than the word itself
_OTHERS_WEIGHT = 0.2  # of the terms that may stand for one, the best counts, and this part of the others


@dataclass(frozen=True)
class RankedField:
    """One part of a document: its terms and their weight."""

    terms: Sequence[str]
    weight: float = 1.0


class Ranking:
    """Index of documents, each given as its fields."""

    def __init__(self, documents: Sequence[Sequence[RankedField]]) -> None:
        counted: list[dict[str, float]] = []
        for fields in documents:
            weighted: dict[str, float] = {}
            for part in fields:
                for term in part.terms:
                    weighted[term] = weighted.get(term, 0.0) + part.weight
            counted.append(weighted)
        lengths = [sum(counts.values()) for counts in counted]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._total = len(counted)
        # Documents and saturated counts by term.
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for number, (counts, length) in enumerate(zip(counted, lengths, strict=True)):
            norm = 1 - _LENGTH + _LENGTH * length / (average or 1.0)
            for term, count in counts.items():
                normal = count / norm
                self._postings.setdefault(term, []).append((number, normal * (_K1 + 1) / (normal + _K1)))
        self._rarities: dict[str, float] = {}
        self._rarities = {term: self.rarity(term) for term in self._postings}

    def scores(self, request: Wanted) -> list[float]:
        """Return a score from 0 to about 1 for each document; of a term and those that stand for it the best counts."""
        scores = [0.0] * self._total
        possible = 0.0
        for term, synonyms in request.items():
            # By document: the best value and the sum of all.
            values: dict[int, tuple[float, float]] = {}
            most = 0.0
            for other, weight in ((term, 1.0), *synonyms):
                if other in self._postings:
                    rarity = weight * self.rarity(other)
                    most = max(most, rarity)
                    for number, count in self._postings[other]:
                        best, total = values.get(number, (0.0, 0.0))
                        values[number] = max(best, rarity * count), total + rarity * count
            possible += most
            for number, (best, total) in values.items():
                scores[number] += best + _OTHERS_WEIGHT * (total - best)
        highest = max(possible, _LEAST_EVIDENCE) * (_K1 + 1)
        return [score / highest for score in scores]

    def rarity(self, term: str) -> float:
        """Return the inverse document frequency of a term."""
        if term in self._rarities:
            return self._rarities[term]
        having = len(self._postings.get(term, ()))
        rarity = math.log(1 + (self._total - having + 0.5) / (having + 0.5))
        return rarity * _SIMILARITY_WEIGHT if term.startswith("@") else rarity


_DESCRIPTION_CHARS = 400  # descriptions start with the purpose of the tool; rules of use follow
# Weights of other words for a word of the request: one with the same root, one that its katakana spell.
_ROOT_WEIGHT = 0.7
_LOAN_WEIGHT = 0.9
# Factors for a tool that changes something where the request asks, and for one that reads where it wants a change.
_CHANGES_INSTEAD = 0.6
_READS_INSTEAD = 0.8
# Largest part of a score that words of the name cost which the request does not have. Variants of a tool differ in
# them (for an organization, for a repository), so they count among many tools: half of it with this number.
_UNWANTED = 0.5
_MANY_TOOLS = 100
_COMPARED = 300  # only this many of the best are compared in this way
# Requests that want to know something, and meanings of those that want something done.
_ASKS = re.compile(
    r"[?？]$|教えて|見せて|見たい|知りたい|一覧|リスト|表示|探して|検索|調べて|読んで|読みたい|読む|確認|"
    r"^(?:what|who|whose|which|where|when|how|why|is|are|am|do|does|did|has|have|can|any|show|list|tell|find|search|"
    r"read|get|look|display|print|see)\b",
    re.IGNORECASE,
)
_CHANGING = "create delete update write send move copy start stop run merge invite join leave ban assign approve"
_CHANGING_MEANINGS = frozenset(f"@{stem(word)}" for word in _CHANGING.split())
_READING = "get list show read view search find check describe fetch query lookup"
_READING_VERBS = frozenset(map(stem, _READING.split()))
# Maximum contribution of the two other scores to a score between 0 and 1: our choice for past calls; for similarity the
# value measured with documents (reference: knowledge 3), because no model was available to measure it with tools.
_PAST_WEIGHT = 0.35
_MEANING_WEIGHT = 0.2
# Of a longer text the start and the end are used; they contain the request. Characters.
_REQUEST_CHARS = 2000
_EXPANDED = 100  # words of a request for which others are looked up
_PAST_CALLS = 500  # number of past calls to consider


@dataclass(frozen=True)
class _NameWord:
    """A word of a tool's name."""

    terms: frozenset[str]  # its stem and its meanings
    rarity: float
    is_reading_verb: bool


class _ToolIndex:
    """The tools at one moment, prepared for requests."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tools
        self.glossary = glossary = own_glossary()
        self.ranking = Ranking([_fields(tool, glossary) for tool in tools])
        words = [word for tool in tools for word in words_of(f"{tool.name} {tool.description} {tool.keywords}")]
        self._loan_words = LoanWords(words)
        self._by_root: dict[str, set[str]] = {}
        for word in dict.fromkeys(words):
            self._by_root.setdefault(root(word), set()).add(stem(word))
        self.terms = [frozenset(term for part in _fields(tool, glossary) for term in part.terms) for tool in tools]
        self._only_reads = [
            risk_of_name(tool.original_name) is None if tool.read_only is None else tool.read_only for tool in tools
        ]
        self._names: list[list[_NameWord]] = []
        for tool in tools:
            stems = dict.fromkeys(map(stem, words_of(tool.original_name)))
            terms = [
                frozenset({word, *(f"@{meaning}" for meaning in glossary.meanings_of_words([word]))}) for word in stems
            ]
            rated = zip(terms, map(self.ranking.rarity, stems), stems, strict=True)
            self._names.append(
                [_NameWord(word_terms, rarity, word in _READING_VERBS) for word_terms, rarity, word in rated]
            )

    def request_terms(self, request: str) -> Wanted:
        """Return the terms of a request, with words of the tools that may stand for them."""
        terms = wanted_terms(request, self.glossary)
        words = list(dict.fromkeys(words_of(request)))[:_EXPANDED]
        for word in words:
            if not word.isascii():
                for number, loan in enumerate(self._loan_words.english_in(word)):
                    # The first may have an entry of the glossary, too.
                    terms.setdefault(f"~{word}{number or ''}", []).append((stem(loan), _LOAN_WEIGHT))
            elif stem(word) in terms:
                same_root = sorted(self._by_root.get(root(word), set()) - {stem(word)})
                terms[stem(word)] += [(other, _ROOT_WEIGHT) for other in same_root]
        for loan in self._loan_words.katakana_of([word for word in words if word.isascii()]):
            terms.setdefault(loan, [])
        return terms

    def scores(self, request: str, terms_of_request: Wanted) -> list[float]:
        """Return a score from 0 to 1 for each tool, lower for those that do something else with the same things."""
        scores = self.ranking.scores(terms_of_request)
        terms = frozenset(_flat(terms_of_request))
        is_question = _ASKS.search(request.strip()) is not None
        wants_change = not is_question and not _CHANGING_MEANINGS.isdisjoint(terms)
        unwanted = _UNWANTED * len(scores) / (len(scores) + _MANY_TOOLS)
        best = sorted(range(len(scores)), key=lambda number: -scores[number])
        for number in best[:_COMPARED]:
            only_reads = self._only_reads[number]
            factor = _CHANGES_INSTEAD if is_question and not only_reads else 1.0
            factor *= _READS_INSTEAD if wants_change and only_reads else 1.0
            # A question implies a verb such as "list".
            words = [word for word in self._names[number] if not (is_question and word.is_reading_verb)]
            total = sum(word.rarity for word in words)
            missing = sum(word.rarity for word in words if word.terms.isdisjoint(terms))
            scores[number] *= factor * (1 - unwanted * (missing / total if total else 0.0))
        for number in best[_COMPARED:]:
            scores[number] *= _CHANGES_INSTEAD * (1 - unwanted)
        return scores

    def similarity(self, first: frozenset[str], second: frozenset[str]) -> float:
        """Return the share of common terms of two requests, weighted by rarity, 0 to 1."""
        everything = sum(map(self.ranking.rarity, first | second))
        return sum(map(self.ranking.rarity, first & second)) / everything if everything else 0.0


def _fields(tool: ToolSpec, glossary: Glossary) -> list[RankedField]:
    name = terms_of(tool.original_name, glossary)
    parameter_names = [stem(word) for key in tool.input_schema.get("properties") or () for word in words_of(key)]
    parameter_texts: list[str] = []
    for key, schema in as_mapping(tool.input_schema.get("properties")).items():
        parameter_texts += key, str(as_mapping(schema).get("description", ""))
    return [
        # Names describe a tool best. Repeated words count once: read_file and read_text_file match "file" equally.
        RankedField(tuple(dict.fromkeys(name)), weight=3.0),
        RankedField(terms_of(tool.server, glossary), weight=1.0),
        # The whole description, with its first sentence; both count for that one.
        RankedField(terms_of(tool.description[:_DESCRIPTION_CHARS], glossary), weight=0.5),
        RankedField(terms_of(tool.summary[:_DESCRIPTION_CHARS], glossary), weight=1.0),
        RankedField(tuple(dict.fromkeys(terms_of(tool.keywords, glossary))), weight=0.4),
        RankedField(parameter_names, weight=0.5),
        RankedField(terms_of(" ".join(parameter_texts), glossary), weight=0.2),
    ]


class Embedder(Protocol):
    """A model that maps texts to vectors; similar meanings have similar vectors."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector of length 1 for each text.

        Raises:
            RkllmMcpError: the model failed.
        """
        ...


@dataclass(eq=False)
class ToolSearch:
    """Finds tools for a request; ``past`` and ``embedder`` are optional."""

    # Questions about texts that need no index.
    kinds = staticmethod(kinds_in)
    is_statement = staticmethod(is_statement)
    continue_question = staticmethod(continued_question)
    continue_value = staticmethod(continued_value)
    have_common_words = staticmethod(have_common_words)

    past: PastCalls | None = None
    embedder: Embedder | None = None
    _index: _ToolIndex | None = None
    _indexing: anyio.Lock = field(default_factory=anyio.Lock)
    _vectors: dict[str, Sequence[float]] = field(default_factory=dict[str, "Sequence[float]"])

    async def search(self, request: str, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, float]]:
        """Return the tools that match ``request`` with their scores, best first.

        Tools with equal scores stay in the given order.
        """
        request = _relevant_part(request)
        index = await self._index_of(tools)
        terms = index.request_terms(request)
        scores = index.scores(request, terms)
        if self.past is not None:
            # By tool the similarity of the most similar past request that used it.
            best: dict[str, float] = {}
            request_terms = frozenset(_flat(terms))
            for past, tool in await self.past(_PAST_CALLS):
                likeness = index.similarity(request_terms, frozenset(_flat(wanted_terms(past, index.glossary))))
                best[tool] = max(best.get(tool, 0.0), likeness)
            more = (_PAST_WEIGHT * best.get(tool.qualified_name, 0.0) for tool in tools)
            scores = [score + past_score for score, past_score in zip(scores, more, strict=True)]
        if self.embedder is not None:
            # The semantic similarity of each tool's text to the request.
            texts = [f"{tool.name}: {tool.description[:_DESCRIPTION_CHARS]}" for tool in tools]
            with suppress(RkllmMcpError):
                new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
                self._vectors |= dict(zip(new, await self.embedder.embed(new), strict=True) if new else ())
                (request_vector,) = await self.embedder.embed([request])
                for number, text in enumerate(texts):
                    similarity = sum(x * y for x, y in zip(request_vector, self._vectors[text], strict=True))
                    scores[number] += _MEANING_WEIGHT * max(0.0, similarity)
        matching = [(tool, score) for tool, score in zip(tools, scores, strict=True) if score > 0]
        return sorted(matching, key=lambda pair: -pair[1])

    async def evidence(
        self, request: str, tools: Sequence[ToolSpec], shares: Mapping[str, float]
    ) -> list[ToolEvidence]:
        """Return for each tool how well its texts match ``request``, and which of its kinds of values that has.

        ``shares`` are those of the request's own words in the data of tools; a search in data with none is left out.
        """
        request = request.replace("全部で", "合計で")  # the word alone asks for a list
        index = await self._index_of(tools)
        relevant = _relevant_part(request)
        # Neither past calls nor a model count.
        matches = index.scores(relevant, index.request_terms(relevant)) if request.strip() else [0.0] * len(tools)
        found = kinds_in(request)
        required = [kinds_of(tool) for tool in tools]
        is_said = is_statement(request)
        # How many of the request's own words are in none of a tool's texts, also by their meaning.
        words = list(dict.fromkeys(own_words(without_values(request[:_REQUEST_CHARS]))[0]))
        meanings = [frozenset(_flat(index.request_terms(word))) for word in words]
        strange = [sum(terms.isdisjoint(tool_terms) for terms in meanings) for tool_terms in index.terms]
        # A number is not evidence for a tool that may take one in addition.
        optional = [kinds_of(tool, optional=True) - {"number"} for tool in tools]
        return [
            ToolEvidence(
                tool,
                match,
                (kinds | optional_kinds) & found,
                kinds - found,
                is_said=is_said,
                # A search in data has these words as values, so that only those that the data lacks are strange to it.
                strange=min(count, round((1 - shares.get(tool.name, 1)) * len(words))) if takes_words(tool) else count,
                data=shares.get(tool.name, 0.0),
                optional=optional_kinds & found,
                known=known_values(tool, request),
            )
            for tool, match, kinds, optional_kinds, count in zip(
                tools, matches, required, optional, strange, strict=True
            )
            if shares.get(tool.name) != 0 or not takes_words(tool)
        ]

    async def _index_of(self, tools: Sequence[ToolSpec]) -> _ToolIndex:
        async with self._indexing:  # another question may wait for the same
            if self._index is None or self._index.tools != tuple(tools):
                # A thousand tools take half a second of CPU.
                self._index = await run_costly(_ToolIndex, tuple(tools))
            return self._index


def _flat(terms: Wanted) -> Iterator[str]:
    for term, synonyms in terms.items():
        yield term
        yield from (other for other, _ in synonyms)


def _relevant_part(request: str) -> str:
    """Return the part of a request that is used: processing megabytes would delay other users."""
    if len(request) <= 2 * _REQUEST_CHARS:
        return request
    return f"{request[:_REQUEST_CHARS]}\n{request[-_REQUEST_CHARS:]}"
