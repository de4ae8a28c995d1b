"""A service that is killed in the middle of its work has stored every answer that was given, and leaves no process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from bench.tally import processes
from tests.support.demo_app import Demo, make_demo

CLIENTS = 4
KILLS = 3


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
