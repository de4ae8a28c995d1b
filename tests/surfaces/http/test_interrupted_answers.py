"""Answers in the middle of something: whoever asked leaves, or nobody says what they wait for."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.execute import Json, answer_of, asking, of_kind, text_of
from tests.support.feature_demo import NOTES, OLD_DESK, TINY
from tests.support.served import scripted_model, served

RULES = """
rule
  user Who am I
  results 0
  call ask_owner {}

rule
  user [Ww]rite
  results 0
  call write_file {"path":"FOLDER/written.txt","content":"x"}

rule
  user [Ww]ait
  results 0
  call wait {}

rule
  results 1+
  result ^(.*)$
  say The tool said: %1

rule
  say Hello there.
"""


@contextmanager
def asked(folder: Path, extra: str) -> Generator[httpx2.Client, None, None]:
    """A client of a service that gives one answer at a time."""
    model = scripted_model(folder / "model", RULES.replace("FOLDER", str(folder)))
    with served(
        folder / "home",
        model,
        (OLD_DESK, NOTES, TINY),
        extra=f'[service]\nparallel = 1\n{extra}approve = "dangerous"\n',
    ) as it:
        client = httpx2.Client(base_url=it.url, timeout=60)
        with client:
            yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client, None, None]:
    with asked(tmp_path_factory.mktemp("patient"), "[security]\n") as it:
        yield it


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client, None, None]:
    """A client of a service that waits for people no longer than a moment."""
    with asked(tmp_path_factory.mktemp("hasty"), "[security]\nquestion_timeout_s = 0.2\n") as it:
        yield it


def called(client: httpx2.Client, name: str) -> str:
    """What a tool says when it is called by hand."""
    return client.post(f"/v1/tools/{name}:call", json={"approve": True}).raise_for_status().json()["text"]


def once_allowed(client: httpx2.Client, events: Iterator[Json]) -> Iterator[Json]:
    """The events, with a yes to every call."""
    for event in events:
        if event["kind"] == "approval":
            client.post(f"/v1/approvals/{event['id']}", json={"decision": "once"}).raise_for_status()
        yield event


@pytest.mark.parametrize(
    ("words", "is_allowed", "until"),
    [
        ("Please write", False, {"kind": "approval"}),
        ("Who am I?", True, {"kind": "elicitation"}),
        ("Please wait", True, {"kind": "status", "text": "[MCP: Calling tool 'wait']"}),
    ],
)
def test_leaving_in_the_middle_of_a_call_leaves_nothing(
    client: httpx2.Client, words: str, is_allowed: bool, until: Json
) -> None:
    with asking(client, message=words) as (conversation, stream):
        events = once_allowed(client, stream) if is_allowed else stream
        assert any(until.items() <= event.items() for event in events)
    # One answer at a time: this one begins when the other is over.
    assert answer_of(client, "Hi")["text"] == "Hello there."
    assert client.get("/v1/questions").json()["questions"] == []
    kept = client.get(f"/v1/conversations/{conversation}").json()["messages"]
    assert [(turn["role"], turn["text"], turn["ending"]) for turn in kept] == [
        ("user", words, ""),
        ("assistant", "", "cancelled"),
    ]
    (call,) = client.get("/v1/tools/history", params={"conversation": conversation}).json()["calls"]
    assert (call["is_error"], call["ruling"]) == (True, "stopped")
    # The servers go on, and have heard of it.
    assert called(client, "seen") == "(no output)"
    assert called(client, "cancellations") == ("wait" if "wait" in words else "(no output)")
    assert "written.txt" not in called(client, "list_directory")
    assert answer_of(client, "Hi", conversation=conversation)["text"] == "Hello there."


def test_a_question_whose_client_leaves_the_queue_is_stored_as_cancelled(client: httpx2.Client) -> None:
    with asking(client, message="Please wait", approvals="grant") as (_, running):
        assert any(event.get("text") == "[MCP: Calling tool 'wait']" for event in running)
        with asking(client, message="Please write", approvals="grant") as (conversation, waiting):
            assert next(waiting) == {"kind": "queued", "position": 1}
    assert answer_of(client, "Hi")["text"] == "Hello there."
    assert client.get("/v1/tools/history", params={"conversation": conversation}).json()["calls"] == []
    question, answer = client.get(f"/v1/conversations/{conversation}").json()["messages"]
    assert (question["text"], answer["text"], answer["ending"]) == ("Please write", "", "cancelled")


def test_an_approval_that_never_comes_is_a_refusal_and_the_answer_goes_on(hasty: httpx2.Client) -> None:
    with asking(hasty, message="Please write") as (_, stream):
        events = list(stream)
    (question,) = of_kind(events, "approval")
    (result,) = of_kind(events, "tool_result")
    assert result["is_error"]
    assert "it was not approved in time" in result["text"]
    assert events[-1] == {"kind": "end", "reason": "answered", "error": None}
    assert "it was not approved in time" in text_of(events)
    assert hasty.get("/v1/questions").json()["questions"] == []
    assert hasty.post(f"/v1/approvals/{question['id']}", json={"decision": "once"}).status_code == 404
    assert "written.txt" not in called(hasty, "list_directory")


def test_a_form_without_an_answer_is_taken_away_and_the_answer_goes_on(hasty: httpx2.Client) -> None:
    with asking(hasty, message="Who am I?") as (_, stream):
        events = list(once_allowed(hasty, stream))
    (form,) = of_kind(events, "elicitation")
    (result,) = of_kind(events, "tool_result")
    assert json.loads(result["text"]) == {"action": "cancel"}
    assert events[-1] == {"kind": "end", "reason": "answered", "error": None}
    assert hasty.post(f"/v1/elicitations/{form['id']}", json={"action": "decline"}).status_code == 404
