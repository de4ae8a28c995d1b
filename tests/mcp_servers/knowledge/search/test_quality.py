"""Samples of the collections are answered as well as they were when docs/development/search.md was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.knowledge import Asked, Collection, ask, load, mean_ndcg, read_collection, rows, split
from mcp_servers.knowledge.embedding import Embedder
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.library import LibrarySettings, open_library
from tests.support.shared import shared_path

pytestmark = pytest.mark.anyio


def sample(name: str, passages: int, questions: int) -> Collection:
    """A few passages of a collection, evenly chosen, and questions that they answer."""
    whole = read_collection(name, shared_path("cases", "retrieval"))
    answers = {
        passage for question in whole.questions[:: len(whole.questions) // questions] for passage in question.answers
    }
    step = len(whole.passages) // passages
    kept = [p for at, p in enumerate(whole.passages) if at % step == 0 or p.id in answers]
    asked = [question for question in whole.questions if question.answers.keys() <= {p.id for p in kept}]
    return Collection(name, kept, asked).thinned(questions)


async def measured(folder: Path, collection: Collection, embedder: Embedder | None) -> float:
    """The mean nDCG; the folder is filled when it is empty, and then only given its vectors."""
    async with open_library(folder, LibrarySettings(embedder)) as library:
        base = next(iter(await library.bases()), None) or await load(library, collection.name, collection.passages)
        await library.indexer.wait_idle()
        assert (await library.base(base.id)).embedder == (embedder.name if embedder else "")
        return await mean_ndcg(library, base, collection.questions)


# Floors are a point below what was measured on these very samples, so that a lost point is seen.
@pytest.mark.parametrize(("name", "floor"), [("jsquad", 0.985), ("xquad_en", 0.948), ("scifact", 0.815)])
async def test_a_sample_is_answered_no_worse_than_before_nor_worse_with_an_embedder(
    tmp_path: Path, name: str, floor: float
) -> None:
    collection = sample(name, passages=240, questions=80)
    alone = await measured(tmp_path, collection, None)
    assert alone >= floor
    assert await measured(tmp_path, collection, HashingEmbedder()) >= alone


async def asked(folder: Path, parts: Sequence[Collection]) -> list[list[Asked]]:
    async with open_library(folder) as library:
        base = await load(library, "calibration", parts[0].passages)

        # Python 3.10 takes no comprehension that awaits inside another.
        async def answers(part: Collection) -> list[Asked]:
            return [Asked(q, (await ask(library, base, q)).hits) for q in part.questions]

        return [await answers(part) for part in parts]


async def test_the_threshold_means_what_the_guide_says(tmp_path: Path) -> None:
    inside, outside = split(sample("jsquad", passages=240, questions=400))
    answerable, unanswerable = await asked(tmp_path, (inside.thinned(60), outside.thinned(60)))
    broad, balanced, strict, _ = rows("jsquad", "none", answerable, unanswerable, [])
    assert broad.recall >= 0.9 * broad.recall_without
    assert balanced.recall >= 0.8 * balanced.recall_without
    answered = [row.answered for row in (strict, balanced, broad) if row.answered is not None]
    assert (len(answered), answered) == (3, sorted(answered))
    assert answered[1] <= 0.1
    assert strict.returned < balanced.returned < broad.returned
