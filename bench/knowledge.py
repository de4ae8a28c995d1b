"""Search quality and speed of the knowledge base, compared with the reference implementation.

    python -m bench.knowledge quality [--questions N] [--embedder none|hashing]
    python -m bench.knowledge speed [--chunks 10000 --chunks 100000] [--embedder none|hashing]
    python -m bench.knowledge rebuild [--chunks 100000]
    (all with --json)

``quality``: nDCG@10 on the shared collections, through all stages, with every question unless ``--questions`` limits
them.

``speed``: chunks synthesized from sentences of the collections, Japanese and English 3 : 1, twenty per document, one
transaction per document; then the collections' own questions, sequentially at threshold 0.6. Processor time is reported
besides elapsed time, for busy machines. Memory is the maximum of the process, including the collections.

``rebuild``: the same chunks without an embedder; an import of twenty chunks and a search every 50 ms, alone for 20 s
and then beside a rebuild of the text index until it ends, with the largest write-ahead log and the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import anyio

from bench.knowledge_collections import COLLECTIONS, Collection, Question, ask, load, mean_ndcg, read_collection
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.storage.database import FILE_NAME
from mcp_servers.knowledge.types import KnowledgeBase, NewChunk, NewDocument

# nDCG@10 of the best without a model, and of the FTS5 index alone, as the reference measured them.
REFERENCE_BEST = {"jsquad": 0.938, "xquad_en": 0.966, "scifact": 0.681}
REFERENCE_SPARSE = {"jsquad": 0.931, "xquad_en": 0.966, "scifact": 0.675}
AIMS = {"jsquad": 0.930, "xquad_en": 0.965, "scifact": 0.670}
P95_AIMS_MS = {10_000: 60.0, 100_000: 150.0}
_CHUNKS_IN_A_DOCUMENT = 20
_QUESTIONS_TIMED = 250
_JAPANESE_SHARE = 4
_ALONE_S = 20.0


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


@dataclass(frozen=True)
class Waits:
    """Duration of imports and searches, alone or beside a rebuild of the text index."""

    chunks: int
    beside: str
    seconds: float
    imports: int
    import_p50_ms: float
    import_p95_ms: float
    import_max_ms: float
    search_p50_ms: float
    search_max_ms: float
    log_mb: float
    load: float


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


async def rebuild(chunks: int) -> list[Waits]:
    """Imports and searches of one size, alone and beside a rebuild."""
    japanese, english = read_collection("jsquad"), read_collection("xquad_en")
    titles = [passage.title for passage in japanese.passages]
    texts = list(mixed(japanese, english, chunks))
    with tempfile.TemporaryDirectory() as folder:
        async with open_library(Path(folder)) as library:
            base, _ = await _index(library, texts, titles)
            asked = (texts, _questions(japanese, english), Path(folder))
            alone = await waits(library, base, *asked, _ALONE_S)
            await library.reindex(base.id)
            return [alone, await waits(library, base, *asked, None)]


async def waits(
    library: Library,
    base: KnowledgeBase,
    texts: Sequence[str],
    questions: Sequence[Question],
    folder: Path,
    seconds: float | None,
) -> Waits:
    """Import and search for some seconds; with None until the background work has ended."""
    imported, searched, log = list[float](), list[float](), list[int]()

    async def work() -> None:
        for number in count():
            parts = texts[number * _CHUNKS_IN_A_DOCUMENT % len(texts) :][:_CHUNKS_IN_A_DOCUMENT]
            new = NewDocument("import", tuple(map(NewChunk, parts)), f"{start}/{number}")
            before = time.perf_counter()
            await library.add(base.id, new)
            imported.append((time.perf_counter() - before) * 1000)
            searched.append((await _timed(library, base, questions[number % len(questions)]))[0] * 1000)
            log.append((await anyio.Path(f"{folder / FILE_NAME}-wal").stat()).st_size)
            await anyio.sleep(0.05)

    start = time.perf_counter()
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await (library.wait_idle() if seconds is None else anyio.sleep(seconds))
        group.cancel_scope.cancel()
    return Waits(
        chunks=(await library.index_state(base.id)).chunks,
        beside="rebuild" if seconds is None else "nothing",
        seconds=time.perf_counter() - start,
        imports=len(imported),
        import_p50_ms=statistics.median(imported),
        import_p95_ms=statistics.quantiles(imported, n=20)[-1],
        import_max_ms=max(imported),
        search_p50_ms=statistics.median(searched),
        search_max_ms=max(searched),
        log_mb=max(log) / 1e6,
        load=os.getloadavg()[0],
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
    await library.wait_idle()
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


def print_table(rows: Sequence[Quality | Speed | Waits]) -> None:
    """Rows of one kind as a Markdown table."""
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
    parser.add_argument("what", choices=("quality", "speed", "rebuild"))
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    parser.add_argument("--questions", type=int, help="per collection (default: all)")
    parser.add_argument("--chunks", type=int, action="append", help="default: 10000 and 100000")
    parser.add_argument("--embedder", action="append", choices=("none", "hashing"), help="default: both")
    given = parser.parse_args()
    rows: list[Quality | Speed | Waits] = []
    for chunks in (given.chunks or (100_000,)) if given.what == "rebuild" else ():
        rows += await rebuild(chunks)
    for embedder in given.embedder or ("none", "hashing") if given.what != "rebuild" else ():
        if given.what == "quality":
            rows += await quality(embedder, given.questions)
        else:
            rows += [await speed(embedder, chunks) for chunks in given.chunks or (10_000, 100_000)]
    if given.json:
        for row in rows:
            print(json.dumps(asdict(row)))
    else:
        print_table(rows)


if __name__ == "__main__":
    anyio.run(_main)
