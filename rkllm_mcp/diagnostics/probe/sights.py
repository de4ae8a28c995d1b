"""The experiments with pictures: how fast the vision encoder is, and what the runtime makes of a picture.

The same rules as in ``experiments``. Releases of librknnrt.so have thrown C++ exceptions, which end a process, so it
comes after the experiments without it.
"""

from __future__ import annotations

import statistics
import time
from array import array
from pathlib import Path

from rkllm_mcp.diagnostics.probe.experiments import LIMIT, Facts, InconclusiveError, require_completed
from rkllm_mcp.diagnostics.probe.subject import ProbePrompts, ProbeSubject
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.generation import ImageInput, ImageTags
from rkllm_mcp.runtime.vision.library import NativeEncoder

# Sets of cores of an RK3588, and what is expected of them.
_CORES = {"three": 7, "two": 3, "one": 1}
_ENCODINGS = 3
_RED, _BLUE = (220, 20, 20), (20, 40, 220)
# Runs of which the growth of the memory is measured, after some that allocate what stays.
_LEAK_RUNS, _FIRST_RUNS = 8, 3
_NS_PER_MS = 1e6


def look_at_pictures(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Measure the encoder, then what the runtime does with a picture, with another one, and with its memory."""
    if (pictures := prompts.pictures) is None:
        raise InconclusiveError("this model has no vision encoder")
    try:
        began_ns = time.monotonic_ns()
        encoder = NativeEncoder(Path(pictures.library), Path(pictures.encoder))
    except RkllmMcpError as error:
        raise InconclusiveError(f"the vision encoder cannot be loaded: {error}") from None
    facts: Facts = {"encoder_load_ms": round((time.monotonic_ns() - began_ns) / _NS_PER_MS, 3)}
    try:
        # The time of a picture by the cores that it may use; a set that is refused is left out.
        shape, times = encoder.shape, dict[str, float]()
        red, blue = (bytes(colour) * (shape.width * shape.height) for colour in (_RED, _BLUE))
        for cores, mask in _CORES.items():
            if encoder.use_cores((mask,)):
                encodings: list[float] = []
                for _ in range(_ENCODINGS):
                    began_ns = time.monotonic_ns()
                    encoder.encode(red)
                    encodings.append(round((time.monotonic_ns() - began_ns) / _NS_PER_MS, 3))
                times[cores] = statistics.median(encodings)
        encoder.use_cores()
        facts["encoder_ms"] = times
        first, second = (
            ImageInput(
                pictures.text,
                array("f", encoder.encode(pixels)),
                shape.tokens,
                1,
                width=shape.width,
                height=shape.height,
                tags=ImageTags(*pictures.tags),
            )
            for pixels in (red, blue)
        )
        facts |= _watch_pictures(subject, first, second, pictures.text_tokens + shape.tokens)
    finally:
        encoder.destroy()
        subject.clear()
    return facts


def _watch_pictures(subject: ProbeSubject, first: ImageInput, second: ImageInput, expected_tokens: int) -> Facts:
    """Return what the runtime makes of a picture, of another one after it, and of the memory for them."""
    facts: Facts = {}
    # What it adds to the text by itself, and with the empty template that conversations set.
    subject.clear()
    for name in ("picture_template_adds", "picture_empty_template_adds"):
        observed = require_completed(subject.run(first, 2))
        if observed.evaluated_tokens is not None:
            facts[name] = observed.evaluated_tokens - expected_tokens
        subject.call("rkllm_set_chat_template", b"", b"", b"")
        subject.clear()
    # A picture may not be answered after another one as it is from an empty cache (rknn-llm #257, rkllama #175).
    alone = require_completed(subject.run(second, LIMIT)).ids
    subject.clear()
    other = require_completed(subject.run(first, LIMIT)).ids
    ids_after = require_completed(subject.run(second, LIMIT)).ids
    if alone != other:
        outcome = "right" if ids_after == alone else "as the first" if ids_after == other else "otherwise"
        facts["second_picture"] = outcome
    # Memory that a picture costs for good, KiB: without history, and with history that is cleared (rknn-llm #529).
    grown: dict[str, float] = {}
    for name, keeps in (("without history", False), ("with history, cleared", True)):
        before = 0.0
        for number in range(_FIRST_RUNS + _LEAK_RUNS):
            before = _own_memory() if number == _FIRST_RUNS else before
            require_completed(subject.run(first, 1, keep_history=keeps))
            subject.clear()
        grown[name] = round((_own_memory() - before) / _LEAK_RUNS, 1)
    return {**facts, "picture_leak_kib": grown}


def _own_memory() -> float:
    """Memory that this process has written to, KiB."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0.0)
