"""Clients of several APIs that want two models in turn, while workers are killed: is an answer lost, or mixed up?

    .venv/bin/python -m bench.exchange [--minutes 10 | --questions 300] [--clients 16] [--seed 1] [--json]

A real service on the emulated runtime, as in bench.load, with two models that say their names. Every client draws a
model for each question: in conversations of the service, in streams of OpenAI's API, through Ollama's API, now and
then with a ``keep_alive`` that unloads the model; others embed texts with whatever model is loaded. What fails because
its worker died is asked again. Every answer is compared with what the wanted model had to say, and every conversation
with what was asked in it.

Counted are characters that are lost or another's, loads and deaths; measured is the longest time from the first attempt
to the answer, and how long /healthz takes. The exit code is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.abuse import Disturbances
from bench.load_clients import PATIENCE_S
from bench.load_service import KEYS, LoadedService, loaded_service, said
from bench.soak_tally import Budget, Tally

Json = dict[str, Any]
MODELS = ("heron", "raven")
CLIENTS = 16
# Questions of one conversation, which is then read back.
TURNS = 4
# Of the questions through Ollama's API, these unload the model afterwards.
UNLOADING_SHARE = 0.1
_AGAIN_S = 0.2


@dataclass
class Exchanged:
    """What came of it."""

    tally: Tally
    kills: int = 0
    loads: int = 0
    longest_s: float = 0.0  # from the first attempt to the answer
    healthz_s: list[float] = field(default_factory=list[float], repr=False)

    def as_json(self) -> Json:
        """Everything for a program."""
        probes = sorted(self.healthz_s)
        health = {"probes": len(probes), "median_s": probes[len(probes) // 2], "longest_s": probes[-1]}
        about = {"kills": self.kills, "loads": self.loads, "longest_s": round(self.longest_s, 2)}
        return {"tally": self.tally.as_json(), **about, "healthz": health}


class _Run(Disturbances):
    def __init__(self, service: LoadedService, seed: int, budget: Budget) -> None:
        super().__init__(service, seed, budget, Tally("exchange"))
        self.exchanged = Exchanged(self.tally, healthz_s=self.healthz_s)

    async def run(self, clients: int) -> Exchanged:
        async with anyio.create_task_group() as disturbing:
            disturbing.start_soon(self.probe)
            disturbing.start_soon(self.kill)
            async with anyio.create_task_group() as asking:
                for number in range(clients):
                    asking.start_soon(_KINDS[number % len(_KINDS)](self, number).run)
            disturbing.cancel_scope.cancel()
        self.tally.end()
        self.exchanged.kills = self.kills
        return self.exchanged

    def note_wait(self, took_s: float) -> None:
        """Count an answer that is over, so many seconds after it was first asked for."""
        self.exchanged.longest_s = max(self.exchanged.longest_s, took_s)
        self.note_answer()


class _Client:
    """A client that asks until it is enough, and again what failed with a reason."""

    def __init__(self, run: _Run, number: int) -> None:
        self._run = run
        self._number = number
        self._random = random.Random(f"{run.seed}-{number}")
        headers = {"Authorization": f"Bearer {KEYS[number % len(KEYS)]}"}
        self._http = httpx2.AsyncClient(base_url=run.service.url, headers=headers, timeout=PATIENCE_S, verify=False)

    async def run(self) -> None:
        tally, names = self._run.tally, 0
        async with self._http:
            while tally.begin(self._run.budget):
                names += 1
                name = f"{self._number}.{names:x}{self._random.randrange(16**6):06x}"
                model, began = self._random.choice(MODELS), time.monotonic()
                try:
                    while (pause_s := await self._attempt(name, model)) is not None:
                        tally.outcomes["asked again"] += 1
                        await anyio.sleep(pause_s)
                    tally.outcomes["answered"] += 1
                    self._run.note_wait(time.monotonic() - began)
                except Exception as error:  # noqa: BLE001  # whatever happens to a client is a finding
                    tally.find(f"{name}: {error!r}")
            await self.finish()

    async def _attempt(self, name: str, model: str) -> float | None:
        """Ask once; return None, or after how many seconds it has to be asked again."""
        with anyio.fail_after(PATIENCE_S):
            return await self.ask(name, model)

    async def ask(self, name: str, model: str) -> float | None:
        raise NotImplementedError

    async def finish(self) -> None:
        """Check what is left at the end."""

    def refused(self, response: httpx2.Response, content: bytes) -> float:
        """Return the pause after a refusal that says when to ask again."""
        if response.status_code not in (429, 503):
            raise ValueError(f"{response.status_code} {content[:200]!r}")
        self._run.tally.outcomes[f"refused for now ({response.status_code})"] += 1
        return float(response.headers["Retry-After"])

    def compare(self, name: str, model: str, text: str, *, complete: bool) -> float | None:
        self._run.tally.compare(name, text, said(f"{model} {name}"), complete=complete)
        return None if complete else _AGAIN_S


class _Conversing(_Client):
    """Conversations of the service whose model changes, with tools; each is read back at its end."""

    def __init__(self, run: _Run, number: int) -> None:
        super().__init__(run, number)
        self._asked: list[str] = []
        self._answers: list[str] = []
        self._conversation: str | None = None

    async def ask(self, name: str, model: str) -> float | None:
        body: Json = {"message": f"{self._random.choice(('plain', 'tool'))} {name}", "model": model}
        if self._conversation is not None:
            body["conversation"] = self._conversation
        text, end = "", Json()
        async with self._http.stream("POST", "/v1/execute", json=body) as response:
            if response.status_code != 200:
                return self.refused(response, await response.aread())
            self._conversation = response.headers["x-conversation-id"]
            async for line in response.aiter_lines():
                event: Json = json.loads(line[6:]) if line.startswith("data: ") else {"kind": ""}
                text += event["text"] if event["kind"] == "text" else ""
                end = event if event["kind"] == "end" else end
        self._asked.append(body["message"])
        is_over = end.get("reason") == "answered"
        if not is_over and not (end.get("reason") == "failed" and end.get("error")):
            self._run.tally.find(f"{name}: it ended with {end}")
        again = self.compare(name, model, text, complete=is_over)
        if is_over:
            self._answers.append(text)
            if len(self._answers) >= TURNS:
                await self.finish()
        return again

    async def finish(self) -> None:
        if self._conversation is None:
            return
        path = f"/v1/conversations/{self._conversation}"
        kept = (await self._http.get(path)).raise_for_status().json()["messages"]
        asked = [turn["text"] for turn in kept if turn["role"] == "user"]
        answers = [turn["text"] for turn in kept if turn["ending"] == "answered"]
        if (asked, answers) != (self._asked, self._answers):
            self._run.tally.find(f"{path}: stored {asked} {answers}, asked {self._asked}, answered {self._answers}")
        self._run.tally.outcomes["read back"] += 1
        self._asked, self._answers, self._conversation = [], [], None


class _OpenAI(_Client):
    """Streams of OpenAI's API."""

    async def ask(self, name: str, model: str) -> float | None:
        messages = [{"role": "user", "content": f"plain {name}"}]
        body = {"model": model, "messages": messages, "stream": True}
        text, is_whole = "", False
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                return self.refused(response, await response.aread())
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    is_whole = True
                elif line.startswith("data: "):
                    chunk: Json = json.loads(line[6:])
                    if "error" not in chunk and chunk["model"] != model:
                        self._run.tally.find(f"{name}: {chunk['model']} answered for {model}")
                    text += "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))
        return self.compare(name, model, text, complete=is_whole)


class _Ollama(_Client):
    """Ollama's API, now and then with a keep_alive that unloads the model."""

    async def ask(self, name: str, model: str) -> float | None:
        messages = [{"role": "user", "content": f"plain {name}"}]
        keep_alive = 0 if self._random.random() < UNLOADING_SHARE else -1
        body = {"model": model, "messages": messages, "stream": False, "keep_alive": keep_alive}
        response = await self._http.post("/api/chat", json=body)
        if response.status_code != 200:
            return self.refused(response, response.content)
        return self.compare(name, model, response.json()["message"]["content"], complete=True)


class _Embedding(_Client):
    """Vectors of the loaded model, whichever it is."""

    async def ask(self, name: str, model: str) -> float | None:
        del model
        response = await self._http.post("/v1/embeddings", json={"input": f"plain {name}"})
        if response.status_code != 200:
            return self.refused(response, response.content)
        (vector,) = response.json()["data"]
        if not any(vector["embedding"]):
            self._run.tally.find(f"{name}: an empty vector")
        return None


_KINDS: tuple[type[_Client], ...] = (_Conversing, _OpenAI, _Conversing, _Ollama, _Embedding)


def exchange(
    seed: int, questions: int | None = None, seconds: float | None = None, clients: int = CLIENTS
) -> Exchanged:
    """Load a service with ``clients`` for so many questions or seconds."""
    with tempfile.TemporaryDirectory(prefix="exchange-") as folder, loaded_service(Path(folder), MODELS) as service:

        async def run() -> Exchanged:
            return await _Run(service, seed, Budget(questions, seconds)).run(clients)

        exchanged = anyio.run(run)
        log = service.log
    exchanged.loads = sum(line.endswith("is loaded]") for line in log)
    for line in log:
        if any(word in line for word in ("Traceback", "internal error", "went wrong", "ResourceWarning")):
            exchanged.tally.find(f"the service wrote: {line}")
    return exchanged


def table(exchanged: Exchanged) -> str:
    """The counts for people."""
    tally, shown = exchanged.tally, exchanged.as_json()
    counts = f"models loaded: {exchanged.loads}, workers killed: {exchanged.kills}"
    lines = [
        f"{tally.runs} questions in {tally.seconds:g} s; characters lost: {tally.lost_tokens}, another's: "
        + str(tally.leaked_tokens),
        ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common()),
        f"{counts}, longest wait for an answer: {shown['longest_s']:g} s",
        "/healthz: {probes} times, median {median_s:.3f} s, longest {longest_s:.3f} s".format(**shown["healthz"]),
    ]
    return "\n".join([*lines, *tally.findings])


def main() -> int:
    """Run and print; 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--questions", type=int, help="so many (default: 300)")
    length.add_argument("--minutes", type=float)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60 if arguments.minutes else None
    questions = arguments.questions or (None if seconds else 300)
    exchanged = exchange(arguments.seed, questions, seconds, arguments.clients)
    print(json.dumps(exchanged.as_json()) if arguments.json else table(exchanged))
    return 1 if exchanged.tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
