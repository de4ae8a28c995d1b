"""No result of a tool is on the disk unless ``[service] keep_results`` says so, whichever way a question comes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rkllm_mcp.conversations.exports import as_json, from_json
from rkllm_mcp.events import Sources, ToolFinished, event_to_dict, to_json
from rkllm_mcp.messages import StoredTurn
from rkllm_mcp.records import NOT_STORED, StoredConversation
from rkllm_mcp.store import open_store
from rkllm_mcp.store.conversations import RESULT_DAYS
from rkllm_mcp.store.limits import HistoryLimits, StoreLimits
from tests.support.demo_app import make_demo
from tests.support.execute import answer_of, asking, of_kind
from tests.support.served import scripted_model, served

pytestmark = pytest.mark.anyio
MARKER, BEFORE = "quincemarmalade", "medlarjelly"
SERVER = f"""
from tests.support.mcp_servers.tiny import TinyServer, tool

look = tool("look", "Look.", place="string") | {{"annotations": {{"readOnlyHint": True}}}}
about = tool("about", "Facts.", query="string") | {{"annotations": {{"readOnlyHint": True}}}}
change = tool("change", "Change.", place="string")
TinyServer([look, about, change], {{
    "look": lambda _, given: "{MARKER} in " + given["place"],
    "about": lambda _, given: "{BEFORE} for " + given["query"],
    "change": lambda _, given: "{MARKER} is now in " + given["place"],
}}).run()
"""
RULES = """
rule
  user [Cc]hange the ([a-z]+)
  results 0
  call change {"place":"$1"}

rule
  user [Ll]ook into the ([a-z]+)
  results 0
  call look {"place":"$1"}

rule
  results 1+
  say It is done.

rule
  user (.*)
  say Hello.
"""


def on_disk(folder: Path) -> set[str]:
    """Which results are in any file of the folder, the database's log among them."""
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert texts
    return {word for word in (MARKER, BEFORE) if any(word.encode() in text for text in texts)}


def configured(folder: Path, service: str) -> tuple[Path, str]:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "kitchen.py"
    script.write_text(SERVER, "utf-8")
    own = f'[[servers]]\nname = "kitchen"\ncommand = "${{PYTHON}}"\nargs = ["{script}"]\nauto_context_tool = "about"\n'
    own += 'always_allow = ["about"]\n'
    return scripted_model(folder / "model", RULES), f"[service]\n{service}\n{own}"


@contextmanager
def client_of(home: Path, model: Path, extra: str) -> Generator[httpx2.Client]:
    """A client of a service that runs until the block is left."""
    with served(home, model, extra=extra) as service:
        client = httpx2.Client(base_url=service.url, timeout=60)
        with client:
            yield client


def ask_every_way(client: httpx2.Client) -> str:
    """Ask so that tools run; return the id of the conversation."""
    whole = answer_of(client, "Look into the cellar")
    assert MARKER in str(whole), "the answer itself has it"
    conversation: str = whole["conversation"]
    assert MARKER in str(answer_of(client, "Change the attic", conversation=conversation, approvals="grant"))
    assert MARKER in str(answer_of(client, "Look into the garden", conversation=conversation, replaces=2))
    with asking(client, message="Look into the barn", detached=True, approvals="grant") as (_, events):
        assert any(MARKER in str(event) for event in events)
    chat = {"messages": [{"role": "user", "content": "Look into the shed"}], "mcp": True, "x_events": True}
    assert "It is done." in client.post("/v1/chat/completions", json=chat).raise_for_status().text
    asked = {"input": "Look into the loft", "tools": [{"type": "mcp", "server_label": "kitchen"}]}
    first = client.post("/v1/responses", json=asked).raise_for_status()
    assert MARKER in first.text
    next_one = {**asked, "input": "Look into the hall", "previous_response_id": first.json()["id"]}
    client.post("/v1/responses", json=next_one).raise_for_status()
    (stored,) = [
        item
        for item in client.get(f"/v1/responses/{first.json()['id']}").json()["output"]
        if item["type"] == "mcp_call"
    ]
    assert (stored["output"] == NOT_STORED) is (MARKER not in stored["output"])
    return conversation


@pytest.mark.parametrize("keep_results", [False, True])
def test_results_are_on_the_disk_only_if_keep_results_is_set(tmp_path: Path, keep_results: bool) -> None:
    model, extra = configured(tmp_path / "home", f"keep_results = {str(keep_results).lower()}")
    kept = {MARKER, BEFORE} if keep_results else set[str]()
    state = tmp_path / "home" / "state"
    with client_of(tmp_path / "home", model, extra) as client:
        conversation = ask_every_way(client)
        messages = client.get(f"/v1/conversations/{conversation}").json()["messages"]
        (called,) = of_kind(messages[1]["events"], "tool_call")
        (result,) = of_kind(messages[1]["events"], "tool_result")
        assert called["arguments"] == {"place": "cellar"}, "the call is kept with the conversation"
        assert (MARKER in result["text"], result.get("omitted", False)) == (keep_results, not keep_results)
        assert on_disk(state) == kept
        exported = client.get(f"/v1/conversations/{conversation}/export", params={"format": "json"}).text
        assert (BEFORE in exported) is keep_results
        assert (client.get("/v1/conversations", params={"search": MARKER}).json()["count"] > 0) is keep_results
    assert on_disk(state) == kept
    # The next process goes on: the model reads what was said, without the rounds of tools.
    with client_of(tmp_path / "home", model, extra) as client:
        assert answer_of(client, "Thanks", conversation=conversation)["text"] == "Hello."
        assert on_disk(state) == kept
        for each in client.get("/v1/conversations").json()["conversations"]:
            client.delete(f"/v1/conversations/{each['id']}").raise_for_status()
        assert [row for row in _rows(state / "state.db", "messages") if MARKER in str(row) or BEFORE in str(row)] == []
    # What was kept goes at the next start with the option off; here only the responses are left.
    (tmp_path / "home" / "mcp_config.toml").unlink()
    model, extra = configured(tmp_path / "home", "")
    with served(tmp_path / "home", model, extra=extra) as service:
        _wait_until_gone(service.url, state)


def _rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def _wait_until_gone(url: str, state: Path) -> None:
    until = time.monotonic() + 30
    while on_disk(state) and time.monotonic() < until:
        httpx2.get(f"{url}/readyz")
    assert on_disk(state) == set()


def test_the_terminal_keeps_no_result_either(tmp_path: Path) -> None:
    model, extra = configured(tmp_path, "")
    demo = make_demo(tmp_path, (), path=model, extra=extra)
    assert MARKER in demo.run_here("run", "--json", "Look into the cellar").stdout
    assert "It is done." in demo.run_here("chat", stdin="Look into the attic\n").stdout
    assert "Hello." in demo.run_here("chat", "--continue", stdin="Thanks\n").stdout
    assert on_disk(tmp_path / ".local") == set()


RESULT = [ToolFinished("c1", "look", is_error=False, text=f"{MARKER} there", seconds=1.0)]
FOUND = Sources([{"document": "Rules", "page": 3, "passage": MARKER, "score": 0.5}])
CONTEXT = (
    f"A note.\n\n[Found for the following question]\n{BEFORE}\nfor it\n[End of what was found]\n\nName the source."
)


def turns(at: float) -> tuple[StoredTurn, ...]:
    events = to_json([event_to_dict(event) for event in (*RESULT, FOUND)])
    return StoredTurn("user", "Q", context=CONTEXT, at=at), StoredTurn("assistant", "A", at=at, events=events)


@pytest.fixture
def now() -> float:
    return time.time()


async def test_older_results_are_erased_and_their_conversations_stay(tmp_path: Path, now: float) -> None:
    path = tmp_path / "state.db"
    on = StoreLimits(HistoryLimits(keep_results=True))
    async with open_store(path=path, limits=on, required=True) as store:
        for name, at in (("old", now - (RESULT_DAYS + 1) * 86400), ("new", now)):
            await store.conversations.add("", StoredConversation(name, name, at, at, turns(at)))
        await store.conversations.clean("")
        old, new = [await store.conversations.get("", name) for name in ("old", "new")]
        assert old is not None
        assert new is not None
        assert (old.turns[0].context, new.turns[0].context) == ("A note.\n\nName the source.", CONTEXT)
        assert (MARKER in old.turns[1].events, MARKER in new.turns[1].events) == (False, True)
        assert '"document":"Rules","page":3' in old.turns[1].events, "where it was found stays"
    async with open_store(path=path, required=True) as store:
        await store.conversations.clean("")
    assert on_disk(tmp_path) == set()


async def test_an_import_brings_no_results_where_results_are_not_stored(tmp_path: Path, now: float) -> None:
    (kept,) = from_json(as_json([StoredConversation("c", "c", now, now, turns(now))]))
    async with open_store(path=tmp_path / "state.db", required=True) as store:
        await store.conversations.add("", kept)
        stored = await store.conversations.get("", "c")
        assert stored is not None
        assert stored.turns[0].context == "A note.\n\nName the source."
    assert on_disk(tmp_path) == set()
