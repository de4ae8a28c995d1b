"""A service that is killed in the middle of its work loses nothing that was given and leaves no process."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import httpx2
import pytest

from bench.tally import processes
from mcp_servers.knowledge.library import open_library
from mcp_servers.knowledge.storage.sqlite import FILE_NAME
from tests.support.demo_app import NO_VARIABLES, Demo, command_line, make_demo
from tests.surfaces.http.test_switching import models_folder

CLIENTS = 4
KILLS = 3
PATIENCE_S = 120
DOCUMENT = "".join(f"第{number}条 通勤手当は{number}円とする。\n\n" for number in range(30_000)).encode()


@contextmanager
def service(demo: Demo) -> Generator[tuple[httpx2.Client, int], None, None]:
    """A client of a service, and the id of its process, which is killed at the end."""
    with demo.started("serve", "--port", "0") as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        url = next(line for line in lines if line.startswith("Serving at ")).split()[2]
        assert next(line for line in lines if line.startswith("Ready"))
        client = httpx2.Client(base_url=url, timeout=120)
        with client:
            yield client, process.pid


def ask_until_killed(url: str, given: set[str], enough: threading.Event, count: int) -> None:
    """Ask again and again, note the conversations of the answers, and set ``enough`` after ``count`` of them."""
    client = httpx2.Client(base_url=url, timeout=120)
    with client, suppress(httpx2.HTTPError):
        while True:
            answer = client.post("/v1/execute", json={"message": "Hello", "stream": False})
            given.add(answer.raise_for_status().json()["conversation"])
            if len(given) >= count:
                enough.set()


def test_answers_that_were_given_are_stored_when_the_service_is_killed(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [])
    given: set[str] = set()
    for kill in range(1, KILLS + 1):
        enough = threading.Event()
        with service(demo) as (client, pid):
            arguments = (str(client.base_url), given, enough, kill * (CLIENTS + 1))
            clients = [threading.Thread(target=ask_until_killed, args=arguments) for _ in range(CLIENTS)]
            for thread in clients:
                thread.start()
            assert enough.wait(120)
            below = [other for other in processes(pid) if other != pid]
        for thread in clients:
            thread.join(120)
        assert below, "the model runs in a process of its own"
        wait_for_end(below)
    with service(demo) as (client, _):
        listed = client.get("/v1/conversations", params={"limit": 100}).raise_for_status().json()["conversations"]
        assert given <= {entry["id"] for entry in listed}
    database = sqlite3.connect(demo.folder / ".local" / "state" / "rkllm-mcp" / "state.db")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def parses(pid: int, knowledge: Path) -> bool:
    """Whether a parser of the service's knowledge server runs."""
    del knowledge
    return any("parser_worker" in command_line(child) for child in processes(pid))


def writes(pid: int, knowledge: Path) -> bool:
    """Whether a part of the document is in the log of the knowledge base."""
    del pid
    log = knowledge / f"{FILE_NAME}-wal"
    return log.exists() and log.stat().st_size > 1_000_000


# What the service does with an uploaded document when it is killed.
MOMENTS: dict[str, Callable[[int, Path], bool]] = {"parsing": parses, "writing": writes}


@pytest.mark.parametrize("moment", ["receiving", *MOMENTS])
def test_a_document_whose_upload_is_killed_is_whole_or_not_there_and_can_be_sent_again(
    tmp_path: Path, moment: str
) -> None:
    knowledge, temporary = tmp_path / "knowledge", tmp_path / "tmp"
    temporary.mkdir()

    async def create() -> None:
        async with open_library(knowledge) as library:
            await library.create("Rules")

    anyio.run(create)
    server = ("knowledge", ("-m", "mcp_servers.knowledge", "--folder", str(knowledge)), NO_VARIABLES)
    demo = make_demo(tmp_path / "home", [server])
    demo = Demo(demo.folder, {**demo.environment, "TMPDIR": str(temporary)})
    pause, came = threading.Event(), threading.Event()

    def parts() -> Generator[bytes, None, None]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="rules.txt"\r\n\r\n'
        yield DOCUMENT[: len(DOCUMENT) // 2]
        if moment == "receiving":
            came.set()
            pause.wait(PATIENCE_S)
        yield DOCUMENT[len(DOCUMENT) // 2 :]
        yield b"\r\n--x--\r\n"
        came.set()

    def send(url: str) -> None:
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        with suppress(httpx2.HTTPError):
            httpx2.post(f"{url}/v1/documents", content=parts(), headers=headers, timeout=PATIENCE_S)

    with service(demo) as (client, pid):
        sender = threading.Thread(target=send, args=(str(client.base_url).rstrip("/"),))
        sender.start()
        assert came.wait(PATIENCE_S)
        while moment in MOMENTS and not MOMENTS[moment](pid, knowledge):
            assert sender.is_alive(), "it was stored before it was killed"
            pause.wait(0.005)
        below = [other for other in processes(pid) if other != pid]
    pause.set()
    sender.join(PATIENCE_S)
    wait_for_end(below)
    assert list(temporary.iterdir()) == []
    with service(demo) as (client, _):
        listed = client.post("/v1/knowledge/list_knowledge_bases", json={}).raise_for_status().json()
        (base,) = listed["knowledge_bases"]
        # Whole or not at all, also if no error was reported.
        is_whole = moment == "writing" and base["total_documents"] == 1
        assert base["total_documents"] == int(is_whole)
        files = {"file": ("rules.txt", DOCUMENT)}
        (stored,) = client.post("/v1/documents", files=files).raise_for_status().json()["documents"]
        assert stored["is_new"] is not is_whole
    database = sqlite3.connect(knowledge / FILE_NAME)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute("SELECT COUNT(*) FROM chunk").fetchall() == [(stored["chunks"],)]
    database.close()


def test_a_service_killed_while_it_exchanges_models_answers_with_either_afterwards(tmp_path: Path) -> None:
    model = models_folder(tmp_path / "home") / "parrot"
    demo = make_demo(tmp_path / "home", [], path=model)

    def ask(client: httpx2.Client, name: str) -> str:
        body = {"model": name, "messages": [{"role": "user", "content": "Who?"}]}
        return (
            client.post("/v1/chat/completions", json=body).raise_for_status().json()["choices"][0]["message"]["content"]
        )

    for name in ("owl", "parrot", "owl"):
        with service(demo) as (client, pid):
            # At the first word about it: the former worker is ended, the next one begins.
            other = "owl" if name == "parrot" else "parrot"
            assert ask(client, other) == f"I am the {other}."
            with client.stream("POST", "/v1/execute", json={"message": "Who?", "model": name}) as answer:
                records = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
                record = next(records)
                assert (record["kind"], record["text"]) == ("status", f"[NPU: Loading model '{name}']")
                below = [process for process in processes(pid) if process != pid]
        wait_for_end(below)
    with service(demo) as (client, _):
        assert [ask(client, name) for name in ("owl", "parrot")] == ["I am the owl.", "I am the parrot."]


def wait_for_end(pids: list[int]) -> None:
    """Wait until processes have ended, which the test's own time limit bounds."""
    pause = threading.Event()
    while any(map(is_running, pids)):
        pause.wait(0.05)


def is_running(pid: int) -> bool:
    """Return True unless a process has ended, even if nothing has collected its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
