"""The chunks of a stream, of which those of text are put together from prepared parts."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from rkllm_mcp.completions.completion import Occurrence, Refusal
from rkllm_mcp.completions.openai_response import ReplyChunks, ReplyHead
from rkllm_mcp.events import Text, Thinking

HEAD = ReplyHead("chatcmpl-1", 1, 'a "model"\\', with_events=True)


def deltas(chunks: ReplyChunks, events: Sequence[Occurrence]) -> list[dict[str, str]]:
    return [json.loads(chunk)["choices"][0]["delta"] for chunk in chunks.of(events)]


@pytest.mark.parametrize("with_usage", [False, True])
@pytest.mark.parametrize("text", ["word", "", '"\\\n\t\0', "\0text\0", "日本 👋", "\u2028", '"content":""', "\ud83d"])
def test_a_chunk_of_text_is_that_of_any_other_delta_with_its_text(text: str, with_usage: bool) -> None:
    chunks = ReplyChunks(HEAD, with_usage=with_usage)
    [of_text], [of_thinking] = chunks.of([Text(text)]), chunks.of([Thinking(text)])
    assert of_text == of_thinking.replace('"reasoning_content":', '"content":', 1)
    assert json.loads(of_text)["choices"][0]["delta"] == {"content": text}


def test_events_of_one_batch_become_chunks_in_order() -> None:
    events = [Text("a"), Thinking("b"), Text("c"), Refusal("d")]
    assert deltas(ReplyChunks(HEAD), events) == [
        {"content": "a"},
        {"reasoning_content": "b"},
        {"content": "c"},
        {"refusal": "d"},
    ]
