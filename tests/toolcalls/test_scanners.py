"""Where a call's body ends: the same position however the text arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest

from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.scanners import (
    BraceScanner,
    NamedJsonScanner,
    Scanner,
    ScanState,
    json_scanner,
    python_scanner,
)

BOUNDARY = Markers(("<end>", "<other>"))


def python() -> Scanner:
    return python_scanner(BOUNDARY)


def json() -> Scanner:
    return json_scanner(BOUNDARY)


def named() -> Scanner:
    return NamedJsonScanner(BOUNDARY)


def braces() -> Scanner:
    return BraceScanner(('<|"|>', "<escape>"), BOUNDARY)


# The scanner, the body, what follows it, and how it ends.
BODIES: list[tuple[Callable[[], Scanner], str, str, ScanState]] = [
    (python, 'f(a="""x""")', " and on", ScanState.COMPLETE),
    (python, 'f(a="""x "" (y""", b=2)', " and on", ScanState.COMPLETE),
    (python, "f(a='''it's (''')", " and on", ScanState.COMPLETE),
    (python, "f(a='', b='')", " and on", ScanState.COMPLETE),
    (python, 'f(a="x\\") (")', " and on", ScanState.COMPLETE),
    (python, "f(a=[1, {'b': (2)}])", " and on", ScanState.COMPLETE),
    (python, "f(a=(1, ", "<end> and on", ScanState.BROKEN),
    (json, '{"a": "} <enough> \\\\", "b": [{}]}', " and on", ScanState.COMPLETE),
    (json, '{"a": 1, ', "<other>", ScanState.BROKEN),
    (named, '[ARGS]{"a": "{"}', " and on", ScanState.COMPLETE),
    (named, ' <e[ARGS] {"a": 1}', " and on", ScanState.COMPLETE),
    (named, "[ARGS] ", '<end>{"a": 1}', ScanState.BROKEN),
    (braces, 'f{a:<|"|>} <escape> "<|"|>,b:1}', " and on", ScanState.COMPLETE),
    (braces, "f{a: <escape>it's <esc} <|<escape>, b:[{c:2}]}", " and on", ScanState.COMPLETE),
    (braces, 'f{a:it\'s,b:<c,d:"}"}', " and on", ScanState.COMPLETE),
    (braces, "f{a:1,", "<end>", ScanState.BROKEN),
]


def cut_in_three(text: str) -> Iterator[list[str]]:
    yield list(text)
    for first, second in combinations(range(1, len(text)), 2):
        yield [text[:first], text[first:second], text[second:]]


def end_of(scanner: Scanner, pieces: list[str]) -> tuple[ScanState, int]:
    text, at, state = "", 0, ScanState.MORE
    for piece in pieces:
        text += piece
        state, at = scanner.scan(text, at)
        if state is not ScanState.MORE:
            break
    return state, at


@pytest.mark.parametrize(("scanner", "body", "rest", "state"), BODIES, ids=[body for _, body, _, _ in BODIES])
def test_a_body_ends_at_the_same_position_however_it_arrives(
    scanner: Callable[[], Scanner], body: str, rest: str, state: ScanState
) -> None:
    assert {end_of(scanner(), pieces) for pieces in cut_in_three(body + rest)} == {(state, len(body))}
