"""``Idempotency-Key``: a request that is sent again after a lost connection is answered and stored once."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.support.execute import Json, Reading, client_of, reading, text_of
from tests.support.served import SLOW, Served, scripted_model, served

pytestmark = pytest.mark.anyio
WORDS = "one two three four five six seven eight nine ten"
RULES = f"""
rule
  user at length
  say {WORDS}

rule
  say Hello there.
"""
KEYS = 'api_keys = ["a", "b"]\n'
REPLAYED = "idempotent-replayed"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("idempotency")
    model = scripted_model(folder / "model", RULES, speed=SLOW)
    with served(folder / "home", model, extra=f"[service]\n{KEYS}", speed="") as it:
        yield it


def count_runs(service: Served) -> int:
    lines = map(json.loads, service.log.read_text("utf-8").splitlines())
    return sum(line["call"] == "rkllm_run" for line in lines)


async def execute(client: httpx2.AsyncClient, key: str, **body: Any) -> httpx2.Response:
    return await client.post("/v1/execute", json=body, headers={"Idempotency-Key": key})


async def turns_of(client: httpx2.AsyncClient, conversation: str) -> list[tuple[str, str, int]]:
    stored: list[Json] = (await client.get(f"/v1/conversations/{conversation}")).raise_for_status().json()["messages"]
    return [(turn["text"], turn["ending"], turn["versions"]) for turn in stored]


async def test_the_same_request_again_gets_the_stored_answer_in_one_piece_and_as_a_stream(service: Served) -> None:
    async with client_of(service.url, "a") as client:
        first = await execute(client, "k-1", message="Hi", stream=False)
        runs = count_runs(service)
        again = await execute(client, "k-1", message="Hi", stream=False)
        assert (again.status_code, again.headers[REPLAYED], REPLAYED in first.headers) == (200, "true", False)
        same = ("conversation", "text")
        assert [again.json()[name] for name in same] == [first.json()[name] for name in same]
        assert again.json()["events"][-1] == {"kind": "end", "reason": "answered", "error": None}
        streamed = await execute(client, "k-1", message="Hi")
        events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
        assert (events, streamed.headers["x-conversation-id"]) == (again.json()["events"], first.json()["conversation"])
        assert count_runs(service) == runs
        assert await turns_of(client, first.json()["conversation"]) == [("Hi", "", 1), ("Hello there.", "answered", 1)]


async def test_a_key_belongs_to_its_caller_and_its_request(service: Served) -> None:
    async with client_of(service.url, "a") as client, client_of(service.url, "b") as other:
        first = (await execute(client, "k-2", message="Hi", stream=False)).json()
        refused = await execute(client, "k-2", message="Something else", stream=False)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")
        theirs = await execute(other, "k-2", message="Something else", stream=False)
        assert theirs.json()["conversation"] != first["conversation"]
        for bad in ("", "two words", "x" * 256):
            wrong = await execute(client, bad, message="Hi", stream=False)
            assert (wrong.status_code, "1 to 255 visible ASCII" in wrong.json()["error"]["message"]) == (400, True)


async def test_a_question_goes_on_in_its_conversation_once(service: Served) -> None:
    async with client_of(service.url, "a") as client:
        conversation = (await execute(client, "k-3", message="Hi", stream=False)).json()["conversation"]
        for _ in range(2):
            await execute(client, "k-4", message="at length", conversation=conversation, stream=False)
        # A later question does not change what an earlier key gets.
        early = await execute(client, "k-3", message="Hi", stream=False)
        assert early.json()["text"] == "Hello there."
        texts = [text for text, _, _ in await turns_of(client, conversation)]
        assert texts == ["Hi", "Hello there.", "at length", WORDS]


async def test_a_detached_answer_whose_head_was_lost_is_read_from_its_beginning(service: Served) -> None:
    headers, body = {"Idempotency-Key": "k-5"}, {"message": "at length", "detached": True}
    async with client_of(service.url, "a") as client:
        # The connection breaks before anything of the answer has come.
        async with client.stream("POST", "/v1/execute", json=body, headers=headers) as lost:
            conversation = lost.headers["x-conversation-id"]
        async with client.stream("POST", "/v1/execute", json=body, headers=headers) as response:
            assert (response.headers[REPLAYED], response.headers["x-conversation-id"]) == ("true", conversation)
            numbered = await Reading(response).rest()
        assert (numbered[0][0], text_of(event for _, event in numbered)) == (1, WORDS)
        assert await turns_of(client, conversation) == [("at length", "", 1), (WORDS, "answered", 1)]


async def test_an_answer_that_ended_with_its_reader_is_made_again_in_its_place(service: Served) -> None:
    async with client_of(service.url, "a") as client:
        headers = {"Idempotency-Key": "k-6"}
        async with client.stream("POST", "/v1/execute", json={"message": "at length"}, headers=headers) as response:
            it = Reading(response)
            await it.next("text")
            under_way = await execute(client, "k-6", message="at length")
            assert (under_way.status_code, under_way.json()["error"]["code"]) == (409, "answer_under_way")
            assert under_way.headers["retry-after"] == "1"
        again = await execute(client, "k-6", message="at length", stream=False)
        while again.status_code == 409:
            again = await execute(client, "k-6", message="at length", stream=False)
        assert (again.json()["conversation"], again.json()["text"]) == (it.conversation, WORDS)
        assert await turns_of(client, it.conversation) == [("at length", "", 1), (WORDS, "answered", 1)]
        replayed = await execute(client, "k-6", message="at length", stream=False)
        assert (replayed.headers[REPLAYED], replayed.json()["text"]) == ("true", WORDS)


async def test_a_refused_request_leaves_its_key_free_and_what_is_not_stored_has_none(service: Served) -> None:
    async with client_of(service.url, "a") as client:
        missing = await execute(client, "k-7", message="Hi", conversation="none", stream=False)
        assert missing.status_code == 404
        answered = await execute(client, "k-7", message="Hi", stream=False)
        assert answered.json()["text"] == "Hello there."
        for text in ("Hi", "Good day"):
            unstored = await execute(client, "k-8", message=text, stream=False, store=False)
            assert (unstored.json()["text"], REPLAYED in unstored.headers) == ("Hello there.", False)


async def test_a_response_is_stored_once(service: Served) -> None:
    async with client_of(service.url, "a") as client:

        async def ask(text: str, **more: Any) -> httpx2.Response:
            return await client.post("/v1/responses", json={"input": text, **more}, headers={"Idempotency-Key": "r-1"})

        first, runs = await ask("Hi"), count_runs(service)
        again = await ask("Hi")
        assert (again.json(), again.headers[REPLAYED]) == (first.json(), "true")
        streamed = await ask("Hi", stream=True)
        last = json.loads([line for line in streamed.text.splitlines() if line.startswith("data: ")][-1][6:])
        assert (last["type"], last["response"]["id"]) == ("response.completed", first.json()["id"])
        assert (await ask("Something else")).json()["error"]["code"] == "idempotency_key_reused"
        assert count_runs(service) == runs
        kept = await ask("not kept", store=False)
        assert (kept.status_code, REPLAYED in kept.headers) == (200, False)


async def test_the_connection_of_a_waiting_question_breaks_and_it_is_asked_again(service: Served) -> None:
    async with client_of(service.url, "a") as client, reading(client, body={"message": "at length"}) as first:
        await first.next("text")
        body = {"message": "Hi", "detached": True}
        async with client.stream("POST", "/v1/execute", json=body, headers={"Idempotency-Key": "k-9"}) as lost:
            conversation = lost.headers["x-conversation-id"]
        again = await execute(client, "k-9", **body)
        assert again.headers["x-conversation-id"] == conversation
        assert await turns_of(client, conversation) == [("Hi", "", 1), ("Hello there.", "answered", 1)]
