"""The forms that small models drop into, and texts about tools: the cases of ``own_cases``, however they are cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from rkllm_mcp.events import DetectorEvent, Text, ToolCallDetected
from rkllm_mcp.toolcalls.detector import Detector
from tests.support.cuts import has_every_point
from tests.toolcalls.own_cases import Case, calls, texts
from tests.toolcalls.streams import chopped, merged


def _events(case: Case, chunks: Sequence[str], syntaxes: Sequence[str] | None) -> list[DetectorEvent]:
    detector = Detector(case.tools, syntaxes, "auto")
    pieces = [piece for chunk in chunks for piece in detector.consume(chunk)] + detector.close()
    assert "".join(piece.raw for piece in pieces) == case.answer
    return merged(event for piece in pieces for event in piece.events)


def _is_right(case: Case, syntaxes: Sequence[str] | None) -> bool:
    """True if calls and text are those of the case; fails if they depend on the chunks."""
    events = _events(case, [case.answer], syntaxes)
    chunkings: list[Sequence[str]] = [chopped(case.answer, len(case.name))]
    if has_every_point():
        chunkings += [case.answer, re.findall(r"\s?\w{1,4}|\s|[^\s\w]", case.answer)]
    for chunks in chunkings:
        assert _events(case, chunks, syntaxes) == events, case.name
    found = tuple((event.name, event.arguments) for event in events if isinstance(event, ToolCallDetected))
    text = "".join(event.text for event in events if isinstance(event, Text))
    return found == case.calls and text.strip() == case.text


def _rates(cases: Callable[[], Iterator[Case]]) -> tuple[float, float]:
    """The shares of right cases: of those that were looked at while the detector was changed, and of the others."""
    right: dict[bool, list[bool]] = {False: [], True: []}
    for case in cases():
        right[case.is_set_aside].append(_is_right(case, case.syntaxes))
    assert len(right[True]) > len(right[False]) / 3
    return sum(right[False]) / len(right[False]), sum(right[True]) / len(right[True])


def test_every_model_gets_the_calls_that_small_models_write() -> None:
    assert sum(1 for _ in calls()) > 300
    assert _rates(calls) == (1.0, 1.0)


def test_texts_about_tools_give_no_call_and_come_out_whole() -> None:
    assert sum(1 for _ in texts()) > 500
    assert _rates(texts) == (1.0, 1.0)


@pytest.mark.parametrize("cases", [calls, texts])
def test_a_model_without_a_card_gets_the_same(cases: Callable[[], Iterator[Case]]) -> None:
    assert [case.name for case in list(cases())[::3] if not _is_right(case, None)] == []
