"""The same questions to the same documents in a file and in PostgreSQL: the order of the results, and the time.

    python -m bench.knowledge_stores postgresql://USER@HOST/NAME [--collection jsquad] [--questions 500]
    python -m bench.knowledge_stores postgresql://USER@HOST/NAME --documents FOLDER

Documents are added to a file, exported and imported into the database, whose knowledge bases stay there. With
``--documents`` (a folder for each corpus, as ``bench.own_words``) the questions are those in a person's own words.
``same order`` counts the questions whose results, ten for each, are the same passages in the same order with the same
scores. Times are of one question after the other, the first of each store, which opens connections, left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from bench.knowledge import COLLECTIONS, load, read_collection
from bench.knowledge import ndcg as ndcg_of
from bench.own_words import GROUPS, is_right
from bench.own_words import load as load_documents
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import SearchRequest, SearchResult

Order = list[tuple[str, str, float]]


class Asked:
    """Answers of one store."""

    def __init__(self) -> None:
        self.results: list[SearchResult] = []
        self.seconds: list[float] = []

    async def ask(self, library: Library, base_id: str, text: str) -> None:
        """Ask a question without a threshold."""
        start = time.perf_counter()
        self.results.append(await library.search(SearchRequest(text, base_id, threshold=0.0)))
        self.seconds.append(time.perf_counter() - start)

    def orders(self) -> list[Order]:
        """The passages of each question."""
        return [[(hit.uri, hit.content, round(hit.score, 9)) for hit in each.hits] for each in self.results]

    def times(self) -> str:
        """Median and 95th percentile."""
        warm = [each * 1000 for each in self.seconds[1:]]
        return f"{statistics.median(warm):.1f} / {statistics.quantiles(warm, n=20)[-1]:.1f} ms"


async def _copied(source: Library, target: Library, base_id: str) -> str:
    """Copy a knowledge base from one store to the other."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "base.jsonl.gz"
        await source.export_base(base_id, file)
        copied, _, _ = await target.import_base(file)
    await target.indexer.wait_idle()
    return copied


async def compare_collection(stores: Sequence[Library], name: str, most: int) -> None:
    """Print the figures of a collection."""
    collection = read_collection(name).thinned(most)
    start = time.perf_counter()
    base = await load(stores[0], name, collection.passages)
    loaded = [time.perf_counter() - start]
    start = time.perf_counter()
    bases = [base.id, await _copied(stores[0], stores[1], base.id)]
    loaded.append(time.perf_counter() - start)
    asked = [Asked() for _ in stores]
    for question in collection.questions:
        for store, base_id, each in zip(stores, bases, asked, strict=True):
            await each.ask(store, base_id, question.text)
    means = [
        statistics.fmean(
            ndcg_of(result, question) for result, question in zip(each.results, collection.questions, strict=True)
        )
        for each in asked
    ]
    print(f"{name}: {len(collection.passages)} passages, loaded in {loaded[0]:.1f} and {loaded[1]:.1f} s")
    print_comparison(asked, f"nDCG@10 {means[0]:.4f} and {means[1]:.4f}")


async def compare_own_words(stores: Sequence[Library], documents: Path) -> None:
    """Print the figures of the questions in a person's own words about those corpora that are there."""
    asked: Mapping[str, list[dict[str, Any]]] = json.loads(await anyio.Path(GROUPS["dev"]).read_text("utf-8"))
    bases = await load_documents(stores[0], documents)
    copies = {name: await _copied(stores[0], stores[1], base.id) for name, base in bases.items()}
    questions = [each for kind in asked.values() for each in kind if each["corpus"] in bases]
    answers = [Asked() for _ in stores]
    for question in questions:
        base_ids = (bases[question["corpus"]].id, copies[question["corpus"]])
        for store, base_id, each in zip(stores, base_ids, answers, strict=True):
            await each.ask(store, base_id, question["question"])
    rights = [
        sum(
            bool(result.hits) and is_right(result.hits[0], question["gold"])
            for result, question in zip(each.results, questions, strict=True)
            if question.get("gold")
        )
        for each in answers
    ]
    answerable = sum(bool(question.get("gold")) for question in questions)
    print(
        f"own words, {', '.join(bases)}: {answerable} questions with an answer, {len(questions) - answerable} without"
    )
    print_comparison(answers, f"right first {rights[0]} and {rights[1]}")


def print_comparison(asked: Sequence[Asked], figures: str) -> None:
    """Print how far two stores agree, and their times."""
    orders = [each.orders() for each in asked]
    same = sum(one == other for one, other in zip(*orders, strict=True))
    print(f"  same order {same} of {len(orders[0])}; {figures}")
    print(f"  file {asked[0].times()}, PostgreSQL {asked[1].times()} (p50 / p95)")


async def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", help="of a PostgreSQL database")
    parser.add_argument("--collection", choices=COLLECTIONS, default="jsquad")
    parser.add_argument("--questions", type=int, default=500, help="of the collection")
    parser.add_argument("--documents", type=Path, help="a folder for each corpus")
    parser.add_argument("--embedder", default="none")
    given = parser.parse_args()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = [
            await stack.enter_async_context(
                open_library(folder, LibrarySettings(embedder_from(given.embedder), database_url=url))
            )
            for url in ("", given.url)
        ]
        if given.documents:
            await compare_own_words(stores, given.documents)
        else:
            await compare_collection(stores, given.collection, given.questions)


if __name__ == "__main__":
    anyio.run(_main)
