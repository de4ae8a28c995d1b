"""Snapshots in tests/snapshots: the routes of the service, and three dialogues through every way to ask.

A difference is either a mistake or a change that users see. ``scripts/fix --snapshots`` writes the files again.

Two things are not part of a snapshot: values that differ from run to run (``steady``), and the number of pieces in
which a text arrives, because that depends on how many tokens are delivered together (``joined``). A program that sends
whole conversations runs its tools itself, so approvals exist for ``run`` and ``execute``. The help texts and the
schema of the configuration are in docs/cli.md and docs/configuration.md, which are generated and compared.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import httpx2
import pytest

from rkllm_mcp import __version__
from rkllm_mcp.surfaces.cli.main import main
from tests.support.demo_app import make_demo
from tests.support.interface_table import interface_lines
from tests.support.served import scripted_model, served

Json = dict[str, Any]
Place: TypeAlias = tuple[str | int, ...]
SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE = "RKLLM_MCP_WRITE_SNAPSHOTS"
RULES = """
rule
  user (echo) ([a-z]+)
  results 0
  say One moment.
  call echo {"text":"$2"}

rule
  user delete ([a-z]+)
  results 0
  call delete_file {"text":"$1"}

rule
  user crash
  say one two three four
  fault crash SIGSEGV after 2

rule
  results 1+
  result ^(.*)$
  say The tool said: %1

rule
  say Hello there.
"""
CONFIG = """
[agent]
max_rounds = 3
[[servers]]
name = "own"
transport = "builtin"
trusted = true
[[servers.tools]]
name = "echo"
description = "Return the text."
entry_point = "tests.support.local_tools:wait_a_moment"
read_only = true
[[servers.tools]]
name = "delete_file"
description = "Delete a file."
entry_point = "tests.support.local_tools:wait_a_moment"
"""


@dataclass(frozen=True)
class Dialogue:
    """One question, and what is particular about it.

    Args:
        question: the words of the user.
        approvals: what becomes of a call that needs approval.
        result: what a client's own tool returns; None where no client runs a tool.
        by_clients: programs that send whole conversations ask it, too.
    """

    question: str
    approvals: str = "refuse"
    result: str | None = None
    by_clients: bool = True


DIALOGUES: Mapping[str, Dialogue] = {
    "tool call": Dialogue("Please echo hello", result="hello"),
    "approval granted": Dialogue("Please delete notes", "grant", by_clients=False),
    "worker crash": Dialogue("Please crash"),
}

# --- one place for what differs from run to run ----------------------------------------------------------------------

_MEASURED = frozenset(
    {
        *("created", "created_at", "expires_at", "system_fingerprint", "seconds", "seconds_left", "pid"),
        *("prefill_ms", "decode_ms", "time_to_first_token_ms"),
        *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
        # What is in the KV cache already depends on what ran before.
        *("prefilled_tokens", "cached_tokens", "prompt_eval_count"),
    }
)
_IDS = re.compile(r"\b(?:chatcmpl|call|conversation|question|req|request)[-_][0-9A-Za-z_-]+\b|\b[0-9a-f]{16,}\b")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


def steady(value: Any) -> Any:
    """``value`` with a placeholder for everything that a clock, a counter or a random number put into it."""
    if isinstance(value, dict):
        pairs = cast("Json", value)
        if pairs.get("kind") == "status":
            return {**pairs, "text": "<status>"}
        return {name: f"<{name}>" if name in _MEASURED else steady(each) for name, each in pairs.items()}
    if isinstance(value, list):
        return [steady(each) for each in cast("list[Any]", value)]
    return _ADDRESS.sub("<address>", _IDS.sub("<id>", value)) if isinstance(value, str) else value


def shown(records: list[Any]) -> list[Any]:
    """The records of an answer as a snapshot has them."""
    return joined(steady(records))


def joined(records: Iterable[Any]) -> list[Any]:
    """``records`` with neighbours that differ in nothing but a piece of text as one."""
    found: list[Any] = []
    for record in records:
        name, piece, rest = _piece(record)
        if found and piece and (name, rest) == _piece(found[-1])[::2]:
            found[-1] = _with_piece(found[-1], name, _piece(found[-1])[1] + piece)
        else:
            found.append(record)
    return found


# Where text is in an event, in OpenAI's chunks and in Ollama's.
_PLACES: tuple[Place, ...] = (
    ("text",),
    ("choices", 0, "delta", "content"),
    ("choices", 0, "delta", "reasoning_content"),
    ("choices", 0, "delta", "tool_calls", 0, "function", "arguments"),
    ("message", "content"),
    ("message", "thinking"),
)


def _piece(record: Any) -> tuple[Place, str, Any]:
    """The place and words of a record's only text, and the record without it; no words when it has no such text."""
    found = [(place, text) for place in _PLACES if isinstance(text := _at(record, place), str) and text]
    if len(found) != 1 or _at(record, ("kind",)) not in {None, "text", "thinking"}:
        return (), "", record
    place, text = found[0]
    return place, text, _with_piece(record, place, "")


def _at(record: Any, place: Place) -> Any:
    """What is at a place; None where there is none."""
    try:
        for step in place:
            record = record[step]
    except (KeyError, IndexError, TypeError):
        return None
    return record


def _with_piece(record: Any, place: Place, text: str) -> Any:
    copy = json.loads(json.dumps(record))
    *way, last = place
    _at(copy, tuple(way))[last] = text
    return copy


def compare(name: str, now: Any) -> None:
    """Compare with a file of tests/snapshots, or write it when ``scripts/fix --snapshots`` asks for that."""
    path = SNAPSHOTS / name
    text = now if isinstance(now, str) else json.dumps(now, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get(WRITE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    there = path.read_text("utf-8")
    if isinstance(now, str):
        assert now.splitlines() == there.splitlines()
    else:
        assert now == json.loads(there)


# --- the command line, in this process -------------------------------------------------------------------------------


def command(*words: str) -> tuple[int, str]:
    """Run a command; its exit code and what it wrote to standard output."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(out), redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as left:
        main(words)
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    code = left.value.code
    assert isinstance(code, int)
    return code, out.buffer.getvalue().decode()


# --- the dialogues ---------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A service and a command line with the same configuration.

    Args:
        config: the command line's file.
        environment: its variables.
        client: sends requests to a service, which is in a thread.
    """

    config: Path
    environment: Mapping[str, str]
    client: httpx2.Client = field(repr=False)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World, None, None]:
    folder = tmp_path_factory.mktemp("snapshots")
    model = scripted_model(folder / "model", RULES, template="qwen3")
    with (model / "model.toml").open("a", encoding="utf-8") as card:
        card.write('thinking = "auto"\n')
    demo = make_demo(folder / "cli", (), model=f'path = "{model}"\n', extra=CONFIG)
    demo.config.write_text(demo.config.read_text("utf-8").replace('name = "demo"\n', "", 1), "utf-8")
    with served(folder / "served", model, extra=CONFIG) as service:
        client = httpx2.Client(base_url=service.url, timeout=60)
        with client:
            yield World(demo.config, demo.environment, client)


def test_the_description_of_the_http_interface_is_the_same(world: World) -> None:
    description = world.client.get("/openapi.json").raise_for_status().json()
    assert description["info"].pop("version") == __version__
    compare("openapi.txt", "\n".join(interface_lines(description)) + "\n")


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue_is_the_same_through_every_interface(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in world.environment.items():
        monkeypatch.setenv(variable, value)
    dialogue = DIALOGUES[name]
    now: Json = {"run --json": by_command(world, dialogue), "/v1/execute": by_execute(world, dialogue)}
    if dialogue.by_clients:
        for title, ask in CLIENTS.items():
            for stream in (True, False):
                now[f"{title} stream" if stream else title] = ask(world, dialogue, stream)
    compare(f"{name.replace(' ', '_')}.json", now)


def by_command(world: World, dialogue: Dialogue) -> Json:
    words = ["--config", str(world.config), "run", "--json"]
    words += ["--yes" if dialogue.approvals == "grant" else "--no-approve"]
    code, out = command(*words, dialogue.question)
    return {"exit code": code, "events": shown([json.loads(line) for line in out.splitlines()])}


def by_execute(world: World, dialogue: Dialogue) -> Json:
    body: Json = {"message": dialogue.question, "approvals": "ask" if dialogue.approvals == "grant" else "refuse"}
    records: list[Any] = []
    _wait_until_ready(world)
    with world.client.stream("POST", "/v1/execute", json=body) as response:
        for record in _records(response):
            records.append(record)
            if record["kind"] == "approval":
                decided = world.client.post(f"/v1/approvals/{record['id']}", json={"decision": "once"})
                assert decided.status_code == 200
        return _reply(response, shown(records))


def by_openai(world: World, dialogue: Dialogue, stream: bool) -> Json:
    body: Json = {"model": "parrot", "stream": stream, "messages": [_user(dialogue)], "tools": _tools(dialogue)}
    if stream:
        body["stream_options"] = {"include_usage": True}
    replies = [_ask(world, dialogue, "/v1/chat/completions", body, stream)]
    if dialogue.result is not None:
        call: Json = {"id": "call_1", "type": "function", "function": _called(as_text=True)}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": dialogue.result},
        ]
        replies.append(_ask(world, dialogue, "/v1/chat/completions", body, stream))
    return {"replies": replies}


def by_ollama(world: World, dialogue: Dialogue, stream: bool) -> Json:
    body: Json = {"model": "parrot", "stream": stream, "messages": [_user(dialogue)], "tools": _tools(dialogue)}
    replies = [_ask(world, dialogue, "/api/chat", body, stream)]
    if dialogue.result is not None:
        call: Json = {"function": _called(as_text=False)}
        body["messages"] += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_name": call["function"]["name"], "content": dialogue.result},
        ]
        replies.append(_ask(world, dialogue, "/api/chat", body, stream))
    return {"replies": replies}


CLIENTS: Mapping[str, Callable[[World, Dialogue, bool], Json]] = {
    "/v1/chat/completions": by_openai,
    "/api/chat": by_ollama,
}
_ECHO: Json = {
    "name": "echo",
    "description": "Return the text.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def _user(dialogue: Dialogue) -> Json:
    return {"role": "user", "content": dialogue.question}


def _tools(dialogue: Dialogue) -> list[Json]:
    """The client's own tools, for a dialogue that calls one."""
    return [{"type": "function", "function": tool} for tool in (_ECHO,)] if dialogue.result is not None else []


def _called(*, as_text: bool) -> Json:
    """The call that the first reply has, as the client sends it back."""
    arguments = {"text": "hello"}
    return {"name": "echo", "arguments": json.dumps(arguments) if as_text else arguments}


def _wait_until_ready(world: World) -> None:
    """Wait for the worker that replaces one that crashed; Ollama's routes do not answer while the model is loaded."""
    body = {"model": "parrot", "messages": [{"role": "user", "content": "Good morning"}], "stream": False}
    world.client.post("/api/chat", json=body).raise_for_status()


def _ask(world: World, dialogue: Dialogue, path: str, body: Json, stream: bool) -> Json:
    _wait_until_ready(world)
    with world.client.stream("POST", path, json=body) as response:
        if stream and response.status_code == 200:
            return _reply(response, shown(list(_records(response))))
        return _reply(response, shown([json.loads(response.read())])[0])


def _records(response: httpx2.Response) -> Iterable[Any]:
    """The records of a stream; heartbeats come when the machine is slow."""
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if data and not data.startswith(":"):
            yield data if data == "[DONE]" else json.loads(data)


def _reply(response: httpx2.Response, content: Any) -> Json:
    return {"status": response.status_code, "type": response.headers["content-type"], "content": content}
