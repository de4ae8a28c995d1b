"""The table of the detector's states: every row is taken by an answer, and no answer needs another row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rkllm_mcp.toolcalls.detector import READERS, AnswerReader, ThinkingMode
from rkllm_mcp.toolcalls.formats import select_syntaxes
from rkllm_mcp.toolcalls.openings import Vocabulary
from rkllm_mcp.toolcalls.resolve import ToolCatalogue
from rkllm_mcp.toolcalls.syntax import ThinkingMarks
from rkllm_mcp.toolcalls.transitions import TRANSITIONS, AnswerState, Found
from tests.toolcalls.streams import TOOLS

CALL = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
FENCE = """```json
{"name": "get_time", "arguments": {}}
```"""
RESPONSE = "<tool_response>3</tool_response>"

ANSWERS: dict[str, tuple[ThinkingMode, str]] = {
    "words": ("auto", "Hello."),
    "thinking": ("auto", "<think>Well.</think>Hello."),
    "thinking begun by the prompt": ("open", "Well.</think>Hello."),
    "thinking later": ("auto", "Hello. [THINK]Well.[/THINK] Good."),
    "a call in thinking that is closed": ("auto", f"<think>{CALL}</think>"),
    "a call in thinking that is not": ("auto", f"<think>{CALL}"),
    "two bodies after one opener": ("off", CALL.replace("}</tool_call>", '},{"name": "get_time"}</tool_call>')),
    "a call that is cut off": ("off", '<tool_call>{"name": "get_time", "arguments": {"zone": "'),
    "an answer in a code fence": ("off", FENCE),
    "an invented response": ("off", f"{CALL}{RESPONSE} ok"),
    "an invented response in thinking": ("auto", f"{CALL}[THINK]{RESPONSE}ok[/THINK]"),
}


def _steps(mode: ThinkingMode, text: str) -> Iterator[tuple[AnswerState, type[Found]]]:
    selection = select_syntaxes(["hermes", "mistral_json"])
    marks = ThinkingMarks(() if mode == "off" else selection.thinking)
    answer = AnswerReader(Vocabulary(selection, ToolCatalogue(TOOLS), marks), mode)
    for at, character in enumerate(text):
        answer.text += character
        while (event := answer.reader.read(answer, final=at == len(text) - 1)) is not None:
            yield answer.state, type(event)
            answer.state = TRANSITIONS[answer.state][type(event)]
            answer.reader = READERS[answer.state](event)


def test_every_row_of_the_table_is_taken() -> None:
    taken = {step for mode, text in ANSWERS.values() for step in _steps(mode, text)}
    rows = {(state, found) for state, followers in TRANSITIONS.items() for found in followers}
    assert taken == rows


@pytest.mark.parametrize("state", AnswerState)
def test_a_state_has_a_row_and_a_reader_but_for_the_last(state: AnswerState) -> None:
    assert state in TRANSITIONS
    assert (state in READERS) == (state is not AnswerState.DONE) == bool(TRANSITIONS[state])
