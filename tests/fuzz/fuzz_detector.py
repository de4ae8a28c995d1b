"""A fuzz target for atheris: no input raises, the raw slices joined are the input, and chunks do not matter.

    pip install atheris
    python tests/fuzz/fuzz_detector.py [CORPUS] [-max_total_time=600]

It is run by hand; the same sentence is a test in ``tests/toolcalls/test_properties.py``. The first bytes of an input
choose syntaxes, thinking and the length of chunks.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rkllm_mcp.events import Text, Thinking
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
from rkllm_mcp.toolcalls.formats import SYNTAXES

TOOLS = (
    ToolSpec("get_weather", "", {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}),
    ToolSpec("f", "", {}),
)
NAMES = tuple(SYNTAXES)
MODES: tuple[ThinkingMode, ...] = ("off", "auto", "open")


def _outcome(chunks: list[str], syntaxes: tuple[str, ...] | None, mode: ThinkingMode) -> tuple[str, list[str]]:
    """The joined raw slices, and the events with neighbouring text joined."""
    detector = Detector(TOOLS, syntaxes, mode)
    pieces = [piece for chunk in chunks for piece in detector.consume(chunk)] + detector.close()
    events: list[str] = []
    kind = ""
    for event in (event for piece in pieces for event in piece.events):
        if isinstance(event, (Text, Thinking)) and event.kind == kind:
            events[-1] += event.text
        else:
            events.append(event.text if isinstance(event, (Text, Thinking)) else repr(event))
        kind = event.kind
    return "".join(piece.raw for piece in pieces), events


def check(data: bytes) -> None:
    """Prove the sentence for one input."""
    if len(data) < 4:
        return
    which, mode, size = data[0], MODES[data[1] % len(MODES)], data[2] % 16 + 1
    syntaxes = None if which >= len(NAMES) else (NAMES[which],)
    text = data[3:].decode("utf-8", "surrogateescape")
    raw, whole = _outcome([text], syntaxes, mode)
    if raw != text:
        raise AssertionError("something was lost")
    if _outcome([text[at : at + size] for at in range(0, len(text), size)], syntaxes, mode)[1] != whole:
        raise AssertionError("the chunks matter")


def main() -> None:
    """Run the fuzzer until it finds something or is stopped."""
    atheris: Any = importlib.import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
