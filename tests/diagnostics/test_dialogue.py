"""The ten questions of ``bench prefill``, to this product and to another host with OpenAI's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rkllm_base.folders import STATE_VARIABLE
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.dialogue import (
    DIALOGUE,
    Dialogue,
    QuestionFigures,
    StartFigures,
    measure_start,
    open_trial,
    play_beside,
    play_dialogue,
    play_here,
)
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli.bench import dialogue_text
from rkllm_mcp.surfaces.terminal import Terminal
from tests.support.served import scripted_model

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The demo model on the emulated runtime, flat out, in an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return load_config().with_options(model="demo", library="emulator")


class _Host(BaseHTTPRequestHandler):
    """A host that streams: it calls the clock where a question has the word time, else it says Fine."""

    reports_cache = True

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"data": [{"id": "tiny"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, _Server)
        self.server.bodies.append(body)
        last = body["messages"][-1]
        delta: list[dict[str, Any]] = [{"content": "Fi"}, {"content": "ne."}]
        if last["role"] == "user" and "time" in last["content"]:
            function = [{"name": "get_current_time", "arguments": ""}, {"arguments": '{"timezone": "Europe/London"}'}]
            delta = [{"tool_calls": [{"index": 0, "id": f"c{n}", "function": part}]} for n, part in enumerate(function)]
        usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 2}
        if self.reports_cache:
            usage["prompt_tokens_details"] = {"cached_tokens": 90}
        chunks = [{"choices": [{"index": 0, "delta": each}]} for each in delta] + [{"choices": [], "usage": usage}]
        self._send(
            "text/event-stream",
            "".join(f"data: {text}\n\n" for text in [*map(json.dumps, chunks), "[DONE]"]) + ": end\n\n",
        )

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    bodies: list[dict[str, Any]]


class _SilentHost(_Host):
    reports_cache = False


@contextmanager
def _serving(handler: type[_Host]) -> Generator[_Server, None, None]:
    server = _Server(("127.0.0.1", 0), handler)
    server.bodies = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_each_question_reads_its_own_words_and_nothing_is_stored(config: Config, tmp_path: Path) -> None:
    dialogue = await play_dialogue(config)
    assert [row.question for row in dialogue.here] == list(DIALOGUE)
    assert [row.calls for row in dialogue.here] == [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]
    # What a question adds, and a result of a tool; the prompts have thousands of tokens.
    assert all(row.read_tokens is not None and 0 < row.read_tokens < 100 for row in dialogue.here)
    assert sum(row.prompt_tokens for row in dialogue.here) > 10_000
    in_advance = dialogue.here[0].prompt_tokens - (dialogue.here[0].read_tokens or 0)
    assert in_advance > 400
    assert not (tmp_path / "state").exists()
    start = dialogue.start
    assert start is not None
    assert (start.head_tokens, start.file_mb > 0) == (in_advance, True)


@pytest.mark.parametrize(("script", "is_measured"), [("", True), ("prompt_cache refused\n", False)])
async def test_the_first_question_after_a_start_reads_a_file_where_there_can_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, *, is_measured: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RKLLM_EMULATOR_SPEED", raising=False)
    # Two thousand tokens in a second, as a small model on a board.
    speed = f"prefill 2000 decode 100\n{script}"
    path = scripted_model(tmp_path / "model", "rule\n  say Good morning.\n", speed=speed)
    (tmp_path / "c.toml").write_text(f'[model]\npath = "{path}"\n[runtime]\nlibrary = "emulator"\n', "utf-8")
    async with open_trial(load_config(str(tmp_path / "c.toml"))) as app:
        await play_here(app)
        start = await measure_start(app)
        head = app.prompt_prefix()
    assert (start is not None) is is_measured
    if start is not None:
        assert start.head_tokens == len(head)
        # The emulated runtime reads a file at once.
        assert start.evaluated_ms > 0.9 * len(head) / 2000 * 1000 > 4 * start.from_file_ms
    assert list((tmp_path / "cache").rglob("prompt.bin")) == []


@pytest.mark.parametrize(("handler", "read"), [(_Host, 10), (_SilentHost, None)])
async def test_another_host_gets_the_same_questions_and_the_results_of_its_calls(
    handler: type[_Host], read: int | None
) -> None:
    with _serving(handler) as server:
        rows = await play_beside(f"http://127.0.0.1:{server.server_port}")
        bodies = server.bodies
    assert [(row.calls, row.prompt_tokens, row.read_tokens) for row in rows[:2]] == [
        (0, 100, read),
        (1, 200, None if read is None else 2 * read),
    ]
    assert [body["model"] for body in bodies] == ["tiny"] * 11
    assert [message["role"] for message in bodies[2]["messages"]] == [
        *("user", "assistant", "user", "assistant", "tool"),
    ]
    call = bodies[2]["messages"][3]["tool_calls"][0]
    assert (call["id"], call["function"]["arguments"]) == ("c0", '{"timezone": "Europe/London"}')
    assert "2026-11-26T14:25:00" in bodies[2]["messages"][4]["content"]
    assert len(bodies[-1]["messages"]) == 21


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:8080", "is not an address; name one as in http://127.0.0.1:8080/v1"),
        ("http://127.0.0.1:9", "does not answer (ConnectError); start the other host"),
    ],
)
async def test_a_host_that_does_not_answer_is_one_sentence(address: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        await play_beside(address)
    assert sentence in str(raised.value)


def test_the_table_says_what_each_host_read() -> None:
    row = QuestionFigures("Good.", 0, 4_895, 15, 60.0, 1.25)
    there = QuestionFigures("Good.", 0, 4_895, None, 7_600.0, 9.0)
    assert dialogue_text(
        Dialogue((row, row), (there, there), "", StartFigures(1_305, 149.2, 2_100, 480)), Terminal()
    ) == (
        "QUESTION  HERE tokens read  HERE first token ms  HERE s  BESIDE tokens read  BESIDE first token ms  BESIDE s\n"
        "Good.     15 / 4,895        60                   1.2     ? / 4,895           7600                   9.0\n"
        "Good.     15 / 4,895        60                   1.2     ? / 4,895           7600                   9.0\n"
        "\n"
        "HERE: 30 of 9,790 tokens read, 0.1 s until first tokens, 2.5 s in all\n"
        "BESIDE: ? of 9,790 tokens read, 15.2 s until first tokens, 18.0 s in all\n"
        "HERE read 4,880 tokens of system text and tools before the first one\n"
        "The first question after a start has its first token after 2100 ms; after 480 ms if 1,305 tokens are read "
        "from a file (149 MB)\n"
    )


def test_a_host_that_streams_no_usage_has_read_an_unknown_number_of_unknown_tokens() -> None:
    table = dialogue_text(Dialogue((), (QuestionFigures("Good.", 0, 0, None, 123.0, 0.9),)), Terminal())
    assert "Good.     ? / ? " in table
    assert "BESIDE: ? of ? tokens read, 0.1 s until first tokens, 0.9 s in all" in table
