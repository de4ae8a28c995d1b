"""The chunks of a stream, of which those of text are put together from prepared parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from rkllm_mcp.completions.chat_completions import ChatShape
from rkllm_mcp.completions.reply import Reply
from rkllm_mcp.events import Event, Text, Thinking
from rkllm_mcp.surfaces.http.streaming import EventStream, ReplyWriter


def chunks(events: Sequence[Event], *, with_usage: bool = False) -> list[str]:
    reply = Reply("chatcmpl-1", 'a "model"\\', with_events=True, created=1)
    sent: list[bytes] = []
    stream = cast("EventStream", SimpleNamespace(feed=sent.append))
    ReplyWriter(reply, ChatShape(reply, with_usage=with_usage), stream).feed(events)
    first, *others, end = b"".join(sent).decode().split("\n\n")
    assert json.loads(first.removeprefix("data: "))["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert end == ""
    return [each.removeprefix("data: ") for each in others]


@pytest.mark.parametrize("with_usage", [False, True])
@pytest.mark.parametrize("text", ["word", "", '"\\\n\t\0', "\0text\0", "日本 👋", "\u2028", '"content":""'])
def test_a_chunk_of_text_is_that_of_any_other_delta_with_its_text(text: str, with_usage: bool) -> None:
    of_text, of_thinking = chunks([Text(text), Thinking(text)], with_usage=with_usage)
    assert of_text == of_thinking.replace('"reasoning_content":', '"content":', 1)
    assert json.loads(of_text)["choices"][0]["delta"] == {"content": text}


def test_half_a_surrogate_pair_which_a_model_may_write_breaks_no_stream() -> None:
    [of_text] = chunks([Text("\ud83d")])
    assert json.loads(of_text)["choices"][0]["delta"] == {"content": "?"}
