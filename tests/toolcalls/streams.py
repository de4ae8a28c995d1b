"""Running a detector over one text in every chunking that matters, and comparing what comes out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from rkllm_mcp.events import DetectorEvent, Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Detector, Piece, ThinkingMode
from rkllm_mcp.toolcalls.formats import Syntax
from tests.support.cuts import has_every_point, splits

WEATHER = ToolSpec(
    "get_weather",
    "",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
    server="weather",
)
NOTE = ToolSpec(
    "write_note",
    "",
    {
        "type": "object",
        "properties": {"title": {"type": "string"}, "body": {"type": "string"}},
        "required": ["title", "body"],
        "additionalProperties": False,
    },
)
TIME = ToolSpec("get_time", "", {"type": "object", "properties": {"zone": {"type": "string"}}})
ANY = ToolSpec("anything", "", {})
TOOLS = (WEATHER, NOTE, TIME, ANY)


def merged(events: Iterable[DetectorEvent]) -> list[DetectorEvent]:
    """The events with neighbouring pieces of text, and of thinking, joined."""
    result: list[DetectorEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, Text) and isinstance(last, Text):
            result[-1] = Text(last.text + event.text)
        elif isinstance(event, Thinking) and isinstance(last, Thinking):
            result[-1] = Thinking(last.text + event.text)
        else:
            result.append(event)
    return result


def pieces_of(
    chunks: Iterable[str],
    tools: Sequence[ToolSpec] = TOOLS,
    syntaxes: Sequence[str | Syntax] | None = None,
    thinking: ThinkingMode = "off",
) -> list[Piece]:
    """Every piece of one answer."""
    detector = Detector(tools, syntaxes, thinking)
    return [piece for chunk in chunks for piece in detector.consume(chunk)] + detector.close()


def chopped(text: str, seed: int) -> list[str]:
    """The text in chunks of random length."""
    rng = random.Random(seed)
    chunks: list[str] = []
    while text:
        length = rng.choice((1, 1, 2, 3, 5, 8, 20))
        chunks.append(text[:length])
        text = text[length:]
    return chunks


def events_of(
    text: str,
    tools: Sequence[ToolSpec] = TOOLS,
    syntaxes: Sequence[str | Syntax] | None = None,
    thinking: ThinkingMode = "off",
) -> list[DetectorEvent]:
    """The merged events of ``text``, proved to be the same whole, by character and chopped; with ``cuts`` also split.

    Also proves that nothing was lost: the raw texts of the pieces, joined, are the text.
    """
    # feed() takes it by character in any case.
    chunkings = [*splits(text), *(chopped(text, seed) for seed in range(5))] if has_every_point() else []
    chunkings = chunkings or [[text], chopped(text, len(text))]
    outcomes: list[list[DetectorEvent]] = []
    for chunks in chunkings:
        pieces = pieces_of(chunks, tools, syntaxes, thinking)
        assert "".join(piece.raw for piece in pieces) == text
        outcomes.append(merged(event for piece in pieces for event in piece.events))
    detector = Detector(tools, syntaxes, thinking)
    outcomes.append(merged([event for character in text for event in detector.feed(character)] + detector.finish()))
    for outcome in outcomes[1:]:
        assert outcome == outcomes[0]
    return outcomes[0]


def told(
    text: str,
    thinking: ThinkingMode = "off",
    tools: Sequence[ToolSpec] = TOOLS,
    syntaxes: Sequence[str | Syntax] | None = None,
) -> list[object]:
    """The events in short: texts as they are, calls as (name, arguments), failures as ('failed', raw)."""
    short: list[object] = []
    for event in events_of(text, tools, syntaxes, thinking):
        if isinstance(event, ToolCallDetected):
            short.append((event.name, dict(event.arguments)))
        elif isinstance(event, ToolCallFailed):
            short.append(("failed", event.raw))
        else:
            short.append(event.text if isinstance(event, Text) else ("thinking", event.text))
    return short
