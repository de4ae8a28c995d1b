"""What the search asks of a model: two small protocols.

An embedder's ``name`` stands for the space its vectors lie in: vectors are compared only under one name, so it changes
with the model and the number of dimensions, and not with the address it runs at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.errors import EngineUnreachableError

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Texts -> unit vectors."""

    @property
    def name(self) -> str:
        """What its vectors are kept under."""
        ...

    @property
    def is_fast(self) -> bool:
        """Whether a document's vectors may be waited for when it is added."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One row of unit length for each text, in order.

        Raises:
            EngineUnreachableError: there is no usable answer.
        """
        ...

    async def embed_query(self, text: str) -> Vectors:
        """One vector of unit length.

        Raises:
            EngineUnreachableError: there is no usable answer.
        """
        ...

    async def aclose(self) -> None:
        """Gives back what it holds."""
        ...


class Reranker(Protocol):
    """A question and passages -> how well each answers it."""

    @property
    def name(self) -> str:
        """For explanations."""
        ...

    async def relevance(self, query: str, passages: Sequence[str]) -> list[float]:
        """For each passage, in order, the probability that it answers the query, 0..1.

        Raises:
            EngineUnreachableError: there is no usable answer.
        """
        ...

    async def aclose(self) -> None:
        """Gives back what it holds."""
        ...


def unit_rows(rows: Sequence[Sequence[float]] | Vectors, engine: str) -> Vectors:
    """Rows as they came, scaled to unit length.

    Raises:
        EngineUnreachableError: they are not rows of finite numbers, or one has no direction.
    """
    try:
        vectors = np.asarray(rows, np.float32)
    except (ValueError, TypeError):
        raise EngineUnreachableError(engine, "its vectors are not of one length") from None
    rank_of_a_matrix = 2
    if vectors.ndim != rank_of_a_matrix or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise EngineUnreachableError(engine, "it gave something else than vectors of numbers")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not lengths.all():
        raise EngineUnreachableError(engine, "it gave a vector of zeros")
    return vectors / lengths


def sigmoid(logit: float) -> float:
    """A raw score of a reranker as a probability."""
    # Written so that neither end overflows.
    return 1 / (1 + math.exp(-logit)) if logit > 0 else math.exp(logit) / (1 + math.exp(logit))
