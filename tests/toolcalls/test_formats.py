"""Every form, as the family writes it: one call, several, between words, cut anywhere, with hostile values."""

from __future__ import annotations

import pytest

from rkllm_mcp.events import Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.toolcalls.formats import SYNTAXES
from tests.toolcalls.samples import SAMPLES, SAVE
from tests.toolcalls.streams import events_of

BODIES = {
    "words": "Buy milk.",
    "another language": "牛乳を買う 🥛",
    "line breaks": "one\n\n  two\n\tthree",
    "braces and quotes": "if (a[\"}\"] == '{') { return [1, 2); }",
    "markup": '<p class="x">a &lt; b &amp; c</p>\n</div>',
    "backslashes": r"C:\temp\new \d+ \"",
    "other forms' markers": '<tool_call>{"name": "save_note"}</tool_call> [TOOL_CALLS] ```json {} ``` <|tool_call|>',
    "nothing": "",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_call_is_read_as_its_family_writes_it_with_any_value_and_however_it_is_cut(name: str) -> None:
    syntax, write = SAMPLES[name]
    for label, body in BODIES.items():
        text = write(body)
        events = events_of(text, (SAVE,), [syntax])
        calls = [event for event in events if isinstance(event, ToolCallDetected)]
        assert [(call.name, call.arguments) for call in calls] == [
            ("save_note", {"title": "t", "body": body, "stars": 3})
        ], (label, events)
        assert not calls[0].repaired
        assert "".join(event.text for event in events if isinstance(event, Text)).strip() == ""


def test_every_syntax_has_a_sample() -> None:
    assert {syntax for syntax, _ in SAMPLES.values()} == set(SYNTAXES)


# Forms without a marker, of families that write them at the beginning of an answer or not at all.
BARE = {
    *("gemma3, a list", "gemma3, no list", "gemma3, an object", "gemma3, JSON in a fence", "gemma3, Python in a fence"),
    *("gemma4, markers left out", "rwkv7, a fence", "deepseek_r1, a bare call", "chatglm3", "lfm2, a bare list"),
    *("json_list", "bare_json"),
}


# Code fences that hold a call are one only as the whole answer.
FENCES = {
    *("gemma3, JSON in a fence", "gemma3, Python in a fence", "rwkv7, a fence", "xlam_json, a fence behind words"),
}


@pytest.mark.parametrize("name", sorted(FENCES))
def test_a_code_fence_with_text_after_it_is_text(name: str) -> None:
    syntax, write = SAMPLES[name]
    text = f"{write('x')}\n\nSo it is written."
    assert events_of(text, (SAVE,), [syntax]) == [Text(text)]


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in FENCES])
def test_text_around_a_call_is_text(name: str) -> None:
    syntax, write = SAMPLES[name]
    before = "" if name in BARE else "I will note it.\n"
    events = events_of(f"{before}{write('x')}\n\nDone.", (SAVE,), [syntax])
    assert sum(isinstance(event, ToolCallDetected) for event in events) == 1
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert [line.strip() for line in text.split("\n") if line.strip()] == [
        *([before.strip()] if before else []),
        "Done.",
    ]


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in BARE])
def test_two_calls_in_a_row_are_two(name: str) -> None:
    syntax, write = SAMPLES[name]
    events = events_of(f"{write('a')}\n{write('b')}", (SAVE,), [syntax])
    bodies = [event.arguments["body"] for event in events if isinstance(event, ToolCallDetected)]
    assert bodies == ["a", "b"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_call_that_is_cut_off_in_a_value_is_never_made(name: str) -> None:
    syntax, write = SAMPLES[name]
    text = write("a long note that is not complete")
    for end in range(text.index("a long"), text.index("complete") + 4):
        events = events_of(text[:end], (SAVE,), [syntax])
        assert not any(isinstance(event, ToolCallDetected) for event in events)
        assert any(isinstance(event, ToolCallFailed) for event in events)


@pytest.mark.parametrize("name", SAMPLES)
def test_an_undeclared_name_is_not_a_call(name: str) -> None:
    syntax, write = SAMPLES[name]
    events = events_of(write("x").replace("save_note", "save_notes"), (SAVE,), [syntax])
    assert not any(isinstance(event, ToolCallDetected) for event in events)
    reasons = [event.reason for event in events if isinstance(event, ToolCallFailed)]
    assert all("'save_note'?" in reason for reason in reasons)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_call_in_a_code_fence_that_is_not_a_form_is_text(name: str) -> None:
    syntax, write = SAMPLES[name]
    text = f"Like so:\n~~~~\n````\n{write('x')}\n````\n"
    assert events_of(text, (SAVE,), [syntax]) == [Text(text)]
