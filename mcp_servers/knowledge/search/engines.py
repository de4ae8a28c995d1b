"""The models of a search, and a question as each embedder sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_servers.knowledge.embedding.ports import Embedder, Reranker, Vectors
from mcp_servers.knowledge.problems import EngineUnreachableError


@dataclass(frozen=True)
class Engines:
    """The models at hand.

    Args:
        embedders: by name; a base is searched with the one its vectors are of.
        reranker: None for no cross-encoder.
    """

    embedders: Mapping[str, Embedder]
    reranker: Reranker | None = None


class QueryVectors:
    """A question as a vector, made once for each embedder, when it is needed.

    Args:
        query: the question.
        embedders: by name.
    """

    def __init__(self, query: str, embedders: Mapping[str, Embedder]) -> None:
        self._query = query
        self._embedders = embedders
        self._made: dict[str, Vectors | str] = {}

    async def of(self, name: str) -> Vectors | str:
        """The question as this embedder sees it, or a sentence that says why there is no such vector."""
        if name not in self._made:
            self._made[name] = await self._make(name)
        return self._made[name]

    async def _make(self, name: str) -> Vectors | str:
        embedder = self._embedders.get(name)
        if embedder is None:
            return f"the search by vectors was left out: its vectors are of {name}, which is not configured"
        try:
            return await embedder.embed_query(self._query)
        except EngineUnreachableError as error:
            return f"the search by vectors was left out: {error.words}"
