"""/v1/models, /v1/embeddings and /v1/rerank as programs meet them, with a model for each of the three tasks."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from rkllm_mcp.prompt.tokenizer import PlainText
from tests.support.demo_model import demo_vocabulary
from tests.support.served import Served, ranking_model, scripted_model, served

TEXTS = ["a cat and a dog", "the dog and the cat", "rain tomorrow"]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("evaluations")
    chat = scripted_model(folder / "chat", "rule\n  say Hello.\n", name="parrot")
    embedding = scripted_model(folder / "embedding", "rule\n  say x\n", name="mapper")
    models = f'embedding_model = "{embedding}"\nranking_model = "{ranking_model(folder / "judge")}"\n'
    with served(folder / "home", chat, extra=f"[service]\n{models}queue = 2\n") as it:
        yield it


@pytest.fixture
def client(service: Served) -> Generator[openai.OpenAI, None, None]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=120) as it:
        yield it


def post(service: Served, path: str, body: Json) -> tuple[int, Json]:
    answer = httpx2.post(f"{service.url}{path}", json=body, timeout=120)
    return answer.status_code, answer.json()


def product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))


def test_every_model_is_listed_and_can_be_asked_for(client: openai.OpenAI) -> None:
    assert [(model.id, model.owned_by) for model in client.models.list()] == [
        ("parrot", "rkllm-mcp"),
        ("mapper", "rkllm-mcp"),
        ("judge", "rkllm-mcp"),
    ]
    assert client.models.retrieve("judge").object == "model"
    with pytest.raises(openai.NotFoundError, match=r"there is no model 'some/other'; there is parrot, mapper, judge"):
        client.models.retrieve("some/other")


def test_the_model_that_embeds_is_listed_for_ollamas_programs_as_well(service: Served) -> None:
    listed = httpx2.get(f"{service.url}/api/tags", timeout=120).json()["models"]
    assert [model["model"] for model in listed] == ["parrot:latest", "mapper:latest"]
    status, shown = post(service, "/api/show", {"model": "mapper:latest"})
    assert (status, shown["capabilities"], shown["details"]["family"]) == (200, ["embedding"], "embedding")
    assert shown["model_info"]["general.basename"] == "mapper"
    assert post(service, "/api/show", {"model": "judge"})[0] == 404
    status, answer = post(service, "/api/embed", {"model": "mapper:latest", "input": TEXTS})
    assert (status, len(answer["embeddings"])) == (200, 3)
    assert post(service, "/api/chat", {"model": "mapper", "messages": [{"role": "user", "content": "Hi"}]})[0] == 404


def test_texts_become_vectors_as_numbers_and_as_base64(client: openai.OpenAI) -> None:
    # OpenAI's client asks for base64 of its own and decodes it.
    answer = client.embeddings.create(model="mapper", input=TEXTS)
    one, two, three = (item.embedding for item in answer.data)
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert product(one, two) > product(one, three)
    assert product(one, one) == pytest.approx(1, abs=1e-5)
    assert answer.model == "mapper"
    tokens = sum(len(demo_vocabulary().encode([PlainText(text)])) for text in TEXTS)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)
    numbers = client.embeddings.create(model="mapper", input=TEXTS[0], encoding_format="float").data[0].embedding
    assert numbers == pytest.approx(one, abs=1e-7)


def test_a_vector_can_be_cut_and_has_length_1_again(service: Served) -> None:
    wish: Json = {"input": TEXTS[0], "dimensions": 8, "encoding_format": "base64"}
    status, answer = post(service, "/v1/embeddings", wish)
    vector = array("f", base64.b64decode(answer["data"][0]["embedding"]))
    assert (status, len(vector)) == (200, 8)
    assert product(vector, vector) == pytest.approx(1, abs=1e-5)
    status, answer = post(service, "/v1/embeddings", {**wish, "dimensions": 100_000})
    assert status == 400
    assert "dimensions, not 100000; ask for fewer" in answer["error"]["message"]


@pytest.mark.parametrize("ids", [[1, 2], [[1, 2], [3]]])
def test_token_ids_which_are_another_vocabularys_are_refused(client: openai.OpenAI, ids: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="send texts") as refused:
        client.embeddings.create(model="x", input=ids)
    assert refused.value.param == "input"


@pytest.mark.parametrize(
    ("wish", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 1]}, "input[1]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": [-1]}, "input[0]"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
    ],
)
def test_an_input_that_is_not_one_is_named(service: Served, wish: Json, param: str) -> None:
    status, answer = post(service, "/v1/embeddings", wish)
    assert (status, answer["error"]["param"]) == (422, param)


def test_all_passages_of_a_document_may_be_sent_at_once(service: Served) -> None:
    # As Open WebUI does: a request for each passage, which gives up the document when one is refused.
    bodies: list[Json] = [{"input": [f"passage {number}"], "model": "mapper"} for number in range(60)]
    with ThreadPoolExecutor(len(bodies)) as senders:
        answers = list(senders.map(partial(post, service, "/v1/embeddings"), bodies))
    assert [(status, len(answer.get("data", ()))) for status, answer in answers] == [(200, 1)] * len(bodies)


def test_documents_come_back_in_the_order_in_which_they_answer(service: Served) -> None:
    documents = ["rain tomorrow", {"text": "where is the cat"}, "it sleeps"]
    wish: Json = {"model": "x", "query": "where is the cat", "documents": documents}
    status, answer = post(service, "/v1/rerank", wish)
    assert (status, answer["model"]) == (200, "judge")
    scores = [result["relevance_score"] for result in answer["results"]]
    assert [result["index"] for result in answer["results"]] == [1, 0, 2]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert all("document" not in result for result in answer["results"])
    _, answer = post(service, "/v1/rerank", {**wish, "top_n": 1, "return_documents": True})
    assert [(result["index"], result["document"]) for result in answer["results"]] == [
        (1, {"text": "where is the cat"})
    ]


@pytest.mark.parametrize(
    ("wish", "param"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": "a", "documents": []}, "documents"),
        ({"query": "a", "documents": ["b", {"title": "c"}]}, "documents[1].text"),
        ({"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
    ],
)
def test_what_cannot_be_ranked_is_named(service: Served, wish: Json, param: str) -> None:
    status, answer = post(service, "/v1/rerank", wish)
    assert (status, answer["error"]["param"]) == (422, param)


def test_a_text_that_is_too_long_is_the_fault_of_its_sender(service: Served) -> None:
    status, answer = post(service, "/v1/embeddings", {"input": "word " * 5000})
    assert status == 400
    assert "tokens" in answer["error"]["message"]


def test_evaluated_tokens_count_for_a_tenants_day(tmp_path: Path) -> None:
    tenants = "".join(
        f'[[tenants]]\nname = "{name}"\napi_key = "{name}"\ndaily_tokens = 20\n' for name in ("ann", "bea", "eve")
    )
    asked: dict[str, tuple[str, Json]] = {
        "ann": ("/v1/embeddings", {"input": ["word " * 12] * 2}),
        "bea": ("/api/embed", {"model": "judge", "input": "word " * 24}),
        "eve": ("/v1/rerank", {"query": "word " * 6, "documents": ["word " * 6] * 2}),
    }
    with served(tmp_path / "home", ranking_model(tmp_path / "judge"), extra=tenants) as it:
        for key, (path, body) in asked.items():
            # What is refused costs nothing.
            too_long = {**body, ("query" if "query" in body else "input"): "word " * 9000}
            statuses = [
                httpx2.post(f"{it.url}{path}", json=each, headers={"X-Api-Key": key}, timeout=120).status_code
                for each in (too_long, body, body)
            ]
            assert statuses == [400, 200, 429], path
