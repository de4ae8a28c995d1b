"""The cost is linear: counted in characters examined, bodies read and functions called, never in time."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.formats import SYNTAXES, Syntax
from rkllm_mcp.toolcalls.lenient_json import ParsedCall
from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.scanners import Scanner, ScanState
from rkllm_mcp.toolcalls.syntax import CallFormat
from tests.support.sampled import sampled
from tests.toolcalls.samples import SAMPLES, SAVE
from tests.toolcalls.streams import TOOLS, ThinkingMode


class _Counted:
    """A syntax whose scanners count the characters they are given and whose readers count the bodies."""

    def __init__(self, name: str) -> None:
        self.characters = 0
        self.bodies = 0
        original = SYNTAXES[name]
        self.syntax = replace(original, formats=tuple(self._counting(form) for form in original.formats))

    def _counting(self, form: CallFormat) -> CallFormat:
        counted = self

        class Counting:
            def __init__(self, inner: Scanner) -> None:
                self.inner = inner

            def scan(self, text: str, start: int) -> tuple[ScanState, int]:
                verdict, place = self.inner.scan(text, start)
                counted.characters += (len(text) if verdict is ScanState.MORE else place) - start
                return verdict, place

            def may_end(self) -> bool:
                return self.inner.may_end()

        def scanner(boundary: Markers) -> Scanner:
            return Counting(form.scanner(boundary))

        def read(body: str) -> tuple[ParsedCall, ...]:
            counted.bodies += 1
            return form.read(body)

        return replace(form, scanner=scanner, read=read)


VALUE = 'a < b [1] {"k": 2} </tool_cal </argumen </p > <tool_call> \\ \' 東京\n'


@sampled("name", SAMPLES, every=6)
def test_every_character_of_a_call_is_examined_a_bounded_number_of_times_and_every_body_read_once(name: str) -> None:
    syntax, write = SAMPLES[name]
    for repeats in (20, 400):
        counted = _Counted(syntax)
        text = write(VALUE * repeats)
        detector = Detector((SAVE,), [counted.syntax])
        for character in text:
            detector.feed(character)
        detector.finish()
        assert counted.bodies == 1
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


def _assert_grows_like_the_text(run: Callable[[int], object]) -> None:
    run(5)  # The first detector fills the cache of compiled patterns.
    run(40)
    small = _functions_called(lambda: run(40))
    large = _functions_called(lambda: run(400))
    assert large <= 11 * small


STREAMS: dict[str, tuple[ThinkingMode, Callable[[int], str]]] = {
    "prose": ("auto", lambda size: ("It is < 3 [m/s], 晴れ。 " * size)[: size * 10]),
    "prose with backticks": ("off", lambda size: "```\n`x`\n" * size),
    "code": ("off", lambda size: 'for (i) { a[i] = f({x: [1]}); } <b>{{ y }}</b> d = {"k": [{}]}\n' * size),
    "white space": ("off", lambda size: " \n" * size * 5),
    "half markers": ("auto", lambda size: "<tool_cal [TOOL_CAL </thin <|tool_call [{ functool call: " * size),
    "mentions": ("off", lambda size: "<tool_call> [TOOL_CALL] <tool_call x <|tool_call|> functools[ " * size),
    "thinking": ("open", lambda size: "Well, < and [ and so on. " * size),
    "a tentative call": ("open", lambda size: '<tool_call>{"name": "' + "x</thin " * size),
    "an open string": ("off", lambda size: '<tool_call>{"name": "' + "x y </tool_call> " * size),
    "an open value": ("off", lambda size: "<function=get_time>\n<parameter=zone>" + "x </parameter> y </p " * size),
    "an open Python string": ("off", lambda size: "<|tool_call_start|>[get_time(zone='" + 'x "y" ]) ' * size),
    "an open delimiter": ("off", lambda size: '<|tool_call>call:get_time{zone:<|"|>' + "x }<tool_call|> <| " * size),
    "brackets": ("off", lambda size: "<tool_call>" + '{"' + '": [{"' * size),
    "Python brackets": ("off", lambda size: "<function_calls>f(" + "[({" * size),
    "closers too many": ("off", lambda size: '<tool_call>{"name": "get_time"}' + "} ]" * size),
    "objects": ("off", lambda size: '<tool_call>{"name": "get_time"}' + '\n{"name": "get_time"}' * size),
}


DECLARED: dict[str, list[str | Syntax] | None] = {"default": None, "every": list(SYNTAXES), "hermes": ["hermes"]}
# Each stream at least once, and each declaration with several of them.
PRODUCT = list(itertools.product(STREAMS, DECLARED))


@sampled("stream, declared", PRODUCT, every=4, kind=lambda case: case[0], ids=["-".join(case) for case in PRODUCT])
def test_ten_times_the_text_costs_ten_times_the_function_calls(stream: str, declared: str) -> None:
    mode, make = STREAMS[stream]
    syntaxes = DECLARED[declared]

    def run(size: int) -> None:
        text = make(size)
        detector = Detector(TOOLS, syntaxes, thinking=mode)
        for at in range(0, len(text), 4):
            detector.feed(text[at : at + 4])

    _assert_grows_like_the_text(run)


@sampled("name", SAMPLES, every=6)
def test_a_call_ten_times_as_long_costs_ten_times_the_function_calls(name: str) -> None:
    syntax, write = SAMPLES[name]

    def run(size: int) -> None:
        text = write(VALUE * size)
        detector = Detector((SAVE,), [syntax])
        for at in range(0, len(text), 4):
            detector.feed(text[at : at + 4])
        detector.finish()

    _assert_grows_like_the_text(run)


def test_nothing_grows_with_the_answer_but_the_open_call() -> None:
    detector = Detector(TOOLS)
    sizes: list[int] = []
    for _ in range(2):
        for _ in range(1000):
            detector.feed("word <b> [x] `c` {y}\n")
        sizes.append(sum(len(str(value)) for value in vars(detector).values()))
    assert sizes[0] == sizes[1]
