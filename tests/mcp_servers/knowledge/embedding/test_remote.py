"""Embedders and rerankers: what goes out, what comes back, and what is said when it is of no use."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.embedding.remote import RemoteEmbedder, RemoteReranker
from mcp_servers.knowledge.errors import BadArgumentError, EngineUnreachableError
from mcp_servers.knowledge.service import embedder_from, reranker_from
from tests.support.model_service import ModelService, vector
from tests.support.outside import WITHOUT_END, hostile_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def service() -> Iterator[ModelService]:
    with ModelService() as service:
        yield service


def embedder_at(service: ModelService, model: str = "words", key: str = "") -> RemoteEmbedder:
    embedder = embedder_from(f"{service.url}#{model}", key=key)
    assert isinstance(embedder, RemoteEmbedder)
    return embedder


def reranker_at(service: ModelService) -> RemoteReranker:
    reranker = reranker_from(f"{service.url}#judge")
    assert isinstance(reranker, RemoteReranker)
    return reranker


async def test_hashing_gives_unit_vectors_that_know_a_relative_from_a_stranger() -> None:
    embedder = HashingEmbedder()
    near, far, empty = await embedder.embed(["the inhibitors of translation", "海の天気", ""])
    (query,) = await embedder.embed(["inhibition of a translator"], are_queries=True)
    assert [round(float(np.linalg.norm(row)), 5) for row in (near, far, empty, query)] == [1.0] * 4
    assert float(near @ query) > 0.3 > float(far @ query)


async def test_hashing_gives_the_same_vector_everywhere() -> None:
    # Vectors outlive the program that made them: another one must go on from there.
    vector_ = (await HashingEmbedder().embed(["梅雨 rain"]))[0]
    places = np.flatnonzero(vector_).tolist()
    assert [(place, round(float(vector_[place]), 3)) for place in places] == [(at, value) for at, value in _RAIN]


async def test_a_service_is_asked_in_batches_with_its_key_and_answers_in_any_order(service: ModelService) -> None:
    embedder = embedder_at(service, key="secret")
    texts = [f"sea {number}" if number % 2 else f"山 {number}" for number in range(20)]
    vectors = await embedder.embed(texts)
    expected = np.array([vector(text) for text in texts])
    assert np.allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    assert [len(asked.body["input"]) for asked in service.asked] == [16, 4]
    assert {asked.authorization for asked in service.asked} == {"Bearer secret"}
    assert service.asked[0].body | {"input": []} == {"model": "words", "input": [], "encoding_format": "float"}
    assert embedder.name == "words"
    await embedder.client.aclose()


@pytest.mark.parametrize("way", [*WITHOUT_END, "many", "deep", "compressed"])
async def test_an_answer_without_end_is_one_error(way: str) -> None:
    with hostile_server() as outside:
        outside.way = way
        embedder = embedder_from(f"{outside.url}#words", timeout_s=1)
        assert isinstance(embedder, RemoteEmbedder)
        with pytest.raises(EngineUnreachableError):
            await embedder.embed(["sea"])
        await embedder.client.aclose()
        # It reads 32 MiB at most, and the buffers of the network hold some more.
        assert outside.sent < 100_000_000


async def test_the_texts_and_the_time_of_a_request_can_be_chosen(service: ModelService) -> None:
    embedder = embedder_from(f"{service.url}#words", batch=3, timeout_s=1)
    assert isinstance(embedder, RemoteEmbedder)
    await embedder.embed(["sea"] * 7)
    assert [len(asked.body["input"]) for asked in service.asked] == [3, 3, 1]
    slow = threading.Event()
    service.answers["/v1/embeddings"] = lambda _: (200 if slow.wait(30) else 500, {})
    with pytest.raises(EngineUnreachableError, match="no answer in 1 s"):
        await embedder.embed(["sea"])
    slow.set()
    await embedder.client.aclose()


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("words", "海は？"),
        (
            "Qwen3-Embedding-0.6B",
            "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:海は？",
        ),
    ],
)
async def test_a_question_is_sent_as_the_model_was_trained_on(service: ModelService, model: str, sent: str) -> None:
    embedder = embedder_at(service, model)
    await embedder.embed(["海は？"], are_queries=True)
    assert service.asked[0].body["input"] == [sent]
    await embedder.client.aclose()


async def test_passages_get_the_prompt_of_their_model_and_their_own_vector_space(service: ModelService) -> None:
    embedder = embedder_at(service, "multilingual-e5-small")
    await embedder.embed(["海"])
    assert service.asked[0].body | {"encoding_format": ""} == {
        "model": "multilingual-e5-small",
        "input": ["passage: 海"],
        "encoding_format": "",
    }
    assert embedder.name != "multilingual-e5-small"
    await embedder.client.aclose()


_UNUSABLE: list[tuple[int, object, str]] = [
    (503, {}, "HTTP 503"),
    (200, b"<html>", "not JSON"),
    (200, [], "not an object"),
    (200, {"data": []}, "not 1 embeddings"),
    (200, {"data": [{"index": 0, "embedding": "zzz"}]}, "not 1 embeddings"),
    (200, {"data": [{"index": 0, "embedding": []}]}, "something else than vectors"),
    (200, {"data": [{"index": 0, "embedding": [0, 0]}]}, "zeros"),
    (200, b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}', "not JSON"),
]


@pytest.mark.parametrize(("status", "answer", "reason"), _UNUSABLE)
async def test_an_unusable_answer_is_an_unreachable_engine(
    service: ModelService, status: int, answer: object, reason: str
) -> None:
    service.answers["/v1/embeddings"] = lambda _: (status, answer)
    embedder = embedder_at(service, key="secret")
    with pytest.raises(EngineUnreachableError, match=reason) as caught:
        await embedder.embed(["sea"], are_queries=True)
    assert (caught.value.status, "secret" in str(caught.value)) == (503, False)
    await embedder.client.aclose()


async def test_an_address_without_a_service_is_reported_without_its_password() -> None:
    embedder = embedder_from("http://me:secret@127.0.0.1:9/v1#words")
    assert isinstance(embedder, RemoteEmbedder)
    with pytest.raises(EngineUnreachableError, match=r"Failed to connect to http://127\.0\.0\.1:9/v1") as caught:
        await embedder.embed(["sea"], are_queries=True)
    assert "secret" not in str(caught.value)
    await embedder.client.aclose()


async def test_a_reranker_gives_each_passage_its_relevance(service: ModelService) -> None:
    reranker = reranker_at(service)
    assert await reranker.relevance("sea level", ["mountain", "sea " * 1000]) == [0.05, 0.95]
    body = service.asked[0].body
    assert (body["model"], body["query"], body["top_n"]) == ("judge", "sea level", 2)
    assert len(body["documents"][1]) == 1000
    await reranker.client.aclose()


async def test_raw_scores_of_a_reranker_become_shares(service: ModelService) -> None:
    results = [{"index": 0, "relevance_score": -800.0}, {"index": 1, "relevance_score": 2.0}]
    service.answers["/v1/rerank"] = lambda _: (200, {"results": results})
    reranker = reranker_at(service)
    assert await reranker.relevance("sea", ["a", "b"]) == [0.0, pytest.approx(0.8808, abs=1e-4)]
    await reranker.client.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        {"results": []},
        {"results": [{"index": 0}]},
        {"results": [{"index": 5, "relevance_score": 1}]},
        b'{"results": [{"index": 0, "relevance_score": NaN}]}',
    ],
)
async def test_an_unusable_relevance_is_an_unreachable_engine(service: ModelService, answer: object) -> None:
    service.answers["/v1/rerank"] = lambda _: (200, answer)
    reranker = reranker_at(service)
    with pytest.raises(EngineUnreachableError):
        await reranker.relevance("sea", ["a"])
    await reranker.client.aclose()


@pytest.mark.parametrize("nothing", ["", "none"])
def test_nothing_is_chosen_by_none(nothing: str) -> None:
    assert (embedder_from(nothing), reranker_from(nothing)) == (None, None)


@pytest.mark.parametrize(
    "wrong", ["hash", "ftp://x/v1#m", "http://", "http://127.0.0.1/v1", "Qwen3-Embedding", "cpu", "cpu:"]
)
def test_a_value_that_is_not_a_model_is_refused_with_the_possible_forms(wrong: str) -> None:
    with pytest.raises(BadArgumentError, match="http://"):
        embedder_from(wrong)


# Made by the first version; see the test that reads it.
_RAIN = [(64, -0.18), (231, -0.601), (431, -0.3), (460, -0.18), (685, 0.601), (822, -0.18), (861, -0.3)]
