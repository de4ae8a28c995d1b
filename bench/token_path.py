"""The cost of a streamed token: function entries, event-loop iterations, CPU time of host and worker, delivery.

    .venv/bin/python -m bench.token_path [--json] [--pace board]

``rkllm-mcp serve`` on the emulated runtime, and a client in its own process that asks ``/v1/chat/completions``,
``/v1/execute`` and ``/api/chat`` for a stream; a new service for each pace:

* ``count``  100 tokens a second: entries of Python functions in the thread of the event loop (``sys.setprofile``; a
             coroutine that goes on counts again) and iterations of the loop. No clock is read. ``waits`` are our
             coroutines that wait, one in the other, while the answer is made, ``frames`` our functions on the stack
             between the arrival of a token and the write to the connection, ``async`` those that are coroutines.
* ``board``  33 tokens a second, as an RK3588 decodes: CPU time of all threads, and delivery. Also of ``rkllm-mcp run``
             and ``run --json``, whose output is read through a pipe.
* ``flat``   as fast as the emulated runtime can: CPU time, where many tokens are delivered together.
* ``crowd``  64 clients at once, flat out: tokens a second of all of them.

Every figure is the difference of a long answer and a short one, divided by the tokens between them, so that it does
not contain the request.
``delivery`` is from the entry of the runtime's callback to the token's arrival in the client.
The worker's CPU time contains the emulated runtime, which sleeps between two tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from inspect import CO_COROUTINE, currentframe
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from bench.tally import processes
from rkllm_base import listener
from rkllm_mcp.runtime.run import Run
from rkllm_mcp.surfaces.cli.main import main as rkllm_mcp

REPOSITORY = Path(__file__).resolve().parents[1]
ROUTES = ("/v1/chat/completions", "/v1/execute", "/api/chat")
COMMANDS = (("run",), ("run", "--json"))
CLIENTS = 64
# pace -> speed of the emulated runtime, tokens of the short and of the long answer
PACES: dict[str, tuple[str, int, int]] = {
    "count": ("prefill 100000 decode 100", 30, 130),
    "board": ("prefill 100000 decode 33", 20, 119),
    "flat": ("flat", 100, 2100),
    "crowd": ("flat", 10, 500),
}
_PACKAGE = f"{REPOSITORY}{os.sep}rkllm_mcp{os.sep}"
_STARTED_WITHIN_S = 60.0
_ANSWERED_WITHIN_S = 120.0
_NOTED_TOKEN = 20
_NS_PER_US = 1e3
_MODEL = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context 4096
speed {speed}

rule
  say {words}
"""
_CARD = 'name = "words"\ntemplate = "qwen2.5"\nfile = "words.rkllm"\ntokenizer = "tokenizer.json"\nemulated = true\n'
_CONFIG = """[model]
path = "{folder}/words"
max_new_tokens = 3000
[runtime]
library = "emulator"
[service]
queue = 64
"""


@dataclass(frozen=True)
class Figures:
    """The cost of a token of a route at a pace; None where the pace does not measure it."""

    route: str  # the path
    pace: str  # see the module
    tokens: int  # how many the figures are an average of
    records: int  # records with text that reached the client for them
    calls: float | None = None  # entries of Python functions per token
    iterations: float | None = None  # iterations of the event loop per token
    cpu_us: float | None = None  # CPU time of the host process per token
    worker_us: float | None = None  # CPU time of the worker per token
    delivery_p50_us: float | None = None  # from the runtime's callback to the client, median
    delivery_p99_us: float | None = None  # the same, 99 of 100 tokens are faster
    tokens_per_s: float | None = None  # of all clients
    waits: int | None = None  # coroutines that wait, one in the other
    frames: int | None = None  # functions between a token's arrival and its write
    async_frames: int | None = None  # those of them that are coroutines


@dataclass(frozen=True)
class Readings:
    """The counters of the host process and of the worker."""

    calls: int = 0
    iterations: int = 0
    cpu_ns: int = 0
    worker_ns: int = 0

    def since(self, before: Readings) -> Readings:
        """Return the difference of the counters."""
        return Readings(*(after - begun for after, begun in zip(astuple(self), astuple(before), strict=True)))


class CountingSelector(selectors.DefaultSelector):
    """A selector that counts the iterations of its event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.iterations = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for descriptors."""
        self.iterations += 1
        return super().select(timeout)


class _Policy(asyncio.DefaultEventLoopPolicy):
    """Every event loop counts with the same selector; the service has one."""

    def __init__(self, selector: CountingSelector) -> None:
        super().__init__()
        self._selector = selector

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(self._selector)


# --- the host: the service in the main thread, the measurement in another --------------------------------------------


class Host:
    """A service in this process that is measured from a thread.

    Args:
        pace: see the module.
        port: where it listens.
    """

    def __init__(self, pace: str, port: int) -> None:
        self._pace = pace
        self._port = port
        self._calls = 0
        self._selector = CountingSelector()
        self._waits = 0
        self.noted_run: Run | None = None  # the run in which it was noted
        # Frames, and those that are coroutines, at the last write.
        self._frames = (0, 0)
        self._entered_ns: list[int] = []
        self._asked_ns = 0
        self._figures: list[Figures] = []
        self._failure: BaseException | None = None

    def run(self, config: Path) -> list[Figures]:
        """Serve until everything is measured."""
        threading.Thread(target=self._measure_all, daemon=True).start()
        if self._pace == "count":
            # The command makes its event loop itself.
            asyncio.set_event_loop_policy(_Policy(self._selector))  # pyright: ignore[reportDeprecated]
            sys.setprofile(self._count)
            self._note_stacks()
        else:
            self._note_callbacks()
        try:
            rkllm_mcp(["--config", str(config), "serve", "--port", str(self._port)])
        except SystemExit as ended:
            if self._failure is None and ended.code != 0:
                raise
        finally:
            sys.setprofile(None)
        if self._failure is not None:
            raise self._failure
        return self._figures

    def _note_callbacks(self) -> None:
        """Note when the callback of each token was entered, which costs the host less than a microsecond."""
        add, note = Run.add, self._entered_ns.append

        def noting(self: Run, token_id: int, entered_ns: int, text: bytes) -> None:
            note(entered_ns)
            add(self, token_id, entered_ns, text)

        Run.add = noting

    def _note_stacks(self) -> None:
        """Note what waits when a token arrives, and what is on the stack when it is written."""
        host, hand_over, write = self, Run.hand_over, listener.write_body

        def noting_waits(self: Run) -> None:
            # Once in every answer, so that the difference of two answers stays; tokens may come several at once.
            if len(self.ids) >= _NOTED_TOKEN and host.noted_run is not self:
                host.noted_run = self
                host.note_waits()
            hand_over(self)

        def noting_frames(cycle: Any, content: bytes) -> bool:
            if self._waits and not self._frames[0]:
                self._frames = _own_frames(currentframe())
            return write(cycle, content)

        Run.hand_over = noting_waits
        listener.write_body = noting_frames

    def note_waits(self) -> None:
        """Note how many of our coroutines wait in one task; called in the event loop."""
        self._waits = max(len(_own_coroutines(task)) for task in asyncio.all_tasks())

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        del frame, argument
        if event == "call":
            self._calls += 1

    def _measure_all(self) -> None:
        try:
            self._wait_until_ready()
            for route in ROUTES if self._pace in {"count", "board", "flat"} else ROUTES[:1]:
                # The first answer of a route loads what later ones find loaded.
                self._answer(route, 10)
                self._figures.append(self._measure(route))
        except BaseException as error:  # noqa: BLE001  # raised in the main thread
            self._failure = error
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _STARTED_WITHIN_S
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _measure(self, route: str) -> Figures:
        _, few, many = PACES[self._pace]
        if self._pace == "crowd":
            return self._measure_crowd(route, many)
        short, short_arrivals = self._answer(route, few)
        self._waits, self._frames = 0, (0, 0)
        long, arrivals = self._answer(route, many)
        tokens = many - few
        is_counted = self._pace == "count"
        delays = self._delays(arrivals) if self._pace == "board" else []
        return Figures(
            route,
            self._pace,
            tokens,
            len(arrivals) - len(short_arrivals),
            calls=(long.calls - short.calls) / tokens if is_counted else None,
            iterations=(long.iterations - short.iterations) / tokens if is_counted else None,
            cpu_us=None if is_counted else (long.cpu_ns - short.cpu_ns) / tokens / _NS_PER_US,
            worker_us=None if is_counted else (long.worker_ns - short.worker_ns) / tokens / _NS_PER_US,
            delivery_p50_us=statistics.median(delays) if delays else None,
            delivery_p99_us=delays[len(delays) * 99 // 100] if delays else None,
            waits=self._waits if is_counted else None,
            frames=self._frames[0] if is_counted else None,
            async_frames=self._frames[1] if is_counted else None,
        )

    def _measure_crowd(self, route: str, tokens: int) -> Figures:
        begun_ns = time.monotonic_ns()
        cost, arrivals = self._answer(route, tokens, CLIENTS)
        total = tokens * CLIENTS
        return Figures(
            route,
            self._pace,
            total,
            len(arrivals),
            cpu_us=cost.cpu_ns / total / _NS_PER_US,
            worker_us=cost.worker_ns / total / _NS_PER_US,
            tokens_per_s=total / ((max(arrivals) - max(begun_ns, self._asked_ns)) / 1e9),
        )

    def _client(self, route: str, *numbers: int) -> list[str]:
        words = map(str, (self._port, route, *numbers))
        return [sys.executable, "-m", "bench.token_path", "--client", *words]

    def _answer(self, route: str, tokens: int, clients: int = 1) -> tuple[Readings, list[int]]:
        """The cost of an answer of this many tokens, and when their records arrived in the client."""
        command = self._client(route, tokens, clients)
        before = self._readings()
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=_ANSWERED_WITHIN_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"the client failed: {done.stderr}")
        cost = self._readings().since(before)
        self._asked_ns, *arrivals = json.loads(done.stdout)
        return cost, arrivals

    def _readings(self) -> Readings:
        worker_ns = sum(map(cpu_ns, processes()))
        return Readings(self._calls, self._selector.iterations, time.process_time_ns(), worker_ns)

    def _delays(self, arrivals: Sequence[int]) -> list[float]:
        """From the last callback before each arrival to that arrival, sorted, microseconds."""
        entered = self._entered_ns
        return sorted((arrival - entered[bisect_right(entered, arrival) - 1]) / _NS_PER_US for arrival in arrivals)


def _own_coroutines(task: asyncio.Task[Any]) -> list[str]:
    """The names of our coroutines that wait in a task, each in the one before."""
    names: list[str] = []
    waiting: Any = task.get_coro()
    while (code := getattr(waiting, "cr_code", None)) is not None:
        if _PACKAGE in code.co_filename:
            names.append(code.co_name)
        waiting = waiting.cr_await
    return names


def _own_frames(frame: FrameType | None) -> tuple[int, int]:
    """The frames of our functions from ``Run.hand_over`` to this one, and how many of them are coroutines."""
    codes: list[CodeType] = []
    while frame is not None and frame.f_code.co_name != "hand_over":
        if _PACKAGE in frame.f_code.co_filename:
            codes.append(frame.f_code)
        frame = frame.f_back
    return len(codes), sum(bool(code.co_flags & CO_COROUTINE) for code in codes)


def cpu_ns(pid: int) -> int:
    """CPU time of a process with all its threads, ns; 0 when it is gone."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(thread.read_text("ascii").split()[0])
    return total


# --- the client ------------------------------------------------------------------------------------------------------


def ask(port: int, route: str, tokens: int, clients: int) -> list[int]:
    """Ask for streamed answers of this many tokens.

    Returns when the first question was sent, and when each record with text arrived (CLOCK_MONOTONIC, ns).

    Raises:
        RuntimeError: the service refused or was silent, or an answer was shorter.
    """
    request, mark = _request(route, tokens), _MARKS[route]
    times = [time.monotonic_ns()]
    streams = {_opened(port, request): b"" for _ in range(clients)}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while streams:
            for key, _ in _ready(selector):
                stream = cast("socket.socket", key.fileobj)
                received = stream.recv(1_000_000)
                now_ns = time.monotonic_ns()
                # A record may be cut anywhere; its mark counts where it is complete.
                content = streams[stream] + received
                times += [now_ns] * content.count(mark)
                streams[stream] = content[-len(mark) + 1 :] if received else b""
                if not received:
                    selector.unregister(stream)
                    stream.close()
                    del streams[stream]
    if len(times) - 1 != tokens * clients:
        raise RuntimeError(f"{len(times) - 1} records came in place of {tokens * clients}")
    return times


def _ready(selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
    if not (ready := selector.select(_ANSWERED_WITHIN_S)):
        raise RuntimeError(f"nothing came for {_ANSWERED_WITHIN_S:.0f} s")
    return ready


# Stands in every record with text and in no other.
_MARKS = {
    "/v1/chat/completions": b'"delta":{"content":',
    "/v1/execute": b'{"kind":"text"',
    "/api/chat": b'"done":false',
}


def _request(route: str, tokens: int) -> bytes:
    messages = [{"role": "user", "content": "Go on"}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"max_tokens": tokens, "messages": messages, "stream": True},
        "/v1/execute": {"max_tokens": tokens, "message": "Go on"},
        "/api/chat": {"model": "words", "messages": messages, "options": {"num_predict": tokens}},
    }
    body = json.dumps(bodies[route]).encode()
    head = f"POST {route} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _opened(port: int, request: bytes) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", port), _ANSWERED_WITHIN_S)
    stream.sendall(request)
    return stream


# --- from outside ----------------------------------------------------------------------------------------------------


def measure(paces: Sequence[str] = tuple(PACES)) -> list[Figures]:
    """Measure every route at these paces, each in its own process."""
    found: list[Figures] = []
    for pace in paces:
        with tempfile.TemporaryDirectory(prefix="token-path-") as folder:
            found += _measured(Path(folder), pace)
            if pace == "board":
                found += [_measured_command(Path(folder), command) for command in COMMANDS]
    return found


def _measured(folder: Path, pace: str) -> list[Figures]:
    config, environment = prepared(folder, pace)
    command = [sys.executable, "-m", "bench.token_path", "--host", pace, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the service at pace {pace} failed: {done.stderr}")
    return [Figures(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def _measured_command(folder: Path, command: tuple[str, ...]) -> Figures:
    """Measure a command that writes its answer to standard output, between two of its reads."""
    _, few, many = PACES["board"]
    options = ["--config", str(folder / "config.toml"), "--no-mcp", *command, "--max-tokens", str(many + 20), "Go on"]
    environment = prepared(folder, "board")[1]
    start = [sys.executable, "-m", "rkllm_mcp", *options]
    marks: list[tuple[int, int, int]] = []
    words = 0
    with subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        while received := os.read(process.stdout.fileno(), 65_536):
            # Each token of the answer is a word with a space.
            words += received.count(b" ")
            if len(marks) < 2 and words >= (many if marks else few):
                marks.append((words, cpu_ns(process.pid), sum(map(cpu_ns, processes(process.pid)))))
    (first, host_ns, worker_ns), (last, host_end_ns, worker_end_ns) = marks
    tokens = last - first
    return Figures(
        " ".join(command),
        "board",
        tokens,
        tokens,
        cpu_us=(host_end_ns - host_ns) / tokens / _NS_PER_US,
        worker_us=(worker_end_ns - worker_ns) / tokens / _NS_PER_US,
    )


def prepared(folder: Path, pace: str) -> tuple[Path, dict[str, str]]:
    """Write the model ``words`` and a configuration; return the configuration and the environment."""
    speed, _, many = PACES[pace]
    model = folder / "words"
    model.mkdir(exist_ok=True)
    tokenizer = REPOSITORY / "models" / "demo" / "tokenizer.json"
    vocabulary: dict[str, int] = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
    # Each word is a token, and no two of them follow each other twice soon: an answer that repeats itself is ended.
    known = sorted(token[1:] for token in vocabulary if token[0] == "Ġ" and token[1:].isascii() and token[1:].islower())
    words = " ".join(random.Random(1).choices(known, k=many + 100))
    (model / "words.rkllm").write_text(_MODEL.format(speed=speed, words=words), encoding="utf-8")
    if not (model / "tokenizer.json").exists():
        (model / "tokenizer.json").symlink_to(tokenizer)
    (model / "model.toml").write_text(_CARD, encoding="utf-8")
    config = folder / "config.toml"
    config.write_text(_CONFIG.format(folder=folder), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RKLLM", "XDG", "MCP"))}
    environment |= {"HOME": str(folder), "RKLLM_MCP_STATE": str(folder / "state"), "PYTHONPATH": str(REPOSITORY)}
    return config, environment


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


COLUMNS = (
    "calls",
    "iterations",
    "waits",
    "frames",
    "async_frames",
    "cpu_us",
    "worker_us",
    "delivery_p50_us",
    "delivery_p99_us",
    "tokens_per_s",
)


def table(rows: Sequence[Figures]) -> str:
    """The figures for a person."""
    heads = ("calls", "iterations", "waits", "frames", "async", "host µs", "worker µs", "p50 µs", "p99 µs", "tokens/s")
    lines = [f"{'route':22}{'pace':7}{'tokens':>7}{'records':>9}" + "".join(f"{head:>12}" for head in heads)]
    for row in rows:
        cells = (getattr(row, column) for column in COLUMNS)
        text = "".join(f"{'-' if cell is None else f'{cell:.1f}':>12}" for cell in cells)
        lines.append(f"{row.route:22}{row.pace:7}{row.tokens:7}{row.records:9}{text}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print; the hidden arguments are those of the processes that this one starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--host", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--pace", choices=PACES, action="append", help="only this pace; may be given again")
    arguments = parser.parse_args()
    if arguments.client:
        port, route, *numbers = arguments.client
        print(json.dumps(ask(int(port), route, *map(int, numbers))))
    elif arguments.host:
        pace, config = arguments.host
        print(json.dumps([asdict(each) for each in Host(pace, _free_port()).run(Path(config))]))
    else:
        rows = measure(arguments.pace or tuple(PACES))
        print(json.dumps([asdict(row) for row in rows]) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
