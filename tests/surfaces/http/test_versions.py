"""Stored conversations over HTTP: versions of a question, settings, pins, and what an answer showed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx2
import pytest
from tokenizers import Tokenizer

from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.execute import Json, answer_of, of_kind
from tests.support.feature_demo import NOTES
from tests.support.served import Served, scripted_model, served

RULES = r"""
rule
  user [Dd]elete ([a-z.]+)
  results 0
  call delete_file {"path":"$1"}

rule
  results 1+
  result ^(.*)$
  say The tool said: %1

rule
  user (.*)
  say You said $1
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("versions")
    with served(folder, scripted_model(folder / "model", RULES), (NOTES,)) as it:
        yield it


@pytest.fixture
def client(service: Served) -> Generator[httpx2.Client, None, None]:
    client = httpx2.Client(base_url=service.url, timeout=60)
    with client:
        yield client


def ask(client: httpx2.Client, message: str, **body: Any) -> Json:
    return answer_of(client, message, approvals="refuse", **body)


def shown(client: httpx2.Client, conversation: str) -> list[tuple[str, str, str]]:
    messages = client.get(f"/v1/conversations/{conversation}").raise_for_status().json()["messages"]
    return [(each["role"], each["text"], f"{each['version']}/{each['versions']}") for each in messages]


def turns(*said: tuple[str, str]) -> list[tuple[str, str, str]]:
    pairs = [(("user", words, at), ("assistant", f"You said {words}", "1/1")) for words, at in said]
    return [turn for pair in pairs for turn in pair]


def test_an_edited_question_keeps_its_earlier_versions_and_only_the_new_part_is_read(
    client: httpx2.Client, service: Served
) -> None:
    first = ask(client, "one " * 40)
    conversation = first["conversation"]
    for words in ("two", "three"):
        ask(client, words, conversation=conversation)
    stored = "one " * 40
    assert shown(client, conversation) == turns((stored, "1/1"), ("two", "1/1"), ("three", "1/1"))

    usage = ask(client, "zwei", conversation=conversation, replaces=2)["events"][-2]
    assert usage["prefilled_tokens"] < 30 < usage["cached_tokens"], "what stands in front is not read again"
    assert shown(client, conversation) == turns((stored, "1/1"), ("zwei", "2/2"))
    # A version contains the versions of what was asked after it.
    ask(client, "drei", conversation=conversation)
    ask(client, "DREI", conversation=conversation, replaces=4)
    assert shown(client, conversation) == turns((stored, "1/1"), ("zwei", "2/2"), ("DREI", "2/2"))
    path = f"/v1/conversations/{conversation}/versions"
    client.post(path, json={"position": 2, "version": 1}).raise_for_status()
    assert shown(client, conversation) == turns((stored, "1/1"), ("two", "1/2"), ("three", "1/1"))
    # It goes on from there, and the others stay.
    ask(client, "four", conversation=conversation)
    assert service.runs()[-1]["prefill_tokens"] < service.runs()[0]["prefill_tokens"]
    assert client.post(path, json={"position": 2, "version": 3}).status_code == 404
    client.post(path, json={"position": 2, "version": 2}).raise_for_status()
    assert shown(client, conversation) == turns((stored, "1/1"), ("zwei", "2/2"), ("DREI", "2/2"))
    client.delete(f"/v1/conversations/{conversation}").raise_for_status()
    assert client.get(f"/v1/conversations/{conversation}").status_code == 404


def test_a_version_that_is_refused_leaves_the_question_as_it_was(client: httpx2.Client) -> None:
    conversation = ask(client, "short")["conversation"]
    ask(client, "next", conversation=conversation)
    body = {"message": "long " * 5000, "conversation": conversation, "replaces": 0, "stream": False}
    assert client.post("/v1/execute", json=body).status_code == 400
    assert shown(client, conversation) == turns(("short", "1/1"), ("next", "1/1"))
    assert ask(client, "and on", conversation=conversation)["text"] == "You said and on"
    assert len(shown(client, conversation)) == 6
    problem = client.post("/v1/execute", json={**body, "message": "x", "replaces": 1})
    assert (problem.status_code, problem.json()["error"]["param"]) == (409, "replaces")


def test_what_an_answer_showed_is_stored_with_it_and_found_by_its_words(client: httpx2.Client) -> None:
    answer = ask(client, "Delete quince.txt")
    (_, stored) = client.get(f"/v1/conversations/{answer['conversation']}").json()["messages"]
    passing = {"status", "approval", "queued", "prefill", "end"}

    def joined(events: list[Json]) -> list[Json]:
        return [event for event in events if event["kind"] not in passing | {"text"}]

    assert joined(stored["events"]) == joined(answer["events"])
    (result,) = of_kind(stored["events"], "tool_result")
    assert (result["is_error"], result["ruling"]) == (True, "refused")
    assert [event["text"] for event in stored["events"] if event["kind"] == "text"] == [answer["text"]]
    found = client.get("/v1/conversations", params={"search": "quince"}).json()
    assert [each["id"] for each in found["conversations"]] == [answer["conversation"]]
    assert "quince.txt" in found["conversations"][0]["passage"]
    assert client.get("/v1/conversations", params={"search": "tool_result"}).json()["count"] == 0


def test_a_pinned_conversation_comes_first_and_settings_hold_for_all_its_questions(
    client: httpx2.Client, service: Served
) -> None:
    settings: Json = {"tools": [], "temperature": 0.2}
    conversation = ask(client, "pinned", settings=settings)["conversation"]
    path = f"/v1/conversations/{conversation}"
    assert client.get(path).json()["settings"] == settings
    ask(client, "later")
    client.patch(path, json={"pinned": True}).raise_for_status()
    listed = client.get("/v1/conversations").json()["conversations"]
    assert [each["pinned"] for each in listed][:2] == [True, False]
    assert listed[0]["id"] == conversation
    # Without tools the model's call is no call; with them again it is one.
    client.patch(path, json={"settings": {}, "system": "Say little."}).raise_for_status()
    kept = client.get(path).json()
    assert (kept["settings"], kept["system"], kept["title"], kept["pinned"]) == ({}, "Say little.", "pinned", True)
    answer = ask(client, "Delete it.txt", conversation=conversation)
    assert "tool_call" in [event["kind"] for event in answer["events"]]
    assert "Say little." in Tokenizer.from_file(str(DEMO_TOKENIZER)).decode(service.runs()[-1]["prompt"])
    assert client.patch(path, json={"settings": {"temperature": 3}}).status_code == 422


def test_what_was_sent_to_the_model_is_read_back_as_it_read_it(client: httpx2.Client) -> None:
    conversation = ask(client, "Hello")["conversation"]
    ask(client, "And again", conversation=conversation)
    sent = client.get(f"/v1/conversations/{conversation}/prompt").raise_for_status().json()
    places = [sent["text"].find(words) for words in ("delete_file", "Hello", "You said Hello", "And again")]
    assert -1 not in places
    assert places == sorted(places), sent["text"]
    assert sent["tokens"] == len(Tokenizer.from_file(str(DEMO_TOKENIZER)).encode(sent["text"]).ids)
    missing = client.get("/v1/conversations/nothing/prompt")
    assert (missing.status_code, "ask in it" in missing.text) == (404, True)
