"""Why something was taken for a call, or for none."""

from __future__ import annotations

import pytest

from rkllm_mcp.toolcalls.explain import explain
from rkllm_mcp.toolcalls.resolve import names_in
from tests.toolcalls.samples import SAMPLES
from tests.toolcalls.streams import TOOLS

CALL = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
REASONS = {
    "a call": (CALL, None, "a call of 'get_time'"),
    "a call that was mended": (CALL.replace('"', "'"), None, "was mended"),
    "a call that cannot be made": (CALL.replace("get_time", "get_tim"), None, "unknown tool 'get_tim'"),
    "a mention": ("The <tool_call> tag", None, "what follows is no call"),
    "a quotation": (f"Write `{CALL}`", None, "quoted"),
    "a call in thinking": (f"<think>So {CALL}</think>ok", None, "inside thinking"),
    "a form of another family": ("[TOOL_CALLS]get_time[ARGS]{}", ["hermes"], "a call of 'get_time'"),
    "a bare form in the middle": (
        'So {"name": "get_time", "arguments": {}}',
        None,
        "only as a valid call on a line of its own",
    ),
    "a bare form of another tool": ('{"name": "get_tim", "arguments": {}}', None, "unknown tool 'get_tim'"),
    "the same in a text": ('So {"name": "get_tim", "arguments": {}}', None, "'get_tim' is not a declared tool"),
}


@pytest.mark.parametrize(("text", "syntaxes", "why"), REASONS.values(), ids=REASONS.keys())
def test_everything_that_looks_like_a_call_is_explained(text: str, syntaxes: list[str] | None, why: str) -> None:
    explanations = explain(text, TOOLS, syntaxes)
    assert any(why in each.why for each in explanations), explanations


def test_prose_needs_no_explanation() -> None:
    assert explain("It is < 3 [m/s] and {x}.", TOOLS) == []


def test_without_tools_that_is_the_reason() -> None:
    assert {each.why for each in explain(CALL, ())} == {"no tool is declared, so everything is text"}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_name_in_a_call_is_found_in_every_format(name: str) -> None:
    assert names_in(SAMPLES[name][1]("x")) == ("save_note",)
