"""Conversations survive the process that held them, killed or not, and two that hold them at the same time."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from rkllm_mcp.messages import Conversation, StoredTurn
from rkllm_mcp.store import open_store
from tests.support.demo_app import Demo, make_demo
from tests.support.served import scripted_model
from tests.support.shared import REPOSITORY
from tests.support.tour_board import serving

PATIENCE_S = 60.0
GREETING = "こんにちは"
# Keeps answers as fast as it can and says on standard output which ends it has seen.
WRITER = """
import sys
from pathlib import Path
import anyio
from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.app.answer import Answer
from rkllm_mcp.conversations.recorder import AnswerRecord, Recorder
from rkllm_mcp.events import End
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import DISCARD_EVENTS
from rkllm_mcp.store import open_store

async def main():
    async with open_store(path=Path(sys.argv[1]), required=True) as store:
        recorder = Recorder(store.conversations, "")
        for number in range(100_000):
            if number % 3 == 0:
                conversation = Conversation()
            name = f"{sys.argv[2]}.{number}"

            record = AnswerRecord(recorder, conversation, f"Q{name}", ())
            answer = Answer(conversation, DISCARD_EVENTS, UsageCounter(), lambda: None, record=record)
            async with answer.making():
                conversation.messages += [Message("user", f"Q{name}"), Message("assistant", f"A{name}" + "x" * 3000)]
                answer.end = End("answered")
            print(name, flush=True)

anyio.run(main)
"""


def state_of(demo: Demo) -> Path:
    return demo.folder / ".local" / "state" / "rkllm-mcp" / "state.db"


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """A process with its streams in pipes; nobody waits for it longer than ``PATIENCE_S``."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        limit = threading.Timer(PATIENCE_S, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            limit.join()
            process.kill()


def turns_in(path: Path) -> list[tuple[str, int, str, str]]:
    """Conversation, position, role and text of every turn, after a check of the whole file."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        query = "SELECT conversation, position, role, text FROM messages ORDER BY conversation, position"
        return connection.execute(query).fetchall()


def test_an_answer_that_was_shown_is_there_after_the_process_was_killed(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())
    with started(demo.command("--quiet", "chat"), demo.environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{GREETING}\n".encode())
        process.stdin.flush()
        # The line is ended by the end of the answer.
        answer = process.stdout.readline().decode()
        process.kill()
    assert answer.startswith("◆ こんにちは")
    (_, _, _, question), (_, _, role, kept) = turns_in(state_of(demo))
    assert (question, role, f"◆ {kept}\n") == (GREETING, "assistant", answer)
    gone_on = demo.run_here("chat", "--continue", stdin="Hello\n/quit\n")
    assert gone_on.returncode == 0
    assert f"'{GREETING}': 2 messages" in gone_on.stderr
    assert [text for _, _, _, text in turns_in(state_of(demo))][::2] == [GREETING, "Hello"]


COUNT = " ".join(map(str, range(2000)))
RULES = f"""
rule
  user for ever
  say {COUNT}
"""


def ask(url: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    """Status and body of a request; a POST if it has a body."""
    response = httpx2.request("POST" if body else "GET", url + path, json=body, timeout=PATIENCE_S)
    return response.status_code, response.json()


def slow_demo(folder: Path, extra: str = "") -> Demo:
    """A model that says forty tokens in a second."""
    model = scripted_model(folder / "model", RULES, speed="prefill 5000 decode 40")
    return make_demo(folder / "home", (), path=model, speed="", extra=extra)


def test_a_service_that_is_killed_in_the_middle_of_an_answer_has_its_question_and_offers_it_again(
    tmp_path: Path,
) -> None:
    demo = slow_demo(tmp_path)
    path = state_of(demo)

    with serving(demo) as (url, process):
        body = {"message": "for ever", "tokens": {"shop": "tok-secret-1"}, "max_tokens": 2000}
        with httpx2.stream("POST", f"{url}/v1/execute", json=body, timeout=PATIENCE_S) as response:
            # Held: an iterator that is dropped closes the connection.
            lines = response.iter_lines()
            while not ((turns := turns_in(path)) and turns[-1][3]):
                next(lines)
            name = turns[0][0]
            assert ask(url, f"/v1/conversations/{name}")[1]["messages"][1]["ending"] == "running"
            process.kill()
            process.wait()
    (_, _, asker, question), (_, _, speaker, begun) = turns_in(path)
    assert (asker, question, speaker) == ("user", "for ever", "assistant")
    assert begun
    assert COUNT.startswith(begun)
    gone_on = demo.run_here("chat", "--resume", name, stdin="/quit\n")
    assert (
        "[broken off before its end]\nThe last answer was broken off; /retry asks its question again." in gone_on.stderr
    )
    with serving(demo) as (url, process):
        status, kept = ask(url, f"/v1/conversations/{name}")
        assert (status, [turn["ending"] for turn in kept["messages"]]) == (200, ["", "interrupted"])
        again = {"conversation": name, "again": True, "stream": False, "max_tokens": 3}
        status, answered = ask(url, "/v1/execute", again)
        assert (status, answered["text"].split()) == (200, ["0", "1", "2"])
        assert ask(url, "/v1/execute", again)[1]["error"]["param"] == "again"
    assert [(role, text.split()[:4]) for _, _, role, text in turns_in(path)] == [
        ("user", ["for", "ever"]),
        ("assistant", ["0", "1", "2"]),
    ]


def test_a_service_that_is_stopped_keeps_the_questions_of_detached_answers_that_waited(tmp_path: Path) -> None:
    demo = slow_demo(tmp_path, "[service]\nparallel = 1\ndrain_s = 0.1\n")
    body = {"message": "for ever", "max_tokens": 2000, "detached": True}
    with serving(demo) as (url, process):
        for kind in ("text", "queued"):
            with httpx2.stream("POST", f"{url}/v1/execute", json=body, timeout=PATIENCE_S) as response:
                assert any(f'"kind":"{kind}"' in line for line in response.iter_lines())
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    turns = turns_in(state_of(demo))
    assert [text for _, _, role, text in turns if role == "user"] == ["for ever"] * 2


def test_the_chat_asks_a_question_again_whose_answer_was_broken_off(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())

    async def break_off() -> None:
        async with open_store(path=state_of(demo), required=True) as store:
            turns = [StoredTurn("user", GREETING), StoredTurn("assistant", "こん", ending="interrupted")]
            await store.conversations.begin("", Conversation("c1"), turns)

    anyio.run(break_off)
    done = demo.run_here("chat", "--continue", stdin="/retry\n/again\n")
    assert done.stdout.count("◆ こんにちは") == 2
    assert [(role, text[:5]) for _, _, role, text in turns_in(state_of(demo))] == [
        ("user", GREETING),
        ("assistant", GREETING),
    ]


def test_a_process_that_is_killed_at_any_moment_leaves_whole_answers(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    dice = random.Random(5)
    seen: set[str] = set()
    for run in range(4):
        command = [sys.executable, "-c", WRITER, str(path), str(run)]
        with started(command, environment) as process:
            assert process.stdout is not None
            seen |= {process.stdout.readline().decode().strip() for _ in range(dice.randrange(1, 40))}
            process.kill()
            # What was in the pipe was said before the end as well.
            seen |= {line.decode().strip() for line in process.stdout if line.endswith(b"\n")}
        turns = turns_in(path)
        asked = [(conversation, text[1:]) for conversation, _, role, text in turns if role == "user"]
        answered = [(conversation, text[1:].rstrip("x")) for conversation, _, role, text in turns if role != "user"]
        assert asked == answered
        assert seen <= {name for _, name in answered}
    assert len(seen) > 4


def test_two_processes_may_go_on_with_one_conversation_at_a_time(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())
    assert demo.run_here("chat", stdin=f"{GREETING}\n").returncode == 0
    ((name, *_), _) = turns_in(state_of(demo))
    with started(demo.command("chat", "--resume", name[:6]), demo.environment) as first:
        assert first.stderr is not None
        while b"Continuing" not in (line := first.stderr.readline()):
            assert line, "it did not go on"
        second = demo.run_here("chat", "--resume", name, stdin="Hello from the second\n")
        _, said = first.communicate(b"Hello from the first\n")
    assert first.returncode == second.returncode == 0
    assert "this conversation went on elsewhere too; all of it is kept" in said.decode()
    assert "went on elsewhere" not in second.stderr
    questions = [text for _, _, role, text in turns_in(state_of(demo)) if role == "user"]
    assert questions == [GREETING, "Hello from the second", "Hello from the first"]


@pytest.mark.parametrize("history", [True, False])
def test_the_chat_explains_how_to_resume_a_conversation_that_can_be_resumed(tmp_path: Path, *, history: bool) -> None:
    demo = make_demo(tmp_path, (), extra="" if history else "[service]\nhistory = false\n")
    words = [GREETING, "/conversations", "/rename The greeting", "/conversations greet", "/clear", "/resume", "/quit"]
    done = demo.run_here("chat", stdin="\n".join(words))
    assert done.returncode == 0
    turns = turns_in(state_of(demo))
    if not history:
        assert turns == []
        assert done.stdout.count("There are no saved conversations.\n") == 3
        assert "This conversation is not saved yet; ask a question first" in done.stderr
        return
    name = turns[0][0]
    assert done.stdout.count(f"  {name}\n") == 3
    assert "Renamed." in done.stderr
    # A new conversation began and nothing was asked in it.
    assert "Continue this conversation with" not in done.stderr
    more = demo.run_here("chat", stdin=f"/resume {name[:4]}\n/resume {name}\n/resume zzz\nHello\n")
    assert f"Continuing {name} 'The greeting': 2 messages" in more.stderr
    assert f"  ❯ {GREETING}\n  ◆ こんにちは。これは" in more.stderr
    assert "This conversation is already open" in more.stderr
    assert "there is no conversation 'zzz'; 'rkllm-mcp conversations list' shows them" in more.stderr
    assert more.stderr.endswith(f"Continue this conversation with: rkllm-mcp chat --resume {name}\n")
    assert len(turns_in(state_of(demo))) == 4


def test_a_chat_that_cannot_go_on_says_why_before_it_begins(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())
    nothing = demo.run_here("chat", "--resume", "abc")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert nothing.stderr.endswith("there is no conversation 'abc'; 'rkllm-mcp conversations list' shows them\n")
    first = demo.run_here("chat", "--continue", stdin="/quit\n")
    assert first.returncode == 0
    assert "There is no saved conversation yet; starting a new one." in first.stderr
