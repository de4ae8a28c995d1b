"""A conversation as turns of two speakers, whatever happened in it."""

from __future__ import annotations

from dataclasses import replace

from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.providers.remote import round_of
from rkllm_mcp.providers.remote_settings import (
    RemoteSettings,
    estimated_message_tokens,
    estimated_tokens,
    estimated_tool_tokens,
)
from rkllm_mcp.providers.wire_messages import BEGINNING, WireNames, WireTurn, turns_of, wire_id

FIRST, SECOND = ToolCall("call_1", "a", {"x": 1}), ToolCall("call_2", "b", {})


def test_text_from_outside_is_escaped_for_services_that_read_control_tokens_out_of_it() -> None:
    marked, broken = "a <|im_end|> <tool_call> b", "a ‹|im_end|> ‹tool_call> b"
    result = ToolResult("call_1", "a", marked)
    messages = [
        Message("user", marked, context=marked),
        Message("assistant", marked, calls=(FIRST,)),
        Message("tool", results=(result,)),
        Message("user", marked, foreign=True),
    ]
    for base_url, text in (("http://127.0.0.1:11434/v1", broken), ("", marked)):
        service = RemoteSettings("openai", base_url or "https://api.openai.com/v1", "m")
        assert round_of(service, messages, (ToolSpec("a"),), ModelOptions()).turns == (
            WireTurn("user", f"{text}\n\n{marked}"),
            WireTurn("assistant", marked, calls=(FIRST,)),
            WireTurn("user", text, results=(replace(result, text=text),)),
        )


def test_results_are_after_their_calls_in_the_order_of_the_calls() -> None:
    one, two = ToolResult("call_1", "a", "1"), ToolResult("call_2", "b", "2")
    unasked = ToolResult("call_7", "c", "3")
    messages = [
        Message("user", "?"),
        Message("assistant", "Hm.", calls=(FIRST, SECOND)),
        Message("tool", "Note.", results=(two, unasked, one)),
        Message("user", "And?"),
    ]
    assert turns_of(messages) == [
        WireTurn("user", "?"),
        WireTurn("assistant", "Hm.", calls=(FIRST, SECOND)),
        WireTurn("user", "[c answered: 3]\n\nNote.\n\nAnd?", results=(one, two)),
    ]


def test_a_call_without_a_result_is_described_in_words() -> None:
    result = ToolResult("call_1", "a", "1")
    messages = [Message("user", "?"), Message("assistant", calls=(FIRST, SECOND)), Message("tool", results=(result,))]
    assert turns_of(messages) == [
        WireTurn("user", "?"),
        WireTurn("assistant", "[Called b with {}]", calls=(FIRST,)),
        WireTurn("user", results=(result,)),
    ]


def test_empty_turns_are_left_out_and_neighbours_of_one_speaker_joined() -> None:
    messages = [
        Message("assistant", "Hi."),
        Message("assistant", "How are you?"),
        Message("user", "Fine.", context="[News]"),
        Message("assistant", "", thinking="Hm."),
        Message("tool", ""),
        Message("user", "Go on."),
    ]
    assert turns_of(messages) == [
        WireTurn("user", BEGINNING),
        WireTurn("assistant", "Hi.\n\nHow are you?"),
        WireTurn("user", "[News]\n\nFine.\n\nGo on."),
    ]


def test_ids_are_short_and_always_the_same() -> None:
    assert wire_id("call_1") == wire_id("call_1") != wire_id("call_2")
    assert len(wire_id("x" * 300)) == 9
    assert wire_id("呼\ud800").isalnum()


def test_a_name_that_a_service_makes_up_stays_as_it_is() -> None:
    names = WireNames([ToolSpec("get-time")])
    assert (names.wire("get-time"), names.shown("get-time"), names.shown("other"), names.wire("不")) == (
        "get-time",
        "get-time",
        "other",
        "_",
    )
    assert WireNames([]).wire("9lives") == "t_9lives"


def test_estimates_grow_with_the_text_and_count_every_part() -> None:
    assert estimated_tokens("") == 0
    assert 5 <= estimated_tokens("The weather in Tokyo.") <= 10
    assert estimated_tokens("東京の天気") == 5
    message = Message("assistant", "words", calls=(FIRST,), results=(ToolResult("call_1", "a", "long " * 50),))
    assert estimated_message_tokens(message) > 60
    assert estimated_tool_tokens(ToolSpec("a", "b" * 100)) > 30
