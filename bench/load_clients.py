"""Clients of ``bench.load``: friendly ones that ask in every way and check what comes back, and hostile ones.

Every question has its own name, and its answer is made of that name and the model's; so a word that is lost, or
that belongs to another answer, is seen. A refusal with ``Retry-After`` is obeyed, and an answer that failed because its
worker died is asked for again.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import anyio.abc
import httpx2

from bench.load_service import FAULTS, FAULTS_AFTER, KEYS, LONG_REPEATS, LoadedService, said
from bench.tally import Budget, Tally

Json = dict[str, Any]
# An answer that takes longer than this is lost, seconds: 64 clients wait for one model.
PATIENCE_S = 120.0
# Questions of one conversation, which is then read back.
TURNS = 4
# Of the questions through Ollama's API, these unload the model afterwards, where there are several.
UNLOADING_SHARE = 0.1
# A client that leaves has read at most this many lines.
_MOST_LINES = 60
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "echo",
            "description": "Say it again.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
    }
]
# Of hostile clients.
_HUGE_BYTES = 2**30
# Requests at once that have a text of this many bytes counted or embedded.
_COSTLY_REQUESTS, _COSTLY_BYTES = 60, 7_500_000
_READ_BYTES = 65_536
# What a long text repeats.
_MONOTONOUS_CHARS = 100_000
_PARTS = ("x", "1", ".", "-", " ", "\n", "<", "{", "{'", "[", "hf-", "eyJ", "漢", "<tool_call>", "](", "https://h/x")
_NO_LINGER = struct.pack("ii", 1, 0)


class AskAgainError(Exception):
    """An answer failed with a reason or was refused for now; ``pause_s`` says when to ask again."""

    def __init__(self, outcome: str, pause_s: float = 0.2) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.pause_s = pause_s


@dataclass
class Run:
    """One run against one service."""

    service: LoadedService  # the service
    seed: int  # of the randomness
    tally: Tally  # the answers, and what should not have happened
    budget: Budget  # how long it goes on
    hostile: Counter[str] = field(default_factory=Counter[str])  # hostile acts by kind
    # From a question to its answer, seconds, refusals and the queue included.
    waits_s: list[float] = field(default_factory=list[float])
    answered: anyio.Event = field(default_factory=anyio.Event)

    def note_answer(self, wait_s: float) -> None:
        """Count an answer that is over, this many seconds after it was first asked for."""
        self.waits_s.append(wait_s)
        self.answered.set()
        self.answered = anyio.Event()


class Client:
    """A client that asks in some ways at random.

    Args:
        run: what it belongs to.
        number: which client it is.
        ways: names of ``WAYS``.
        keeps_connection: it asks again over the same connection, which may be closed while it is idle.
    """

    def __init__(self, run: Run, number: int, ways: tuple[str, ...], *, keeps_connection: bool = True) -> None:
        self._run = run
        self._tally = run.tally
        self._number = number
        self._ways = ways
        self._key = KEYS[number % len(KEYS)]
        self._random = random.Random(f"{run.seed}-{number}")
        self._conversation: str | None = None
        self._questions: list[str] = []
        self._answers: list[str] = []
        headers = {"Authorization": f"Bearer {self._key}"}
        # Loading the certificates of the system takes longer than all questions, and nothing here is encrypted.
        limits = httpx2.Limits(max_keepalive_connections=None if keeps_connection else 0)
        self._http = httpx2.AsyncClient(
            base_url=run.service.url, headers=headers, timeout=PATIENCE_S, verify=False, limits=limits
        )

    async def ask_until_spent(self) -> None:
        """Ask until the budget is spent."""
        names = 0
        async with self._http:
            while self._tally.begin(self._run.budget):
                names += 1
                name = f"{self._number}.{names:x}{self._random.randrange(16**6):06x}"
                model, way = self._random.choice(self._run.service.models), self._random.choice(self._ways)
                began = time.monotonic()
                try:
                    while not await self._attempt(way, name, model):
                        pass
                    self._run.note_answer(time.monotonic() - began)
                except Exception as error:  # noqa: BLE001  # everything that happens to a client is a finding
                    self._tally.find(f"{way} {name}: {error!r}")
                    self._forget()
            await self._read_back()

    async def _attempt(self, way: str, name: str, model: str) -> bool:
        """Ask once; after a failure with a reason, wait and return False."""
        try:
            # The pauses of refusals do not count.
            with anyio.fail_after(PATIENCE_S):
                await WAYS[way](self, name, model)
        except AskAgainError as again:
            self._tally.outcomes[again.outcome] += 1
            await anyio.sleep(again.pause_s)
            return False
        self._tally.outcomes[way] += 1
        return True

    # --- answers that are read to their end --------------------------------------------------------------------------

    async def converse(self, name: str, model: str) -> None:
        """A turn of a conversation of the service, with or without its tool; each conversation is read back."""
        await self._execute(f"{self._random.choice(('plain', 'tool'))} {name}", name, model)

    async def provoke(self, name: str, model: str) -> None:
        """A turn in which the emulated runtime fails, crashes, ends late or not at all."""
        fault = self._random.choice(tuple(FAULTS))
        try:
            await self._execute(f"{fault}-{self._random.choice(FAULTS_AFTER)} {name}", name, model)
        except AskAgainError as again:
            self._tally.outcomes[f"{fault}: {again.outcome}"] += 1

    async def _execute(self, message: str, name: str, model: str) -> None:
        body: Json = {"message": message, "model": model}
        if self._conversation is not None:
            body["conversation"] = self._conversation
        if self._random.random() < 0.3:
            answer = (await self._post("/v1/execute", {**body, "stream": False})).json()
            events, conversation = answer["events"], answer["conversation"]
        else:
            async with self._open("/v1/execute", body) as response:
                conversation = response.headers["x-conversation-id"]
                events = [json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: ")]
        if self._conversation not in {None, conversation}:
            self._tally.find(f"{name}: answered in {conversation}, asked in {self._conversation}")
        self._conversation = conversation
        self._questions.append(message)
        text = "".join(event["text"] for event in events if event["kind"] == "text")
        for event in events:
            if event["kind"] == "tool_result":
                self._tally.compare(f"tool result {name}", event["text"], name, complete=True)
        self._check_end(name, events[-1], "answered")
        self._tally.compare(name, text, said(model, name), complete=events[-1].get("reason") == "answered")
        if events[-1].get("reason") != "answered":
            raise AskAgainError("failed with its reason")
        self._answers.append(text)
        if len(self._answers) >= TURNS:
            await self._read_back()

    async def _read_back(self) -> None:
        """Compare what is stored of a conversation with what was asked and answered."""
        if self._conversation is not None:
            path = f"/v1/conversations/{self._conversation}"
            stored = (await self._http.get(path)).raise_for_status().json()["messages"]
            questions = [message["text"] for message in stored if message["role"] == "user"]
            answers = [message["text"] for message in stored if message["ending"] == "answered"]
            if (questions, answers) != (self._questions, self._answers):
                asked = f"asked {self._questions}, answered {self._answers}"
                self._tally.find(f"{path}: stored {questions} {answers}, {asked}")
            self._tally.outcomes["read back"] += 1
        self._forget()

    def _forget(self) -> None:
        self._conversation, self._questions, self._answers = None, [], []

    async def complete(self, name: str, model: str) -> None:
        """A chat of two turns through OpenAI's API, sent whole each time, as a stream or not."""
        messages: list[Json] = []
        for _ in range(2):
            messages.append({"role": "user", "content": f"plain {name}"})
            text = await self._complete({"messages": messages, "model": model}, name, said(model, name))
            messages.append({"role": "assistant", "content": text})

    async def limit(self, name: str, model: str) -> None:
        """An answer that ends at a number of tokens or at a text."""
        body: Json = {"messages": [{"role": "user", "content": f"plain {name}"}], "model": model}
        if self._random.random() < 0.5:
            whole = said(model, name)
            text = await self._complete({**body, "max_tokens": self._random.choice((1, 5, 12))}, name, whole, cut=True)
            if len(text) >= len(whole):
                self._tally.find(f"{name}: the limit of tokens was not kept")
        else:
            await self._complete({**body, "stop": [" 3 "]}, name, said(model, name, 3))

    async def _complete(self, body: Json, name: str, expected: str, *, cut: bool = False) -> str:
        path, text, is_whole = "/v1/chat/completions", "", False
        if self._random.random() < 0.5:
            text = (await self._post(path, body)).json()["choices"][0]["message"]["content"] or ""
            is_whole = True
        else:
            async with self._open(path, {**body, "stream": True}) as response:
                async for line in response.aiter_lines():
                    chunk: Json = json.loads(line[6:]) if line.startswith("data: {") else {}
                    if "error" not in chunk and chunk.get("model", body["model"]) != body["model"]:
                        self._tally.find(f"{name}: {chunk['model']} answered for {body['model']}")
                    text += "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))
                    is_whole = is_whole or line == "data: [DONE]"
        self._tally.compare(name, text, expected, complete=is_whole and not cut)
        if not is_whole:
            raise AskAgainError("failed with its reason")
        return text

    async def use_own_tool(self, name: str, model: str) -> None:
        """A program's own tool: the call comes back, and its result is sent."""
        messages: list[Json] = [{"role": "user", "content": f"tool {name}"}]
        body: Json = {"model": model, "messages": messages, "tools": _TOOLS}
        message = (await self._post("/v1/chat/completions", body)).json()["choices"][0]["message"]
        [call] = message["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        self._tally.compare(f"call {name}", arguments["text"], name, complete=True)
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": arguments["text"]}]
        await self._complete(body, name, said(model, name))

    async def use_ollama(self, name: str, model: str) -> None:
        """Ollama's API, as a stream or not, now and then with a ``keep_alive`` that unloads the model."""
        body: Json = {"model": model, "messages": [{"role": "user", "content": f"plain {name}"}]}
        if len(self._run.service.models) > 1:
            body["keep_alive"] = 0 if self._random.random() < UNLOADING_SHARE else -1
        if self._random.random() < 0.5:
            pieces = [(await self._post("/api/chat", {**body, "stream": False})).json()]
        else:
            async with self._open("/api/chat", body) as response:
                pieces = [json.loads(line) async for line in response.aiter_lines() if line]
        text = "".join(piece["message"]["content"] for piece in pieces if "message" in piece)
        is_whole = pieces[-1].get("done") is True
        self._tally.compare(name, text, said(model, name), complete=is_whole)
        if not is_whole:
            raise AskAgainError("failed with its reason")

    async def embed(self, name: str, model: str) -> None:
        """A vector of the loaded model, whichever it is."""
        del model
        [vector] = (await self._post("/v1/embeddings", {"input": f"plain {name}"})).json()["data"]
        if not any(vector["embedding"]):
            self._tally.find(f"{name}: an empty vector")

    # --- answers that are not ----------------------------------------------------------------------------------------

    async def leave(self, name: str, model: str) -> None:
        """Leave in the middle of a long answer, or before its first word."""
        text, lines_left = "", self._random.randrange(_MOST_LINES)
        async with self._open("/v1/execute", {"message": f"long {name}", "model": model}) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    text += event["text"] if event["kind"] == "text" else ""
                    lines_left -= 1
                if lines_left < 0:
                    break
        self._tally.compare(f"leave {name}", text, said(model, name, LONG_REPEATS), complete=False)

    async def cancel(self, name: str, model: str) -> None:
        """Stop a long answer by its conversation; the stream says so at its end."""
        text, end, was_stopped = "", Json(), None
        async with self._open("/v1/execute", {"message": f"long {name}", "model": model}) as response:
            path = f"/v1/conversations/{response.headers['x-conversation-id']}/cancel"
            async for line in response.aiter_lines():
                event: Json = json.loads(line[6:]) if line.startswith("data: ") else {"kind": ""}
                text += event["text"] if event["kind"] == "text" else ""
                end = event if event["kind"] == "end" else end
                if text and was_stopped is None:
                    was_stopped = (await self._http.post(path)).raise_for_status().json()["cancelled"]
        # On a busy machine an answer may be over before the request to stop it has arrived.
        is_over = end.get("reason") == "answered"
        self._tally.compare(f"cancel {name}", text, said(model, name, LONG_REPEATS), complete=is_over)
        self._check_end(f"cancel {name}", end, "cancelled" if was_stopped else "answered")
        self._tally.outcomes["over before it was cancelled"] += is_over

    def _check_end(self, name: str, end: Json, reason: str) -> None:
        """An answer ends with a reason, and with an error if its worker died; nothing else is right."""
        has_failed = end.get("reason") == "failed" and end.get("error")
        if not has_failed and end != {"kind": "end", "reason": reason, "error": None}:
            self._tally.find(f"{name}: expected to end as {reason}, it ended with {end}")

    async def hang_up(self, name: str, model: str) -> None:
        """Break the connection: in the middle of a request, or while it waits, with or without an orderly close."""
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": f"long {name}"}]}).encode()
        sent = len(body) if self._random.random() < 0.7 else self._random.randrange(len(body))
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        url = httpx2.URL(self._run.service.url)
        async with await anyio.connect_tcp(url.host, url.port or 80) as stream:
            await stream.send(head.encode() + body[:sent])
            with anyio.move_on_after(self._random.random() / 2):
                await stream.receive()
            if self._random.random() < 0.5:
                raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)

    # --- requests ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self, path: str, body: Json) -> AsyncGenerator[httpx2.Response, None]:
        """Open an answer; an ``AskAgainError`` if it is refused for now."""
        async with self._http.stream("POST", path, json=body) as response:
            if response.status_code == 200:
                yield response
                return
            content = await response.aread()
        if response.status_code not in (429, 503):
            raise ValueError(f"{response.status_code} {content[:200]!r}")
        pause_s = float(response.headers["Retry-After"])
        if not 1 <= pause_s <= PATIENCE_S:
            self._tally.find(f"a refusal with Retry-After {pause_s:g}")
        raise AskAgainError(f"refused for now ({response.status_code})", pause_s)

    async def _post(self, path: str, body: Json) -> httpx2.Response:
        async with self._open(path, body) as response:
            await response.aread()
            return response


Way: TypeAlias = Callable[[Client, str, str], Awaitable[None]]
WAYS: Mapping[str, Way] = {
    "converse": Client.converse,
    "provoke": Client.provoke,
    "complete": Client.complete,
    "limit": Client.limit,
    "use own tool": Client.use_own_tool,
    "use Ollama": Client.use_ollama,
    "embed": Client.embed,
    "leave": Client.leave,
    "cancel": Client.cancel,
    "hang up": Client.hang_up,
}


class Hostile:
    """A client that does what none should do, as fast as it can."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._random = random.Random(f"{run.seed}-hostile-{number}")
        self._url = httpx2.URL(run.service.url)
        self.round_over = anyio.Event()

    async def run(self) -> None:
        """Go on until it is cancelled; every kind once before any comes twice."""
        ways = [*HOSTILE_WAYS]
        while True:
            self._random.shuffle(ways)
            for way in ways:
                # What is refused in the middle of a request is no finding.
                with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream, httpx2.HTTPError):
                    await HOSTILE_WAYS[way](self)
                self._run.hostile[way] += 1
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

    async def monotonous(self) -> None:
        """Send a long text of one repeated part where a request has texts: a pattern may try each of its characters."""
        part = self._random.choice(_PARTS)
        text = part * (_MONOTONOUS_CHARS // len(part))
        function = {"name": "t", "arguments": text}
        call = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
        question = {"role": "user", "content": "plain 0.0"}
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}),
            ("/v1/chat/completions", {"messages": [question, call, question]}),
            (
                "/v1/chat/completions",
                {"messages": [question], "tools": [{"type": "function", "function": {"name": text}}]},
            ),
            ("/api/chat", {"messages": [question], "keep_alive": text}),
        ]
        for path, body in bodies:
            content = json.dumps(body).encode()
            await self._sent(self._head(len(content), path) + content, 2.0)

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


HOSTILE_WAYS: Mapping[str, Callable[[Hostile], Awaitable[None]]] = {
    "half open": Hostile.half_open,
    "slow": Hostile.slow,
    "huge": Hostile.huge,
    "disconnecting": Hostile.disconnecting,
    "odd schema": Hostile.odd_schema,
    "monotonous": Hostile.monotonous,
    "costly": Hostile.costly,
    "wrong key": Hostile.wrong_key,
    "smuggle": Hostile.smuggle,
    "wrong approval": Hostile.wrong_approval,
}
