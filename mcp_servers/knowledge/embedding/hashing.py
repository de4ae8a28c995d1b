"""Embedder without a model: terms and character n-grams hashed into 1024 dimensions.

It adds tolerance to BM25, not meaning: words with other spelling or inflection share most n-grams. Nothing is trained,
so vectors are the same in every base. The fixed weights replace inverse document frequencies, which cannot be counted
one text at a time.

Reference: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning" (2009): signs cancel collisions.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import anyio.to_thread
import numpy as np

from mcp_servers.knowledge.embedding import Vectors
from mcp_servers.knowledge.text_analysis import Analysis, analyze, analyze_query

DIMENSIONS = 1024
# Not tuned: these vectors only add candidates and rank nothing.
_TERM, _KANJI, _NGRAM = 1.0, 0.5, 0.3
_NGRAM_LENGTH = 4


class HashingEmbedder:
    """Feature hashing."""

    name = f"hashing-{DIMENSIONS}"
    is_fast = True
    batch = 32

    async def embed(self, texts: Sequence[str], *, are_queries: bool = False) -> Vectors:
        """Return one unit row per text."""
        if are_queries:
            return np.stack([_vector(analyze_query(text)) for text in texts])
        return await anyio.to_thread.run_sync(lambda: np.stack([_vector(analyze(text)) for text in texts]))


def _vector(analysis: Analysis) -> Vectors:
    vector = np.zeros(DIMENSIONS, np.float32)
    features = [(term, _TERM) for term in analysis.terms]
    for term in analysis.terms:
        if term.isascii():
            padded = f"<{term}>"
            starts = range(len(padded) - _NGRAM_LENGTH + 1)
            features += [(f"\x02{padded[at : at + _NGRAM_LENGTH]}", _NGRAM) for at in starts]
    features += [(f"\x01{kanji}", _KANJI) for kanji in analysis.kanji]
    for (feature, weight), count in Counter(features).items():
        bucket, sign = _bucket(feature)
        vector[bucket] += sign * weight * (1 + math.log(count))
    length = float(np.linalg.norm(vector))
    if length == 0:
        # An arbitrary fixed direction for texts without terms.
        vector[0] = length = 1.0
    return vector / length


@lru_cache(maxsize=65_536)
def _bucket(feature: str) -> tuple[int, float]:
    value = zlib.crc32(feature.encode())
    return value % DIMENSIONS, 1.0 if value & 0x8000_0000 else -1.0
