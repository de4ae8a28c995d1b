"""Work that a client chooses: megabytes are counted in part, refused before they wait, and cost a tenant its tokens."""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any

import httpx2
import pytest

from rkllm_mcp.events import Approval, Text
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.running_answers import READERS_PER_KEY, RunningAnswer, RunningAnswers
from tests.support.served import Served, scripted_model, served

Json = dict[str, Any]
TENANT = '[[tenants]]\nname = "ann"\napi_key = "ann"\ndaily_tokens = 5\n'
CONTEXT = 4096


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("limits")
    keys = f'[service]\napi_keys = ["owner"]\n{TENANT}'
    with served(folder / "home", scripted_model(folder / "model", "rule\n  say Hi.\n"), extra=keys) as it:
        yield it


def post(service: Served, path: str, body: Json, key: str = "owner") -> httpx2.Response:
    return httpx2.post(f"{service.url}{path}", json=body, headers={"X-Api-Key": key}, timeout=120)


def test_tokens_are_counted_exactly_up_to_a_few_windows_and_estimated_beyond(service: Served) -> None:
    def counted(*texts: str) -> Json:
        return post(service, "/v1/tokens", {"texts": texts}).json()

    one, short, many = counted("word " * 1000), counted("word " * 5), counted("word " * 1000, *["word " * 5] * 900)
    assert (one["exact"], many["exact"]) == (True, True)
    assert many["tokens"] == one["tokens"] + 900 * short["tokens"]
    for texts in (["word " * 1_000_000], ["word " * 1000] * 1000):
        long = counted(*texts)
        assert not long["exact"]
        assert abs(long["tokens"] - 1000 * one["tokens"]) < one["tokens"]
    message = {"model": "parrot", "messages": [{"role": "user", "content": "word " * 1_000_000}]}
    said = post(service, "/v1/messages/count_tokens", message).json()["input_tokens"]
    assert abs(said - 1000 * one["tokens"]) < one["tokens"]


def test_a_question_that_is_certainly_too_long_is_refused_at_once_and_not_stored(service: Served) -> None:
    long = "word " * 1_000_000
    message = {"role": "user", "content": long}
    for path, body, param in (
        ("/v1/execute", {"message": long}, "message"),
        ("/v1/chat/completions", {"messages": [message]}, "messages"),
        ("/v1/completions", {"prompt": long}, "prompt"),
    ):
        refused = post(service, path, body)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param), path
        assert f"more than the {CONTEXT} that fit" in error["message"], path
    listed = httpx2.get(f"{service.url}/v1/conversations", headers={"X-Api-Key": "owner"}).json()
    assert listed == {"conversations": [], "count": 0}


def test_descriptions_of_tools_count_as_their_parameters_do(service: Served) -> None:
    function = {"name": "open", "description": "word " * 100_000, "parameters": {"type": "object"}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": function}]}
    refused = post(service, "/v1/chat/completions", body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")


def test_work_costs_a_tenant_tokens_of_its_day_and_no_more_is_done_when_they_are_used_up(service: Served) -> None:
    body = {"texts": ["日本語の文です。" * 20_000] * 4}
    statuses: list[int] = []
    while len(statuses) < 50 and 429 not in statuses:
        statuses.append(post(service, "/v1/tokens", body, "ann").status_code)
    assert set(statuses) == {200, 429}
    assert post(service, "/v1/tokens", {"texts": ["short"]}, "ann").status_code == 200
    assert post(service, "/v1/tokens", body).status_code == 200


def test_a_key_has_a_number_of_readers_and_one_that_leaves_makes_room() -> None:
    answers = RunningAnswers()

    def read(count: int) -> None:
        with answers.reading("a"):
            if count:
                read(count - 1)

    read(READERS_PER_KEY - 1)
    with pytest.raises(HTTPError) as refused:
        read(READERS_PER_KEY)
    assert (refused.value.status, refused.value.code) == (429, "too_many_readers")
    read(READERS_PER_KEY - 1)


@pytest.mark.anyio
async def test_an_event_is_encoded_once_for_all_readers_unless_it_says_what_time_is_left() -> None:
    async def read() -> list[bytes]:
        written: list[bytes] = []

        async def write(content: bytes) -> None:
            written.append(content)

        await answer.read(0, write)
        return written

    answer = RunningAnswer("c1", "", "", is_detached=True)
    answer.feed([Text("half \ud83d of a pair")])
    answer.finish()
    first, second = await read(), await read()
    # Joining one record returns the record itself.
    assert (first == second, first[0] is second[0]) == (True, True)
    answer = RunningAnswer("c2", "", "", is_detached=True)
    answer.feed([Approval("1", "open", {}, "It may.", refused_at=monotonic() + 100)])
    answer.finish()
    assert (await read())[0] is not (await read())[0]
