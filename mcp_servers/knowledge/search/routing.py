"""Stage 1: which knowledge bases a question is put to, when it names none.

A base's summary vector is the mean of its vectors: where its documents lie. Bases that the words could not tell apart
are told apart by it, before any of them is opened. Up to ``OPENED`` bases are all searched; leaving one out could only
lose something there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mcp_servers.knowledge.storage.bases import StoredBase
from mcp_servers.knowledge.storage.vectors import Vectors

OPENED = 8


def nearest_bases(
    bases: Sequence[StoredBase], summaries: Mapping[int, Vectors], queries: Mapping[str, Vectors], most: int = OPENED
) -> list[StoredBase]:
    """The bases to search: those nearest to the question, and every one that has no summary vector to judge by.

    Args:
        bases: all that may be seen.
        summaries: by the base's row; absent where there are no vectors.
        queries: the question as each embedder sees it.
        most: how many of those with a summary are searched.
    """
    nearness: dict[int, float] = {}
    for base in bases:
        summary, query = summaries.get(base.key), queries.get(base.base.embedder)
        if summary is not None and query is not None and summary.shape == query.shape:
            nearness[base.key] = float(summary @ query)
    opened = set(sorted(nearness, key=lambda key: -nearness[key])[:most])
    return [base for base in bases if base.key in opened or base.key not in nearness]
