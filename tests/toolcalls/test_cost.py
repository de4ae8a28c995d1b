"""The cost is linear: counted in characters examined, bodies read and functions called, never in time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.scan import JsonScanner, Scanner, Verdict, XmlScanner
from rkllm_mcp.toolcalls.spelling import SpelledCall
from rkllm_mcp.toolcalls.syntax import SYNTAXES, Syntax
from tests.toolcalls.streams import TOOLS, ThinkingMode


class _Counted:
    """A syntax whose scanner counts the characters it is given and whose reader counts the bodies."""

    def __init__(self, name: str) -> None:
        self.characters = 0
        self.bodies = 0
        self._original = SYNTAXES[name]
        self.syntax: Syntax = replace(self._original, scanner=self._scanner, read=self._read)

    def _scanner(self, boundary: Markers) -> Scanner:
        counted = self

        class Counting:
            def __init__(self, inner: Scanner) -> None:
                self.inner = inner

            def scan(self, text: str, start: int) -> tuple[Verdict, int]:
                verdict, place = self.inner.scan(text, start)
                counted.characters += (len(text) if verdict is Verdict.MORE else place) - start
                return verdict, place

            def may_end(self) -> bool:
                return self.inner.may_end()

        return Counting(XmlScanner(boundary) if self._original.name == "project_xml" else JsonScanner(boundary))

    def _read(self, body: str) -> tuple[SpelledCall, ...]:
        self.bodies += 1
        return self._original.read(body)


VALUE = 'a < b [1] {"k": 2} </tool_cal </argumen <tool_call> \\ 東京\n'


def _answer(name: str, calls: int, repeats: int) -> str:
    value = VALUE * repeats
    if name == "project_xml":
        one = (
            f'<tool_call name="write_note"><argument name="title">t</argument><argument name="body">{value}</argument>'
        )
        return f"{one}</tool_call>\n" * calls
    arguments = {"title": "t", "body": value}
    body = json.dumps({"name": "write_note", "arguments": arguments}, ensure_ascii=False)
    opener, closer = ("<tool_call>", "</tool_call>") if name == "hermes" else ("[TOOL_CALL]", "[END_TOOL_CALL]")
    return f"{opener}{body}{closer}\n" * calls


@pytest.mark.parametrize("name", list(SYNTAXES))
def test_every_character_of_a_call_is_examined_a_bounded_number_of_times_and_every_body_read_once(name: str) -> None:
    for calls, repeats in ((1, 20), (1, 400), (40, 10)):
        counted = _Counted(name)
        text = _answer(name, calls, repeats)
        detector = Detector(TOOLS, [counted.syntax])
        for character in text:
            detector.feed(character)
        detector.finish()
        assert counted.bodies == calls
        # What may begin a marker is given again until it is decided, so a little more than once each.
        assert counted.characters <= 4 * len(text)


def _functions_called(run: Callable[[], object]) -> int:
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


STREAMS: dict[str, tuple[ThinkingMode, Callable[[int], str]]] = {
    "prose": ("auto", lambda size: ("It is < 3 [m/s], 晴れ。 " * size)[: size * 10]),
    "prose with backticks": ("off", lambda size: "```\n`x`\n" * size),
    "white space": ("off", lambda size: " \n" * size * 5),
    "half markers": ("auto", lambda size: "<tool_cal [TOOL_CAL </thin " * size),
    "mentions": ("off", lambda size: "<tool_call> [TOOL_CALL] <tool_call x " * size),
    "thinking": ("open", lambda size: "Well, < and [ and so on. " * size),
    "a tentative call": ("open", lambda size: '<tool_call>{"name": "' + "x</thin " * size),
    "an open string": ("off", lambda size: '<tool_call>{"name": "' + "x y </tool_call> " * size),
    "brackets": ("off", lambda size: "<tool_call>" + '{"' + '": [{"' * size),
    "closers too many": ("off", lambda size: '<tool_call>{"name": "get_time"}' + "} ]" * size),
}


@pytest.mark.parametrize(("mode", "make"), STREAMS.values(), ids=STREAMS.keys())
def test_ten_times_the_text_costs_ten_times_the_function_calls(mode: ThinkingMode, make: Callable[[int], str]) -> None:
    def run(text: str) -> int:
        detector = Detector(TOOLS, thinking=mode)
        return _functions_called(lambda: [detector.feed(text[at : at + 4]) for at in range(0, len(text), 4)])

    run(make(5))  # The first detector fills the cache of compiled patterns.
    small, large = run(make(40)), run(make(400))
    assert large <= 11 * small


def test_nothing_grows_with_the_answer_but_the_open_call() -> None:
    detector = Detector(TOOLS)
    for _ in range(2000):
        detector.feed("word <b> [x] `c`\n")
    assert max(len(str(value)) for value in vars(detector).values()) < 4000
