"""Vectors made in the background: searched when complete, resumed after an end, never mixed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from mcp_servers.knowledge.embedding import Embedder, Vectors
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from, reranker_from
from mcp_servers.knowledge.storage.sqlite import SQLiteDatabase
from mcp_servers.knowledge.text_analysis import ANALYZER_VERSION
from mcp_servers.knowledge.types import Access, Hit, SearchRequest
from tests.support.knowledge import document
from tests.support.model_service import ModelService

pytestmark = pytest.mark.anyio

TEXTS = ("sea and sand", "mountain and snow", "river and reed")


@pytest.fixture
def service() -> Iterator[ModelService]:
    with ModelService() as service:
        yield service


def model(service: ModelService, name: str = "words") -> Embedder:
    embedder = embedder_from(f"{service.url}#{name}")
    assert embedder
    return embedder


def settings_for(url: str, *models: Any, **more: Any) -> LibrarySettings:
    """Settings with these models over a database."""
    return LibrarySettings(*models, database_url=url, **more)


async def wait_idle(library: Library) -> None:
    with anyio.fail_after(60):
        await library.indexer.wait_idle()


async def filled(library: Library, *texts: str) -> str:
    base = await library.create("base")
    for text in texts:
        await library.add(base.id, document(text))
    await wait_idle(library)
    return base.id


async def first(library: Library, base_id: str, query: str) -> Hit:
    return (await library.search(SearchRequest(query, base_id, threshold=0))).hits[0]


async def test_a_document_has_its_words_at_once_and_its_vectors_soon(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        base_id = await filled(library, *TEXTS)
        state = await library.index_state(base_id)
        assert (state.active_embedder, state.next_embedding, state.done, state.chunks) == ("words", "", 3, 3)
        # No word in common: only the vector finds it.
        hit = await first(library, base_id, "mountainside")
        assert (hit.content, hit.scores.sparse) == ("mountain and snow", None)
        assert hit.scores.dense == pytest.approx(1.0, abs=0.01)


async def test_an_engine_that_is_down_leaves_its_stage_out_and_the_answer_says_so(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    reranker = reranker_from(f"{service.url}#judge")
    async with open_library(tmp_path, settings_for(database_url, model(service), reranker)) as library:
        base_id = await filled(library, *TEXTS)
        for path in ("/v1/embeddings", "/v1/rerank"):
            service.fail(path)
        result = await library.search(SearchRequest("mountain snow", base_id, threshold=0), explain=True)
        assert [hit.content for hit in result.hits][:1] == ["mountain and snow"]
        assert len(result.left_out) == 2
        assert all("Failed to connect to http://127.0.0.1" in sentence for sentence in result.left_out)
        assert {stage.stage for stage in result.explained if stage.left_out} == {
            "base filter",
            "metadata filter",
            "dense",
            "cross-encoder",
        }


async def test_the_cross_encoder_has_the_last_word_on_the_first_ten(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    reranker = reranker_from(f"{service.url}#judge")
    async with open_library(tmp_path, settings_for(database_url, reranker=reranker)) as library:
        base_id = await filled(
            library, *(f"snow {number}" for number in range(11)), "sea snow with many other words in it"
        )
        hits = (await library.search(SearchRequest("sea snow", base_id, threshold=0, max_results=12))).hits
        assert (hits[0].content, hits[0].score) == ("sea snow with many other words in it", 0.95)
        assert [hit.scores.cross_encoder for hit in hits] == [0.95, *[0.05] * 9, None, None]
        assert max(hit.score for hit in hits[10:]) <= 0.05
        shown = (await library.search(SearchRequest("sea snow", base_id))).hits
        assert [hit.is_weak for hit in shown] == [False, True, True]


async def test_chunks_that_the_cross_encoder_did_not_score_rank_below_those_it_scored(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    reranker = reranker_from(f"{service.url}#judge")
    async with open_library(tmp_path, settings_for(database_url, reranker=reranker)) as library:
        base = await library.create("base")
        # Of one document: several that answer as well would lower the score of each.
        await library.add(base.id, document(*(f"snow {number}" for number in range(12))))
        hits = (await library.search(SearchRequest("sea snow", base.id, threshold=0, max_results=12))).hits
    # Without a cross-encoder each of them would score more than 0.05 for its word.
    assert [(hit.score, hit.scores.cross_encoder) for hit in hits] == [*[(0.05, 0.05)] * 10, *[(0.05, None)] * 2]


async def test_work_that_could_not_be_done_is_done_later(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    answer = service.answers["/v1/embeddings"]
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        service.fail("/v1/embeddings")
        base_id = await filled(library, TEXTS[0])
        state = await library.index_state(base_id)
        assert (state.done, "HTTP 503" in state.problem) == (0, True)
        service.answers["/v1/embeddings"] = answer
        await library.add(base_id, document(TEXTS[1]))
        await wait_idle(library)
        state = await library.index_state(base_id)
        assert (state.done, state.problem) == (2, "")


async def test_another_embedder_takes_over_when_its_vectors_are_complete(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    async with open_library(tmp_path, settings_for(database_url, HashingEmbedder())) as library:
        base_id = await filled(library, *(f"{TEXTS[0]} {number}" for number in range(40)))
    good = service.answers["/v1/embeddings"]
    batches = 0

    def fails_later(body: dict[str, object]) -> tuple[int, object]:
        nonlocal batches
        batches += 1
        return good(body) if batches <= 2 else (503, {})

    service.answers["/v1/embeddings"] = fails_later
    # Two requests of sixteen make the first batch of 32; the third fails, and the program ends.
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        await wait_idle(library)
        state = await library.index_state(base_id)
        assert (state.active_embedder, state.next_embedding, state.done) == ("hashing-1024", "words", 32)
        hit = await first(library, base_id, "sea")
        assert hit.scores.dense is not None
    service.answers["/v1/embeddings"] = good
    service.asked.clear()
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        await wait_idle(library)
        state = await library.index_state(base_id)
        assert (state.active_embedder, state.next_embedding, state.done) == ("words", "", 40)
        assert sum(len(asked.body["input"]) for asked in service.asked) == 8
        assert (await first(library, base_id, "sea")).scores.dense == pytest.approx(1.0, abs=0.01)


async def test_vectors_of_a_missing_embedder_are_not_compared(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        base_id = await filled(library, *TEXTS)
    async with open_library(tmp_path, settings_for(database_url)) as library:
        result = await library.search(SearchRequest("mountain", base_id, threshold=0))
        assert result.left_out == (
            "the search by vectors was left out: its vectors are of words, which is not configured",
        )
        assert result.hits[0].scores.dense is None
    async with open_library(tmp_path, settings_for(database_url, previous=(model(service),))) as library:
        assert (await first(library, base_id, "mountain")).scores.dense is not None


async def test_vectors_of_another_length_are_refused(tmp_path: Path, database_url: str, service: ModelService) -> None:
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        base_id = await filled(library, TEXTS[0])
        service.answers["/v1/embeddings"] = lambda body: (
            200,
            {"data": [{"index": at, "embedding": [1.0, 2.0]} for at in range(len(body["input"]))]},
        )
        await library.add(base_id, document(TEXTS[1]))
        await wait_idle(library)
        assert "it gave vectors of 2 numbers, before 7" in (await library.index_state(base_id)).problem
        result = await library.search(SearchRequest("sea", base_id, threshold=0))
        assert (result.hits[0].content, result.hits[0].scores.dense) == (TEXTS[0], None)


async def test_reindexing_makes_everything_anew_and_goes_back_to_the_same(tmp_path: Path, database_url: str) -> None:
    async with open_library(tmp_path, settings_for(database_url, HashingEmbedder())) as library:
        base_id = await filled(library, *TEXTS)
        before = await first(library, base_id, "mountain snow")
        assert (await library.reindex(base_id)).next_embedding == "hashing-1024"
        await wait_idle(library)
        assert (await library.index_state(base_id)).next_embedding == ""
        assert await first(library, base_id, "mountain snow") == before


async def test_reindexing_twice_goes_on_and_is_logged(
    tmp_path: Path, database_url: str, service: ModelService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcp_servers")
    good = service.answers["/v1/embeddings"]
    embedder = embedder_from(f"{service.url}#words", batch=4)
    async with open_library(tmp_path, settings_for(database_url, embedder)) as library:
        base_id = await filled(library, *(f"{TEXTS[0]} {number}" for number in range(12)))
        service.asked.clear()
        service.answers["/v1/embeddings"] = lambda body: good(body) if len(service.asked) <= 2 else (503, {})
        await library.reindex(base_id)
        await wait_idle(library)
        assert (await library.index_state(base_id)).done == 8
        service.answers["/v1/embeddings"] = good
        assert (await library.reindex(base_id)).done == 8
        await wait_idle(library)
        assert (await library.index_state(base_id)).next_embedding == ""
    made = [text for asked in service.asked for text in asked.body["input"]]
    assert (len(made), len(set(made))) == (16, 12)
    assert [
        record.getMessage().partition(": ")[2] for record in caplog.records if record.name.startswith("mcp_servers")
    ][-2:] == [
        f"Failed to connect to {service.url}: HTTP 503 for /embeddings; this is repeated later",
        "12 of 12 vectors of words",
    ]


async def test_the_index_of_an_older_analyzer_is_made_anew(tmp_path: Path) -> None:
    async with open_library(tmp_path) as library:
        base_id = await filled(library, *TEXTS)
        before = await first(library, base_id, "mountain")
    database = SQLiteDatabase(tmp_path)
    with database.writing() as connection:
        connection.execute("UPDATE base SET analyzer = 0")
        connection.execute("DROP TABLE text_1")
        connection.execute("CREATE VIRTUAL TABLE text_1 USING fts5(terms, content='', tokenize='ascii')")
        connection.execute("INSERT INTO text_1 (rowid, terms) VALUES (1, 'terms of another time')")
        connection.execute("CREATE VIRTUAL TABLE vocabulary_1 USING fts5vocab(text_1, row)")
    async with open_library(tmp_path) as library:
        await wait_idle(library)
        assert await first(library, base_id, "mountain") == before
        assert not (await library.search(SearchRequest("another time", base_id, threshold=0))).hits
    with database.reading() as connection:
        assert connection.execute("SELECT analyzer FROM base").fetchone() == (ANALYZER_VERSION,)
        # Earlier versions made it.
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vocabulary_1'").fetchone()
    database.close()


async def test_the_vectors_in_memory_follow_changes_by_other_processes(tmp_path: Path, database_url: str) -> None:
    settings = settings_for(database_url, HashingEmbedder())
    async with open_library(tmp_path, settings) as library, open_library(tmp_path, settings) as elsewhere:
        base_id = await filled(library, *TEXTS)
        assert (await first(library, base_id, "river reed")).content == TEXTS[2]
        river = next(
            one for one in await elsewhere.documents(base_id) if one.content_hash == document(TEXTS[2]).content_hash
        )
        await elsewhere.remove(river.id)
        for number in range(70):
            await elsewhere.add(base_id, document(f"lake {number}"))
        request = SearchRequest("lake 69 river", base_id, threshold=0, max_results=50)
        hits = (await library.search(request)).hits
        assert hits[0].content == "lake 69"
        assert TEXTS[2] not in {hit.content for hit in hits}
        assert all(hit.scores.dense is not None for hit in hits)


async def test_the_vector_search_sees_only_what_the_person_may_see(
    tmp_path: Path, database_url: str, service: ModelService
) -> None:
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        base = await library.create("base")
        await library.add(base.id, document(*(f"sea {number}" for number in range(600)), clearance=5))
        await library.add(base.id, document("mountain and sea"))
        await wait_idle(library)
        hits = (await library.search(SearchRequest("seas", base.id, threshold=0), Access(clearance=1))).hits
        assert [hit.content for hit in hits] == ["mountain and sea"]


async def test_many_bases_are_narrowed_to_the_nearest(tmp_path: Path, database_url: str, service: ModelService) -> None:
    async with open_library(tmp_path, settings_for(database_url, model(service))) as library:
        for number in range(10):
            base = await library.create(f"base {number}")
            await library.add(base.id, document(TEXTS[0] if number < 8 else TEXTS[1]))
        await wait_idle(library)
        result = await library.search(SearchRequest("sea", threshold=0), explain=True)
        stage = next(stage for stage in result.explained if stage.stage == "base filter")
        assert stage.made == "8 knowledge bases nearest by their summary vectors"
        assert {hit.content for hit in result.hits} == {TEXTS[0]}


class HeldEmbedder:
    """Gives no vector before it may."""

    name = "held"
    is_fast = False
    batch = 32

    def __init__(self) -> None:
        self.asked, self.may_answer = anyio.Event(), anyio.Event()

    async def embed(self, texts: Sequence[str], *, are_queries: bool = False) -> Vectors:
        if not are_queries:
            self.asked.set()
            await self.may_answer.wait()
        return np.tile(np.array([[1.0, 0.0]], np.float32), (len(texts), 1))


async def remove_document(library: Library, base_id: str) -> None:
    (only,) = await library.documents(base_id)
    await library.remove(only.id)


async def reindex_twice(library: Library, base_id: str) -> None:
    # The second removes the set that the first began.
    for _ in range(2):
        await library.reindex(base_id)


async def remove_base(library: Library, base_id: str) -> None:
    await library.remove_base(base_id)


@pytest.mark.parametrize("change", [remove_document, reindex_twice, remove_base])
async def test_what_changes_while_vectors_are_made_does_not_end_the_work(
    tmp_path: Path, database_url: str, change: Callable[[Library, str], Awaitable[None]]
) -> None:
    embedder = HeldEmbedder()
    async with open_library(tmp_path, settings_for(database_url)) as library:
        changing = (await library.create("changing")).id
        await library.add(changing, document("sea"))
    async with open_library(tmp_path, settings_for(database_url, embedder)) as library:
        with anyio.fail_after(60):
            await embedder.asked.wait()
            await change(library, changing)
            embedder.may_answer.set()
            await library.indexer.wait_idle()
            other = await library.create("other")
            await library.add(other.id, document("mountain"))
            await library.indexer.wait_idle()
        state = await library.index_state(other.id)
    assert (state.active_embedder, state.done, state.problem) == ("held", 1, "")
