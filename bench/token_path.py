"""The cost of a streamed token in the host process: function entries, event-loop iterations, CPU time, delivery.

    .venv/bin/python -m bench.token_path [--json]

``rkllm-mcp serve`` on the emulated runtime, and a client in a process of its own that asks ``/v1/chat/completions`` and
``/v1/execute`` for a stream; a new service for each pace:

* ``count``  100 tokens a second: entries of Python functions in the thread of the event loop (``sys.setprofile``; a
             coroutine that goes on counts again) and iterations of the loop. No clock is read.
* ``board``  33 tokens a second, as an RK3588 decodes: CPU time of the process with all its threads, and delivery.
* ``flat``   as fast as the emulated runtime can: CPU time, where many tokens are delivered together.

Every figure is the difference of a long answer and a short one, divided by the tokens between them, so that it does
not contain the request. ``delivery`` is from the moment at which the host is woken for a token to its arrival in the
client; bench/delivery.py has the way from the runtime's callback to the host.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
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
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from rkllm_mcp.surfaces.cli.main import main as rkllm_mcp

REPOSITORY = Path(__file__).resolve().parents[1]
ROUTES = ("/v1/chat/completions", "/v1/execute")
# pace -> speed of the emulated runtime, tokens of the short and of the long answer
PACES: dict[str, tuple[str, int, int]] = {
    "count": ("prefill 100000 decode 100", 30, 130),
    "board": ("prefill 100000 decode 33", 20, 119),
    "flat": ("flat", 100, 2100),
}
_STARTED_WITHIN_S = 60.0
_ANSWERED_WITHIN_S = 120.0
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
_CONFIG = '[model]\npath = "{folder}/words"\nmax_new_tokens = 3000\n[runtime]\nlibrary = "emulator"\n'


@dataclass(frozen=True)
class Figures:
    """The cost of a token of a route at a pace; None where the pace does not measure it.

    Args:
        route: the path.
        pace: see the module.
        tokens: how many the figures are an average of.
        records: records with text that reached the client for them.
        calls: entries of Python functions per token.
        iterations: iterations of the event loop per token.
        cpu_us: CPU time of the host process per token.
        delivery_p50_us: from the host's wake-up to the client, median.
        delivery_p99_us: the same, 99 of 100 tokens are faster.
    """

    route: str
    pace: str
    tokens: int
    records: int
    calls: float | None = None
    iterations: float | None = None
    cpu_us: float | None = None
    delivery_p50_us: float | None = None
    delivery_p99_us: float | None = None


@dataclass(frozen=True)
class Readings:
    """The counters of the host process."""

    calls: int
    iterations: int
    cpu_ns: int


class CountingSelector(selectors.DefaultSelector):
    """A selector that counts the iterations of its event loop, and notes when it was woken by a descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.iterations = 0
        self.woken_ns: list[int] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for descriptors."""
        ready = super().select(timeout)
        self.iterations += 1
        if ready:
            self.woken_ns.append(time.monotonic_ns())
        return ready


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
        self._figures: list[Figures] = []
        self._failure: BaseException | None = None

    def run(self, config: Path) -> list[Figures]:
        """Serve until everything is measured."""
        # The command makes its event loop itself.
        asyncio.set_event_loop_policy(_Policy(self._selector))  # pyright: ignore[reportDeprecated]
        threading.Thread(target=self._measure_all, daemon=True).start()
        if self._pace == "count":
            sys.setprofile(self._count)
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

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        del frame, argument
        if event == "call":
            self._calls += 1

    def _measure_all(self) -> None:
        try:
            self._wait_until_ready()
            for route in ROUTES:
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
        short, short_arrivals = self._answer(route, few)
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
            delivery_p50_us=statistics.median(delays) if delays else None,
            delivery_p99_us=delays[len(delays) * 99 // 100] if delays else None,
        )

    def _answer(self, route: str, tokens: int) -> tuple[Readings, list[int]]:
        """The cost of an answer of so many tokens, and when their records arrived in the client."""
        command = [sys.executable, "-m", "bench.token_path", "--client", str(self._port), route, str(tokens)]
        before = self._readings()
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=REPOSITORY, timeout=_ANSWERED_WITHIN_S
        )
        after = self._readings()
        cost = Readings(*(b - a for a, b in zip(_values(before), _values(after), strict=True)))
        return cost, json.loads(done.stdout)

    def _readings(self) -> Readings:
        return Readings(self._calls, self._selector.iterations, time.process_time_ns())

    def _delays(self, arrivals: Sequence[int]) -> list[float]:
        """From the first wake-up after one record to the arrival of the next, sorted, microseconds."""
        woken = self._selector.woken_ns
        found: list[float] = []
        for earlier, arrival in pairwise(arrivals):
            if (index := bisect_right(woken, earlier)) < len(woken) and woken[index] <= arrival:
                found.append((arrival - woken[index]) / _NS_PER_US)
        return sorted(found)


def _values(readings: Readings) -> tuple[int, int, int]:
    return readings.calls, readings.iterations, readings.cpu_ns


# --- the client ------------------------------------------------------------------------------------------------------


def ask(port: int, route: str, tokens: int) -> list[int]:
    """Ask for a streamed answer of so many tokens; when each record with text arrived (CLOCK_MONOTONIC, ns).

    Raises:
        RuntimeError: the service refused, or the answer was shorter.
    """
    body: dict[str, Any] = {"max_tokens": tokens}
    if route == "/v1/execute":
        body["message"] = "Go on"
    else:
        body |= {"messages": [{"role": "user", "content": "Go on"}], "stream": True}
        body["stream_options"] = {"include_usage": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWERED_WITHIN_S)
    connection.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{response.status} {response.read()!r}")
    arrivals: list[int] = []
    generated = 0
    while line := response.readline():
        now_ns = time.monotonic_ns()
        if not line.startswith(b"data: {"):
            continue
        record: dict[str, Any] = json.loads(line[6:])
        usage: dict[str, Any] = record.get("usage") or record
        generated = usage.get("completion_tokens", usage.get("generated_tokens", generated))
        if record.get("kind") == "text" or any(each["delta"].get("content") for each in record.get("choices", ())):
            arrivals.append(now_ns)
    if generated != tokens:
        raise RuntimeError(f"{generated} tokens came in place of {tokens}")
    return arrivals


# --- from outside ----------------------------------------------------------------------------------------------------


def measure(paces: Sequence[str] = tuple(PACES)) -> list[Figures]:
    """Measure every route at these paces, each in a process of its own."""
    found: list[Figures] = []
    for pace in paces:
        with tempfile.TemporaryDirectory(prefix="token-path-") as folder:
            found += _measured(Path(folder), pace)
    return found


def _measured(folder: Path, pace: str) -> list[Figures]:
    speed, _, many = PACES[pace]
    model = folder / "words"
    model.mkdir()
    words = " ".join(["word"] * (many + 100))
    (model / "words.rkllm").write_text(_MODEL.format(speed=speed, words=words), encoding="utf-8")
    (model / "tokenizer.json").symlink_to(REPOSITORY / "models" / "demo" / "tokenizer.json")
    (model / "model.toml").write_text(_CARD, encoding="utf-8")
    config = folder / "config.toml"
    config.write_text(_CONFIG.format(folder=folder), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RKLLM", "XDG", "MCP"))}
    environment |= {"HOME": str(folder), "RKLLM_MCP_STATE": str(folder / "state"), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "bench.token_path", "--host", pace, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the service at pace {pace} failed: {done.stderr}")
    return [Figures(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


COLUMNS = ("calls", "iterations", "cpu_us", "delivery_p50_us", "delivery_p99_us")


def table(rows: Sequence[Figures]) -> str:
    """The figures for a person."""
    heads = ("calls", "iterations", "cpu µs", "p50 µs", "p99 µs")
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
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        port, route, tokens = arguments.client
        print(json.dumps(ask(int(port), route, int(tokens))))
    elif arguments.host:
        pace, config = arguments.host
        print(json.dumps([asdict(each) for each in Host(pace, _free_port()).run(Path(config))]))
    else:
        rows = measure()
        print(json.dumps([asdict(row) for row in rows]) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
