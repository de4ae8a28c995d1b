"""What an answer from facts is made of, and that an answer is compared with them."""

from __future__ import annotations

import json

import pytest

from rkllm_mcp.agent.facts import facts_of, may_differ
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult

WEATHER = {"location": "大阪", "condition": "light rain", "temperature_c": 17, "wind": {"from": "N", "gusts": None}}
PASSAGES = {"passages": [{"title": "Rules", "page": 4}, {"title": "Leave", "pages": [1, 2]}], "more": False}
LONG = {"text": "word " * 300}


@pytest.mark.parametrize(
    ("result", "fact"),
    [
        (json.dumps(WEATHER), "location: 大阪\ncondition: light rain\ntemperature_c: 17\nwind: from: N, gusts: null"),
        (json.dumps(PASSAGES), "title: Rules, page: 4\ntitle: Leave, pages: 1, 2\nmore: false"),
        ("25", "(158 + 67) / 9 = 25"),
        ("[FILE] notes.txt\n[DIR] photos", "[FILE] notes.txt\n[DIR] photos"),
        ("{not JSON}", "{not JSON}"),
        ("{}", "{}"),
        (json.dumps(LONG), json.dumps(LONG)),
    ],
)
def test_a_short_object_is_read_as_lines_and_a_number_with_what_it_is_the_value_of(result: str, fact: str) -> None:
    call = ToolCall("1", "calculate", {"expression": "(158 + 67) / 9"})
    results = (ToolResult("1", "calculate", result),)
    messages = [Message("user", "?"), Message("assistant", calls=(call,)), Message("tool", results=results)]
    assert facts_of(Conversation(messages=messages)) == fact


@pytest.mark.parametrize(
    ("answer", "facts", "question", "differs"),
    [
        ("It is 17°C with light rain.", "condition: light rain\ntemperature_c: 17", "Weather?", False),
        ("大阪は晴れです。", "location: 大阪\ncondition: light rain\ntemperature_c: 17", "大阪の天気は？", True),
        ("大阪は１７度です。", "location: 大阪\ncondition: light rain\ntemperature_c: 17", "大阪の天気は？", False),
        ("午後3時です。", "datetime: 2026-11-26T14:25:00", "ロンドンは今何時？", True),
        ("午後25分です。", "datetime: 2026-11-26T14:25:00", "今何時？", True),
        ("午後2時25分です。", "datetime: 2026-11-26T14:25:00", "今何時？", False),
        ("14時25分です。", "datetime: 2026-11-26T14:25:00", "今何時？", False),
        ("It is 14:25.", "datetime: 2026-11-26T14:25:00", "What time is it?", False),
        ("It is 14:25 AM.", "datetime: 2026-11-26T14:25:00", "What time is it?", True),
        ("It is 2:25 a.m. in London.", "datetime: 2026-11-26T14:25:00", "What time is it?", True),
        ("It is 2:25:00 PM, and I am fine.", "datetime: 2026-11-26T14:25:00", "What time is it?", False),
        ("午前2時25分です。", "datetime: 2026-11-26T14:25:00", "今何時？", True),
        ("午後 9:05 です。", "datetime: 2026-11-26T09:05:00", "今何時？", True),
        ("It is 12:05 AM.", "time: 00:05", "What time is it?", False),
        ("It is 12:05 AM.", "time: 12:05", "What time is it?", True),
        ("Dinner is at 7:30 PM.", "Dinner at 7:30 pm", "When is dinner?", False),
        ("9時半です。30分前に。", "open at 09:30", "何時から？", False),
        ("会議はB7です。", "Meeting at 15:30 in room B7", "部屋は？", False),
        ("The total is 47,360 yen.", "37 * 1280 = 47360", "37 boxes at 1,280 yen?", False),
        ("47360円です。", "37 * 1280 = 47360", "37箱は？", False),
        ("About 48000.", "37 * 1280 = 47360", "37 boxes at 1,280 yen?", True),
        ("1. notes.txt\n2. photos", "[FILE] notes.txt\n[DIR] photos", "Which files?", False),
        ("在宅勤務は週3日までです。", "在宅勤務は週3日まで認められる。", "在宅勤務は？", False),
        ("Yes.", "yes", "yes or no?", False),
        ("A washing line hangs outside.", "an appointment", "When?", True),
        ("The appointment is fine.", "an appointment", "When?", False),
        ("はい。", "", "?", False),
        ("京都です。", "place: 東京都", "どこ？", True),
        ("東京都です。", "place: 京都", "どこ？", True),
        ("東京です。", "place: 東京都千代田区", "どこ？", False),
        ("大阪府です。", "place: 大阪", "どこ？", False),
        ("ストーブです。", "ストー、スト", "何？", True),
        ("会議メモを見て次回いつか教えて", "場所: 第2会議室\n次回: 12月3日", "会議メモ見て次回いつか教えて", True),
        ("メモの内容を日本語の文で短く答えてください。", "メモ: 担当は林", "担当は？", True),
        ("Answer from the facts in one sentence: Hayashi.", "In charge: Hayashi", "Who is in charge?", True),
    ],
)
def test_an_answer_with_another_number_or_nothing_of_the_facts_may_differ(
    answer: str, facts: str, question: str, differs: bool
) -> None:
    assert may_differ(answer, facts, question) is differs
