"""The search for tools: their words against a request's, what served similar requests before, what is near in meaning.

    request ─▶ terms ─▶ ranking of the tools' texts ──┐
            └▶ similar requests that a tool served ───┼─▶ score of each tool
            └▶ embedding, where the runtime has one ──┘

Rules: without a model and without a past the words alone decide; an embedder that fails costs its share and nothing
else. It knows no servers and no store: what served before is the port ``records.PastCalls``, meaning the port
``Embedder``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, cast

from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.records import PastCalls
from rkllm_mcp.tools.retrieval.glossary import Glossary, own_glossary
from rkllm_mcp.tools.retrieval.ranking import Field, Ranking
from rkllm_mcp.tools.retrieval.words import terms_of

# How much a term counts by where it stands; names are what models and people go by.
_NAME_WEIGHT = 3.0
_SERVER_WEIGHT = 1.0
_DESCRIPTION_WEIGHT = 1.0
_PARAMETER_WEIGHT = 0.2
# Descriptions begin with what the tool does; what follows are rules of its use.
_DESCRIPTION_CHARS = 400
# What the other two voices can add to a score between 0 and 1: our choice for the past; for meaning what was measured
# with documents (reference: knowledge 3), because no model was at hand to measure it with tools.
_PAST_WEIGHT = 0.35
_MEANING_WEIGHT = 0.2
# What is wanted is said at the beginning or at the end of a text that is longer than both together, characters.
_REQUEST_CHARS = 2000
# Earlier calls that are looked at.
_PAST_CALLS = 500


class Embedder(Protocol):
    """A model that turns texts into vectors whose nearness is nearness in meaning."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector of length 1 for each text.

        Raises:
            RkllmMcpError: it cannot.
        """
        ...


class ToolSearch:
    """Finds tools by what somebody wants.

    Args:
        past: what served earlier requests, where that is kept.
        embedder: where the runtime has a model for it.
    """

    def __init__(self, past: PastCalls | None = None, embedder: Embedder | None = None) -> None:
        self._past = past
        self._embedder = embedder
        self._tools: tuple[ToolSpec, ...] | None = None
        self._ranking = Ranking(())
        self._vectors: dict[str, Sequence[float]] = {}

    @cached_property
    def _glossary(self) -> Glossary:
        # Read when it is first needed: many conversations never have too many tools.
        return own_glossary()

    async def search(self, request: str, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, float]]:
        """Every tool that has anything to do with ``request``, the best first, with its score.

        Args:
            request: what somebody wants, in their words.
            tools: where to look; of equal ones the earlier comes first.
        """
        request = _telling(request)
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

    def _fields(self, tool: ToolSpec) -> list[Field]:
        name = terms_of(tool.wire_name or tool.name, self._glossary)
        # What a name says counts as often as it says it once: read_file and read_text_file are about files alike.
        return [
            Field(tuple(dict.fromkeys(name)), _NAME_WEIGHT),
            Field(terms_of(tool.server, self._glossary), _SERVER_WEIGHT),
            Field(terms_of(tool.description[:_DESCRIPTION_CHARS], self._glossary), _DESCRIPTION_WEIGHT),
            Field(terms_of(" ".join(_parameter_texts(tool)), self._glossary), _PARAMETER_WEIGHT),
        ]

    async def _past_scores(self, terms: Sequence[str], tools: Sequence[ToolSpec]) -> list[float]:
        """For each tool, how like this request the most similar one is that it served."""
        best: dict[str, float] = {}
        if self._past is not None:
            wanted = frozenset(terms)
            for request, tool in await self._past.served(_PAST_CALLS):
                likeness = self._likeness(wanted, frozenset(terms_of(request, self._glossary, is_request=True)))
                best[tool] = max(best.get(tool, 0.0), likeness)
        return [_PAST_WEIGHT * best.get(tool.qualified_name, 0.0) for tool in tools]

    def _likeness(self, one: frozenset[str], other: frozenset[str]) -> float:
        """The share of what two requests say that both of them say, 0 to 1."""
        everything = sum(map(self._ranking.rarity, one | other))
        return sum(map(self._ranking.rarity, one & other)) / everything if everything else 0.0

    async def _meaning_scores(self, request: str, tools: Sequence[ToolSpec]) -> list[float]:
        """For each tool, how near its text is to the request in meaning."""
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


def _telling(request: str) -> str:
    """The part of a request that is read: a text of megabytes would keep everybody else waiting."""
    if len(request) <= 2 * _REQUEST_CHARS:
        return request
    return f"{request[:_REQUEST_CHARS]}\n{request[-_REQUEST_CHARS:]}"


def _parameter_texts(tool: ToolSpec) -> Iterable[str]:
    """The names and descriptions of a tool's parameters."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    for name, schema in properties.items():
        yield name
        if isinstance(schema, dict):
            yield str(cast("Mapping[str, Any]", schema).get("description", ""))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))
