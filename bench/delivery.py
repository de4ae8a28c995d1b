"""How long a token takes from the runtime's callback to its consumer, and how long the callback keeps the runtime.

    python bench/delivery.py [--json] [--abi 1.2.0|1.2.3|1.3.0|1.3.1]

Four ways, in one run, so that the ratios hold on any machine:

* ``bare``    a C program on the emulated runtime whose callback does nothing: what the runtime itself costs;
* ``socket``  a process that only writes the time into a socket, and a bare asyncio reader: what the kernel and the
              event loop take when one process wakes another;
* ``queue``   ctypes in this process, the callback decodes and puts into a ``queue.Queue``, a thread takes out: the
              usual wrapper at its best (nothing polls);
* ``engine``  this project: worker process, frames, asyncio.

Three paces: ``board``, 33 tokens a second, as an RK3588 decodes; ``brisk``, 1000 a second; ``flat`` out, as no NPU can.

``blocked`` is the time per token that the runtime is kept by the callback: the distance between its callbacks flat out,
less that of ``bare``. It includes taking the interpreter lock and converting the arguments, which no Python code could
time. ``delivery`` is from the entry of the Python callback to the consumer (CLOCK_MONOTONIC, which processes share).
Flat out the runtime is faster than any consumer, so delivery there is the length of the queue and not a delay;
``per token`` until the last one is seen is the figure to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import importlib.util
import json
import os
import queue
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from rkllm_mcp.generation import (  # noqa: E402
    GenerationOptions,
    RunStats,
)
from rkllm_mcp.runtime.abi.common import (  # noqa: E402
    LoadParameters,
)
from rkllm_mcp.runtime.emulator import emulator_library  # noqa: E402
from rkllm_mcp.runtime.engine import open_engine  # noqa: E402
from rkllm_mcp.runtime.library import open_library  # noqa: E402
from rkllm_mcp.runtime.run import TimedToken  # noqa: E402
from rkllm_mcp.runtime.settings import EngineSettings  # noqa: E402

CONTEXT_TOKENS = 16_384
# pace -> (tokens per second, tokens to measure)
PACES: dict[str, tuple[int | None, int]] = {"board": (33, 99), "brisk": (1000, 2000), "flat": (None, 4000)}
PROMPT = (257, *b"user\nhello", 258, *b"\n", 257, *b"assistant\n")
ABI_MACROS = {"1.2.0": 120, "1.2.3": 121, "1.3.0": 130, "1.3.1": 131}

WRITER = """
import socket, struct, sys, time
connection, pause = socket.socket(fileno=int(sys.argv[1])), float(sys.argv[3])
for _ in range(int(sys.argv[2])):
    if pause: time.sleep(pause)
    connection.send(struct.pack("<Q", time.monotonic_ns()))
"""

BARE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "rkllm_abi.h"
static long long first, last;
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
#if RKLLM_ABI >= 121
#define STATUS int
#define DONE 0
#else
#define STATUS void
#define DONE
#endif
static STATUS callback(RKLLMResult *result, void *userdata, LLMCallState state) {
    (void)result; (void)userdata;
    if (state == RKLLM_RUN_NORMAL) { if (!first) first = now(); last = now(); }
    return DONE;
}
int main(int argc, char **argv) {
    if (argc < 2) return 2;
    static int32_t ids[] = {@IDS@};
    LLMHandle handle = NULL;
    RKLLMParam param = rkllm_createDefaultParam();
    param.model_path = argv[1];
    param.max_context_len = @CONTEXT@;
    param.max_new_tokens = @CONTEXT@;
#if RKLLM_ABI >= 130
    RKLLMCallback callbacks = {.result_callback = callback};
    if (rkllm_init(&handle, &param, &callbacks) != 0) return 3;
#else
    if (rkllm_init(&handle, &param, callback) != 0) return 3;
#endif
    RKLLMInput input = {.input_type = RKLLM_INPUT_TOKEN};
    input.token_input.input_ids = ids;
    input.token_input.n_tokens = sizeof ids / sizeof *ids;
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE};
    if (rkllm_run(handle, &input, &infer, NULL) != 0) return 4;
    printf("%lld\n", last - first);
    rkllm_destroy(handle);
    return 0;
}
"""


@dataclass(frozen=True)
class Figures:
    """What one way measured, in microseconds; None where it has no such figure."""

    way: str
    pace: str
    tokens: int
    per_token_us: float
    blocked_us: float | None = None
    delivery_mean_us: float | None = None
    delivery_p50_us: float | None = None
    delivery_p99_us: float | None = None
    delivery_max_us: float | None = None


@dataclass(frozen=True)
class Sample:
    """The raw material, in ns.

    Args:
        decode_ns: from the first callback to the last.
        through_ns: from the first callback until the last token was seen.
        delays_ns: every token's way.
    """

    decode_ns: int
    through_ns: int
    delays_ns: list[int]


def sample_of(entries: list[int], seen: list[int]) -> Sample:
    """The sample of tokens that entered and were seen at these times."""
    delays = [there - here for here, there in zip(entries, seen, strict=True)]
    return Sample(entries[-1] - entries[0], seen[-1] - entries[0], delays)


def write_model(folder: Path, pace: str) -> Path:
    """A script that answers with one-byte tokens at a pace."""
    tokens_per_s, tokens = PACES[pace]
    speed = f"prefill 643 decode {tokens_per_s}" if tokens_per_s else "flat"
    path = folder / f"{pace}.rkllm"
    path.write_text(
        "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|endoftext|> <|im_start|> <|im_end|>\neos <|im_end|>\n"
        f"context {CONTEXT_TOKENS}\nspeed {speed}\nrule\nsay {'x' * tokens}\n"
    )
    return path


def run_bare(program: Path, model: Path) -> Sample:
    """The C program's decode time."""
    done = subprocess.run([str(program), str(model)], capture_output=True, text=True, timeout=120, check=True)
    decode_ns = int(done.stdout.splitlines()[-1])
    return Sample(decode_ns, decode_ns, [])


def run_socket(pace: str) -> Sample:
    """A process that writes, an asyncio reader that reads."""
    tokens_per_s, tokens = PACES[pace]
    ours, theirs = socket.socketpair()
    pause_s = 1 / tokens_per_s if tokens_per_s else 0.0
    command = [sys.executable, "-I", "-S", "-c", WRITER, str(theirs.fileno()), str(tokens), str(pause_s)]
    with ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),)):
        theirs.close()
        return asyncio.run(read_times(ours))


async def read_times(connection: socket.socket) -> Sample:
    """The times that come through a socket until it ends."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    entries: list[int] = []
    seen: list[int] = []

    def read() -> None:
        received = connection.recv(65536)
        now_ns = time.monotonic_ns()
        if not received:
            loop.remove_reader(connection)
            over.set()
        for (entered_ns,) in struct.iter_unpack("<Q", received):
            entries.append(entered_ns)
            seen.append(now_ns)

    connection.setblocking(False)
    loop.add_reader(connection, read)
    await over.wait()
    return sample_of(entries, seen)


def run_queue(library_path: Path, model: Path) -> Sample:
    """The usual wrapper: callback, queue, consumer, one process."""
    library = open_library(library_path)
    abi, functions = library.abi, library.functions
    tokens: queue.Queue[str | None] = queue.Queue()
    entries: list[int] = []

    def on_result(result: Any, _userdata: Any, state: int) -> int:
        entered_ns = time.monotonic_ns()
        if state == 0:
            entries.append(entered_ns)
            tokens.put(result.contents.text.decode("utf-8", "ignore"))
        return 0

    callback = abi.callback_type(on_result)
    argument = abi.new_callback(callback)
    load = LoadParameters(model, context_tokens=CONTEXT_TOKENS, max_new_tokens=CONTEXT_TOKENS)
    param, handle = abi.new_param(library.default_param, load), ctypes.c_void_p()
    functions.rkllm_init(ctypes.byref(handle), ctypes.byref(param), argument)
    ids = (ctypes.c_int32 * len(PROMPT))(*PROMPT)
    value, infer = abi.new_input(ids), abi.new_infer_param(GenerationOptions(CONTEXT_TOKENS))

    def run() -> None:
        functions.rkllm_run(handle, ctypes.byref(value), ctypes.byref(infer), None)
        tokens.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    seen: list[int] = []
    while tokens.get() is not None:
        seen.append(time.monotonic_ns())
    thread.join()
    functions.rkllm_destroy(handle)
    return sample_of(entries, seen)


async def run_engine(library_path: Path, model: Path) -> Sample:
    """This project's way."""
    settings = EngineSettings(
        model_path=model,
        library=library_path,
        context_tokens=CONTEXT_TOKENS,
        max_new_tokens=CONTEXT_TOKENS,
        timed_tokens=True,
    )
    entries: list[int] = []
    seen: list[int] = []
    async with open_engine(settings) as engine:
        await engine.ready()
        options = GenerationOptions(max_new_tokens=CONTEXT_TOKENS, stop_ids=frozenset({258}))
        async with aclosing(engine.generate(PROMPT, options)) as run:
            async for item in run:
                if not isinstance(item, RunStats):
                    seen.append(time.monotonic_ns())
                    assert isinstance(item, TimedToken)
                    entries.append(item.entered_ns)
    return sample_of(entries, seen)


def figures(way: str, pace: str, sample: Sample, bare: Sample) -> Figures:
    """The sample as microseconds, the runtime's own cost taken off."""
    tokens = PACES[pace][1]
    per_token_us = sample.through_ns / tokens / 1e3
    if not sample.delays_ns:
        return Figures(way, pace, tokens, per_token_us)
    delays = sorted(delay / 1e3 for delay in sample.delays_ns)
    # At a pace, the runtime's own waiting drowns what a callback costs; only flat out shows it.
    has_blocked = pace == "flat" and way != "socket"
    return Figures(
        way,
        pace,
        tokens,
        per_token_us,
        blocked_us=(sample.decode_ns - bare.decode_ns) / tokens / 1e3 if has_blocked else None,
        delivery_mean_us=statistics.fmean(delays),
        delivery_p50_us=delays[len(delays) // 2],
        delivery_p99_us=delays[len(delays) * 99 // 100],
        delivery_max_us=delays[-1],
    )


def measure(abi: str, paces: Sequence[str] = tuple(PACES)) -> list[Figures]:
    """Every way at every pace."""
    library = emulator_library(abi)
    rows: list[Figures] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = compile_bare(folder, abi, library)
        for pace in paces:
            model = write_model(folder, pace)
            bare = run_bare(program, model)
            rows.append(figures("bare", pace, bare, bare))
            rows.append(figures("socket", pace, run_socket(pace), bare))
            rows.append(figures("queue", pace, run_queue(library, model), bare))
            rows.append(figures("engine", pace, asyncio.run(run_engine(library, model)), bare))
    return rows


def compile_bare(folder: Path, abi: str, library: Path) -> Path:
    """The C program, linked with the emulated runtime."""
    specification = importlib.util.spec_from_file_location("native_build", REPOSITORY / "native" / "build.py")
    assert specification is not None
    assert specification.loader is not None
    build = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(build)
    source = folder / "bare.c"
    source.write_text(BARE.replace("@IDS@", ", ".join(map(str, PROMPT))).replace("@CONTEXT@", str(CONTEXT_TOKENS)))
    extra = [f"-L{library.parent}", "-lrkllmrt", f"-Wl,-rpath,{library.parent}"]
    program: Path = build.compile_program([source], folder / "bare", ABI_MACROS[abi], extra)
    return program


def ratios(rows: list[Figures]) -> dict[str, float]:
    """The engine against the others; below 1 is better."""
    by_key = {(row.way, row.pace): row for row in rows}
    found: dict[str, float] = {}
    for name, pace in (("delivery_mean_us", "board"), ("delivery_mean_us", "brisk"), ("blocked_us", "flat")):
        for other in ("socket", "queue"):
            ours, theirs = (getattr(by_key.get((way, pace)), name, None) for way in ("engine", other))
            if ours is not None and theirs:
                found[f"{name.removesuffix('_us')}_{pace}_engine_to_{other}"] = ours / theirs
    return found


COLUMNS = ("per_token_us", "blocked_us", "delivery_mean_us", "delivery_p50_us", "delivery_p99_us", "delivery_max_us")


def table(rows: list[Figures]) -> str:
    """The figures for a person."""
    heads = ("per token", "blocked", "mean", "p50", "p99", "max")
    lines = [f"{'way':8}{'pace':7}{'tokens':>7}" + "".join(f"{head:>11}" for head in heads) + "   (µs)"]
    for row in rows:
        cells = (getattr(row, column) for column in COLUMNS)
        text = "".join(f"{'-' if cell is None else f'{cell:.1f}':>11}" for cell in cells)
        lines.append(f"{row.way:8}{row.pace:7}{row.tokens:7}{text}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Delivery of tokens: delay and what the callback costs, microseconds.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--abi", choices=sorted(ABI_MACROS), default="1.3.0")
    arguments = parser.parse_args()
    with quiet_runtime():
        rows = measure(arguments.abi)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "ratios": ratios(rows)}))
        return
    print(table(rows))
    for name, ratio in ratios(rows).items():
        print(f"{name}: {ratio:.2f}")


@contextmanager
def quiet_runtime() -> Generator[None, None, None]:
    """Keep the banner that the runtime prints in this process out of the figures."""
    sys.stdout.flush()
    kept = os.dup(1)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  a descriptor is wanted, not a path
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    main()
