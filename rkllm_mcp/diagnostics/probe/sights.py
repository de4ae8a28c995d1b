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
from rkllm_mcp.diagnostics.probe.subject import ProbePictures, ProbePrompts, ProbeSubject
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.generation import ImageInput, ImageTags
from rkllm_mcp.runtime.vision.library import NativeEncoder

# Sets of cores of an RK3588, and what is expected of them.
_CORES = {"three": 7, "two": 3, "one": 1}
_ENCODINGS = 3
_RED, _BLUE = (220, 20, 20), (20, 40, 220)
# Runs of which the growth of the memory is measured, after some that allocate what stays.
_LEAK_RUNS, _FIRST_RUNS = 8, 3


def look_at_pictures(subject: ProbeSubject, prompts: ProbePrompts) -> Facts:
    """Measure the encoder, then what the runtime does with a picture, with another one, and with its memory."""
    if (pictures := prompts.pictures) is None:
        raise InconclusiveError("this model has no vision encoder")
    try:
        began_ns = time.monotonic_ns()
        encoder = NativeEncoder(Path(pictures.library), Path(pictures.encoder))
    except RkllmMcpError as error:
        raise InconclusiveError(f"the vision encoder cannot be loaded: {error}") from None
    facts: Facts = {"encoder_load_ms": _ms(time.monotonic_ns() - began_ns)}
    try:
        facts |= _measure_encoder(encoder)
        red, blue = (_shown(encoder, pictures, colour) for colour in (_RED, _BLUE))
        facts |= _watch_template(subject, pictures, red)
        facts |= _watch_second_picture(subject, red, blue)
        facts |= _watch_memory(subject, red)
    finally:
        encoder.destroy()
        subject.clear()
    return facts


def _measure_encoder(encoder: NativeEncoder) -> Facts:
    """The time of a picture by the cores that it may use; a set that is refused is left out."""
    pixels = bytes(_RED) * (encoder.shape.width * encoder.shape.height)
    times: dict[str, float] = {}
    for cores, mask in _CORES.items():
        if encoder.use_cores((mask,)):
            encodings: list[float] = []
            for _ in range(_ENCODINGS):
                began_ns = time.monotonic_ns()
                encoder.encode(pixels)
                encodings.append(_ms(time.monotonic_ns() - began_ns))
            times[cores] = statistics.median(encodings)
    encoder.use_cores()
    return {"encoder_ms": times}


def _watch_template(subject: ProbeSubject, pictures: ProbePictures, picture: ImageInput) -> Facts:
    """What the runtime adds to a text with a picture by itself, and with the empty template that conversations set."""
    facts: Facts = {}
    expected = pictures.text_tokens + picture.tokens_per_image
    subject.clear()
    for name in ("picture_template_adds", "picture_empty_template_adds"):
        observed = require_completed(subject.run(picture, 2))
        if observed.evaluated_tokens is not None:
            facts[name] = observed.evaluated_tokens - expected
        subject.call("rkllm_set_chat_template", b"", b"", b"")
        subject.clear()
    return facts


def _watch_second_picture(subject: ProbeSubject, first: ImageInput, second: ImageInput) -> Facts:
    """Whether a picture is answered after another one as it is from an empty cache (rknn-llm #257, rkllama #175)."""
    subject.clear()
    alone = require_completed(subject.run(second, LIMIT)).ids
    subject.clear()
    other = require_completed(subject.run(first, LIMIT)).ids
    ids_after = require_completed(subject.run(second, LIMIT)).ids
    if alone == other:
        return {}
    return {"second_picture": "right" if ids_after == alone else "as the first" if ids_after == other else "otherwise"}


def _watch_memory(subject: ProbeSubject, picture: ImageInput) -> Facts:
    """Memory that a picture costs for good, KiB: without history, and with history that is cleared (rknn-llm #529)."""
    grown: dict[str, float] = {}
    for name, keeps in (("without history", False), ("with history, cleared", True)):
        before = 0.0
        for number in range(_FIRST_RUNS + _LEAK_RUNS):
            before = _own_memory() if number == _FIRST_RUNS else before
            require_completed(subject.run(picture, 1, keep_history=keeps))
            subject.clear()
        grown[name] = round((_own_memory() - before) / _LEAK_RUNS, 1)
    return {"picture_leak_kib": grown}


def _shown(encoder: NativeEncoder, pictures: ProbePictures, colour: tuple[int, int, int]) -> ImageInput:
    shape = encoder.shape
    values = array("f", encoder.encode(bytes(colour) * (shape.width * shape.height)))
    return ImageInput(
        pictures.text,
        values,
        shape.tokens,
        1,
        width=shape.width,
        height=shape.height,
        tags=ImageTags(*pictures.tags),
    )


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)


def _own_memory() -> float:
    """Memory that this process has written to, KiB."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0.0)
