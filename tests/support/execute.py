"""Questions to ``POST /v1/execute``: the events of an answer, or all of it at once."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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
