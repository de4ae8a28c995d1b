"""``rkllm-mcp serve`` as its owner starts it: the line that says where, the end, a changed configuration."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rkllm_mcp.config.secrets import hash_key
from tests.support.demo_app import Demo, descendants, is_alive, make_demo, wait_asleep, wait_for_end
from tests.support.gate import GATE
from tests.support.served import SLOW, scripted_model
from tests.support.started import started

Json = dict[str, Any]
LONG, ENDLESS = (" ".join(map(str, range(count))) for count in (60, 1100))
RULES = f"""
rule
  user wait for me
  results 0
  call wait {{"cmd": "cat gate"}}

rule
  user wait for me
  say {LONG}

rule
  user at length
  say {LONG}

rule
  user for ever
  say {ENDLESS}

rule
  say Hello.
"""


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    """A service with a model that takes its time."""
    model = scripted_model(tmp_path / "parrot", RULES, speed=SLOW)
    return make_demo(tmp_path / "home", [], path=model, extra=f"[service]\ndrain_s = 60\n{GATE}", speed="")


def rewrite(file: Path, before: str, after: str) -> None:
    """Write something else into a file."""
    text = file.read_text("utf-8")
    assert before in text
    file.write_text(text.replace(before, after, 1), "utf-8")


def wish(text: str, *, stream: bool = True) -> Json:
    return {"model": "parrot", "messages": [{"role": "user", "content": text}], "stream": stream}


def words_of(lines: list[str]) -> str:
    """The text of a stream of chunks."""
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk.get("choices"))


def test_it_names_its_address_sleeps_when_idle_ends_when_terminated_and_leaves_nothing(demo: Demo) -> None:
    with started(demo, is_ready=False) as it:
        assert it.line() == f"The page: {it.url}/"
        assert it.line() == "[NPU: emulated; model 'parrot' answers from a script, not from a language model]"
        assert it.get("/healthz").json() == {"status": "ok"}
        assert it.until("Ready") == "Ready: parrot"
        assert it.get("/readyz").status_code == 200
        assert "text/html" in it.get("/").headers["content-type"]
        # Idle, it does not wake up, and its answers have the date of now all the same.
        wait_asleep(it.process.pid)
        dated = parsedate_to_datetime(it.get("/healthz").headers["date"])
        assert abs(time.time() - dated.timestamp()) < 60
        port = it.url.rpartition(":")[2]
        taken = demo.run_here("serve", "--port", port)
        assert taken.returncode == 2
        name = Path(f"/proc/{it.process.pid}/comm").read_text("utf-8").strip()
        assert taken.stderr == (
            f"Error: cannot listen on 127.0.0.1:{port} (Address already in use by {name}, process {it.process.pid}); "
            "choose another --host or --port\n"
        )
        children = descendants(it.process.pid)
        assert children
        it.process.send_signal(signal.SIGTERM)
        assert it.process.wait(60) == 0
        assert [pid for pid in children if is_alive(pid)] == []


def test_a_proxy_learns_that_a_board_takes_one_more_while_an_answer_waits_for_a_person(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rules = 'rule\n  user write\n  results 0\n  call write_file {"path": "a.txt", "content": "b"}\nrule\n  say Done.\n'
    model = scripted_model(tmp_path / "parrot", rules)
    (tmp_path / "files").mkdir()
    files = f'[[servers]]\nname = "files"\nfolder = "{tmp_path / "files"}"\nwrite = true\n'
    demo = make_demo(tmp_path / "home", [], path=model, extra=f"[service]\nagent_port = {port}\n{files}", speed="flat")

    def takes() -> str:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as agent:
            return agent.makefile().read()

    with started(demo) as it:
        assert takes() == "maxconn:1\n"
        body = {"message": "write it", "approvals": "ask"}
        with httpx2.stream("POST", f"{it.url}/v1/execute", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            for line in lines:
                if '"approval"' in line and takes() == "maxconn:2\n":
                    break
            else:
                pytest.fail("the answer that waits for a person holds the only place")
            question = httpx2.get(f"{it.url}/v1/questions").json()["questions"][0]["id"]
            decided = httpx2.post(f"{it.url}/v1/approvals/{question}", json={"decision": "once"})
            assert decided.status_code == 200
            assert any('"answered"' in line for line in lines)
        assert takes() == "maxconn:1\n"


def test_a_terminated_service_lets_answers_end_and_takes_no_more(demo: Demo) -> None:
    gate = demo.folder / "gate"
    os.mkfifo(gate)
    with started(demo) as it:
        with httpx2.stream("POST", f"{it.url}/v1/execute", json={"message": "wait for me"}, timeout=120) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("data: "))
            while "Calling tool 'wait'" not in next(lines):
                pass
            it.process.send_signal(signal.SIGTERM)
            assert it.until("Stopping") == "Stopping after 1 answer; again to stop at once"
            assert it.get("/healthz").status_code == 200
            for refused in (
                it.get("/readyz"),
                httpx2.post(f"{it.url}/v1/chat/completions", json=wish("hello", stream=False), timeout=120),
            ):
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
                assert "is being stopped" in refused.json()["error"]["message"]
            gate.write_text("go on")
            events = [json.loads(line[6:]) for line in lines]
        assert "".join(event["text"] for event in events if event["kind"] == "text") == LONG
        assert events[-1] == {"kind": "end", "reason": "answered", "error": None}
        assert it.process.wait(60) == 0


def test_answers_that_take_too_long_then_are_ended_and_their_readers_notified(demo: Demo) -> None:
    rewrite(demo.config, "drain_s = 60", "drain_s = 0.2")
    with started(demo) as it:
        with httpx2.stream("POST", f"{it.url}/v1/chat/completions", json=wish("for ever"), timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            it.process.send_signal(signal.SIGTERM)
            *_, last = (line for line in lines if line)
        assert "the answer was stopped" in json.loads(last.removeprefix("data: "))["error"]["message"]
        assert it.process.wait(60) == 0
        assert it.process.stderr is not None
        # The server of its tools may become ready later than the model.
        said = [line for line in it.process.stderr.read().splitlines() if not line.startswith("[MCP: ")]
        assert said == ["Stopping after 1 answer; again to stop at once"]


def test_an_answer_that_ends_with_its_service_is_broken_off_and_begun_anew_by_the_next(demo: Demo) -> None:
    rewrite(demo.config, "drain_s = 60", "drain_s = 0.2")
    with started(demo) as it:
        with httpx2.stream("POST", f"{it.url}/v1/execute", json={"message": "for ever"}, timeout=120) as answer:
            name = answer.headers["x-conversation-id"]
            lines = (line for line in answer.iter_lines() if line.startswith("data: "))
            assert "text" in next(line for line in lines if '"kind": "text"' in line or '"kind":"text"' in line)
            it.process.send_signal(signal.SIGTERM)
            *_, last = lines
        assert json.loads(last.removeprefix("data: ")) == {"kind": "end", "reason": "interrupted", "error": None}
        assert it.process.wait(60) == 0
    with started(demo) as it:
        stored = it.get(f"/v1/conversations/{name}").json()["messages"]
        assert [message["ending"] for message in stored] == ["", "interrupted"]
        assert ENDLESS.startswith(stored[1]["text"].strip())
        body = {"conversation": name, "again": True}
        with httpx2.stream("POST", f"{it.url}/v1/execute", json=body, timeout=120) as answer:
            assert answer.status_code == 200
            assert any('"text"' in line for line in answer.iter_lines() if line.startswith("data: "))


def test_terminated_twice_it_does_not_wait(demo: Demo) -> None:
    with started(demo) as it:
        children = descendants(it.process.pid)
        with httpx2.stream("POST", f"{it.url}/v1/chat/completions", json=wish("for ever"), timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            it.process.send_signal(signal.SIGINT)
            it.until("Stopping")
            it.process.send_signal(signal.SIGINT)
            assert it.process.wait(60) == 130
        # It has not waited for them either: the kernel ends them with it.
        wait_for_end(children)


def test_a_changed_configuration_is_put_in_force_while_an_answer_goes_on(demo: Demo) -> None:
    with started(demo) as it:
        with httpx2.stream("POST", f"{it.url}/v1/chat/completions", json=wish("at length"), timeout=120) as answer:
            lines = answer.iter_lines()
            heard = [next(lines)]
            rewrite(demo.config, "drain_s = 60", f'api_keys = ["{hash_key("k")}"]')
            it.process.send_signal(signal.SIGHUP)
            assert it.until("Configuration") == "Configuration in force; the model stays"
            assert it.get("/v1/models").status_code == 401
            assert it.get("/v1/models", Authorization="Bearer k").status_code == 200
            rewrite(demo.config, "[service]\n", "[service]\nport = 8099\n")
            it.process.send_signal(signal.SIGHUP)
            assert it.until("Another host or port") == "Another host or port is used after a restart"
            assert it.get("/v1/models", Authorization="Bearer k").status_code == 200
            demo.config.write_text("[service]\nparallel = 0\n", "utf-8")
            it.process.send_signal(signal.SIGHUP)
            assert "service.parallel: found 0" in it.until("The configuration stays as it was")
            assert it.get("/v1/models", Authorization="Bearer k").status_code == 200
            heard += lines
        assert words_of(heard) == LONG


def test_a_model_that_cannot_be_loaded_ends_the_service_with_the_reason(demo: Demo) -> None:
    rewrite(demo.folder.parent / "parrot" / "model.rkllm", "context 4096", "context 4096\nfault init-fails")
    ended = demo.run_here("serve", "--port", "0")
    assert ended.returncode == 3
    assert "Serving at http://127.0.0.1:" in ended.stderr
    assert "Error: " in ended.stderr


def test_off_loopback_it_does_not_start_without_a_key(demo: Demo) -> None:
    refused = demo.run_here("serve", "--port", "0", "--host", "0.0.0.0")
    assert (refused.returncode, refused.stderr) == (
        2,
        "Error: 0.0.0.0: off loopback a key is required; 'rkllm-mcp config add-key' makes one\n",
    )
    nowhere = demo.run_here("serve", "--host", "127.0.0.1.invalid")
    assert nowhere.returncode == 2
