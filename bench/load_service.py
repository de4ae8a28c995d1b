"""The service under load in its own process, and what it holds: descriptors, threads, tasks, processes, memory.

``loaded_service`` starts this module, which is ``rkllm-mcp serve`` with two cores and 4 GB of address space, and on
SIGUSR1 also writes how many tasks of asyncio there are; the rest is read from /proc. A model says its name and the name
it is asked for, so every answer is known.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import anyio
import httpx2

from bench.tally import processes, resident_mb

REPOSITORY = Path(__file__).resolve().parents[1]
KEYS = tuple(f"key-{number}" for number in range(8))
# Of the service, and of each process that it starts.
CORES, MEMORY_BYTES = 2, 4 * 2**30
PARALLEL = 2
QUEUE = 6
# How often an answer repeats its name; a long one is left before its end.
REPEATS, LONG_REPEATS = 8, 200
# What the emulated runtime does to the answer of a question that begins with the word, after some tokens.
FAULTS = {
    "error": "error after {}",
    "crash": "crash SIGSEGV after {}",
    "late": "abort-late {}",
    "endless": "ignore-eos",
    "stall": "stall after {} 0.02",
    "unfinished": "after-abort nothing",
}
FAULTS_AFTER = (0, 1, 5, 40)
_REPORT = "LOAD_REPORT_FD"
_PATIENCE_S = 60.0
# Growth of the service while no request runs, where hostile clients send megabytes too, MB.
GROWTH_MB, GROWTH_AFTER_ABUSE_MB = 24.0, 150.0
# Threads for files and the store come and go with what there is to do.
THREADS_MORE = 16
# Answers of clients that left end within this, seconds: after a few tokens.
_SETTLED_WITHIN_S, _SETTLING_PAUSE_S = 20.0, 0.25
# How often the holdings are read: a connection that is just being closed is no leak.
_READINGS = 5
# Words of lines that a service should not write.
WRONG = ("Traceback", "was never", "internal error", "went wrong", "ResourceWarning")
_MODEL = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context 4096
speed prefill 100000 decode 8000

rule
user ^tool ([a-z0-9.]+)
results 0
call echo {{"text": "$1"}}

rule
user ^tool ([a-z0-9.]+)
results 1+
result ([0-9]+[.][a-z0-9]+)
say {said_by_tool}

rule
user ^long ([a-z0-9.]+)
say {long}

rule
user ^plain ([a-z0-9.]+)
say {said}
"""
_SIGHT = "\nrule\nuser (.*)\nsay I see.\n"
_FAULT_RULE = "\nrule\nuser ^{name}-{after} ([a-z0-9.]+)\nsay {said}\nfault {fault}\n"
_CARD = 'name = "{name}"\ntemplate = "qwen2.5"\nfile = "loaded.rkllm"\ntokenizer = "tokenizer.json"\nemulated = true\n'
_CONFIG = """[model]
path = "{folder}/{model}"
max_new_tokens = 3500
[runtime]
library = "emulator"
[service]
parallel = {parallel}
queue = {queue}
api_keys = {keys}
[[servers]]
name = "own"
transport = "builtin"
trusted = true
[[servers.tools]]
name = "echo"
description = "Say it again."
entry_point = "bench.load_service:echo"
read_only = true
input_schema = {{ type = "object", properties = {{ text = {{ type = "string" }} }}, required = ["text"] }}
"""


def echo(text: str) -> str:
    """Say it again; the tool of the service."""
    return text


def said(model: str, name: str, repeats: int = REPEATS) -> str:
    """Return a model's answer to a name; it counts, because an answer that repeats itself is ended."""
    return " ".join(f"{number} {model} {name}" for number in range(repeats))


def _write(folder: Path, models: Sequence[str], more: str, *, sees: bool) -> Path:
    """Write the models, and a configuration for the first of them, which ends with the lines ``more``."""
    tokenizer = REPOSITORY / "models" / "demo" / "tokenizer.json"
    for name in models:
        model = folder / name
        model.mkdir()
        once, at_length = said(name, "$1"), said(name, "$1", LONG_REPEATS)
        rules = _MODEL.format(said_by_tool=said(name, "%1"), said=once, long=at_length) + "".join(
            _FAULT_RULE.format(name=fault, after=after, said=once, fault=words.format(after))
            for fault, words in FAULTS.items()
            for after in FAULTS_AFTER
        )
        if sees:
            # Not in the process of the service, which this module runs too.
            from tests.support.pictures import emulated_encoder
            from tests.support.seeing_model import seeing_model

            rules = rules.replace("context 4096\n", "context 4096\nhidden 16\npictures 1 16\n", 1) + _SIGHT
            tokenizer = seeing_model(folder / f"{name}-eyes") / "tokenizer.json"
            emulated_encoder(model)
        (model / "loaded.rkllm").write_text(rules, encoding="utf-8")
        (model / "tokenizer.json").symlink_to(tokenizer)
        (model / "model.toml").write_text(_CARD.format(name=name), encoding="utf-8")
    config = folder / "load.toml"
    values = {"folder": folder, "model": models[0], "parallel": PARALLEL, "queue": QUEUE, "keys": json.dumps(KEYS)}
    config.write_text(_CONFIG.format(**values) + more, encoding="utf-8")
    return config


@dataclass(frozen=True)
class Holdings:
    """What the service holds at a moment."""

    descriptors: int  # open descriptors of its process
    threads: int  # its threads
    tasks: int  # tasks of asyncio that are not done
    processes: int  # every process below it, the worker among them
    host_mb: float  # memory of its process, MB
    worker_mb: float  # memory of the processes below it, MB


@dataclass
class LoadedService:
    """A running service."""

    url: str  # where
    models: Sequence[str]  # the names of its models; the first one is loaded
    log: list[str]  # what it wrote to standard error
    process: subprocess.Popen[str] = field(repr=False)
    reports: int = field(repr=False)

    def holdings(self) -> Holdings:
        """What it holds now."""
        pid = self.process.pid
        self.process.send_signal(signal.SIGUSR1)
        tasks = int(os.read(self.reports, 64))
        below = processes(pid)
        return Holdings(
            descriptors=sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
            threads=sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()),
            tasks=tasks,
            processes=len(below),
            host_mb=round(resident_mb(pid), 1),
            worker_mb=round(sum(map(resident_mb, below)), 1),
        )


async def holdings_at_rest(
    service: LoadedService, find: Callable[[str], None], before: Holdings | None = None, growth_mb: float = GROWTH_MB
) -> Holdings:
    """Return what the service holds once no request runs; it is to come back to what it held ``before``."""
    headers = {"Authorization": f"Bearer {KEYS[0]}", "Connection": "close"}
    http = httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60, verify=False)
    messages = [{"role": "user", "content": "plain 0.0"}]
    question = {"model": service.models[0], "messages": messages, "stream": False, "keep_alive": -1}
    queue: dict[str, int] = {}
    held = await anyio.to_thread.run_sync(service.holdings)
    with anyio.move_on_after(_SETTLED_WITHIN_S) as patience:
        async with http:
            # A model that was unloaded, or whose worker died, is loaded by a question and stays.
            response = await http.post("/api/chat", json=question)
            while response.status_code != 200:
                await anyio.sleep(_SETTLING_PAUSE_S)
                response = await http.post("/api/chat", json=question)
            while not queue or any(queue.values()):
                queue = (await http.get("/v1/board")).raise_for_status().json()["queue"]
        # The reading above may be of a service whose worker was dead.
        held = await anyio.to_thread.run_sync(service.holdings)
        for _ in range(_READINGS):
            again = await anyio.to_thread.run_sync(service.holdings)
            held = min(held, again, key=lambda holdings: holdings.descriptors + holdings.tasks)
        while before is not None and any(growth(before, held, growth_mb)):
            await anyio.sleep(_SETTLING_PAUSE_S)
            held = await anyio.to_thread.run_sync(service.holdings)
    if patience.cancelled_caught and any(queue.values()):
        find(f"no request runs, and the queue holds {queue}")
    return held


def growth(before: Holdings, after: Holdings, growth_mb: float = GROWTH_MB) -> Iterator[str]:
    """Yield what there is more of than there was."""
    for what in ("descriptors", "tasks", "processes"):
        if (more := getattr(after, what) - getattr(before, what)) > 0:
            yield f"{more} {what} more than after the warm-up"
    if (more := after.threads - before.threads) > THREADS_MORE:
        yield f"{more} threads more than after the warm-up"
    for what in ("host_mb", "worker_mb"):
        if (more := getattr(after, what) - getattr(before, what)) > growth_mb:
            yield f"{what} grew by {more:.1f}"


@contextmanager
def loaded_service(
    folder: Path, models: Sequence[str], release: str, more: str = "", *, sees: bool = False
) -> Generator[LoadedService, None, None]:
    """Start it with models on a release of the runtime, wait until the first is loaded, and end it as systemd would.

    The lines ``more`` are the end of its configuration; with ``sees`` the models have eyes.

    Raises:
        RuntimeError: it did not start, or did not end as it should.
    """
    config = _write(folder, models, more, sees=sees)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RKLLM", "XDG", "MCP"))}
    environment |= {"HOME": str(folder), "RKLLM_MCP_STATE": str(folder / "state"), "PYTHONPATH": str(REPOSITORY)}
    environment |= {"RKLLM_MCP_MODELS": str(folder), "RKLLM_EMULATOR_ABI": release}
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "bench.load_service", str(config)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**environment, _REPORT: str(writing)}, pass_fds=[writing]
    )
    service = LoadedService("", models, [], process, reading)
    listening = threading.Event()
    ready = threading.Event()

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            service.log.append(line.rstrip("\n"))
            if line.startswith("Serving at "):
                service.url = line.split()[2]
            if line.startswith("Ready"):
                ready.set()
        listening.set()
        ready.set()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        if not ready.wait(_PATIENCE_S) or listening.is_set():
            raise RuntimeError("\n".join(["the service did not start", *service.log]))
        yield service
        below = processes(process.pid)
        process.terminate()
        if (code := process.wait(_PATIENCE_S)) != 0:
            raise RuntimeError("\n".join([f"the service ended with {code}", *service.log]))
        if left := [pid for pid in below if resident_mb(pid)]:
            raise RuntimeError(f"the service left processes: {left}")
    finally:
        process.kill()
        process.wait(_PATIENCE_S)
        listener.join(_PATIENCE_S)
        if process.stderr is not None:
            process.stderr.close()
        os.close(reading)
        os.close(writing)


def _report(*_: object) -> None:
    found = cast("list[asyncio.Task[object]]", [each for each in gc.get_objects() if isinstance(each, asyncio.Task)])
    tasks = sum(1 for task in found if not task.done())
    os.write(int(os.environ[_REPORT]), f"{tasks}\n".encode())


def main() -> None:
    """Serve the configuration that the command line names."""
    from rkllm_mcp.surfaces.cli.main import main as rkllm_mcp

    # As on a board with 4 GB, of which two cores are free.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGUSR1, _report)
    rkllm_mcp(["--config", sys.argv[1], "serve", "--port", "0"])


if __name__ == "__main__":
    main()
