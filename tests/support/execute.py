"""Questions to ``POST /v1/execute``: the events of an answer, or all of it at once."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import httpx2

Json = dict[str, Any]


def records(response: httpx2.Response) -> Iterator[Json]:
    """The events of a stream as they come."""
    return (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))


@contextmanager
def asking(client: httpx2.Client, **body: Any) -> Generator[tuple[str, Iterator[Json]], None, None]:
    """A question: its conversation, and its events as they come; leaving the block is leaving the service."""
    with client.stream("POST", "/v1/execute", json=body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield response.headers["x-conversation-id"], records(response)


def answer_of(client: httpx2.Client, message: str = "", /, **body: Any) -> Json:
    """An answer that comes whole."""
    asked = {"stream": False, **({"message": message} if message else {}), **body}
    return client.post("/v1/execute", json=asked).raise_for_status().json()


def text_of(events: Iterable[Json]) -> str:
    """The answer in them."""
    return "".join(event["text"] for event in events if event["kind"] == "text")


def of_kind(events: Iterable[Json], *kinds: str) -> list[Json]:
    """Those of some kinds."""
    return [event for event in events if event["kind"] in kinds]


class Reading:
    """An answer under way, record by record."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.conversation = response.headers.get("X-Conversation-Id", "")
        self._lines = response.aiter_lines()

    async def next_record(self, *kinds: str) -> tuple[int, Json]:
        """Number and event of the next record of one of these kinds, or of any."""
        number = 0
        while True:
            line = await anext(self._lines)
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: ") and (not kinds or json.loads(line[6:])["kind"] in kinds):
                return number, json.loads(line[6:])

    async def next(self, *kinds: str) -> Json:
        """The next event of one of these kinds, or of any."""
        return (await self.next_record(*kinds))[1]

    async def rest(self) -> list[tuple[int, Json]]:
        """The records that still come."""
        records: list[tuple[int, Json]] = []
        with suppress(StopAsyncIteration):
            while True:
                records.append(await self.next_record())
        return records

    async def whole(self) -> str:
        """The text of the rest, which has to end as an answer."""
        events = [event for _, event in await self.rest()]
        assert events[-1] == {"kind": "end", "reason": "answered", "error": None}
        return text_of(events)


@asynccontextmanager
async def reading(
    client: httpx2.AsyncClient, path: str = "/v1/execute", body: Mapping[str, Any] | None = None
) -> AsyncGenerator[Reading, None]:
    """A question, or with no body the stream of an answer; leaving the block is leaving the service."""
    async with client.stream("POST" if body else "GET", path, json=body) as response:
        yield Reading(response)


@asynccontextmanager
async def client_of(url: str, key: str) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """A client with a key; bounded."""
    with anyio.fail_after(120):
        client = httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60)
        async with client:
            yield client
