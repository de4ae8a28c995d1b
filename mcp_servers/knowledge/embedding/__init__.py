"""Embedders (text -> vectors) and rerankers (query, passage -> relevance), as protocols.

hashing     embedder without a model
onnx        ONNX model folders on this machine's processor
static      folders of a static model: a vector for each token
remote      OpenAI-style services
background  fills in missing vectors
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
    """Text -> unit vectors."""

    name: str  # the vector space, by model and dimensions, not by address: vectors are compared only under one name
    is_fast: bool  # adding a document may wait for its vectors
    batch: int  # texts whose vectors are made, and stored, at a time

    async def embed(self, texts: Sequence[str], *, are_queries: bool = False) -> Vectors:
        """Return one unit row per text, in order; raise EngineUnreachableError on failure.

        With ``are_queries`` they are compared with documents: many models have another prompt before either.
        """
        ...


class Reranker(Protocol):
    """Query and passages -> relevance."""

    name: str  # shown in explanations

    async def relevance(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return the probability that each passage answers the query, 0..1; raise EngineUnreachableError on failure."""
        ...


def unit_rows(rows: Sequence[Sequence[float]] | Vectors, engine: str) -> Vectors:
    """Return the rows scaled to unit length; raise EngineUnreachableError for invalid or zero vectors."""
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
    """Return the raw score of a reranker as a probability."""
    # Neither branch overflows.
    return 1 / (1 + math.exp(-logit)) if logit > 0 else math.exp(logit) / (1 + math.exp(logit))
