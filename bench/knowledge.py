"""Search quality, speed and thresholds of the knowledge base, on the shared retrieval collections.

    python -m bench.knowledge quality [--questions N] [--embedder none|hashing]
    python -m bench.knowledge speed [--chunks 10000 --chunks 100000] [--embedder none|hashing]
    python -m bench.knowledge calibration [--whole] [--questions 400] [--half tuning|held-out|both]
    (all with --json)

A collection is ``corpus.jsonl.xz`` ({_id, title, text}), ``queries.jsonl.xz`` ({_id, text}) and ``qrels.tsv.xz``
(question, document, relevance). Licences are in the folder of each collection.

``quality``: nDCG@10 through all stages, with every question unless ``--questions`` limits them, next to the reference
implementation's.

``speed``: chunks synthesized from sentences of the collections, Japanese and English 3 : 1, twenty per document, one
transaction per document; then the collections' own questions, sequentially at threshold 0.6. Processor time is reported
in addition to elapsed time, for busy machines. Memory is the maximum of the process, including the collections.

``calibration``: the effect of the threshold on questions with and without an answer. Half of a collection's articles
are omitted, so the questions about them have no answer although they are of the same kind; with ``--whole`` nothing is
omitted, and the unanswerable questions are those of another collection. ``recall`` is in the first ten, with and
without threshold; ``returned`` the mean number of results; ``empty`` answerable questions without results, ``answered``
unanswerable ones with results, ``foreign`` the same for questions of another collection in the same language.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import random
import re
import resource
import statistics
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio

from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import Hit, KnowledgeBase, NewChunk, NewDocument, SearchRequest, SearchResult

COLLECTIONS = ("jsquad", "xquad_en", "scifact")
SHARED = Path(os.environ.get("RKLLM_MCP_SHARED", Path(__file__).resolve().parents[2] / "shared"))
# nDCG@10 of the best without a model, and of the FTS5 index alone, as the reference measured them.
REFERENCE_BEST = {"jsquad": 0.938, "xquad_en": 0.966, "scifact": 0.681}
REFERENCE_SPARSE = {"jsquad": 0.931, "xquad_en": 0.966, "scifact": 0.675}
AIMS = {"jsquad": 0.930, "xquad_en": 0.965, "scifact": 0.670}
P95_AIMS_MS = {10_000: 60.0, 100_000: 150.0}
_CHUNKS_IN_A_DOCUMENT = 20
_QUESTIONS_TIMED = 250
_JAPANESE_SHARE = 4
_FOREIGN = {"xquad_en": "scifact", "scifact": "xquad_en"}
THRESHOLDS = (0.5, 0.6, 0.7, 0.8)


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
        folder: where the collections are; None looks next to the project.
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
    await library.indexer.wait_idle()
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


# --- quality and speed


@dataclass(frozen=True)
class Quality:
    """nDCG@10 of one collection with one embedder."""

    collection: str
    embedder: str
    questions: int
    ndcg: float
    aim: float
    reference_best: float
    reference_sparse: float


@dataclass(frozen=True)
class Speed:
    """Cost of a number of chunks."""

    chunks: int
    embedder: str
    characters: float
    chunks_per_s: float
    file_mb: float
    p50_ms: float
    p95_ms: float
    p95_aim_ms: float | None
    p50_cpu_ms: float
    p95_cpu_ms: float
    most_memory_mb: float


async def quality(embedder: str, most: int | None) -> list[Quality]:
    """Every collection with one embedder."""
    table: list[Quality] = []
    for name in COLLECTIONS:
        collection = read_collection(name)
        questions = collection.thinned(most).questions if most else collection.questions
        with tempfile.TemporaryDirectory() as folder:
            async with open_library(Path(folder), LibrarySettings(embedder_from(embedder))) as library:
                base = await load(library, name, collection.passages)
                mean = await mean_ndcg(library, base, questions)
        figures = (AIMS[name], REFERENCE_BEST[name], REFERENCE_SPARSE[name])
        table.append(Quality(name, embedder, len(questions), mean, *figures))
    return table


async def speed(embedder: str, chunks: int) -> Speed:
    """One size with one embedder."""
    japanese, english = read_collection("jsquad"), read_collection("xquad_en")
    texts = list(mixed(japanese, english, chunks))
    titles = [passage.title for passage in japanese.passages]
    with tempfile.TemporaryDirectory() as folder:
        async with open_library(Path(folder), LibrarySettings(embedder_from(embedder))) as library:
            base, seconds = await _index(library, texts, titles)
            times = [await _timed(library, base, question) for question in _questions(japanese, english)]
            size = folder_bytes(Path(folder))
    waited, worked = [wall * 1000 for wall, _ in times], [cpu * 1000 for _, cpu in times]
    return Speed(
        chunks=chunks,
        embedder=embedder,
        characters=statistics.fmean(map(len, texts)),
        chunks_per_s=chunks / seconds,
        file_mb=size / 1e6,
        p50_ms=statistics.median(waited),
        p95_ms=statistics.quantiles(waited, n=20)[-1],
        p95_aim_ms=P95_AIMS_MS.get(chunks) if embedder == "none" else None,
        p50_cpu_ms=statistics.median(worked),
        p95_cpu_ms=statistics.quantiles(worked, n=20)[-1],
        most_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def folder_bytes(folder: Path) -> int:
    """Return the size of the files of a folder."""
    return sum(file.stat().st_size for file in folder.iterdir())


def mixed(japanese: Collection, english: Collection, chunks: int) -> Iterator[str]:
    """Synthesize chunks from sentences of the collections, deterministically."""
    chance = random.Random(7)
    in_japanese = [part for passage in japanese.passages for part in re.split(r"(?<=。)", passage.text) if part]
    in_english = [part for passage in english.passages for part in re.split(r"(?<=\.) ", passage.text) if part]
    for place in range(chunks):
        if place % _JAPANESE_SHARE:
            yield "".join(chance.sample(in_japanese, 3))
        else:
            yield " ".join(chance.sample(in_english, 2))


async def _index(library: Library, texts: Sequence[str], titles: Sequence[str]) -> tuple[KnowledgeBase, float]:
    base = await library.create("speed")
    start = time.perf_counter()
    for number, first in enumerate(range(0, len(texts), _CHUNKS_IN_A_DOCUMENT)):
        chunks = tuple(map(NewChunk, texts[first : first + _CHUNKS_IN_A_DOCUMENT]))
        await library.add(base.id, NewDocument(titles[number % len(titles)], chunks, str(number), uri=str(number)))
    await library.indexer.wait_idle()
    return base, time.perf_counter() - start


def _questions(japanese: Collection, english: Collection) -> list[Question]:
    share = _QUESTIONS_TIMED // _JAPANESE_SHARE
    questions = [*japanese.thinned(_QUESTIONS_TIMED - share).questions, *english.thinned(share).questions]
    random.Random(1).shuffle(questions)
    return questions


async def _timed(library: Library, base: KnowledgeBase, question: Question) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    await ask(library, base, question, threshold=0.6)
    return time.perf_counter() - start, time.process_time() - cpu


# --- thresholds


@dataclass(frozen=True)
class Row:
    """One line of the table; shares in 0..1."""

    collection: str
    embedder: str
    threshold: float
    recall: float
    recall_without: float
    returned: float
    empty: float
    answered: float | None
    foreign: float | None


@dataclass(frozen=True)
class Asked:
    """A question and its results."""

    question: Question
    hits: tuple[Hit, ...]

    def recall(self, threshold: float) -> float:
        """The share of its answers among the results."""
        found = {hit.uri for hit in self.hits if hit.score >= threshold}
        return len(found & self.question.answers.keys()) / len(self.question.answers)

    def returned(self, threshold: float) -> int:
        """Return the number of results."""
        return sum(hit.score >= threshold for hit in self.hits)


def split(collection: Collection) -> tuple[Collection, Collection]:
    """The collection with half of its articles, and the other half of them with the questions about it.

    An article is known by its title: passages of one article stay together.
    """
    kept = [passage for passage in collection.passages if zlib.crc32(passage.title.encode()) % 2]
    there = {passage.id for passage in kept}
    left = [passage for passage in collection.passages if passage.id not in there]
    answerable = [question for question in collection.questions if there >= question.answers.keys()]
    unanswerable = [question for question in collection.questions if not there & question.answers.keys()]
    return Collection(collection.name, kept, answerable), Collection(collection.name, left, unanswerable)


def rows(
    name: str, embedder: str, answerable: Sequence[Asked], unanswerable: Sequence[Asked], foreign: Sequence[Asked]
) -> list[Row]:
    """The table of one collection."""
    without = statistics.fmean(asked.recall(0.0) for asked in answerable)
    return [
        Row(
            collection=name,
            embedder=embedder,
            threshold=threshold,
            recall=statistics.fmean(asked.recall(threshold) for asked in answerable),
            recall_without=without,
            returned=statistics.fmean(asked.returned(threshold) for asked in answerable),
            empty=statistics.fmean(not asked.returned(threshold) for asked in answerable),
            answered=_answered(unanswerable, threshold),
            foreign=_answered(foreign, threshold),
        )
        for threshold in THRESHOLDS
    ]


def _answered(asked: Sequence[Asked], threshold: float) -> float | None:
    return statistics.fmean(bool(one.returned(threshold)) for one in asked) if asked else None


async def calibration(name: str, embedder: str, questions: int, half: str, *, is_atomic: bool) -> list[Row]:
    """The table of one collection with one embedder."""
    collection = read_collection(name)
    inside, outside = (collection, Collection(name, [], [])) if is_atomic else split(collection)
    foreign = [read_collection(_FOREIGN[name])] if name in _FOREIGN else []
    with tempfile.TemporaryDirectory() as folder:
        async with open_library(Path(folder), LibrarySettings(embedder_from(embedder))) as library:
            base = await load(library, name, inside.passages)
            # Python 3.10 takes no comprehension that awaits inside another.
            asked: list[list[Asked]] = []
            for part in (inside, outside, *foreign):
                chosen = _half(part, questions, half)
                asked.append([Asked(question, (await ask(library, base, question)).hits) for question in chosen])
    return rows(name, embedder, asked[0], asked[1], asked[2] if foreign else [])


def _half(collection: Collection, most: int, half: str) -> Sequence[Question]:
    chosen = {"tuning": {0}, "held-out": {1}, "both": {0, 1}}[half]
    questions = [q for place, q in enumerate(collection.questions) if place % 2 in chosen]
    return Collection(collection.name, collection.passages, questions).thinned(most).questions


def print_table(rows: Sequence[Quality | Speed | Row]) -> None:
    """Print rows of one kind as a Markdown table."""
    names = list(asdict(rows[0]))
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(_cell(value) for value in asdict(row).values()) + " |")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if value < 1 else f"{value:.1f}"
    return "" if value is None else str(value)


async def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("quality", "speed", "calibration"))
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    parser.add_argument("--questions", type=int, help="per collection (default: all; for calibration 400 of each kind)")
    parser.add_argument("--chunks", type=int, action="append", help="default: 10000 and 100000")
    parser.add_argument("--embedder", action="append", choices=("none", "hashing"), help="default: both")
    parser.add_argument("--whole", action="store_true", help="leave nothing out of the base")
    parser.add_argument("--half", choices=("tuning", "held-out", "both"), default="held-out", help="of the questions")
    given = parser.parse_args()
    rows: list[Quality | Speed | Row] = []
    for embedder in given.embedder or ("none", "hashing"):
        if given.what == "quality":
            rows += await quality(embedder, given.questions)
        elif given.what == "speed":
            rows += [await speed(embedder, chunks) for chunks in given.chunks or (10_000, 100_000)]
        else:
            for name in COLLECTIONS:
                rows += await calibration(name, embedder, given.questions or 400, given.half, is_atomic=given.whole)
    if given.json:
        for row in rows:
            print(json.dumps(asdict(row)))
    else:
        print_table(rows)


if __name__ == "__main__":
    anyio.run(_main)
