"""Two services on one state folder: they share conversations, switches and what tenants have used up."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.demo_app import Demo, make_demo
from tests.support.execute import answer_of
from tests.support.feature_demo import TINY
from tests.support.served import scripted_model
from tests.support.started import started

RULES = """
rule
  user And now
  prompt Hello
  say As I said: hello.

rule
  say Hello there.
"""
KEYS = """
[service]
api_keys = ["owner"]

[[tenants]]
name = "ann"
api_key = "ann"
servers = []
daily_tokens = 60
"""


@contextmanager
def service(demo: Demo) -> Generator[httpx2.Client, None, None]:
    """A client of one more service, as its owner."""
    with started(demo) as it:
        client = httpx2.Client(base_url=it.url, timeout=120, headers={"X-Api-Key": "owner"})
        with client:
            yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("both")


@pytest.fixture
def state_file(folder: Path) -> Path:
    return folder / "home" / ".local" / "state" / "rkllm-mcp" / "state.db"


@pytest.fixture(scope="module")
def both(folder: Path) -> Generator[tuple[httpx2.Client, httpx2.Client], None, None]:
    model = scripted_model(folder / "parrot", RULES)
    demo = make_demo(folder / "home", [TINY], path=model, extra=KEYS)
    with ExitStack() as stack:
        yield stack.enter_context(service(demo)), stack.enter_context(service(demo))


def test_a_conversation_goes_on_at_either_and_is_deleted_for_both(both: tuple[httpx2.Client, httpx2.Client]) -> None:
    one, other = both
    conversation = answer_of(one, "Hi")["conversation"]
    assert answer_of(other, "And now?", conversation=conversation)["text"] == "As I said: hello."
    for client in both:
        kept = client.get(f"/v1/conversations/{conversation}").json()["messages"]
        assert [turn["text"] for turn in kept] == ["Hi", "Hello there.", "And now?", "As I said: hello."]
    # The first has it as it was open there; nothing that was said elsewhere is lost by that.
    events = answer_of(one, "Still there?", conversation=conversation)["events"]
    assert any("went on elsewhere" in event.get("text", "") for event in events)
    assert len(other.get(f"/v1/conversations/{conversation}").json()["messages"]) == 6
    assert other.delete(f"/v1/conversations/{conversation}").status_code == 204
    for client in both:
        assert client.get("/v1/conversations", params={"search": "Still there"}).json()["count"] == 0


def test_a_tool_that_is_switched_off_at_one_is_off_at_the_next_question_of_the_other(
    both: tuple[httpx2.Client, httpx2.Client],
) -> None:
    one, other = both
    for is_on in (False, True):
        one.post(f"/v1/tools/add:{'enable' if is_on else 'disable'}").raise_for_status()
        answer_of(other, "Hi")
        assert {tool["name"]: tool["enabled"] for tool in other.get("/v1/tools").json()["tools"]}["add"] is is_on


def test_what_a_tenant_uses_up_at_one_is_used_up_at_the_other(both: tuple[httpx2.Client, httpx2.Client]) -> None:
    statuses: list[int] = []
    # In turn, so that each of them has counted only a half.
    for client in both * 20:
        asked = client.post("/v1/execute", json={"message": "Hi", "stream": False}, headers={"X-Api-Key": "ann"})
        statuses.append(asked.status_code)
        if asked.status_code != 200:
            break
    for client in both:
        refused = client.post("/v1/execute", json={"message": "Hi"}, headers={"X-Api-Key": "ann"})
        assert refused.json()["error"]["code"] == "daily_tokens_exceeded"
    spent = statuses.count(200)
    assert 1 <= spent <= 60 // 3


def test_a_program_that_locks_the_file_hides_and_loses_no_conversation(
    both: tuple[httpx2.Client, httpx2.Client], state_file: Path
) -> None:
    client, _ = both
    begun = [answer_of(client, f"Hello {number}")["conversation"] for number in range(3)]
    before = client.get("/v1/conversations").json()["count"]
    lock = sqlite3.connect(state_file, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    listed = client.get("/v1/conversations").raise_for_status().json()
    assert set(begun) <= {entry["id"] for entry in listed["conversations"]}
    assert len(client.get(f"/v1/conversations/{begun[0]}").json()["messages"]) == 2
    events = answer_of(client, "Hello", conversation=begun[0])["events"]
    assert any("was not kept: database is locked" in event.get("text", "") for event in events)
    assert "database is locked" in client.get("/readyz").json()["storage"]
    lock.execute("ROLLBACK")
    lock.close()
    answer_of(client, "Hello again", conversation=begun[0])
    assert client.get("/readyz").json() == {"status": "ok"}
    # What could not be stored at its time is stored with the next answer.
    assert len(client.get(f"/v1/conversations/{begun[0]}").json()["messages"]) == 6
    assert client.get("/v1/conversations").json()["count"] == before
