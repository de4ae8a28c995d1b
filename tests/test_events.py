"""Events to JSON and back."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from rkllm_mcp.events import (
    EVENT_TYPES,
    Approval,
    Elicitation,
    End,
    Event,
    MemoriesUsed,
    Prefill,
    QuestionAnswered,
    Queued,
    ResourceRead,
    Sources,
    Status,
    Text,
    Thinking,
    ToolCallDetected,
    ToolCallFailed,
    ToolFinished,
    ToolProgress,
    Usage,
    event_from_dict,
    event_to_dict,
    event_to_json,
)

EXAMPLES: list[tuple[Event, str]] = [
    (Text("東京"), '{"kind":"text","text":"東京"}'),
    (Thinking("hm"), '{"kind":"thinking","text":"hm"}'),
    (
        ToolCallDetected("f", {"a": 1}, raw="<f>", repaired=True, id="call_1", server="s"),
        '{"kind":"tool_call","id":"call_1","name":"f","server":"s","arguments":{"a":1},"repaired":true}',
    ),
    (ToolCallFailed("<f", "cut"), '{"kind":"tool_call_failed","raw":"<f","reason":"cut"}'),
    (
        Approval("call_1", "f", {}, "writes"),
        '{"kind":"approval","id":"call_1","name":"f","arguments":{},"reason":"writes"}',
    ),
    (
        Elicitation("question_1", "desk", "名前は？", {"type": "object"}),
        (
            '{"kind":"elicitation","id":"question_1","server":"desk","message":"名前は？","schema":{"type":"object"},'
            '"url":""}'
        ),
    ),
    (
        QuestionAnswered("question_1", "", "accept", {"name": "花"}, 2.5),
        '{"kind":"answered","id":"question_1","call":"","action":"accept","content":{"name":"花"},"seconds":2.5}',
    ),
    (
        ToolProgress("call_1", 0.5, None, "half"),
        '{"kind":"tool_progress","id":"call_1","progress":0.5,"total":null,"message":"half"}',
    ),
    (
        ToolFinished("call_1", "f", is_error=False, text="x", seconds=0.1),
        '{"kind":"tool_result","id":"call_1","name":"f","is_error":false,"text":"x","seconds":0.1,"truncated":false}',
    ),
    (
        Sources([{"document": "規則", "page": None, "passage": "手当", "score": 0.5}]),
        '{"kind":"sources","items":[{"document":"規則","page":null,"passage":"手当","score":0.5}]}',
    ),
    (
        MemoriesUsed([{"id": "a1", "text": "犬はハチ", "source": "c1"}], is_new=True),
        '{"kind":"memories","rows":[{"id":"a1","text":"犬はハチ","source":"c1"}],"is_new":true}',
    ),
    (ResourceRead("a://b"), '{"kind":"resource","uri":"a://b"}'),
    (Status("[MCP: x]"), '{"kind":"status","text":"[MCP: x]"}'),
    (Queued(2), '{"kind":"queued","position":2}'),
    (Prefill(500, 4.0), '{"kind":"prefill","tokens":500,"seconds":4.0}'),
    (
        Usage(10, 4, 6, 3, 1.5, 2.5, 3.5),
        (
            '{"kind":"usage","prompt_tokens":10,"prefilled_tokens":4,"cached_tokens":6,"generated_tokens":3,'
            '"prefill_ms":1.5,"decode_ms":2.5,"time_to_first_token_ms":3.5}'
        ),
    ),
    (End("answered"), '{"kind":"end","reason":"answered","error":null}'),
]


def test_every_kind_has_an_example() -> None:
    assert {type(event) for event, _ in EXAMPLES} == set(EVENT_TYPES)


@pytest.mark.parametrize(("event", "line"), EXAMPLES, ids=[event.kind for event, _ in EXAMPLES])
def test_an_event_is_one_line_with_its_kind_first(event: Event, line: str) -> None:
    assert event_to_json(event) == line
    assert json.loads(line) == event_to_dict(event)
    read = event_from_dict(json.loads(line))
    assert event_to_dict(read) == event_to_dict(event)
    assert type(read) is type(event)


def test_a_question_says_how_long_it_still_waits_whenever_it_is_written() -> None:
    question = Approval("question_1", "f", {}, "writes", refused_at=time.monotonic() + 100)
    assert 99 < event_to_dict(question)["seconds_left"] <= 100
    assert event_to_dict(replace(question, refused_at=0.0))["seconds_left"] == 0


def test_a_prefill_says_how_long_it_still_takes_whenever_it_is_written() -> None:
    prefill = Prefill(500, 4.0, time.monotonic() + 3)
    assert 2 < event_to_dict(prefill)["seconds_left"] <= 3
    assert event_to_dict(replace(prefill, ends_at=0.0))["seconds_left"] == 0
