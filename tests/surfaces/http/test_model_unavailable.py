"""The worker dies until the supervisor stops retrying: the reason in answers, in the log and in the exit code."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from rkllm_mcp.events import End
from rkllm_mcp.runtime.engine import Engine
from tests.support.chat_service import ChatService, openai_reply
from tests.support.demo_app import Demo, make_demo, wait_for_end
from tests.support.http_app import in_house
from tests.support.served import scripted_model
from tests.support.started import Started

Json = dict[str, Any]
QUESTION: Json = {"messages": [{"role": "user", "content": "Hi"}]}
REASON = "The runtime's process was killed by SIGKILL again and again before it was asked anything."
REMEDY = "Run 'rkllm-mcp doctor'; the runtime, the driver and the model may not fit each other."
FALLBACK = """
[provider.fallback]
kind = "openai"
base_url = "{url}/v1"
model = "model-x"
retries = 0
when = ["failed"]
"""


def demo_in(folder: Path, extra: str = "") -> Demo:
    """A configuration with one scripted model, which no warm-up asks anything."""
    model = scripted_model(folder / "parrot", "rule\n  say Hello.\n")
    return make_demo(folder / "home", [], model="warm_up = false\n", path=model, extra=extra)


def embedding_in(folder: Path) -> str:
    """The line that loads another model next to the chat model."""
    return f'embedding_model = "{scripted_model(folder / "mapper", "rule", name="mapper")}"\n'


# --- in this process -------------------------------------------------------------------------------------------------


async def kill_until_given_up(engine: Engine) -> None:
    """Kill each worker as soon as it has loaded the model."""
    await engine.ready()
    while engine.supervisor.failure is None:
        pid = engine.worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while engine.supervisor.failure is None and (engine.worker_pid in {None, pid} or not engine.is_ready):
            await anyio.lowlevel.checkpoint()
    await engine.supervisor.given_up.wait()


@pytest.mark.anyio
async def test_a_model_that_was_given_up_is_the_reason_of_every_refusal(tmp_path: Path) -> None:
    async with in_house(demo_in(tmp_path)) as (tenants, client):
        assert (await client.get("/healthz")).status_code == 200
        await kill_until_given_up(tenants.model_host.board.engine)
        chat = {**QUESTION, "model": "parrot"}
        for refused in (
            await client.get("/healthz"),
            await client.get("/readyz"),
            await client.post("/v1/chat/completions", json=chat),
            await client.post("/v1/chat/completions", json={**chat, "stream": True}),
            await client.post("/v1/execute", json={"message": "Hi"}),
            await client.post("/v1/embeddings", json={"input": "Hi"}),
            await client.post("/api/chat", json=chat),
        ):
            body = refused.json()["error"]
            message = body if isinstance(body, str) else body["message"]
            assert message.startswith(REASON), refused.url
            assert message.endswith(REMEDY)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        app = tenants.tenant("").app
        events = [event async for event in app.reply(app.new_conversation(), "Hi")]
        assert isinstance(events[-1], End)
        assert (events[-1].reason, (events[-1].error or "")[: len(REASON)]) == ("failed", REASON)


# --- rkllm-mcp serve -------------------------------------------------------------------------------------------------


@dataclass
class Killed(Started):
    """A service whose workers are killed.

    Attributes:
        workers: the latest worker of each model that the log named.
    """

    workers: dict[str, int] = field(default_factory=dict[str, int])

    def line(self) -> str:
        line = super().line()
        if found := re.search(r"process (\d+) has loaded \S+/(\w+)/model.rkllm", line):
            self.workers[found[2]] = int(found[1])
        return line

    def kill_until(self, model: str, part: str) -> tuple[int, str]:
        """Kill each worker of a model that has loaded it, until a line with ``part``; their number, and that line."""
        killed: set[int] = set()
        while True:
            if (pid := self.workers.get(model)) is not None and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            if part in (line := self.line()):
                return len(killed), line


@contextmanager
def running(demo: Demo) -> Generator[Killed, None, None]:
    with demo.started("serve", "--port", "0") as process:
        yield Killed(process)


def healths(url: str) -> list[Json]:
    """What a service says to the administrator."""
    return [httpx2.get(f"{url}/{path}", timeout=60).json() for path in ("healthz", "readyz")]


def test_an_idle_worker_that_dies_again_and_again_ends_the_service_with_its_reason(tmp_path: Path) -> None:
    with running(demo_in(tmp_path, '[service]\nlog = "text"\n')) as it:
        killed, error = it.kill_until("parrot", "Error: ")
        # The first one, and one after each pause of reload_pauses_s.
        assert killed == 4
        assert error.startswith(f"Error: {REASON}")
        assert it.process.wait(60) == 3
        wait_for_end(it.workers.values())
    assert len([line for line in it.lines if "was killed by SIGKILL with its model loaded" in line]) == 4


def test_the_service_goes_on_where_a_fallback_answers_and_logs_the_reason(tmp_path: Path) -> None:
    loaded = "is not loaded until the service is restarted"
    with ChatService(openai_reply("Here.")) as remote:
        extra = f'[service]\nlog = "json"\n{embedding_in(tmp_path)}{FALLBACK.format(url=remote.url)}'
        with running(demo_in(tmp_path, extra)) as it:
            url = it.until("Serving at ").split()[2]
            it.until("Ready: ")
            killed, line = it.kill_until("mapper", '"level": "error"')
            message = f"model 'mapper' {loaded}, its requests are refused: {REASON}"
            assert (killed, json.loads(line)["message"][: len(message)]) == (4, message)
            # A second model costs its own requests alone.
            refused = httpx2.post(f"{url}/v1/embeddings", json={"input": "Hi"}, timeout=60)
            assert (refused.status_code, refused.json()["error"]["message"][: len(REASON)]) == (503, REASON)
            assert healths(url) == [{"status": "ok"}] * 2
            killed, line = it.kill_until("parrot", '"level": "error"')
            message = f"model 'parrot' {loaded}, the fallback answers: {REASON}"
            assert (killed, json.loads(line)["message"][: len(message)]) == (4, message)
            assert healths(url) == [{"status": "ok"}] * 2
            answer = httpx2.post(f"{url}/v1/chat/completions", json=QUESTION, timeout=60).json()
            assert answer["choices"][0]["message"]["content"] == "Here."
            it.process.send_signal(signal.SIGTERM)
            assert it.process.wait(60) == 0


def test_another_model_is_put_in_force_while_the_first_still_loads(tmp_path: Path) -> None:
    demo = demo_in(tmp_path, '[service]\nlog = "off"\n')
    script = tmp_path / "parrot" / "model.rkllm"
    script.write_text(script.read_text("utf-8").replace("speed flat", "speed flat\nfault init-slow 600"), "utf-8")
    with running(demo) as it:
        it.until("NPU: emulated")
        owl = scripted_model(tmp_path / "owl", "rule\n  say Hello.\n", name="owl")
        demo.config.write_text(demo.config.read_text("utf-8").replace(f"{tmp_path}/parrot", str(owl)), "utf-8")
        it.process.send_signal(signal.SIGHUP)
        assert it.until("onfiguration") == "Configuration in force; another model"
        assert it.until("Ready") == "Ready: owl"
        it.process.send_signal(signal.SIGTERM)
        assert it.process.wait(60) == 0
