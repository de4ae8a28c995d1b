"""Effect of the threshold on questions with and without an answer in the knowledge base.

    python -m bench.knowledge_calibration [--json] [--whole] [--questions 400] [--half tuning|held-out|both]

Half of a collection's articles are omitted, so the questions about them have no answer although they are of the same
kind: the hardest test a collection offers. With
``--whole`` nothing is omitted, and the unanswerable questions are those of another collection, as in the reference.

``recall`` is in the first ten, with and without threshold; ``returned`` the mean number of results; ``empty``
answerable questions without results, ``answered`` unanswerable ones with results, ``foreign`` the same for questions of
another collection in the same language.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

from bench.knowledge_collections import COLLECTIONS, Collection, Question, ask, load, read_collection
from mcp_servers.knowledge.library import LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import Hit

_FOREIGN = {"xquad_en": "scifact", "scifact": "xquad_en"}
THRESHOLDS = (0.5, 0.6, 0.7, 0.8)


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


async def measure(name: str, embedder: str, questions: int, half: str, *, is_atomic: bool) -> list[Row]:
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


def print_table(table: Sequence[Row]) -> None:
    """The rows as a Markdown table."""
    print("| collection | embedder | threshold | recall kept / without | returned | empty | answered | foreign |")
    print("|---|---|---|---|---|---|---|---|")
    for row in table:
        print(
            f"| {row.collection} | {row.embedder} | {row.threshold:g} | {row.recall:.3f} / {row.recall_without:.3f}"
            f" | {row.returned:.1f} | {row.empty:.1%} | {_share(row.answered)} | {_share(row.foreign)} |"
        )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


async def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    parser.add_argument("--whole", action="store_true", help="leave nothing out of the base")
    parser.add_argument("--questions", type=int, default=400, help="of each kind and collection (default: 400)")
    parser.add_argument("--half", choices=("tuning", "held-out", "both"), default="held-out", help="of the questions")
    parser.add_argument("--embedder", action="append", choices=("none", "hashing"), help="default: both")
    given = parser.parse_args()
    table: list[Row] = []
    for embedder in given.embedder or ("none", "hashing"):
        for name in COLLECTIONS:
            table += await measure(name, embedder, given.questions, given.half, is_atomic=given.whole)
    if given.json:
        for row in table:
            print(json.dumps(asdict(row)))
    else:
        print_table(table)


if __name__ == "__main__":
    anyio.run(_main)
