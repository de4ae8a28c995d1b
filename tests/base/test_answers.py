"""Answers from outside are limited in time, size, count and depth, wherever they are read."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx2
import pytest

from rkllm_base.answers import MOST_VALUES, AnswerLimits, AnswerRefusedError, fetch, fetch_now, read_json
from tests.support.outside import BODIES, hostile_server

pytestmark = pytest.mark.anyio
LIMITS = AnswerLimits(total_s=30.0, size_bytes=1_000_000)
REFUSALS = {
    "endless": "its answer is longer than 1,000,000 bytes",
    "announced": "its answer is longer than 1,000,000 bytes",
    "many": "its answer is longer than 1,000,000 bytes",
    "dripping": "its answer took longer than 0.3 s",
    "compressed": "its answer is compressed, which was not asked for",
}


@pytest.mark.parametrize("way", REFUSALS)
async def test_an_answer_beyond_a_limit_is_refused_while_it_comes(way: str) -> None:
    with hostile_server() as server:
        server.way = way
        limits = replace(LIMITS, total_s=0.3) if way == "dripping" else LIMITS
        client = httpx2.AsyncClient(timeout=10)
        async with client:
            with pytest.raises(AnswerRefusedError, match=REFUSALS[way]):
                await fetch(client, "GET", server.url, limits)
        at_once = httpx2.Client(timeout=10)
        with at_once, pytest.raises(AnswerRefusedError, match=REFUSALS[way]):
            fetch_now(at_once, "GET", server.url, limits)
        assert [request["accept-encoding"] for request in server.seen] == ["identity", "identity"]
        # What was in the buffers of the network when the connection was closed has been sent.
        assert server.sent < 100_000_000


async def test_an_answer_within_the_limits_is_read_whole() -> None:
    with hostile_server() as server:
        server.way = "text"
        client = httpx2.AsyncClient(timeout=10)
        async with client:
            answer = await fetch(client, "POST", server.url, LIMITS, json={"a": 1})
        assert (answer.status, answer.content, read_json(answer.content)) == (200, BODIES["text"], "x" * 500_000)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (BODIES["many"], "more than 120,000 values"),
        (BODIES["deep"], "not JSON that can be read"),
        (b"[" * 900 + b"]" * 900, "not JSON that can be read"),
        (b"[NaN]", "not JSON that can be read"),
        (b"<html>", "not JSON that can be read"),
        (b"", "not JSON that can be read"),
    ],
    ids=["many", "deep", "depth of 900", "NaN", "HTML", "nothing"],
)
def test_json_that_is_too_much_or_none_is_refused(content: bytes, part: str) -> None:
    with pytest.raises(AnswerRefusedError, match=part):
        read_json(content)


def test_the_largest_json_is_read() -> None:
    values = [0] * (MOST_VALUES - 1)
    assert read_json(json.dumps(values).encode()) == values
    assert read_json(b"\xef\xbb\xbf" + b"[" * 150 + b"]" * 150) is not None
