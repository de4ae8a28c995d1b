"""A soak of whole answers: conversations side by side, with a tool; read, left, cancelled and killed at random.

As in the soak of the engine, every question names itself, the model says nothing else, and the tool gives back what it
is given; so also a result that reached the wrong answer would be seen.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from pathlib import Path

import anyio

from bench.soak_tally import Budget, Tally, resident_mb
from rkllm_mcp.app.assistant import Assistant
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import End, Event, Status, Text, ToolFinished
from rkllm_mcp.messages import Conversation

REPOSITORY = Path(__file__).resolve().parents[1]
CONVERSATIONS = 4
REPEATS = 8
_TURNS = 6
_FAULTS = {
    "none": ("", 10),
    "tool": ("", 10),
    "error": ("error after {}", 2),
    "crash": ("crash SIGSEGV after {}", 2),
    "late": ("abort-late {}", 2),
    "eos": ("ignore-eos", 2),
}
_AFTER = (0, 1, 5)
_WAYS = ("read", "read", "read", "leave", "leave", "cancel")
_SCRIPT = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context 4096
speed prefill 400000 decode 8000
rule
user ^tool-[0-9]+ ([a-z0-9.]+)
results 0
call echo {"text": "$1"}
rule
user ^tool-[0-9]+ ([a-z0-9.]+)
results 1+
result ([0-9]+[.][a-z0-9]+)
"""
_CONFIG = """[model]
path = "{folder}"
prompt_cache = true
[runtime]
library = "emulator"
[[servers]]
name = "own"
transport = "builtin"
trusted = true
[[servers.tools]]
name = "echo"
description = "Say it again."
entry_point = "bench.soak_app:echo"
read_only = true
input_schema = {{ type = "object", properties = {{ text = {{ type = "string" }} }}, required = ["text"] }}
"""


def echo(text: str) -> str:
    """Say it again."""
    return text


def _said(name: str) -> str:
    return " ".join([name] * REPEATS)


def _write(folder: Path) -> Path:
    """The model, and a configuration for it."""
    rules = [
        f"rule\nuser ^{name}-{after} ([a-z0-9.]+)\nsay {_said('$1')}"
        + (f"\nfault {words.format(after)}" if words else "")
        for name, (words, _) in _FAULTS.items()
        if name != "tool"
        for after in _AFTER
    ]
    model = folder / "soaked"
    model.mkdir(exist_ok=True)
    (model / "soaked.rkllm").write_text(f"{_SCRIPT}say {_said('%1')}\n" + "\n".join(rules) + "\n", encoding="utf-8")
    tokenizer = model / "tokenizer.json"
    if not tokenizer.exists():
        tokenizer.symlink_to(REPOSITORY / "models" / "demo" / "tokenizer.json")
    card = 'name = "soaked"\ntemplate = "qwen2.5"\nfile = "soaked.rkllm"\nemulated = true\n'
    (model / "model.toml").write_text(card, encoding="utf-8")
    config = folder / "soak.toml"
    config.write_text(_CONFIG.format(folder=model), encoding="utf-8")
    return config


@contextmanager
def _home(folder: Path) -> Generator[None, None, None]:
    """Everything that is remembered goes below ``folder``."""
    names = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "RKLLM_MCP_STATE": "state/rkllm-mcp"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(folder / part) for name, part in names.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class AppSoak:
    """One assistant under random use.

    Args:
        seed: of the randomness.
        budget: how long it goes on.
    """

    def __init__(self, seed: int, budget: Budget) -> None:
        self.tally = Tally("answers")
        self._random = random.Random(f"{seed}-app")
        self._budget = budget
        self._names = 0

    async def run(self, folder: Path) -> Tally:
        """Soak until it is enough."""
        with _home(folder):
            async with open_app(load_config(str(_write(folder)))) as app:
                await app.ready()
                async with anyio.create_task_group() as tasks:
                    for _ in range(CONVERSATIONS):
                        tasks.start_soon(self._converse, app)
                await self._ask(app, app.new_conversation(), "none-0", "read")
                self.tally.restarts = app.engine.restarts
                self.tally.worker_mb = round(resident_mb(app.engine.worker_pid), 1)
        self.tally.end()
        return self.tally

    async def _converse(self, app: Assistant) -> None:
        conversation, turns = app.new_conversation(), 0
        while self.tally.begin(self._budget):
            if turns == _TURNS:
                conversation, turns = app.new_conversation(), 0
            turns += 1
            fault = self._random.choices(list(_FAULTS), [weight for _, weight in _FAULTS.values()])[0]
            await self._ask(app, conversation, f"{fault}-{self._random.choice(_AFTER)}", self._random.choice(_WAYS))

    async def _ask(self, app: Assistant, conversation: Conversation, kind: str, way: str) -> None:
        self._names += 1
        name = f"{self._names}.{self._random.randrange(16**6):06x}"
        case = f"{kind} {way} {name}"
        enough = self._random.randrange(12) if way != "read" else 10_000
        events: list[Event] = []
        async with aclosing(app.reply(conversation, f"{kind} {name}")) as stream:
            async for event in stream:
                events.append(event)
                if len(events) > enough and way == "leave":
                    break
                if len(events) == enough and way == "cancel":
                    app.cancel(conversation.id)
        self._judge(case, name, events)

    def _judge(self, case: str, name: str, events: list[Event]) -> None:
        end = events[-1] if events and isinstance(events[-1], End) else None
        text = "".join(event.text for event in events if isinstance(event, Text))
        self.tally.compare(case, text, _said(name), complete=end is not None and end.reason == "answered")
        for event in events:
            if isinstance(event, ToolFinished):
                self.tally.compare(f"{case}, its tool", event.text, name, complete=True)
            if isinstance(event, Status) and event.text.startswith("[NPU: prefilled"):
                self.tally.find(f"{case}: {event.text}")
        replayed = any(isinstance(event, Status) and "is asked again]" in event.text for event in events)
        may_fail = case.startswith(("crash", "error"))
        if end is not None and end.reason == "failed" and not may_fail:
            self.tally.find(f"{case}: {end.error}")
        self.tally.outcomes[end.reason if end else "left"] += 1
        self.tally.outcomes["asked again"] += replayed
