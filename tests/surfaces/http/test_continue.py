"""An answer that was stopped or cut off is continued where it ends, and both parts become one answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.execute import Json, answer_of, asking, of_kind, text_of
from tests.support.feature_demo import TINY
from tests.support.served import Served, scripted_model, served

WORDS = "one two three four five six seven eight nine ten"
TOKYO = "東京は日本の首都で、とても大きな都市です。"
CALL = 'call add {"a":12345678901,"b":23456789012}'
# A run that hangs is one that can be stopped at a known token; the one that continues it is over before it would hang.
RULES = f"""
rule
  user Japan
  say {TOKYO}

rule it hangs in its call
  user Add up
  results 0
  say Let me look.
  {CALL}
  fault hang after 42

rule
  user Add
  results 0
  say Let me look.
  {CALL}

rule it hangs behind "four"
  user Add all
  results 1
  say It said so, one two three four five six.
  fault hang after 9

rule
  user Add
  results 1
  say It said so, one two three four five six.

rule
  user before
  prompt nine ten<|im_end|>
  say The whole answer stands above.

rule it hangs behind "six"
  user Count on
  say {WORDS}
  fault hang after 10

rule it hangs behind "five", and then behind "eight"
  user Count slowly
  say {WORDS}
  fault hang after 7

rule
  say {WORDS}
"""


@contextmanager
def serving(folder: Path) -> Generator[Served, None, None]:
    model = folder / "model" if (folder / "model").exists() else scripted_model(folder / "model", RULES)
    with served(folder / "home", model, (TINY,)) as it:
        yield it


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    with serving(tmp_path_factory.mktemp("continue")) as it:
        yield it


@contextmanager
def client_of(service: Served) -> Generator[httpx2.Client, None, None]:
    client = httpx2.Client(base_url=service.url, timeout=60)
    with client:
        yield client


def stopped_at(client: httpx2.Client, words: str, **body: Any) -> tuple[str, str]:
    """Ask, and stop the answer once it has said this much; return the conversation and the text that was received."""
    with asking(client, **body) as (conversation, stream):
        events: list[Json] = []
        for event in stream:
            events.append(event)
            if words in text_of(events) and event["kind"] == "text":
                # What a reader finds meanwhile.
                assert messages_of(client, conversation)[-1]["ending"] == "running"
                client.post(f"/v1/conversations/{conversation}/cancel").raise_for_status()
                words = "never"
    assert events[-1]["reason"] == "cancelled"
    return conversation, text_of(events)


def continued(client: httpx2.Client, conversation: str, **body: Any) -> list[Json]:
    with asking(client, conversation=conversation, **{"continue": True}, **body) as (_, stream):
        return list(stream)


def messages_of(client: httpx2.Client, conversation: str) -> list[Json]:
    return client.get(f"/v1/conversations/{conversation}").raise_for_status().json()["messages"]


def test_a_stopped_answer_goes_on_and_its_text_is_not_evaluated_again(service: Served) -> None:
    with client_of(service) as client:
        conversation, kept = stopped_at(client, "six", message="Count on")
        assert kept == "one two three four five six"
        events = continued(client, conversation)
        # The model may have written white space after the last text that was sent.
        assert (events[0]["kind"], events[0]["text"].rstrip()) == ("text", kept.rstrip())
        assert text_of(events) == WORDS
        assert events[-1]["reason"] == "answered"
        (usage,) = of_kind(events, "usage")
        assert usage["prefilled_tokens"] <= 2
        assert [(turn["text"], turn["ending"]) for turn in messages_of(client, conversation)] == [
            ("Count on", ""),
            (WORDS, "answered"),
        ]
        # The next question finds one whole turn.
        answer = answer_of(client, "What came before?", conversation=conversation)
        assert answer["text"] == "The whole answer stands above."
        assert len(messages_of(client, conversation)) == 4


def test_an_answer_that_was_cut_by_its_limit_goes_on_even_within_a_character(service: Served) -> None:
    with client_of(service) as client:
        for limit in range(3, 8):
            first = answer_of(client, "Japan?", max_tokens=limit)
            assert first["events"][-1]["reason"] == "token_limit"
            second = answer_of(client, conversation=first["conversation"], **{"continue": True})
            assert second["text"] == TOKYO
            assert messages_of(client, first["conversation"])[-1]["text"] == TOKYO


def test_a_stop_within_a_call_leaves_its_beginning_out_and_the_call_is_made(service: Served) -> None:
    with client_of(service) as client:
        conversation, _ = stopped_at(client, "Let me look.", message="Add up", approvals="grant")
        assert "tool_call" not in {event["kind"] for event in messages_of(client, conversation)[-1]["events"]}
        events = continued(client, conversation, approvals="grant")
        assert text_of(events[:1]).strip() == "Let me look."
        assert [event["kind"] for event in events if event["kind"].startswith("tool_")] == ["tool_call", "tool_result"]
        assert text_of(events).count("Let me look.") == 1
        stored = messages_of(client, conversation)[-1]
        assert (stored["text"], stored["ending"]) == ("It said so, one two three four five six.", "answered")
        assert [event["kind"] for event in stored["events"] if event["kind"] != "usage"] == [
            "text",
            "tool_call",
            "tool_result",
            "text",
        ]


def test_what_a_call_found_stays_when_the_answer_after_it_goes_on(service: Served) -> None:
    with client_of(service) as client:
        conversation, _ = stopped_at(client, "four", message="Add all", approvals="grant")
        events = continued(client, conversation)
        kinds = [event["kind"] for event in events if event["kind"].startswith("tool_")]
        assert kinds == ["tool_call", "tool_result"]
        assert text_of(events).endswith("It said so, one two three four five six.")
        stored = messages_of(client, conversation)[-1]
        assert [event["kind"] for event in stored["events"]].count("tool_result") == 1


def test_only_an_answer_that_was_cut_off_in_its_text_is_continued(service: Served) -> None:
    with client_of(service) as client:
        whole = answer_of(client, "Count")["conversation"]
        refused = client.post("/v1/execute", json={"conversation": whole, "continue": True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (409, "continue")
        for wrong in ({"message": "x"}, {"again": True}, {"force_tool": "add"}, {"replaces": 0}):
            body = {"conversation": whole, "continue": True, **wrong}
            assert client.post("/v1/execute", json=body).status_code == 422
        assert client.post("/v1/execute", json={"continue": True}).status_code == 422
        conversation, _ = stopped_at(client, "five", message="Count slowly")
        answer_of(client, "Count", conversation=conversation)
        assert client.post("/v1/execute", json={"conversation": conversation, "continue": True}).status_code == 409


def test_an_answer_goes_on_after_a_restart_and_may_be_stopped_twice(tmp_path: Path) -> None:
    with serving(tmp_path) as service, client_of(service) as client:
        conversation, _ = stopped_at(client, "five", message="Count slowly")
    with serving(tmp_path) as service, client_of(service) as client:
        stopped_at(client, "eight", conversation=conversation, **{"continue": True})
        assert messages_of(client, conversation)[-1]["ending"] == "cancelled"
        events = continued(client, conversation)
        assert text_of(events) == WORDS
        assert [turn["text"] for turn in messages_of(client, conversation)] == ["Count slowly", WORDS]
