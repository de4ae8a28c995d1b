"""Snapshots of the interfaces in tests/snapshots: help texts, schemas, and dialogues through every way to ask.

A difference is either a mistake or a change that users see. ``scripts/fix --snapshots`` writes the files again.

Two things are no part of a snapshot: values that differ from run to run (``steady``), and the number of pieces in which
a text arrives, because that depends on how many tokens are delivered together (``joined``). A program that sends whole
conversations runs its tools itself, so approvals, cancelling and the limit of rounds exist for ``run`` and ``execute``.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import httpx2
import pytest

from rkllm_mcp import __version__
from rkllm_mcp.surfaces.cli.main import main
from tests.support import local_tools
from tests.support.demo_app import make_demo
from tests.support.interface_table import interface_lines
from tests.support.served import scripted_model, served

Json = dict[str, Any]
Place: TypeAlias = tuple[str | int, ...]
SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE = "RKLLM_MCP_WRITE_SNAPSHOTS"
RULES = """
rule
  user think first
  think The user wants a thought.
  say Here it is.

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
  user break
  results 0
  call break {}

rule
  user wait
  results 0
  call wait {}

rule
  user over and over
  call echo {"text":"again"}

rule
  user crash
  say one two three four
  fault crash SIGSEGV after 2

rule
  user count
  say one two three four five six seven eight nine ten

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
[[servers.tools]]
name = "break"
description = "Fail."
entry_point = "tests.support.local_tools:fail"
read_only = true
[[servers.tools]]
name = "wait"
description = "Wait."
entry_point = "tests.support.local_tools:hang"
read_only = true
"""


@dataclass(frozen=True)
class Dialogue:
    """One question, and what is particular about it.

    Args:
        question: the words of the user.
        approvals: what becomes of a call that needs approval.
        max_tokens: the limit of one round.
        stop: a stop string, for the interfaces that have one.
        result: what a client's own tool returns; None where no client runs a tool.
        cancels: the answer is cancelled while a tool runs.
        by_clients: programs that send whole conversations ask it, too.
        races: further fields that differ from run to run.
    """

    question: str
    approvals: str = "refuse"
    max_tokens: int | None = None
    stop: str | None = None
    result: str | None = None
    cancels: bool = False
    by_clients: bool = True
    races: frozenset[str] = frozenset()


# The run goes on until the runtime has noticed that it was aborted.
_TOKENS_OUT = frozenset({"generated_tokens", "completion_tokens", "total_tokens", "eval_count"})
DIALOGUES: Mapping[str, Dialogue] = {
    "plain answer": Dialogue("Good morning"),
    "thinking": Dialogue("Please think first"),
    "tool call": Dialogue("Please echo hello", result="hello"),
    "approval granted": Dialogue("Please delete notes", "grant", by_clients=False),
    "approval denied": Dialogue("Please delete notes", by_clients=False),
    "failing tool": Dialogue("Please break", result="error: the disk is full"),
    "stop string": Dialogue("Please count", stop="four", races=_TOKENS_OUT),
    "token limit": Dialogue("Please count", max_tokens=5),
    "round limit": Dialogue("Please repeat it over and over", by_clients=False),
    "cancel": Dialogue("Please wait", cancels=True, by_clients=False),
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


def steady(value: Any, measured: frozenset[str] = _MEASURED) -> Any:
    """``value`` with a placeholder for everything that a clock, a counter or a random number put into it."""
    if isinstance(value, dict):
        pairs = cast("Json", value)
        if pairs.get("kind") == "status":
            return {**pairs, "text": "<status>"}
        return {name: f"<{name}>" if name in measured else steady(each, measured) for name, each in pairs.items()}
    if isinstance(value, list):
        return [steady(each, measured) for each in cast("list[Any]", value)]
    return _ADDRESS.sub("<address>", _IDS.sub("<id>", value)) if isinstance(value, str) else value


def shown(records: list[Any], dialogue: Dialogue) -> list[Any]:
    """The records of an answer as a snapshot has them."""
    return joined(steady(records, _MEASURED | dialogue.races))


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


# Where text stands in an event, in OpenAI's chunks and in Ollama's.
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
    """What stands at a place; None where there is none."""
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


def shape(schema: Any, names: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A JSON Schema or OpenAPI description without its words: no titles and descriptions, references replaced.

    The names of the definitions are those of classes, which may change as the words may.
    """
    if isinstance(schema, list):
        return [shape(each, names) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    node = cast("Json", schema)
    components = cast("Json", node.get("components", {}))
    defined = cast("Json", node.get("$defs") or components.get("schemas") or {})
    names = {**names, **defined}
    if isinstance(reference := node.get("$ref"), str) and (name := reference.rpartition("/")[2]) in names:
        rest = {key: value for key, value in names.items() if key != name}
        return shape({**names[name], **{key: value for key, value in node.items() if key != "$ref"}}, rest)
    bare: Json = {}
    for key, value in node.items():
        if key == "$defs" or (key in {"title", "description", "summary", "operationId"} and isinstance(value, str)):
            continue
        if key == "properties" and isinstance(value, dict):
            bare[key] = {each: shape(below, names) for each, below in cast("Json", value).items()}
        else:
            bare[key] = shape(
                {k: v for k, v in value.items() if k != "schemas"} if key == "components" else value, names
            )
    return bare


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


_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"[│╭╮╰╯─]")


def help_of(*words: str) -> tuple[str, list[str]]:
    """The words of a help text without frame and columns, and the names of the commands in it."""
    code, out = command(*words, "--help")
    assert code == 0
    lines = _STYLE.sub("", out).splitlines()
    inside = False
    names: list[str] = []
    for line in lines:
        opens = line.startswith("╭─ ") and not line.startswith(("╭─ Options", "╭─ Arguments"))
        inside = opens or (inside and not line.startswith("╰"))
        if inside and (found := re.match(r"│ ([a-z][a-z-]*)", line)):
            names.append(found[1])
    bare = (" ".join(_FRAME.sub(" ", line).split()) for line in lines)
    return "\n".join(line for line in bare if line), names


def all_help(*words: str) -> list[str]:
    """The help texts of a command and everything below it."""
    text, names = help_of(*words)
    title = " ".join(["rkllm-mcp", *words])
    return [f"=== {title} ===\n{text}\n", *(each for name in names for each in all_help(*words, name))]


def test_the_help_of_every_command_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    texts = all_help()
    assert len(texts) > 40
    compare("help.txt", "\n".join(texts))


def test_the_schema_of_the_configuration_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out = command("config", "schema")
    assert code == 0
    compare("config_schema.json", shape(json.loads(out)))


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


@pytest.fixture
def waiting_tool() -> Generator[None, None, None]:
    """The tool that waits is let go at the end, whatever happened."""
    local_tools.gate.clear()
    yield
    local_tools.gate.set()


@pytest.mark.usefixtures("waiting_tool")
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
    words += ["--max-tokens", str(dialogue.max_tokens)] if dialogue.max_tokens else []
    if dialogue.cancels:
        _at_the_tool(lambda: os.kill(os.getpid(), signal.SIGINT))
    code, out = command(*words, dialogue.question)
    return {"exit code": code, "events": shown([json.loads(line) for line in out.splitlines()], dialogue)}


def _at_the_tool(act: Callable[[], object]) -> None:
    """Do something once the tool that waits was called."""

    def wait() -> None:
        if local_tools.waiting.acquire(timeout=60):
            act()

    threading.Thread(target=wait, daemon=True).start()


def by_execute(world: World, dialogue: Dialogue) -> Json:
    body: Json = {"message": dialogue.question, "approvals": "ask" if dialogue.approvals == "grant" else "refuse"}
    if dialogue.max_tokens:
        body["max_tokens"] = dialogue.max_tokens
    records: list[Any] = []
    _wait_until_ready(world)
    with world.client.stream("POST", "/v1/execute", json=body) as response:
        conversation = response.headers["x-conversation-id"]
        for record in _records(response):
            records.append(record)
            if record["kind"] == "approval":
                decided = world.client.post(f"/v1/approvals/{record['id']}", json={"decision": "once"})
                assert decided.status_code == 200
            elif record["kind"] == "tool_call" and dialogue.cancels:
                assert local_tools.waiting.acquire(timeout=60)
                world.client.post(f"/v1/conversations/{conversation}/cancel").raise_for_status()
        return _reply(response, shown(records, dialogue))


def by_openai(world: World, dialogue: Dialogue, stream: bool) -> Json:
    body: Json = {"model": "parrot", "stream": stream, "messages": [_user(dialogue)], "tools": _tools(dialogue)}
    if stream:
        body["stream_options"] = {"include_usage": True}
    if dialogue.max_tokens:
        body["max_tokens"] = dialogue.max_tokens
    if dialogue.stop:
        body["stop"] = [dialogue.stop]
    replies = [_ask(world, dialogue, "/v1/chat/completions", body, stream)]
    if dialogue.result is not None:
        call: Json = {"id": "call_1", "type": "function", "function": _called(dialogue, as_text=True)}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": dialogue.result},
        ]
        replies.append(_ask(world, dialogue, "/v1/chat/completions", body, stream))
    return {"replies": replies}


def by_ollama(world: World, dialogue: Dialogue, stream: bool) -> Json:
    options: Json = {}
    body: Json = {"model": "parrot", "stream": stream, "messages": [_user(dialogue)], "tools": _tools(dialogue)}
    if dialogue.max_tokens:
        options["num_predict"] = dialogue.max_tokens
    if dialogue.stop:
        options["stop"] = [dialogue.stop]
    replies = [_ask(world, dialogue, "/api/chat", {**body, "options": options}, stream)]
    if dialogue.result is not None:
        call: Json = {"function": _called(dialogue, as_text=False)}
        body["messages"] += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_name": call["function"]["name"], "content": dialogue.result},
        ]
        replies.append(_ask(world, dialogue, "/api/chat", {**body, "options": options}, stream))
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
_BREAK: Json = {"name": "break", "description": "Fail.", "parameters": {"type": "object", "properties": {}}}


def _user(dialogue: Dialogue) -> Json:
    return {"role": "user", "content": dialogue.question}


def _tools(dialogue: Dialogue) -> list[Json]:
    """The client's own tools, for a dialogue that calls one."""
    return [{"type": "function", "function": tool} for tool in (_ECHO, _BREAK)] if dialogue.result is not None else []


def _called(dialogue: Dialogue, *, as_text: bool) -> Json:
    """The call that the first reply has, as the client sends it back."""
    name, arguments = ("break", {}) if "break" in dialogue.question else ("echo", {"text": "hello"})
    return {"name": name, "arguments": json.dumps(arguments) if as_text else arguments}


def _wait_until_ready(world: World) -> None:
    """Wait for the worker that replaces one that crashed; Ollama's routes do not answer while the model is loaded."""
    body = {"model": "parrot", "messages": [{"role": "user", "content": "Good morning"}], "stream": False}
    world.client.post("/api/chat", json=body).raise_for_status()


def _ask(world: World, dialogue: Dialogue, path: str, body: Json, stream: bool) -> Json:
    _wait_until_ready(world)
    with world.client.stream("POST", path, json=body) as response:
        if stream and response.status_code == 200:
            return _reply(response, shown(list(_records(response)), dialogue))
        return _reply(response, shown([json.loads(response.read())], dialogue)[0])


def _records(response: httpx2.Response) -> Iterable[Any]:
    """The records of a stream; heartbeats come when the machine is slow."""
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if data and not data.startswith(":"):
            yield data if data == "[DONE]" else json.loads(data)


def _reply(response: httpx2.Response, content: Any) -> Json:
    return {"status": response.status_code, "type": response.headers["content-type"], "content": content}
