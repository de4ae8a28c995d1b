"""Clients that leave, and the queue before the model: nobody's answer is harmed by what somebody else does."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.execute import Json, Reading, client_of, reading
from tests.support.served import SLOW, Served, scripted_model, served

pytestmark = pytest.mark.anyio

WORDS = "one two three four five six seven eight nine ten"
# The longest answer, tokens; what is said for ever is longer.
LIMIT = 512
RULES = f"""
rule
  user for ever
  say {" ".join(map(str, range(1000)))}

rule
  user at length
  say {WORDS}
"""
KEYS = 'api_keys = ["a", "b"]\n'


@contextmanager
def serving(folder: Path, extra: str) -> Generator[Served, None, None]:
    model = scripted_model(folder / "model", RULES, speed=SLOW)
    with served(folder / "home", model, extra=f"[service]\n{extra}", speed="") as it:
        yield it


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service that lets two answers in at once."""
    with serving(tmp_path_factory.mktemp("pair"), f"parallel = 2\n{KEYS}") as it:
        yield it


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service that lets one answer in, and one wait for each key."""
    with serving(tmp_path_factory.mktemp("single"), f"parallel = 1\nqueue = 1\n{KEYS}") as it:
        yield it


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service that lets one answer in, with tenants who may have little of it in a day."""
    tenants = "".join(
        f'[[tenants]]\nname = "{name}"\napi_key = "{name}"\ndaily_tokens = {tokens}\n'
        for name, tokens in (("ann", 20), ("bea", 100))
    )
    with serving(tmp_path_factory.mktemp("limited"), f"parallel = 1\n{tenants}") as it:
        yield it


@asynccontextmanager
async def asking(service: Served, text: str, key: str = "a") -> AsyncGenerator[Reading, None]:
    """A question; leaving the block is leaving the service."""
    async with client_of(service.url, key) as client, reading(client, body={"message": text}) as it:
        yield it


def calls(service: Served, name: str) -> list[Json]:
    """What the runtime was asked."""
    lines = map(json.loads, service.log.read_text("utf-8").splitlines())
    return [line for line in lines if line["call"] == name]


async def test_a_client_that_leaves_stops_its_own_run_and_the_one_after_it_is_whole(pair: Served) -> None:
    aborts = len(calls(pair, "rkllm_abort"))
    async with asking(pair, "for ever") as mine:
        await mine.next("text")
        # It waits for the NPU; the answer begins with a heartbeat.
        async with asking(pair, "at length", "b") as theirs:
            heard = 1
            while heard < 60:
                heard += len((await mine.next("text"))["text"].split())
            await mine.response.aclose()
            assert await theirs.whole() == WORDS
    cut, other = [call["run"] for call in calls(pair, "rkllm_run")][-2:]
    assert (cut["end"], other["end"]) == ("aborted", "finished")
    # How much is said until the departure is noticed is the machine's speed.
    assert heard <= len(cut["sampled"]) < LIMIT
    assert len(calls(pair, "rkllm_abort")) == aborts + 1


async def test_a_waiting_client_gets_its_place_and_one_over_the_limit_the_time_to_come_again(single: Served) -> None:
    async with asking(single, "for ever") as running:
        await running.next("text")
        async with asking(single, "at length") as waiting, asking(single, "at length", "b") as other:
            assert await waiting.next("queued") == {"kind": "queued", "position": 1}
            assert await other.next("queued") == {"kind": "queued", "position": 2}
            async with asking(single, "at length") as refused:
                await refused.response.aread()
                assert refused.response.status_code == 429
                assert int(refused.response.headers["Retry-After"]) >= 1
                assert refused.response.json()["error"]["code"] == "rate_limit_exceeded"
            # Who leaves the queue frees the place, and the one after moves up.
            await waiting.response.aclose()
            assert await other.next("queued") == {"kind": "queued", "position": 1}
            async with asking(single, "at length") as again:
                assert await again.next("queued") == {"kind": "queued", "position": 2}
                await running.response.aclose()
                assert [await other.whole(), await again.whole()] == [WORDS, WORDS]


async def test_a_program_that_gives_up_on_an_answer_in_one_piece_stops_its_run_as_well(single: Served) -> None:
    body = {"model": "parrot", "messages": [{"role": "user", "content": "for ever"}]}
    headers = {"Authorization": "Bearer a"}
    client = httpx2.AsyncClient(timeout=httpx2.Timeout(60, read=0.5))
    async with client:
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(f"{single.url}/v1/chat/completions", json=body, headers=headers)
    async with asking(single, "at length", "b") as other:
        assert await other.whole() == WORDS
    # By itself it would have gone on to the limit.
    assert max(len(call["run"]["sampled"]) for call in calls(single, "rkllm_run")) < LIMIT


async def test_a_refused_request_closes_no_conversation(single: Served) -> None:
    assert single.service is not None
    async with asking(single, "for ever") as running:
        await running.next("text")
        async with asking(single, "at length") as waiting:
            await waiting.next("queued")
            opened = len(single.service.open_conversations)
            for _ in range(3):
                async with asking(single, "at length") as refused:
                    await refused.response.aread()
                    assert refused.response.status_code == 429
            assert len(single.service.open_conversations) == opened


async def test_who_leaves_has_paid_and_who_waited_meanwhile_is_refused_as_well(limited: Served) -> None:
    async with asking(limited, "for ever", "ann") as running:
        heard = 0
        while heard < 30:
            heard += len((await running.next("text"))["text"].split())
        async with asking(limited, "at length", "ann") as waiting:
            await waiting.next("queued")
            await running.response.aclose()
            assert "daily_tokens_exceeded" in str(await waiting.rest())
    async with asking(limited, "at length", "ann") as refused:
        assert refused.response.status_code == 429


async def test_who_leaves_has_paid_for_reading_the_question_too(limited: Served) -> None:
    async with asking(limited, "word " * 150 + "for ever", "bea") as running:
        await running.next("text")
    async with asking(limited, "at length", "bea") as refused:
        # Until the departure is noticed it waits, and is refused in its stream.
        assert "daily_tokens_exceeded" in (await refused.response.aread()).decode()
    async with asking(limited, "at length", "bea") as refused:
        assert refused.response.status_code == 429
