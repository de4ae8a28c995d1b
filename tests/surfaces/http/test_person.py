"""What the service knows of a person: the text about them, and everything as a file or deleted."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tokenizers import Tokenizer

from rkllm_mcp.conversations.exports import from_json
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.served import Served, scripted_model, served

OWNER, LIMITED = "owner-key-of-24-letters-", "a-key-of-a-program-1234"
KEYS = f"""[service]
api_keys = ["{OWNER}"]
[[service.keys]]
key = "{LIMITED}"
allow = ["chat"]
"""
ABOUT = "My name is Taro and I live in Osaka."
WITHIN_S = 60.0


@pytest.fixture
def service(tmp_path: Path) -> Generator[Served]:
    with served(tmp_path, scripted_model(tmp_path / "model", "rule\n  say Hello.\n"), extra=KEYS) as it:
        yield it


def send(service: Served, method: str, path: str, body: Any = None, key: str = OWNER) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.request(method, f"{service.url}{path}", json=body, headers=headers, timeout=WITHIN_S)


def ask(service: Served, message: str, **more: Any) -> None:
    answer = send(service, "POST", "/v1/execute", {"message": message, "stream": False, **more})
    assert answer.status_code == 200, answer.text


def read(ids: list[int]) -> str:
    return Tokenizer.from_file(str(DEMO_TOKENIZER)).decode(ids, skip_special_tokens=False)


def test_every_conversation_gets_the_text_about_its_person_in_front_of_what_differs(service: Served) -> None:
    ask(service, "One?")
    assert send(service, "PUT", "/v1/me/about", {"about": f" {ABOUT}\n"}).json() == {"about": ABOUT}
    for message, more in (("Two?", {}), ("Three?", {}), ("Four?", {"system": "Be brief."})):
        ask(service, message, **more)
    texts = [read(run["prompt"]) for run in service.runs()]
    prompts = {word: text for text in texts for word in ("One?", "Two?", "Three?", "Four?") if word in text}
    assert ABOUT not in prompts["One?"]
    head, _, rest = prompts["Two?"].partition("Two?")
    assert ABOUT in head
    # The text belongs to the system message, so conversations differ only after it and share it in the KV cache.
    assert prompts["Three?"] == f"{head}Three?{rest}"
    last = prompts["Four?"]
    assert last.index("Be brief.") < last.index(ABOUT) < last.index("Four?")
    third = next(run for run, text in zip(service.runs(), texts, strict=True) if "Three?" in text)
    assert third["prefill_tokens"] < 20
    assert send(service, "PUT", "/v1/me/about", {"about": "x" * 2001}).status_code == 422
    # A key for questions alone neither reads nor changes the text about the person.
    for method, body in (("GET", None), ("PUT", {"about": "Obey."})):
        assert send(service, method, "/v1/me/about", body, LIMITED).status_code == 403


def test_everything_is_a_file_that_can_be_imported_and_is_deleted_with_nothing_left(
    service: Served, tmp_path: Path
) -> None:
    for number in range(3):
        ask(service, f"Question {number} 😀?")
    send(service, "PUT", "/v1/me/about", {"about": ABOUT})
    send(service, "PUT", "/v1/me/settings", {"size": "larger"})
    file = send(service, "GET", "/v1/me/data")
    assert "rkllm-mcp-data.json" in file.headers["content-disposition"]
    assert json.loads(file.content)["about"] == ABOUT
    stored = from_json(file.content)
    assert sorted(one.turns[0].text for one in stored) == [f"Question {number} 😀?" for number in range(3)]
    assert send(service, "DELETE", "/v1/me/data", key=LIMITED).status_code == 403
    assert send(service, "DELETE", "/v1/me/data").json() == {"conversations": 3}
    assert send(service, "GET", "/v1/conversations").json()["count"] == 0
    assert send(service, "GET", "/v1/me/about").json() == {"about": ""}
    assert send(service, "GET", "/v1/me").json()["settings"] == {}
    assert json.loads(send(service, "GET", "/v1/me/data").content)["conversations"] == []
    ask(service, "Who am I?")
    assert ABOUT not in read(service.runs()[-1]["prompt"])
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or b"Question 1" not in path.read_bytes(), path
