"""A client of the load test: asks at random in every way that programs know, and looks at what comes back.

Every question has a name that nobody else has, and its answer is made of that name; so a word that is lost, or that
belongs to somebody else, is seen. A refusal with 429 is obeyed: the client comes again when it was told to.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import httpx2

from bench.load_service import KEYS, LONG_REPEATS, said
from bench.soak_tally import Budget, Tally

Json = dict[str, Any]
Way: TypeAlias = Callable[[str], Awaitable[None]]
# An answer that takes longer than this is lost, seconds: 64 clients wait for one model.
PATIENCE_S = 120.0
# Whoever leaves has heard at most so many lines; nobody hears the whole of a long answer.
_MOST_HEARD = 60
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
_LINGER_NOT = struct.pack("ii", 1, 0)


class Client:
    """One of them.

    Args:
        number: which.
        url: where the service is.
        seed: of its randomness.
        tally: where it notes what it finds.

    Attributes:
        waited_s: from a question to the first record of its answer, refusals and the queue included, for each answer.
    """

    def __init__(self, number: int, url: str, seed: int, tally: Tally) -> None:
        self._number = number
        self._url = url
        self._key = KEYS[number % len(KEYS)]
        self._random = random.Random(f"{seed}-{number}")
        self._tally = tally
        self._names = 0
        self._asked_s: float | None = None
        self.waited_s: list[float] = []
        self._conversation: str | None = None
        self._conversation_names: list[str] = []
        headers = {"Authorization": f"Bearer {self._key}"}
        # Reading the certificates of the world takes longer than all that is asked, and nothing here is encrypted.
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, verify=False)

    async def run(self, budget: Budget) -> None:
        """Ask until it is enough."""
        ways: list[Way] = [
            self._chat,
            self._chat,
            self._chat_with_tool,
            self._execute,
            self._execute,
            self._ollama,
            self._leave,
            self._leave,
            self._cancel,
            self._hang_up,
        ]
        async with self._http:
            while self._tally.begin(budget):
                self._names += 1
                way = self._random.choice(ways)
                name = f"{self._number}.{self._names:x}{self._random.randrange(16**6):06x}"
                try:
                    with anyio.fail_after(PATIENCE_S):
                        await way(name)
                except Exception as error:  # noqa: BLE001  # whatever happens to a client is a finding
                    self._tally.find(f"{way.__name__} {name}: {error!r}")
            await self._read_back()

    # --- answers that are heard to their end -------------------------------------------------------------------------

    async def _chat(self, name: str) -> None:
        """A chat of two turns, sent whole each time, as a stream or not."""
        messages: list[Json] = []
        for turn in ("plain", "plain"):
            messages.append({"role": "user", "content": f"{turn} {name}"})
            text = await self._completed({"messages": messages}, f"chat {name}")
            self._tally.compare(f"chat {name}", text, said(name), complete=True)
            messages.append({"role": "assistant", "content": text})
        self._tally.outcomes["chat"] += 1

    async def _completed(self, body: Json, case: str) -> str:
        if self._random.random() < 0.5:
            answer = await self._asked("/v1/chat/completions", body)
            return answer.json()["choices"][0]["message"]["content"] or ""
        lines = await self._streamed("/v1/chat/completions", {**body, "stream": True})
        if lines[-1] != "data: [DONE]":
            self._tally.find(f"{case}: the last record is {lines[-1]!r}")
        choices = (choice for line in lines[:-1] for choice in json.loads(line[6:])["choices"])
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    async def _chat_with_tool(self, name: str) -> None:
        """A program's own tool: the call comes back, and what it said is told."""
        messages: list[Json] = [{"role": "user", "content": f"tool {name}"}]
        first = await self._asked("/v1/chat/completions", {"messages": messages, "tools": _TOOLS})
        message = first.json()["choices"][0]["message"]
        [call] = message["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        self._tally.compare(f"call {name}", arguments["text"], name, complete=True)
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": arguments["text"]}]
        text = await self._completed({"messages": messages, "tools": _TOOLS}, f"tool {name}")
        self._tally.compare(f"tool {name}", text, said(name), complete=True)
        self._tally.outcomes["program's tool"] += 1

    async def _execute(self, name: str) -> None:
        """A turn of a conversation with the assistant, whose own tool says the name."""
        kind = self._random.choice(("plain", "tool"))
        body: Json = {"message": f"{kind} {name}"}
        if self._conversation is not None:
            body["conversation"] = self._conversation
        if self._random.random() < 0.3:
            answer = await self._asked("/v1/execute", {**body, "stream": False})
            events, conversation = answer.json()["events"], answer.json()["conversation"]
        else:
            async with self._opened("/v1/execute", body) as response:
                conversation = response.headers["x-conversation-id"]
                events = [json.loads(line[6:]) for line in await self._lines(response)]
        if self._conversation not in {None, conversation}:
            self._tally.find(f"execute {name}: answered in {conversation}, asked in {self._conversation}")
        text = "".join(event["text"] for event in events if event["kind"] == "text")
        if events[-1] != {"kind": "end", "reason": "answered", "error": None}:
            self._tally.find(f"execute {name}: ended with {events[-1]}")
        self._tally.compare(f"execute {name}", text, said(name), complete=True)
        for event in events:
            if event["kind"] == "tool_result":
                self._tally.compare(f"tool result {name}", event["text"], name, complete=True)
        self._conversation = conversation
        self._conversation_names.append(name)
        self._tally.outcomes[f"execute {kind}"] += 1
        if len(self._conversation_names) == 6:
            await self._read_back()

    async def _read_back(self) -> None:
        """What was kept of a conversation is what was said in it."""
        names, self._conversation_names = self._conversation_names, []
        conversation, self._conversation = self._conversation, None
        if conversation is None:
            return
        kept = (await self._http.get(f"/v1/conversations/{conversation}")).raise_for_status().json()["messages"]
        answers = [message["text"] for message in kept if message["role"] == "assistant" and message["text"]]
        if answers != [said(name) for name in names]:
            self._tally.find(f"conversation {conversation}: kept {answers}, asked {names}")
        self._tally.outcomes["read back"] += 1

    async def _ollama(self, name: str) -> None:
        body: Json = {"model": "loaded", "messages": [{"role": "user", "content": f"plain {name}"}]}
        if self._random.random() < 0.5:
            answer = await self._asked("/api/chat", {**body, "stream": False})
            pieces = [answer.json()]
        else:
            pieces = [json.loads(line) for line in await self._streamed("/api/chat", body)]
        if pieces[-1]["done"] is not True:
            self._tally.find(f"ollama {name}: the last piece is {pieces[-1]}")
        text = "".join(piece["message"]["content"] for piece in pieces)
        self._tally.compare(f"ollama {name}", text, said(name), complete=True)
        self._tally.outcomes["ollama"] += 1

    # --- answers that are not ----------------------------------------------------------------------------------------

    async def _leave(self, name: str) -> None:
        """Leave in the middle of a long answer, or before its first word."""
        heard, enough = "", self._random.randrange(_MOST_HEARD)
        body: Json = {"message": f"long {name}"}
        async with self._opened("/v1/execute", body) as response:
            async for line in response.aiter_lines():
                self._note(line)
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    heard += event["text"] if event["kind"] == "text" else ""
                    enough -= 1
                if enough < 0:
                    break
        self._tally.compare(f"leave {name}", heard, said(name, LONG_REPEATS), complete=False)
        self._tally.outcomes["left"] += 1

    async def _cancel(self, name: str) -> None:
        """Stop a long answer by its conversation; the stream says so at its end."""
        heard, end, stopped = "", Json(), None
        async with self._opened("/v1/execute", {"message": f"long {name}"}) as response:
            path = f"/v1/conversations/{response.headers['x-conversation-id']}/cancel"
            async for line in response.aiter_lines():
                self._note(line)
                event: Json = json.loads(line[6:]) if line.startswith("data: ") else {"kind": ""}
                heard += event["text"] if event["kind"] == "text" else ""
                end = event if event["kind"] == "end" else end
                if heard and stopped is None:
                    stopped = (await self._http.post(path)).raise_for_status().json()["cancelled"]
        # On a busy machine an answer may be over before the word to stop it has arrived.
        self._tally.compare(f"cancel {name}", heard, said(name, LONG_REPEATS), complete=not stopped)
        if end != {"kind": "end", "reason": "cancelled" if stopped else "answered", "error": None}:
            self._tally.find(f"cancel {name}: stopped {stopped}, and it ended with {end}")
        self._tally.outcomes["cancelled" if stopped else "over before it was cancelled"] += 1

    async def _hang_up(self, name: str) -> None:
        """Break the connection: in the middle of a request, or while it waits, with or without a word of farewell."""
        body = json.dumps({"messages": [{"role": "user", "content": f"long {name}"}]}).encode()
        sent = len(body) if self._random.random() < 0.7 else self._random.randrange(len(body))
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        url = httpx2.URL(self._url)
        async with await anyio.connect_tcp(url.host, url.port or 80) as stream:
            await stream.send(head.encode() + body[:sent])
            with anyio.move_on_after(self._random.random() / 2):
                await stream.receive()
            if self._random.random() < 0.5:
                raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._tally.outcomes["hung up"] += 1

    # --- asking ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _opened(self, path: str, body: Json) -> AsyncGenerator[httpx2.Response, None]:
        """An answer as it comes; refusals for want of room are obeyed until there is room."""
        self._asked_s = time.monotonic()
        while True:
            async with self._http.stream("POST", path, json=body) as response:
                if response.status_code != 429:
                    if response.status_code != 200:
                        await response.aread()
                        raise ValueError(f"{response.status_code} {response.text[:200]}")
                    yield response
                    return
            await self._refused(response)

    async def _refused(self, response: httpx2.Response) -> None:
        self._tally.outcomes["refused for now"] += 1
        after = int(response.headers["Retry-After"])
        if not 1 <= after <= PATIENCE_S:
            self._tally.find(f"told to come again after {after} seconds")
        await anyio.sleep(after)

    async def _asked(self, path: str, body: Json) -> httpx2.Response:
        async with self._opened(path, body) as response:
            await response.aread()
            self._note("answer")
            return response

    async def _streamed(self, path: str, body: Json) -> list[str]:
        async with self._opened(path, body) as response:
            return await self._lines(response)

    async def _lines(self, response: httpx2.Response) -> list[str]:
        """The records of a stream."""
        lines: list[str] = []
        async for line in response.aiter_lines():
            self._note(line)
            if line and not line.startswith(":"):
                lines.append(line)
        return lines

    def _note(self, line: str) -> None:
        """Note how long an answer was waited for, at its first record; heartbeats and places in the queue are none."""
        if line and not line.startswith(":") and '"queued"' not in line and self._asked_s is not None:
            self.waited_s.append(time.monotonic() - self._asked_s)
            self._asked_s = None
