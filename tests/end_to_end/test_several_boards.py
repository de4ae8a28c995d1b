"""Three boards behind a real HAProxy with its generated configuration: one killed, one stopped, no client lost."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from tests.support.boards import NAMES, Boards, boards
from tests.support.served import scripted_model

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
TOKENS_PER_S = 100
NOBODY: Mapping[str, str] = {}
# Longer than it takes to stop the model in the middle of it; longer than anybody hears.
# An answer that repeats itself is ended, so these count.
LONG, ENDLESS = (" ".join(map(str, range(count))) for count in (230, 2300))
BIRD = "You spoke of the pelican."
RULES = f"""
rule at length
  user at length
  say {LONG}

rule for ever
  user for ever
  say {ENDLESS}

rule
  user which bird
  prompt pelican
  say {BIRD}

rule
  user write it to (.*)$
  results 0
  call write_file {{"path":"$1","content":"x"}}

rule
  user echo ([a-z0-9]+)
  say It was $1, and $1 again.

rule
  say I see.
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow_model(tmp_path_factory.mktemp("model"))


def slow_model(folder: Path) -> Path:
    """A model that takes its time."""
    return scripted_model(folder / "parrot", RULES, speed=f"prefill 5000 decode {TOKENS_PER_S}")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Generator[Boards, None, None]:
    """Three boards, each of which a test may end; all may write into one folder."""
    notes = tmp_path_factory.mktemp("notes")
    files = f'[[servers]]\nname = "files"\nfolder = "{notes}"\nwrite = true\n'
    # Two at a time are harder: one of them waits on a board that may die.
    with boards(tmp_path_factory.mktemp("several"), model, extra=files, parallel=2) as them:
        yield them


@pytest.fixture
def them(several: Boards) -> Boards:
    """All of them up."""
    several.restore()
    return several


@asynccontextmanager
async def client_of(them: Boards) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """A program, or a browser: it keeps the cookies that it is given."""
    client = httpx2.AsyncClient(base_url=them.url, timeout=60)
    with anyio.fail_after(60):
        async with client:
            yield client


async def until(holds: Callable[[], bool]) -> None:
    """Look until it is so."""
    with anyio.fail_after(60):
        while not holds():
            await anyio.lowlevel.checkpoint()


def chat(*said: str, stream: bool = False) -> Json:
    """A chat request: a question, its answer, the next question, …"""
    roles = ["user", "assistant"] * len(said)
    messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    return {"messages": messages, "stream": stream}


def echoed(name: str) -> str:
    return f"It was {name}, and {name} again."


async def ask(client: httpx2.AsyncClient, **body: Any) -> httpx2.Response:
    """A whole answer of the assistant."""
    headers = body.pop("headers", {})
    return await client.post("/v1/execute", json={"stream": False, **body}, headers=headers)


def usage(answer: httpx2.Response) -> Json:
    """What the last round of a whole answer cost."""
    return next(event for event in reversed(answer.raise_for_status().json()["events"]) if event["kind"] == "usage")


# --- affinity --------------------------------------------------------------------------------------------------------


async def test_a_conversation_stays_with_its_board_by_header_and_by_body(them: Boards) -> None:
    async with client_of(them) as client:
        first = await ask(client, message="echo one")
        name = first.headers["x-conversation-id"]
        for number in range(4):
            asked: Json = {"headers": {"X-Conversation-Id": name}} if number % 2 else {"conversation": name}
            again = await ask(client, message=f"echo a{number}", **asked)
            assert again.headers["x-conversation-id"] == name
            assert again.headers["x-board"] == first.headers["x-board"]
            assert usage(again)["cached_tokens"] > usage(first)["prompt_tokens"]
        read = await client.get(f"/v1/conversations/{name}")
        assert (read.headers["x-board"], len(read.json()["messages"])) == (first.headers["x-board"], 10)


async def test_chats_that_are_sent_whole_are_spread_and_each_stays_where_it_was_read(them: Boards) -> None:
    async with client_of(them) as client:
        begun = {
            f"t{number}": await client.post("/v1/chat/completions", json=chat(f"echo t{number}")) for number in range(3)
        }
        assert {answer.headers["x-board"] for answer in begun.values()} == set(NAMES)
        for name, answer in begun.items():
            said = answer.json()["choices"][0]["message"]["content"]
            goes_on = await client.post("/v1/chat/completions", json=chat(f"echo {name}", said, "echo more"))
            assert goes_on.headers["x-board"] == answer.headers["x-board"]
            cached = goes_on.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached > answer.json()["usage"]["prompt_tokens"]


async def test_who_opens_the_page_stays_with_its_board_and_programs_get_no_cookie(them: Boards) -> None:
    async with client_of(them) as browser, client_of(them) as program:
        page = await browser.get("/")
        assert page.headers["set-cookie"] == f"board={page.headers['x-board']}; Path=/; HttpOnly; SameSite=Strict"
        seen = [await browser.get("/v1/me"), await ask(browser, message="echo x"), await browser.get("/v1/tools")]
        assert {answer.headers["x-board"] for answer in seen} == {page.headers["x-board"]}
        assert not any("set-cookie" in answer.headers for answer in seen)
        answers = [
            await program.get("/v1/models"),
            await ask(program, message="echo x"),
            await ask(program, message="echo y"),
        ]
        assert not any("set-cookie" in answer.headers for answer in answers)
        assert len({answer.headers["x-board"] for answer in answers[1:]}) == 2


async def test_a_follow_up_does_not_wait_for_its_busy_board_and_comes_back_when_it_is_free(them: Boards) -> None:
    said = ("echo first", echoed("first"))
    async with client_of(them) as client, AsyncExitStack() as busy:
        own = (await client.post("/v1/chat/completions", json=chat(said[0]))).headers["x-board"]
        # Its own board is free, so it goes there, and stays under way.
        long = client.stream("POST", "/v1/chat/completions", json=chat(*said, "for ever", stream=True))
        answer = await busy.enter_async_context(long)
        assert answer.headers["x-board"] == own
        busy.enter_context(them.boards[own].held())
        others = [await client.post("/v1/chat/completions", json=chat(*said, f"echo n{number}")) for number in range(3)]
        assert own not in {other.headers["x-board"] for other in others}
        # The board that answered last has the tokens now.
        assert others[1].headers["x-board"] == others[2].headers["x-board"]


async def test_an_answer_to_a_question_reaches_the_board_that_asks_whoever_sends_it(them: Boards) -> None:
    asked: dict[str, str] = {}
    done: list[str] = []

    async def write(client: httpx2.AsyncClient, name: str) -> None:
        body = {"message": f"write it to {name}", "approvals": "ask"}
        async with client.stream("POST", "/v1/execute", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    event: Json = json.loads(line[6:])
                    if event["kind"] == "approval":
                        asked[event["id"]] = answer.headers["x-board"]
                    if event["kind"] == "tool_result":
                        done.append(f"{name} {event['is_error']}")

    async with client_of(them) as client, client_of(them) as phone, anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(write, client, f"{number}.txt")
        await until(lambda: len(asked) == 3)
        assert set(asked.values()) == set(NAMES)
        for question, board in asked.items():
            assert question.startswith(f"question_{board}.")
            # The phone has no cookie and names no conversation.
            decided = await phone.post(f"/v1/approvals/{question}", json={"decision": "once"})
            assert (decided.status_code, decided.headers["x-board"]) == (200, board)
    assert sorted(done) == [f"{number}.txt False" for number in range(3)]


async def test_a_stored_response_is_continued_on_the_board_that_has_it(them: Boards) -> None:
    async with client_of(them) as client:
        first = [await client.post("/v1/responses", json={"input": f"echo r{number}"}) for number in range(3)]
        assert len({answer.headers["x-board"] for answer in first}) > 1
        for answer in first:
            previous = answer.json()["id"]
            body = {"input": "echo more", "previous_response_id": previous}
            more = await client.post("/v1/responses", json=body)
            shown = await client.get(f"/v1/responses/{previous}")
            assert [more.status_code, shown.status_code] == [200, 200]
            assert {more.headers["x-board"], shown.headers["x-board"]} == {answer.headers["x-board"]}


async def test_a_drained_board_takes_nothing_new_and_finishes_what_it_has(them: Boards) -> None:
    async with client_of(them) as client:
        stream = Stream()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.run, client, "at length")
            await stream.begun.wait()
            them.command(f"set server answers/{stream.board} state drain")
            others = [await client.post("/v1/chat/completions", json=chat(f"echo d{number}")) for number in range(6)]
            lists = [await client.get("/v1/models") for _ in range(6)]
            assert stream.board not in {answer.headers["x-board"] for answer in (*others, *lists)}
        assert (stream.failure, stream.text) == (None, LONG)
        them.command(f"set server answers/{stream.board} state ready")
        back = [await client.post("/v1/chat/completions", json=chat(f"echo b{number}")) for number in range(6)]
        assert stream.board in {answer.headers["x-board"] for answer in back}


async def test_the_status_shows_each_board_and_which_is_gone(them: Boards, tmp_path: Path) -> None:
    entries = "".join(f'[[boards]]\naddress = "{board.address}"\n' for board in them.boards.values())
    file = tmp_path / "boards.toml"
    file.write_text(entries, "utf-8")
    command = [sys.executable, "-m", "rkllm_mcp", "--config", str(file), "boards", "status"]
    whole = await anyio.run_process([*command, "--json"], check=False)
    told = [(board["name"], board["state"], board["model"], board["running"]) for board in json.loads(whole.stdout)]
    assert (whole.returncode, told) == (0, [(name, "ready", "parrot", 0) for name in NAMES])
    them.kill("board2")
    shown = await anyio.run_process(command, check=False)
    lines = shown.stdout.decode().splitlines()
    assert (shown.returncode, len(lines)) == (1, 4)
    assert ["not reachable" in line for line in lines] == [False, False, True, False]


# --- updating --------------------------------------------------------------------------------------------------------

# In the place of ssh: it leaves a note, and ends with the code that the test writes when the board is back.
SSH = """#!/bin/sh
[ "$1" = -- ] || exit 64
echo "$3" >"$ASKED/$2.new"
mv "$ASKED/$2.new" "$ASKED/$2"
while [ ! -s "$ASKED/$2.done" ]; do sleep 0.1; done
exit "$(cat "$ASKED/$2.done")"
"""


@pytest.mark.parametrize("failing", ["", "board2"])
async def test_an_update_takes_one_board_after_the_other_under_load_and_ends_with_the_first_that_fails(
    them: Boards, tmp_path: Path, failing: str
) -> None:
    asked = tmp_path / "asked"
    asked.mkdir()
    (tmp_path / "ssh").write_text(SSH, "utf-8")
    (tmp_path / "ssh").chmod(0o755)
    entries = "".join(
        f'[[boards]]\naddress = "{board.address}"\nssh = "{name}"\n' for name, board in them.boards.items()
    )
    file = tmp_path / "boards.toml"
    file.write_text(entries, "utf-8")
    command = [sys.executable, "-m", "rkllm_mcp", "--config", str(file), "boards", "update"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ASKED": str(asked)}
    answers: list[int] = []
    order: list[str] = []
    is_over = anyio.Event()

    async def people() -> None:
        while not is_over.is_set():
            async with client_of(them) as client:
                answer = await client.post("/v1/chat/completions", json=chat(f"echo u{len(answers)}"))
                answers.append(answer.status_code)

    async def logins() -> None:
        for name in NAMES:
            await until((asked / name).exists)
            order.append(name)
            assert (asked / name).read_text("utf-8").split()[1:] == ["rkllm-mcp", "update", "--restart"]
            # It stops after its answers and is started again; where it failed, the old release.
            them.boards[name].process.terminate()
            await anyio.to_thread.run_sync(them.boards[name].process.wait)
            await anyio.to_thread.run_sync(them.start, name)
            (asked / f"{name}.done").write_text("1" if name == failing else "0", "utf-8")

    code, told = 0, ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(people)
        tasks.start_soon(logins)
        done = await anyio.run_process(command, check=False, env=environment)
        code, told = done.returncode, " ".join(done.stderr.decode().split())
        is_over.set()
        if failing:
            tasks.cancel_scope.cancel()
    assert len(answers) >= 3
    assert set(answers) == {200}
    if failing:
        assert (code, order) == (2, ["board1", "board2"]), told
        assert "board2: 'rkllm-mcp update --restart' ended with exit code 1" in told
        assert "Not updated: board3" in told
        assert "board1: 0." in told
    else:
        assert (code, order) == (0, list(NAMES)), told
        assert told.count("takes questions") == len(NAMES)


async def test_no_board_is_updated_while_another_takes_no_questions(them: Boards, tmp_path: Path) -> None:
    entries = "".join(f'[[boards]]\naddress = "{board.address}"\n' for board in them.boards.values())
    file = tmp_path / "boards.toml"
    file.write_text(entries, "utf-8")
    command = [sys.executable, "-m", "rkllm_mcp", "--config", str(file), "boards", "update"]
    them.kill("board3")
    done = await anyio.run_process(command, check=False)
    assert done.returncode == 2
    told = " ".join(done.stderr.decode().split())
    assert "board3 takes no questions (not reachable" in told
    assert "rkllm-mcp boards update board1 board2" in told
    for name in ("board1", "board2"):
        them.kill(name)
    none = " ".join((await anyio.run_process(command, check=False)).stderr.decode().split())
    assert none.endswith("; mend it first"), none
    nothing = await anyio.run_process([*command, "board4"], check=False)
    assert "there is no board 'board4'" in nothing.stderr.decode()


# --- leaving and waiting ---------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_stops_its_run_through_the_proxy(them: Boards) -> None:
    async with client_of(them) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.post, "/v1/chat/completions", json=chat("for ever")))
            await until(lambda: them.statistics("BACKEND")["scur"] == "1")
            tasks.cancel_scope.cancel()
        for board in them.boards.values():
            while (await client.get(f"http://{board.address}/v1/board")).json()["queue"]["running"]:
                await anyio.lowlevel.checkpoint()
    ends = {run["end"] for board in them.boards.values() for run in board.runs() if run["rule"] == "for ever"}
    assert ends <= {"aborted"}


async def test_a_client_with_one_request_does_not_wait_after_a_client_with_many(them: Boards) -> None:
    done: list[str] = []

    async def one(client: httpx2.AsyncClient, key: str, number: int) -> None:
        body = chat(f"echo {key}{number}")
        answer = await client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        done.append(key if answer.is_success else f"{key} {answer.status_code} {answer.headers.get('retry-after')}")

    async with client_of(them) as client, anyio.create_task_group() as tasks, AsyncExitStack() as busy:
        heard: list[AsyncIterator[str]] = []
        for number in range(len(NAMES)):
            body = chat(f"{number} for ever", stream=True)
            answer = await busy.enter_async_context(client.stream("POST", "/v1/chat/completions", json=body))
            heard.append(answer.aiter_lines())
            await anext(heard[-1])
        for board in them.boards.values():
            busy.enter_context(board.held())
        for number in range(70):
            tasks.start_soon(one, client, "many", number)
        # Somebody may have 64 under way.
        await until(lambda: len(done) == 6)
        tasks.start_soon(one, client, "one", 0)
        await until(lambda: them.statistics("BACKEND")["scur"] == str(len(heard) + 64 + 1))
    assert done[:6] == ["many 429 10"] * 6
    assert sorted(done[6:]) == ["many"] * 64 + ["one"]
    # On each board one was under way that could not be taken back.
    assert done[6:].index("one") < 10


async def test_one_trace_id_is_in_the_log_of_the_proxy_and_in_the_answer_of_the_board(them: Boards) -> None:
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with client_of(them) as client:
        for headers in (NOBODY, {"traceparent": given}):
            answer = await client.get("/v1/models", headers=headers)
            trace = answer.headers["x-request-id"]
            assert len(trace) == 32
            await until(lambda trace=trace: f"{{00-{trace}-" in them.log.read_text("utf-8"))
    assert trace == given.split("-")[1]


async def test_metrics_are_collected_from_each_board_and_the_identity_claimed_by_a_client_is_dropped(
    them: Boards,
) -> None:
    async with client_of(them) as client:
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.get("/healthz", headers={"X-Forwarded-For": "127.0.0.1"})).status_code == 200


# --- boards that go --------------------------------------------------------------------------------------------------


class Stream:
    """A long answer under way."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.board = ""
        self.text = ""
        self.failure: Exception | None = None

    async def run(self, client: httpx2.AsyncClient, text: str) -> None:
        try:
            async with client.stream("POST", "/v1/chat/completions", json=chat(text, stream=True)) as answer:
                self.board = answer.headers["x-board"]
                async for line in answer.aiter_lines():
                    self._take(line)
        except httpx2.RemoteProtocolError as error:
            self.failure = error

    def _take(self, line: str) -> None:
        if line.startswith("data: {"):
            choices = json.loads(line[6:])["choices"]
            self.text += (choices[0]["delta"].get("content") or "") if choices else ""
            if self.text:
                self.begun.set()


class Crowd:
    """Short questions in every way in which a program may ask, each with its own name."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self.answers: dict[str, str] = {}
        self.boards: set[str] = set()

    async def whole(self, name: str) -> None:
        answer = await self._client.post("/v1/chat/completions", json=chat(f"echo {name}"))
        self.boards.add(answer.headers["x-board"])
        self.answers[name] = answer.raise_for_status().json()["choices"][0]["message"]["content"]

    async def streamed(self, name: str) -> None:
        stream = Stream()
        await stream.run(self._client, f"echo {name}")
        self.boards.add(stream.board)
        self.answers[name] = stream.text

    async def executed(self, name: str) -> None:
        answer = await self._client.post("/v1/execute", json={"message": f"echo {name}"})
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        self.boards.add(answer.headers["x-board"])
        self.answers[name] = "".join(event["text"] for event in events if event["kind"] == "text")

    async def ollama(self, name: str) -> None:
        body = {"model": "parrot", **chat(f"echo {name}", stream=True)}
        answer = await self._client.post("/api/chat", json=body)
        self.boards.add(answer.headers["x-board"])
        pieces = map(json.loads, answer.text.splitlines())
        self.answers[name] = "".join(piece["message"]["content"] for piece in pieces)


async def test_no_request_is_lost_that_had_not_begun_when_one_board_dies_and_another_is_stopped(them: Boards) -> None:
    streams = broken, finished, unharmed = [Stream() for _ in NAMES]
    async with client_of(them) as client:
        crowd = Crowd(client)
        asked: list[str] = []
        async with anyio.create_task_group() as tasks, AsyncExitStack() as busy:
            for stream, text in zip(streams, ("for ever", "1 at length", "2 at length"), strict=True):
                tasks.start_soon(stream.run, client, text)
                await stream.begun.wait()
                busy.enter_context(them.boards[stream.board].held())
            assert {stream.board for stream in streams} == set(NAMES)
            # On every board one request waits for the NPU, and more wait for a board.
            for number, ask_so in enumerate((crowd.whole, crowd.streamed, crowd.ollama)):
                asked.append(f"near{number}")
                tasks.start_soon(ask_so, asked[-1])
            await until(lambda: all(them.statistics(name)["scur"] == "2" for name in NAMES))
            for number in range(12):
                asked.append(f"far{number}")
                ask_so = (crowd.whole, crowd.streamed, crowd.executed, crowd.ollama)[number % 4]
                tasks.start_soon(ask_so, asked[-1])
            await until(lambda: int(them.statistics("BACKEND")["scur"]) == 18)
            # Busy is healthy.
            assert all(them.is_up(name) for name in NAMES)
            them.kill(broken.board)
            them.boards[finished.board].process.send_signal(signal.SIGTERM)
            them.boards[finished.board].until("Stopping after 2 answers")
        assert crowd.answers == {name: echoed(name) for name in asked}
        assert crowd.boards <= {finished.board, unharmed.board}
        assert broken.failure is not None
        assert ENDLESS.startswith(broken.text)
        assert [(stream.failure, stream.text) for stream in (finished, unharmed)] == [(None, LONG)] * 2
        assert them.boards[finished.board].process.wait(60) == 0
        await until(lambda: not them.is_up(finished.board))
        assert not them.is_up(broken.board)
        assert int(them.statistics("BACKEND")["wredis"]) > 0
        assert (await client.get("/readyz")).status_code == 200


async def test_a_conversation_moved_to_another_board_is_read_again_and_what_may_have_acted_is_not_repeated(
    them: Boards,
) -> None:
    async with client_of(them) as client:
        first = await ask(client, message="I saw a pelican today")
        name = {"X-Conversation-Id": first.headers["x-conversation-id"]}
        second = await ask(client, message="echo two", headers=name)
        said = ("I saw a pelican today", "I see.")
        chatted = await client.post("/v1/chat/completions", json=chat(said[0]))
        gone = {first.headers["x-board"], chatted.headers["x-board"]}
        assert len(gone) == 2
        [left] = [board for name, board in them.boards.items() if name not in gone]
        before = left.count_runs("at length")

        # Both boards die while they may be calling tools: that is told, and not asked again elsewhere.
        lost: list[httpx2.Response] = []

        async def act(path: str, body: Json, headers: Mapping[str, str]) -> None:
            lost.append(await client.post(path, json=body, headers=headers))

        async with anyio.create_task_group() as tasks, AsyncExitStack() as busy:
            for board in gone:
                busy.enter_context(them.boards[board].held())
            tasks.start_soon(act, "/v1/execute", {"message": "at length", "stream": False}, name)
            tasks.start_soon(act, "/v1/chat/completions", {**chat(*said, "at length"), "mcp": True}, NOBODY)
            await until(lambda: all(them.statistics(board)["scur"] == "1" for board in gone))
            for board in gone:
                them.kill(board)
        assert [(answer.status_code, answer.json()["error"]["code"]) for answer in lost] == [(502, "board_lost")] * 2
        assert left.count_runs("at length") == before

        # The board that is left does not know the conversation, and says what would help.
        unknown = await ask(client, message="which bird?", headers=name)
        assert unknown.status_code == 404
        assert "send its history" in unknown.json()["error"]["message"]
        told = [("user", said[0]), ("assistant", said[1]), ("user", "echo two"), ("assistant", echoed("two"))]
        history = [{"role": role, "text": text} for role, text in told]
        moved = await ask(client, message="which bird?", history=history, headers=name)
        assert moved.json()["text"] == BIRD
        assert usage(moved)["prefilled_tokens"] > usage(second)["prefilled_tokens"] + 20
        name = {"X-Conversation-Id": moved.headers["x-conversation-id"]}
        assert usage(await ask(client, message="echo three", headers=name))["prefilled_tokens"] < 20

        # A chat whose program sends it whole goes on by itself.
        moved = (await client.post("/v1/chat/completions", json=chat(*said, "which bird?"))).json()
        assert moved["choices"][0]["message"]["content"] == BIRD
        again = (await client.post("/v1/chat/completions", json=chat(*said, "which bird?", BIRD, "echo on"))).json()
        assert again["choices"][0]["message"]["content"] == echoed("on")
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > moved["usage"]["prompt_tokens"]
