"""The shared retrieval collections: reading, importing and scoring.

A collection is ``corpus.jsonl.xz`` ({_id, title, text}), ``queries.jsonl.xz`` ({_id, text}) and ``qrels.tsv.xz``
(question, document, relevance). Licences are in the folder of each collection.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.types import KnowledgeBase, NewChunk, NewDocument, SearchRequest, SearchResult

COLLECTIONS = ("jsquad", "xquad_en", "scifact")
SHARED = Path(os.environ.get("RKLLM_MCP_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@dataclass(frozen=True)
class Passage:
    """One document of a collection; short enough to be one chunk."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Question:
    """One question, and the passages that answer it with their relevance."""

    id: str
    text: str
    answers: Mapping[str, int]


@dataclass(frozen=True)
class Collection:
    """A collection, or a part of one."""

    name: str
    passages: Sequence[Passage]
    questions: Sequence[Question]

    def thinned(self, most: int) -> Collection:
        """Return the same passages with at most this number of questions, evenly chosen."""
        step = max(1, math.ceil(len(self.questions) / most))
        return Collection(self.name, self.passages, self.questions[::step])


def read_collection(name: str, folder: Path | None = None) -> Collection:
    """A collection.

    Args:
        name: one of ``COLLECTIONS``.
        folder: where the collections are; None looks beside the project.
    """
    place = (folder or SHARED / "cases" / "retrieval") / name
    answers: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for line in list(_lines(place / "qrels.tsv.xz"))[1:]:
        question, passage, relevance = line.split("\t")
        if int(relevance) > 0:
            answers[question][passage] = int(relevance)
    passages = [Passage(row["_id"], row["title"], row["text"]) for row in _rows(place / "corpus.jsonl.xz")]
    questions = [
        Question(row["_id"], row["text"], answers[row["_id"]])
        for row in _rows(place / "queries.jsonl.xz")
        if row["_id"] in answers
    ]
    return Collection(name, passages, questions)


async def load(library: Library, name: str, passages: Sequence[Passage]) -> KnowledgeBase:
    """Passages as a knowledge base, each a document whose uri is its id."""
    base = await library.create(name)
    for passage in passages:
        chunk = NewChunk(passage.text)
        await library.add(base.id, NewDocument(passage.title, (chunk,), passage.id, uri=passage.id))
    await library.wait_idle()
    return base


async def ask(library: Library, base: KnowledgeBase, question: Question, *, threshold: float = 0.0) -> SearchResult:
    """Ten results for a question."""
    return await library.search(SearchRequest(question.text, base.id, threshold))


def ndcg(found: SearchResult, question: Question) -> float:
    """Normalised discounted cumulative gain of the results."""
    gained = sum(question.answers.get(hit.uri, 0) / math.log2(place + 2) for place, hit in enumerate(found.hits))
    best = sorted(question.answers.values(), reverse=True)[:10]
    return gained / sum(relevance / math.log2(place + 2) for place, relevance in enumerate(best))


async def mean_ndcg(library: Library, base: KnowledgeBase, questions: Sequence[Question]) -> float:
    """The mean over questions."""
    return statistics.fmean([ndcg(await ask(library, base, question), question) for question in questions])


def _lines(path: Path) -> Iterator[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, _lines(path))
