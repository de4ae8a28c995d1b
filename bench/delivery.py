"""How long a token takes from the runtime's callback to whoever awaits it, and how long the callback keeps the runtime.

    python bench/delivery.py [--json] [--tokens N] [--abi 1.2.0|1.2.3|1.3.0]

Three ways through the same emulated runtime, in one run, so that the ratios hold on any machine:

* ``bare``    a C program whose callback does nothing: what the runtime itself costs;
* ``queue``   ctypes in this process, the callback decodes and puts into a ``queue.Queue``, a consumer takes out: the
              usual wrapper, at its best (no polling);
* ``engine``  this project: worker process, frames, asyncio.

Delivery is from the entry of the Python callback to the consumer (CLOCK_MONOTONIC, which processes share). Blocking is
the decode time that the runtime itself reports, per token, less that of ``bare``: it includes taking the interpreter
lock and converting the arguments, which no Python code could time. Paced at 33 tokens per second, as a board decodes,
and flat out, as none does.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import importlib.util
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from rkllm_mcp.generation import GenerationOptions, RunStats, Sampling  # noqa: E402
from rkllm_mcp.runtime.abi.common import LoadParameters  # noqa: E402
from rkllm_mcp.runtime.emulator import emulator_library  # noqa: E402
from rkllm_mcp.runtime.engine import EngineSettings, open_engine  # noqa: E402
from rkllm_mcp.runtime.library import open_library  # noqa: E402
from rkllm_mcp.runtime.run import TimedToken  # noqa: E402

CONTEXT_TOKENS = 16_384
PACED_TOKENS_PER_S = 33
PROMPT = (257, *b"user\nhello", 258, *b"\n", 257, *b"assistant\n")
ABI_MACROS = {"1.2.0": 120, "1.2.3": 121, "1.3.0": 130}

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
    """What one way measured; delivery is None where nothing is delivered."""

    way: str
    pace: str
    tokens: int
    us_per_token: float
    blocked_us: float | None = None
    delivery_mean_us: float | None = None
    delivery_p50_us: float | None = None
    delivery_p99_us: float | None = None
    delivery_max_us: float | None = None


@dataclass(frozen=True)
class Sample:
    """The raw material: decode time from the first to the last token in ns, and each token's way in ns."""

    decode_ns: int
    delays_ns: list[int]


def write_model(folder: Path, pace: str, tokens: int) -> Path:
    """A script that answers with ``tokens`` one-byte tokens."""
    speed = "flat" if pace == "flat" else f"prefill 643 decode {PACED_TOKENS_PER_S}"
    path = folder / f"{pace}.rkllm"
    path.write_text(
        "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|endoftext|> <|im_start|> <|im_end|>\neos <|im_end|>\n"
        f"context {CONTEXT_TOKENS}\nspeed {speed}\nrule\nsay {'x' * tokens}\n"
    )
    return path


def run_bare(program: Path, model: Path) -> Sample:
    """The C program's decode time."""
    done = subprocess.run([str(program), str(model)], capture_output=True, text=True, timeout=120, check=True)
    return Sample(int(done.stdout.splitlines()[-1]), [])


def run_queue(library_path: Path, model: Path) -> Sample:
    """The usual wrapper: callback, queue, consumer, one process."""
    library = open_library(library_path)
    abi, functions = library.abi, library.functions
    tokens: queue.Queue[tuple[str, int] | None] = queue.Queue()
    entries: list[int] = []

    def on_result(result: Any, _userdata: Any, state: int) -> int:
        entered_ns = time.monotonic_ns()
        if state == 0:
            tokens.put((result.contents.text.decode("utf-8", "ignore"), entered_ns))
            entries.append(entered_ns)
        return 0

    callback = abi.callback_type(on_result)
    argument = abi.new_callback(callback)
    load = LoadParameters(str(model), CONTEXT_TOKENS, CONTEXT_TOKENS, Sampling())
    param, handle = abi.new_param(library.default_param, load), ctypes.c_void_p()
    functions.rkllm_init(ctypes.byref(handle), ctypes.byref(param), argument)
    ids = (ctypes.c_int32 * len(PROMPT))(*PROMPT)
    value, infer = abi.new_input(ids), abi.new_infer_param(CONTEXT_TOKENS, None)

    def run() -> None:
        functions.rkllm_run(handle, ctypes.byref(value), ctypes.byref(infer), None)
        tokens.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    delays: list[int] = []
    while (item := tokens.get()) is not None:
        delays.append(time.monotonic_ns() - item[1])
    thread.join()
    functions.rkllm_destroy(handle)
    return Sample(entries[-1] - entries[0], delays)


async def run_engine(library_path: Path, model: Path) -> Sample:
    """This project's way."""
    settings = EngineSettings(
        model_path=model,
        library=library_path,
        context_tokens=CONTEXT_TOKENS,
        max_new_tokens=CONTEXT_TOKENS,
        timed_tokens=True,
    )
    delays: list[int] = []
    entries: list[int] = []
    async with open_engine(settings) as engine:
        await engine.ready()
        options = GenerationOptions(max_new_tokens=CONTEXT_TOKENS, stop_ids=frozenset({258}))
        async with aclosing(engine.generate(PROMPT, options)) as run:
            async for item in run:
                if not isinstance(item, RunStats):
                    now_ns = time.monotonic_ns()
                    assert isinstance(item, TimedToken)
                    delays.append(now_ns - item.entered_ns)
                    entries.append(item.entered_ns)
    return Sample(entries[-1] - entries[0], delays)


def figures(way: str, pace: str, tokens: int, sample: Sample, bare: Sample) -> Figures:
    """The sample as microseconds, the runtime's own cost taken off."""
    us_per_token = sample.decode_ns / tokens / 1e3
    if not sample.delays_ns:
        return Figures(way, pace, tokens, us_per_token)
    delays = sorted(delay / 1e3 for delay in sample.delays_ns)
    return Figures(
        way,
        pace,
        tokens,
        us_per_token,
        blocked_us=us_per_token - bare.decode_ns / tokens / 1e3,
        delivery_mean_us=statistics.fmean(delays),
        delivery_p50_us=delays[len(delays) // 2],
        delivery_p99_us=delays[len(delays) * 99 // 100],
        delivery_max_us=delays[-1],
    )


def measure(abi: str, tokens: int) -> list[Figures]:
    """Every way at every pace."""
    library = emulator_library(abi)
    rows: list[Figures] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = compile_bare(folder, abi, library)
        for pace, count in (("paced", min(tokens, 3 * PACED_TOKENS_PER_S)), ("flat", tokens)):
            model = write_model(folder, pace, count)
            bare = run_bare(program, model)
            rows.append(figures("bare", pace, count, bare, bare))
            rows.append(figures("queue", pace, count, run_queue(library, model), bare))
            rows.append(figures("engine", pace, count, asyncio.run(run_engine(library, model)), bare))
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
    """The engine against the queue, pace by pace; below 1 is better."""
    by_key = {(row.way, row.pace): row for row in rows}
    found: dict[str, float] = {}
    for pace in ("paced", "flat"):
        engine, usual = by_key["engine", pace], by_key["queue", pace]
        for name in ("delivery_mean_us", "blocked_us"):
            ours, theirs = getattr(engine, name), getattr(usual, name)
            # Paced, the runtime's own sleeping drowns what a callback costs; only flat out shows it.
            if theirs and (name != "blocked_us" or pace == "flat"):
                found[f"{name.removesuffix('_us')}_{pace}_engine_to_queue"] = ours / theirs
    return found


def table(rows: list[Figures]) -> str:
    """The figures for a person, in microseconds."""
    lines = [
        f"{'way':8}{'pace':7}{'tokens':>7}{'per token':>11}{'blocked':>9}{'mean':>9}{'p50':>9}{'p99':>9}{'max':>10}"
    ]
    for row in rows:
        blocked = row.blocked_us if row.pace == "flat" else None
        cells = (blocked, row.delivery_mean_us, row.delivery_p50_us, row.delivery_p99_us, row.delivery_max_us)
        text = "".join(
            f"{'-' if cell is None else f'{cell:.1f}':>{width}}"
            for cell, width in zip(cells, (9, 9, 9, 9, 10), strict=True)
        )
        lines.append(f"{row.way:8}{row.pace:7}{row.tokens:7}{row.us_per_token:11.1f}{text}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Delivery of tokens: delay and what the callback costs, microseconds.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--tokens", type=int, default=4000, help="tokens flat out (4000)")
    parser.add_argument("--abi", choices=sorted(ABI_MACROS), default="1.3.0")
    arguments = parser.parse_args()
    rows = measure(arguments.abi, arguments.tokens)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "ratios": ratios(rows)}))
        return
    print(table(rows))
    for name, ratio in ratios(rows).items():
        print(f"{name}: {ratio:.2f}")


if __name__ == "__main__":
    main()
