"""No input raises, nothing is lost, and chunks do not matter: thousands of seeded strings of marker fragments."""

from __future__ import annotations

import random

import pytest

from rkllm_mcp.events import ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Piece, ThinkingMode
from tests.fuzz.fuzz_detector import check
from tests.toolcalls.streams import TOOLS, chopped, merged, pieces_of

FRAGMENTS = (
    "<tool_call>", "</tool_call>", '<tool_call name="get_weather">', "<tool_call name='get_time'/>", "<tool_call",
    '<argument name="city">', "</argument>", "<argument", "<![CDATA[", "]]>", "[TOOL_CALL]", "[END_TOOL_CALL]",
    "[TOOL_CALLS]", "<think>", "</think>", "```", "```json\n", "`", '{"name":"get_time"', '"arguments":{', "}", "}}",
    '{"name": "get_weather", "arguments": {"city": "x"}}', "]", "[", "{", '"', "'", "\\", ",", ":", "\n", " ", "  ",
    "text", "東京", "\x00", "\ufeff", "\ud800", "\u2028", "😀", "&amp;", "&", "<", ">", "/>", "=", "name", '"city"',
    "null", "True", "1e999", "-", "0x1", "\\u12", '{"name":"anything","arguments":"{\\"a\\":\\"y\\"}"}',
    "{'name': 'anything', 'arguments': {'a': 'q'}}",
    '<tool_call>{"name": "get_weather", "arguments": {"city": "z}}</tool_call>',
)  # fmt: skip
ANSWERS = (
    """Hi <tool_call>
{"name": "get_weather", "arguments": {"city": "say \\"hi\\" {x", "days": 3}}
</tool_call>
<tool_call>{"name":"get_time","arguments":{}}</tool_call> done""",
    """<tool_call name="get_weather"><argument name="city">v</argument>
<argument name="days">
3
</argument></tool_call> ok <tool_call name='get_time'/>""",
    """[TOOL_CALL]
{ "name": "anything", "arguments": {"a": "x", "o": {"k":[1,2]}} }
[END_TOOL_CALL] tail""",
    """<think>
hm <tool_call>{'name': 'anything', 'arguments': {'q': True}}</tool_call></think>

<tool_call>[{"name":"get_time","arguments":{}},{"name":"get_weather","arguments":{"city":"b"}}]</tool_call>""",
)
MODES: tuple[ThinkingMode, ...] = ("off", "auto", "open")


def _soup(rng: random.Random) -> str:
    return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randrange(1, 25)))


def _damaged(rng: random.Random) -> str:
    text = rng.choice(ANSWERS)
    for _ in range(rng.randrange(1, 4)):
        place, kind = rng.randrange(len(text) + 1), rng.random()
        if kind < 0.5:
            text = text[:place] + text[place + rng.randrange(1, 4) :]
        else:
            text = text[:place] + (rng.choice(FRAGMENTS) + text[place:] if kind < 0.8 else "")
    return text


def _check(text: str, mode: ThinkingMode, seed: int, tools: tuple[ToolSpec, ...]) -> list[Piece]:
    whole = pieces_of([text], tools, thinking=mode)
    expected = merged(event for piece in whole for event in piece.events)
    for chunks in ([text], list(text), chopped(text, seed), chopped(text, seed + 1)):
        pieces = pieces_of(chunks, tools, thinking=mode)
        assert "".join(piece.raw for piece in pieces) == text
        assert merged(event for piece in pieces for event in piece.events) == expected
    for event in expected:
        if isinstance(event, ToolCallFailed):
            assert "\n" not in event.reason
            assert len(event.reason) < 900
        if isinstance(event, ToolCallDetected):
            str(event.arguments).encode()
    return whole


@pytest.mark.parametrize("make", [_soup, _damaged])
@pytest.mark.parametrize("block", range(10))
def test_any_text_gives_the_same_events_for_any_chunks_and_loses_nothing(make: object, block: int) -> None:
    assert make in (_soup, _damaged)
    for seed in range(block * 120, block * 120 + 120):
        rng = random.Random(seed)
        text = _soup(rng) if make is _soup else _damaged(rng)
        _check(text, MODES[seed % 3], seed, TOOLS)


def test_any_text_without_tools_and_thinking_is_one_text() -> None:
    for seed in range(200):
        text = _soup(random.Random(seed))
        (piece,) = _check(text, "off", seed, ())
        assert piece.raw == text


def test_the_fuzz_target_holds_for_random_bytes_and_for_calls() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        data = bytes(rng.randrange(256) for _ in range(3)) + _damaged(rng).encode("utf-8", "surrogatepass")
        check(data if seed % 3 else rng.randbytes(40))
