"""Hostile clients of ``bench.load``: half-open connections, endless bodies, smuggled requests, costly texts."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
import httpx2

from bench.load_clients import Run
from bench.load_service import KEYS

_HUGE_BYTES = 2**30
# Requests at once that have a text of so many bytes counted or embedded.
_COSTLY_REQUESTS, _COSTLY_BYTES = 60, 7_500_000
_READ_BYTES = 65_536


class Hostile:
    """A client that does what none should do, as fast as it can."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._random = random.Random(f"{run.seed}-hostile-{number}")
        self._url = httpx2.URL(run.service.url)
        self.round_over = anyio.Event()
        self._ways: list[Callable[[], Awaitable[None]]] = [
            self.half_open,
            self.slow,
            self.huge,
            self.disconnecting,
            self.odd_schema,
            self.costly,
            self.wrong_key,
            self.smuggle,
            self.wrong_approval,
        ]

    async def run(self) -> None:
        """Go on until it is cancelled; every kind once before any comes twice."""
        while True:
            self._random.shuffle(self._ways)
            for way in self._ways:
                # What is refused in the middle of a request is no finding.
                with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream, httpx2.HTTPError):
                    await way()
                name = way.__name__.replace("_", " ")
                self._run.hostile[name] += 1
            self.round_over.set()

    async def half_open(self) -> None:
        """Open connections, send the beginning of a head at most, and leave them."""
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(self._sent, b"POST /v1/execute HT"[: self._random.randrange(20)], 0.2)

    async def slow(self) -> None:
        """Send a head letter by letter."""
        async with await self._connected() as stream:
            for letter in self._head(100):
                await stream.send(bytes([letter]))

    async def huge(self) -> None:
        """Announce a body of a gigabyte and send of it what is taken; then one without an announced end."""
        await self._sent(self._head(_HUGE_BYTES) + b"x" * 2**20, 0.5)
        head = self._head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        await self._sent(head + b"100000\r\n" + b"[" * 2**20 + b"\r\n", 0.5)

    async def disconnecting(self) -> None:
        """Ask and leave, before the answer or in it."""
        body = json.dumps({"message": f"long {self._random.randrange(10**6)}", "detached": self._random.random() < 0.3})
        await self._sent(self._head(len(body)) + body.encode(), self._random.random() / 5)

    async def odd_schema(self) -> None:
        """Offer tools whose schemas refer to themselves, are deep, or none."""
        deep: Any = {}
        for _ in range(200):
            deep = {"type": "object", "properties": {"a": deep}, "anyOf": [{"type": [None, 5]}]}
        schemas: list[Any] = [
            {"$ref": "#"},
            {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
            deep,
            {"type": "object", "properties": {f"p{number}": {"pattern": "(a+)+$"} for number in range(200)}},
            {"type": "tree", "required": "all"},
        ]
        functions = [{"name": f"t{i}", "parameters": schema} for i, schema in enumerate(schemas)]
        tools = [{"type": "function", "function": function} for function in functions]
        body = json.dumps({"messages": [{"role": "user", "content": "plain 0.0"}], "tools": tools})
        await self._sent(self._head(len(body), "/v1/chat/completions") + body.encode(), 2.0)

    async def costly(self) -> None:
        """Have megabytes of text counted, embedded or answered, many times at once, and leave."""
        text = self._random.choice(("word ", "日本語の文です。", " ", "a"))
        text *= _COSTLY_BYTES // len(text.encode())
        message = {"role": "user", "content": text}
        path, content = self._random.choice(
            (
                ("/v1/tokens", {"texts": [text]}),
                ("/v1/tokens", {"texts": [text[: len(text) // 1000]] * 1000}),
                ("/v1/messages/count_tokens", {"model": self._run.service.models[0], "messages": [message]}),
                ("/v1/embeddings", {"input": text}),
                ("/v1/chat/completions", {"messages": [message]}),
                ("/v1/execute", {"message": text}),
            )
        )
        body = json.dumps(content, ensure_ascii=False).encode()
        async with anyio.create_task_group() as tasks:
            for _ in range(_COSTLY_REQUESTS):
                tasks.start_soon(self._sent, self._head(len(body), path) + body, 3.0)

    async def wrong_key(self) -> None:
        """Try keys."""
        http = httpx2.AsyncClient(base_url=self._url, verify=False)
        async with http:
            for _ in range(10):
                headers = {"Authorization": f"Bearer sk-{self._random.getrandbits(64):x}"}
                if (status := (await http.get("/v1/conversations", headers=headers)).status_code) != 401:
                    self._run.tally.find(f"a wrong key is answered with {status}")

    async def smuggle(self) -> None:
        """Send heads that can be read in two ways, with a request in what is a body in one of them."""
        known = f"HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEYS[-1]}\r\n"
        inner = f"GET /v1/conversations {known}\r\n"
        for framing in (
            f"Content-Length: {len(inner) + 5}\r\nTransfer-Encoding: chunked",
            f"Content-Length: 0\r\nContent-Length: {len(inner) + 5}",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding : chunked",
            "Content-Length: 0\r\n Transfer-Encoding: chunked",
        ):
            head = f"GET /healthz {known}{framing}\r\n\r\n"
            answer = await self._sent(f"{head}0\r\n\r\n{inner}".encode(), 5.0)
            if statuses := [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 2")]:
                self._run.tally.find(f"a request that was smuggled behind {framing!r} is answered: {statuses}")

    async def wrong_approval(self) -> None:
        """Answer questions that other answers may ask."""
        headers = {"Authorization": f"Bearer {KEYS[-1]}"}
        http = httpx2.AsyncClient(base_url=self._url, verify=False, headers=headers)
        async with http:
            for name in ("question_1", "question_2", "call_1", f"question_{self._random.getrandbits(64):016x}"):
                path = f"/v1/approvals/{name}"
                if (status := (await http.post(path, json={"decision": "always"})).status_code) != 404:
                    self._run.tally.find(f"the answer to a question that was guessed is taken: {status}")

    def _head(self, length: int, path: str = "/v1/execute") -> bytes:
        return (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEYS[-1]}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    async def _connected(self) -> anyio.abc.SocketStream:
        return await anyio.connect_tcp(self._url.host, self._url.port or 80)

    async def _sent(self, data: bytes, patience_s: float) -> bytes:
        """Send, read for a moment, leave, and return what was read at first."""
        received = b""
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
            async with await self._connected() as stream:
                with anyio.move_on_after(patience_s):
                    await stream.send(data)
                    while True:
                        received = (received + await stream.receive())[:_READ_BYTES]
        return received
