"""SIGHUP with another model in the configuration: answers under way end on the old one, the next ones use the new."""

from __future__ import annotations

import json
import os
import signal
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import End, Status
from tests.support.demo_app import Demo, make_demo
from tests.support.gate import GATE
from tests.support.http_app import in_house
from tests.support.served import scripted_model
from tests.support.started import started

WORDS = "one two three four five six seven eight nine ten"
PARROT = f"""
rule
  user wait for me
  results 0
  call wait {{"cmd": "cat GATE"}}

rule
  say {WORDS}
"""
OWL = "rule\n  user What was it\n  prompt wait for me\n  say You waited.\n\nrule\n  say Hoo.\n"


@dataclass
class Zoo:
    """A configuration with one model, and another one to be put in its place."""

    demo: Demo
    gate: Path

    def change(self) -> None:
        """Put the other model into the configuration."""
        text = self.demo.config.read_text("utf-8")
        self.demo.config.write_text(text.replace("/parrot", "/owl"), "utf-8")


@pytest.fixture
def zoo(tmp_path: Path) -> Zoo:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    for name, rules in (("parrot", PARROT.replace("GATE", str(gate))), ("owl", OWL)):
        scripted_model(tmp_path / name, rules, name=name)
    extra = f"[service]\ndrain_s = 60\n{GATE}"
    return Zoo(make_demo(tmp_path / "home", [], path=tmp_path / "parrot", extra=extra), gate)


def test_an_answer_under_way_ends_and_the_next_question_is_the_other_models(zoo: Zoo) -> None:
    with started(zoo.demo) as it:
        with httpx2.stream("POST", f"{it.url}/v1/execute", json={"message": "wait for me"}, timeout=120) as answer:
            conversation = answer.headers["x-conversation-id"]
            records = (line for line in answer.iter_lines() if line.startswith("data: "))
            while "Calling tool 'wait'" not in next(records):
                pass
            zoo.change()
            it.process.send_signal(signal.SIGHUP)
            zoo.gate.write_text("go on")
            events = [json.loads(line[6:]) for line in records]
        assert "".join(event["text"] for event in events if event["kind"] == "text") == WORDS
        assert events[-1] == {"kind": "end", "reason": "answered", "error": None}
        assert it.until("Configuration") == "Configuration in force; another model"
        assert it.until("Ready") == "Ready: owl"
        listed = it.get("/v1/models").json()["data"]
        assert [model["id"] for model in listed if model["loaded"]] == ["owl"]
        # The conversation is the same, and the other model reads all of it.
        asked = {"message": "What was it?", "conversation": conversation, "stream": False}
        assert httpx2.post(f"{it.url}/v1/execute", json=asked, timeout=120).json()["text"] == "You waited."


@pytest.mark.anyio
async def test_while_models_are_exchanged_a_question_gets_a_retry_after(zoo: Zoo) -> None:
    async with in_house(zoo.demo) as (tenants, client):
        owner = tenants.tenant("").app
        await owner.ready()
        zoo.change()
        answer = owner.reply(owner.new_conversation(), "wait for me")
        async with anyio.create_task_group() as tasks, aclosing(answer) as events:
            async for event in events:
                if event == Status("[MCP: Calling tool 'wait']"):
                    break
            tasks.start_soon(tenants.reload, load_config(zoo.demo.config))
            await anyio.wait_all_tasks_blocked()
            for path, body in (
                ("/v1/execute", {"message": "Hi"}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
                ("/v1/tools/wait:call", {}),
            ):
                refused = await client.post(path, json=body)
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5"), path
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/healthz")).status_code == 200
            await anyio.to_thread.run_sync(zoo.gate.write_text, "go on")
            assert [event async for event in events][-1] == End("answered")
        await tenants.model_host.ready()
        assert tenants.model_host.name == "owl"
