"""Sixty-four clients, one in a hundred of them hostile, while workers are killed: is an answer lost, or mixed up?

    .venv/bin/python -m bench.abuse [--minutes 10 | --questions 500] [--clients 64] [--seed 1] [--json]

A real service on the emulated runtime, as in bench.load. Friendly clients hold conversations; a question whose answer
fails because its worker died is asked again, and at the end every conversation is compared with what was asked in it.
Hostile ones open connections and say nothing, send a head letter by letter, announce and send bodies without end, break
connections, send schemas that refer to themselves, have megabytes counted and embedded many times at once, and try
keys. The worker is killed again and again meanwhile.

Counted are characters that are lost (an answer that ended well and is not whole, a question that is not stored) and
mixed up (another's); measured is how long /healthz takes, asked four times a second on a connection of its own, and how
much the memory of the service grows. The exit code is 1 when anything was found, /healthz took half a second, or the
memory grew by more than 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2

from bench.load_clients import PATIENCE_S
from bench.load_service import KEYS, LoadedService, loaded_service, said
from bench.soak_tally import Budget, Tally, processes, resident_mb

Json = dict[str, Any]
CLIENTS = 64
HOSTILE_SHARE = 0.01
# Questions of one conversation, which is then read back.
TURNS = 4
# A kill follows the one before after so many answers, and in a long run not before so many seconds.
ANSWERS_BETWEEN_KILLS = (20, 60)
SECONDS_BETWEEN_KILLS = 8.0
PROBE_PAUSE_S = 0.25
# The longest that /healthz may take, seconds.
MOST_S = 0.5
# The most that the service may grow, MB.
MOST_GROWTH_MB = 300.0
_HUGE_BYTES = 2**30
# Requests at once that have a text of so many bytes counted or embedded.
_COSTLY_REQUESTS, _COSTLY_BYTES = 20, 7_500_000
_WORKER = b"rkllm_mcp.runtime.worker"


@dataclass
class Abused:
    """What came of it."""

    tally: Tally
    kills: int = 0
    hostile: dict[str, int] = field(default_factory=dict[str, int])  # hostile acts by kind
    healthz_s: list[float] = field(default_factory=list[float], repr=False)
    growth_mb: float = 0.0  # memory of the service at its highest, above that at the start

    def as_json(self) -> Json:
        """Everything for a program."""
        probes = sorted(self.healthz_s)
        longest = {"probes": len(probes), "median_s": probes[len(probes) // 2], "longest_s": probes[-1]}
        counts = {"tally": self.tally.as_json(), "kills": self.kills, "hostile": self.hostile}
        return {**counts, "healthz": longest, "growth_mb": round(self.growth_mb, 1)}


class Disturbances:
    """Kills of the worker and probes of ``/healthz`` beside the questions of one run against one service."""

    def __init__(self, service: LoadedService, seed: int, budget: Budget, tally: Tally) -> None:
        self.service = service
        self.seed = seed
        self.budget = budget
        self.tally = tally
        self.kills = 0
        self.healthz_s: list[float] = []
        self.growth_mb = 0.0
        self._answers = 0
        self._answered = anyio.Event()

    def note_answer(self) -> None:
        """Count an answer that is over."""
        self._answers += 1
        self._answered.set()
        self._answered = anyio.Event()

    async def kill(self) -> None:
        """Kill the worker after some answers, again and again."""
        dice = random.Random(self.seed)
        while True:
            due, began = self._answers + dice.randint(*ANSWERS_BETWEEN_KILLS), time.monotonic()
            while self._answers < due:
                await self._answered.wait()
            if self.budget.is_timed:
                await anyio.sleep(max(0.0, SECONDS_BETWEEN_KILLS - (time.monotonic() - began)))
            self.kills += kill_workers(self.service.process.pid)

    async def probe(self) -> None:
        """Ask ``/healthz`` again and again, and note the memory of the service."""
        # The worker is an emulated one, and started again and again.
        pid = self.service.process.pid
        before = resident_mb(pid)
        http = httpx2.AsyncClient(base_url=self.service.url, timeout=PATIENCE_S, verify=False)
        async with http:
            while True:
                began = time.monotonic()
                status = (await http.get("/healthz")).status_code
                self.healthz_s.append(time.monotonic() - began)
                self.growth_mb = max(self.growth_mb, resident_mb(pid) - before)
                if status != 200:
                    self.tally.find(f"/healthz is {status}")
                await anyio.sleep(PROBE_PAUSE_S)


class _Run(Disturbances):
    """One run against one service."""

    def __init__(self, service: LoadedService, seed: int, budget: Budget) -> None:
        super().__init__(service, seed, budget, Tally("abuse"))
        self.abused = Abused(self.tally, healthz_s=self.healthz_s)
        self.hostile_round = anyio.Event()

    async def run(self, clients: int) -> Abused:
        hostile = max(1, round(clients * HOSTILE_SHARE))
        async with anyio.create_task_group() as disturbing:
            disturbing.start_soon(self.probe)
            disturbing.start_soon(self.kill)
            for number in range(hostile):
                disturbing.start_soon(Hostile(self, number).run)
            async with anyio.create_task_group() as asking:
                for number in range(clients - hostile):
                    asking.start_soon(Friendly(self, number).run)
            # In a short run too, every hostile act has been tried once.
            await self.hostile_round.wait()
            disturbing.cancel_scope.cancel()
        self.tally.end()
        self.abused.kills, self.abused.growth_mb = self.kills, self.growth_mb
        return self.abused


def kill_workers(root: int) -> int:
    """Kill the workers below a process; return their number."""
    count = 0
    for pid in processes(root):
        with suppress(OSError):
            if _WORKER in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


class Friendly:
    """A client that holds conversations and asks again what a dead worker did not answer."""

    def __init__(self, run: _Run, number: int) -> None:
        self._run = run
        self._number = number
        self._random = random.Random(f"{run.seed}-{number}")
        self._asked: list[str] = []
        self._answered: list[str] = []
        self._conversation: str | None = None
        headers = {"Authorization": f"Bearer {KEYS[number % len(KEYS)]}"}
        self._http = httpx2.AsyncClient(base_url=run.service.url, headers=headers, timeout=PATIENCE_S, verify=False)

    async def run(self) -> None:
        """Ask until it is enough."""
        tally, names = self._run.tally, 0
        async with self._http:
            while tally.begin(self._run.budget):
                names += 1
                name = f"{self._number}.{names:x}{self._random.randrange(16**6):06x}"
                try:
                    while (pause_s := await self._ask(name, self._random.choice(("plain", "tool")))) is not None:
                        tally.outcomes["asked again"] += 1
                        await anyio.sleep(pause_s)
                    if len(self._answered) >= TURNS:
                        await self._read_back()
                except Exception as error:  # noqa: BLE001  # whatever happens to a client is a finding
                    tally.find(f"{name}: {error!r}")
                    self._forget()
            if self._conversation is not None:
                await self._read_back()

    async def _ask(self, name: str, kind: str) -> float | None:
        """Ask once; return None, or after how many seconds it has to be asked again."""
        body: Json = {"message": f"{kind} {name}"}
        if self._conversation is not None:
            body["conversation"] = self._conversation
        # Time that it is told to wait does not count: it is not waiting for an answer then.
        with anyio.fail_after(PATIENCE_S):
            pause_s, end, text = await self._heard(name, body)
        if pause_s is not None:
            return pause_s
        self._asked.append(body["message"])
        is_over = end.get("reason") == "answered"
        self._run.tally.compare(name, text, said(name), complete=is_over)
        if is_over:
            self._answered.append(name)
            self._run.note_answer()
        elif not (end.get("reason") == "failed" and end.get("error")):
            self._run.tally.find(f"{name}: it ended with {end}")
        self._run.tally.outcomes["answered" if is_over else "failed with its reason"] += 1
        return None if is_over else 0.0

    async def _heard(self, name: str, body: Json) -> tuple[float | None, Json, str]:
        """Return the pause after a refusal, or the end and the text of an answer."""
        text, end = "", Json()
        async with self._http.stream("POST", "/v1/execute", json=body) as response:
            if response.status_code in (429, 503):
                await response.aread()
                self._run.tally.outcomes[f"refused for now ({response.status_code})"] += 1
                return float(response.headers["Retry-After"]), end, text
            if response.status_code != 200:
                raise ValueError(f"{response.status_code} {(await response.aread())[:200]!r}")
            self._conversation = response.headers["x-conversation-id"]
            async for line in response.aiter_lines():
                event: Json = json.loads(line[6:]) if line.startswith("data: ") else {"kind": ""}
                text += event["text"] if event["kind"] == "text" else ""
                end = event if event["kind"] == "end" else end
                if event["kind"] == "tool_result":
                    self._run.tally.compare(f"tool result {name}", event["text"], name, complete=True)
        return None, end, text

    async def _read_back(self) -> None:
        """Compare what is stored with what was asked and answered."""
        path = f"/v1/conversations/{self._conversation}"
        kept = (await self._http.get(path)).raise_for_status().json()["messages"]
        asked = [turn["text"] for turn in kept if turn["role"] == "user"]
        answers = [turn["text"] for turn in kept if turn["ending"] == "answered"]
        if asked != self._asked or answers != [said(name) for name in self._answered]:
            self._run.tally.find(f"{path}: stored {asked} {answers}, asked {self._asked}, answered {self._answered}")
        self._run.tally.outcomes["read back"] += 1
        self._forget()

    def _forget(self) -> None:
        self._asked, self._answered, self._conversation = [], [], None


class Hostile:
    """A client that does what none should do, as fast as it can."""

    def __init__(self, run: _Run, number: int) -> None:
        self._run = run
        self._random = random.Random(f"{run.seed}-hostile-{number}")
        self._url = httpx2.URL(run.service.url)
        self._ways: list[Callable[[], Awaitable[None]]] = [
            self.half_open,
            self.slow,
            self.huge,
            self.disconnecting,
            self.odd_schema,
            self.costly,
            self.wrong_key,
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
                self._run.abused.hostile[name] = self._run.abused.hostile.get(name, 0) + 1
            self._run.hostile_round.set()

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
                ("/v1/messages/count_tokens", {"model": "loaded", "messages": [message]}),
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

    def _head(self, length: int, path: str = "/v1/execute") -> bytes:
        return (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEYS[-1]}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    async def _connected(self) -> anyio.abc.SocketStream:
        return await anyio.connect_tcp(self._url.host, self._url.port or 80)

    async def _sent(self, data: bytes, patience_s: float) -> None:
        """Send, read for a moment, and leave."""
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
            async with await self._connected() as stream:
                with anyio.move_on_after(patience_s):
                    await stream.send(data)
                    while True:
                        await stream.receive()


def abuse(seed: int, questions: int | None = None, seconds: float | None = None, clients: int = CLIENTS) -> Abused:
    """Load a service with ``clients`` for so many questions or seconds."""
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder, loaded_service(Path(folder)) as service:

        async def run() -> Abused:
            return await _Run(service, seed, Budget(questions, seconds)).run(clients)

        abused = anyio.run(run)
        log = service.log
    for line in log:
        if any(word in line for word in ("Traceback", "internal error", "went wrong", "ResourceWarning")):
            abused.tally.find(f"the service wrote: {line}")
    return abused


def table(abused: Abused) -> str:
    """The counts for people."""
    tally, shown = abused.tally, abused.as_json()["healthz"]
    lines = [
        f"{tally.runs} questions in {tally.seconds:g} s; characters lost: {tally.lost_tokens}, mixed up: "
        + str(tally.leaked_tokens),
        ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common()),
        f"workers killed: {abused.kills}; hostile: "
        + ", ".join(f"{count} {kind}" for kind, count in sorted(abused.hostile.items())),
        f"/healthz: {shown['probes']} times, median {shown['median_s']:.3f} s, longest {shown['longest_s']:.3f} s",
        f"memory of the service: {abused.growth_mb:.0f} MB more at the most",
    ]
    return "\n".join([*lines, *tally.findings])


def main() -> int:
    """Run and print; 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--questions", type=int, help="so many (default: 500)")
    length.add_argument("--minutes", type=float)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60 if arguments.minutes else None
    questions = arguments.questions or (None if seconds else 500)
    abused = abuse(arguments.seed, questions, seconds, arguments.clients)
    print(json.dumps(abused.as_json()) if arguments.json else table(abused))
    is_bad = abused.tally.findings or max(abused.healthz_s) >= MOST_S or abused.growth_mb > MOST_GROWTH_MB
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
