"""What the caller wants remembered, over HTTP: the routes, the event of an answer, rights, and what erasing leaves."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tokenizers import Tokenizer

from rkllm_mcp.app import idle_requests
from rkllm_mcp.app.environment import ModelHost
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.served import Served, scripted_model, served

OWNER, CHAT_ONLY, TENANT = "owner-key-of-24-letters-", "a-key-of-a-program-1234", "a-key-of-the-kitchen-1234"
RECALLING = "a-key-of-the-editor-1234"
KEYS = f"""[service]
api_keys = ["{OWNER}"]
[[service.keys]]
key = "{CHAT_ONLY}"
allow = ["chat"]
[[service.keys]]
key = "{RECALLING}"
allow = ["chat", "tools"]
memory = true
[[tenants]]
name = "kitchen"
api_key = "{TENANT}"
"""
FACT = "my dog is called Hachi"
QUESTION = "What is the name of my dog?"
SAID = {"role": "user", "content": "Remember that my cat is called Mike."}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "open_file", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def service(tmp_path: Path) -> Generator[Served]:
    with served(tmp_path, scripted_model(tmp_path / "model", "rule\n  say Hello.\n"), extra=KEYS) as it:
        yield it


def send(service: Served, method: str, path: str, body: Any = None, key: str = OWNER) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.request(method, f"{service.url}{path}", json=body, headers=headers, timeout=60)


def ask(service: Served, message: str, key: str = OWNER, **more: Any) -> dict[str, Any]:
    answer = send(service, "POST", "/v1/execute", {"message": message, "stream": False, **more}, key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def memories_in(answer: dict[str, Any]) -> list[list[str]]:
    return [[row["text"] for row in event["rows"]] for event in answer["events"] if event["kind"] == "memories"]


def listed(service: Served, key: str = OWNER, query: str = "") -> list[str]:
    return [row["text"] for row in send(service, "GET", f"/v1/memory{query}", key=key).json()["memories"]]


def test_rows_are_added_found_changed_exported_imported_and_cleared(service: Served) -> None:
    added = send(service, "POST", "/v1/memory", {"text": f" {FACT}\n"})
    assert (added.status_code, added.json()["text"], added.json()["always"]) == (201, FACT, False)
    send(service, "POST", "/v1/memory", {"text": "駐車場は3階", "always": True})
    assert listed(service, query="?search=DOG") == [FACT]
    for secret in ("my password is hunter2", "sk-proj-abcdefgh12345678"):
        refused = send(service, "POST", "/v1/memory", {"text": secret})
        assert (refused.status_code, "password manager" in refused.text) == (409, True)
    path = f"/v1/memory/{added.json()['id']}"
    changed = send(service, "PATCH", path, {"text": "my dog is called Pochi", "always": True})
    assert (changed.json()["text"], changed.json()["always"]) == ("my dog is called Pochi", True)
    assert send(service, "PATCH", path, {"text": "my password is hunter2"}).status_code == 409
    assert "駐車場は3階" in send(service, "GET", "/v1/memory/export?format=markdown").text
    exported = send(service, "GET", "/v1/memory/export").json()
    assert send(service, "DELETE", path).status_code == 204
    assert send(service, "DELETE", path).status_code == 404
    assert send(service, "POST", "/v1/memory:import", exported).json() == {"added": 1, "known": 1}
    assert send(service, "DELETE", "/v1/memory").json() == {"removed": 2}
    assert listed(service) == []


def test_a_person_switches_proposals_on_and_keeps_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelHost, "has_weights", True)
    monkeypatch.setattr(idle_requests, "IDLE_S", 0.05)
    rules = f"rule\n  user {FACT}.*this sentence about\n  say pet\n\nrule\n  say Hello.\n"
    with served(tmp_path, scripted_model(tmp_path / "model", rules), extra=KEYS) as service:
        assert send(service, "GET", "/v1/memory").json()["proposes"] is False
        assert send(service, "PUT", "/v1/me/settings", {"proposals": "on"}).json()["proposals"] == "on"
        assert send(service, "GET", "/v1/memory").json()["proposes"] is True
        assert send(service, "GET", "/v1/memory", key=TENANT).json()["proposes"] is False
        ask(service, f"{FACT}. What does he eat?")
        deadline = time.monotonic() + 30
        while not listed(service):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (row,) = send(service, "GET", "/v1/memory").json()["memories"]
        assert (row["state"], memories_in(ask(service, QUESTION))) == ("proposed", [])
        assert send(service, "GET", "/v1/memory/export").json()["memories"] == []
        kept = send(service, "PATCH", f"/v1/memory/{row['id']}", {"keep": True}).json()
        assert (kept["state"], memories_in(ask(service, QUESTION))) == ("kept", [[FACT]])


def test_each_person_has_a_memory_and_a_key_that_only_chats_none(service: Served) -> None:
    ask(service, f"Remember that {FACT}.")
    assert memories_in(ask(service, QUESTION)) == [[FACT]]
    assert memories_in(ask(service, QUESTION, TENANT)) == []
    ask(service, "Remember that our oven is broken.", TENANT)
    assert (listed(service), listed(service, TENANT)) == ([FACT], ["our oven is broken"])
    assert memories_in(ask(service, QUESTION, CHAT_ONLY)) == []
    ask(service, "Remember that the owner agrees to everything.", CHAT_ONLY)
    assert send(service, "GET", "/v1/memory", key=CHAT_ONLY).status_code == 403
    assert listed(service) == [FACT]


def test_a_temporary_conversation_neither_keeps_nor_recalls(service: Served) -> None:
    send(service, "POST", "/v1/memory", {"text": FACT, "always": True})
    answer = ask(service, QUESTION, store=False, memory=False)
    ask(service, "Remember that my cat is called Mike.", store=False, memory=False)
    assert (memories_in(answer), listed(service)) == ([], [FACT])
    prompt = Tokenizer.from_file(str(DEMO_TOKENIZER)).decode(service.runs()[0]["prompt"], skip_special_tokens=False)
    assert FACT not in prompt


def test_programs_that_send_the_whole_conversation_neither_read_nor_write_it(service: Served) -> None:
    send(service, "POST", "/v1/memory", {"text": FACT})
    for message in (QUESTION, "Remember that my cat is called Mike."):
        body = {"messages": [{"role": "user", "content": message}], "model": "parrot"}
        assert send(service, "POST", "/v1/chat/completions", body).status_code == 200
    prompts = [run["prompt"] for run in service.runs()]
    texts = [Tokenizer.from_file(str(DEMO_TOKENIZER)).decode(ids, skip_special_tokens=False) for ids in prompts]
    assert [text for text in texts if FACT in text] == []
    assert listed(service) == [FACT]


@pytest.mark.parametrize("own_tools", [True, False], ids=["own tools", "the host's"])
def test_a_program_whose_key_says_so_gets_it_and_reads_nothing_twice(service: Served, *, own_tools: bool) -> None:
    send(service, "POST", "/v1/memory", {"text": FACT})
    more: dict[str, Any] = {"tools": [TOOL]} if own_tools else {"mcp": True}
    messages = [{"role": "user", "content": QUESTION}]
    prompts: list[list[int]] = []
    for following in ("Thank you.", "What else?"):
        body = {"model": "parrot", "messages": messages, **more}
        answer = send(service, "POST", "/v1/chat/completions", body, RECALLING).json()
        prompts.append(service.runs()[-1]["prompt"])
        messages += [answer["choices"][0]["message"], {"role": "user", "content": following}]
    first, second = prompts
    tokenizer = Tokenizer.from_file(str(DEMO_TOKENIZER))
    assert f"[I told you earlier]\n- {FACT}\n\n{QUESTION}" in tokenizer.decode(first, skip_special_tokens=False)
    assert second[: len(first)] == first
    assert service.runs()[-1]["prefill_tokens"] <= len(second) - len(first)
    send(service, "POST", "/v1/chat/completions", {"model": "parrot", "messages": [SAID], **more}, RECALLING)
    assert listed(service) == [FACT]
    # Removed, it is in no further request of the conversation.
    send(service, "DELETE", "/v1/memory")
    send(service, "POST", "/v1/chat/completions", {"model": "parrot", "messages": messages, **more}, RECALLING)
    assert FACT not in tokenizer.decode(service.runs()[-1]["prompt"], skip_special_tokens=False)


def test_after_a_removal_no_file_and_no_prompt_has_the_row_and_the_conversation_goes_on(
    service: Served, tmp_path: Path
) -> None:
    words = "Hachinosuke"
    row = send(service, "POST", "/v1/memory", {"text": f"my dog is called {words}"}).json()
    send(service, "POST", "/v1/memory", {"text": f"I like the name {words}", "always": True})
    answer = ask(service, QUESTION)
    assert memories_in(answer) == [[row["text"]]]
    for each in send(service, "GET", "/v1/memory").json()["memories"]:
        assert send(service, "DELETE", f"/v1/memory/{each['id']}").status_code == 204
    ask(service, "And what else?", conversation=answer["conversation"])
    prompt = Tokenizer.from_file(str(DEMO_TOKENIZER)).decode(service.runs()[-1]["prompt"], skip_special_tokens=False)
    assert QUESTION in prompt
    assert words not in prompt
    files = [file for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert files
    assert [file.name for file in files if words.encode() in file.read_bytes()] == []
