"""Several boards behind one address: real services on emulated NPUs, and a real HAProxy.

Its configuration is used as ``rkllm-mcp boards haproxy`` writes it, with another log and without other users.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.config.sections import Config
from rkllm_mcp.surfaces.cli.boards import haproxy_configuration
from tests.support.demo_app import command_line, descendants, make_demo

NAMES = ("board1", "board2", "board3")
_PRIVATE = ("user", "group", "chroot")
_PATIENCE_S = 60.0
_LOOK_S = 0.05


@dataclass
class Board:
    """A board: ``rkllm-mcp serve`` in its own process.

    Args:
        address: host and port.
        log: every call that its emulated runtime has had.
        begin: starts the service at a port, 0 for any.
        process: the service.
    """

    address: str
    log: Path
    begin: Callable[[str], subprocess.Popen[str]]
    process: subprocess.Popen[str] = field(init=False)

    def wait_until_ready(self) -> None:
        """Return when it takes questions."""
        self.address = self.until("Serving at ").split()[2].removeprefix("http://")
        self.until("Ready")

    def runs(self) -> list[dict[str, Any]]:
        """What the emulator says of every run that has ended."""
        calls = map(json.loads, self.log.read_text("utf-8").splitlines())
        return [call["run"] for call in calls if call["call"] == "rkllm_run"]

    def count_runs(self, rule: str) -> int:
        """How many runs that have ended answered by this rule of the script."""
        return sum(run["rule"] == rule for run in self.runs())

    @contextmanager
    def held(self) -> Generator[None, None, None]:
        """Its model says nothing more inside this block, however long that takes."""
        [worker] = [pid for pid in descendants(self.process.pid) if "rkllm_mcp.runtime.worker" in command_line(pid)]
        os.kill(worker, signal.SIGSTOP)
        try:
            yield
        finally:
            # One whose board was killed is gone.
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)

    def until(self, beginning: str) -> str:
        """The next line on standard error that begins so."""
        return until_line(self.process, beginning)


def until_line(process: subprocess.Popen[str], beginning: str) -> str:
    """The next line of a process on standard error that begins so."""
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith(beginning):
        assert line, f"it ended before it said {beginning!r}"
    return line


@dataclass
class Proxy:
    """HAProxy before them; a client that connects while it is gone waits.

    Args:
        command: starts it.
        listener: the descriptor at which it listens, which stays open.
        log: what it has logged.
        process: it.
    """

    command: Sequence[str]
    listener: int
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Begin, again too."""
        with self.log.open("a") as output:
            self.process = subprocess.Popen(self.command, pass_fds=[self.listener], stdout=output, stderr=output)

    def kill(self) -> None:
        """End it as a power cut does; it is gone when this returns."""
        self.process.kill()
        self.process.wait(_PATIENCE_S)


@dataclass(frozen=True)
class Boards:
    """All of them.

    Args:
        url: the address of the proxy.
        boards: by name.
        control: HAProxy's control socket.
        log: what HAProxy has logged.
        proxy: HAProxy.
    """

    url: str
    boards: Mapping[str, Board]
    control: Path
    log: Path
    proxy: Proxy

    def kill(self, name: str) -> None:
        """End a board as a power cut does; it is gone when this returns."""
        self.boards[name].process.kill()
        self.boards[name].process.wait(_PATIENCE_S)

    def start(self, name: str) -> None:
        """Begin a board again that was killed, at its address."""
        board = self.boards[name]
        board.process = board.begin(board.address.rpartition(":")[2])
        board.wait_until_ready()

    def restore(self) -> None:
        """Begin every board again that has ended; return when the proxy sends requests to all of them."""
        ended = [name for name, board in self.boards.items() if board.process.poll() is not None]
        for name in ended:
            self.start(name)
        until = time.monotonic() + _PATIENCE_S
        while not all(self.is_up(name) for name in ended):
            assert time.monotonic() < until, "the proxy sends no requests to a board that is back"
            time.sleep(_LOOK_S)

    def is_up(self, name: str) -> bool:
        """Whether HAProxy sends requests to a board."""
        return self.statistics(name)["status"].startswith("UP")

    def command(self, text: str) -> str:
        """What HAProxy says to a command on its control socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE_S)
            connection.connect(str(self.control))
            connection.sendall(f"{text}\n".encode())
            with connection.makefile() as answer:
                return answer.read().strip()

    def statistics(self, name: str, backend: str = "answers") -> dict[str, str]:
        """HAProxy's counters of a server, or of a whole backend as ``BACKEND``."""
        header, *rows = self.command("show stat").splitlines()
        names = header.removeprefix("# ").split(",")
        found = [dict(zip(names, row.split(","), strict=True)) for row in rows]
        return next(row for row in found if (row["pxname"], row["svname"]) == (backend, name))


@contextmanager
def boards(
    folder: Path, model: Path, *, extra: str = "", store: str | None = None, parallel: int | None = None
) -> Generator[Boards, None, None]:
    """Three boards that share a model's script, ready, and HAProxy before them; all gone when the block is left.

    Args:
        folder: for everything that they write.
        model: the model's folder.
        extra: lines of configuration for each.
        store: the address of the database that they share; each has its own file when None.
        parallel: how many requests a board is given at a time; what an entry without it says when None.
    """
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not here: sudo apt install haproxy")
    with ExitStack() as stack:
        extra += f'\n[store]\nurl = "{store}"\n' if store else ""
        started = {name: stack.enter_context(_board(folder / name, model, extra)) for name in NAMES}
        for board in started.values():
            board.process = board.begin("0")
        for board in started.values():
            board.wait_until_ready()
        yield stack.enter_context(_balanced(folder, started, store, parallel))


@contextmanager
def _board(folder: Path, model: Path, extra: str) -> Generator[Board, None, None]:
    demo = make_demo(folder, [], path=model, extra=extra, speed="")
    log = folder / "calls.jsonl"
    own = {"RKLLM_MCP_STATE": str(folder / "state"), "RKLLM_EMULATOR_LOG": str(log)}
    own["RKLLM_MCP_MODEL__MAX_NEW_TOKENS"] = "3000"
    with ExitStack() as lives:
        board = Board("", log, lambda port: lives.enter_context(demo.started("serve", "--port", port, environment=own)))
        try:
            yield board
        finally:
            board.process.terminate()
            board.process.terminate()
            board.process.wait(_PATIENCE_S)


@contextmanager
def _balanced(
    folder: Path, started: Mapping[str, Board], store: str | None, parallel: int | None
) -> Generator[Boards, None, None]:
    log = folder / "haproxy.log"
    with (
        # The path of a socket has room for a hundred characters, and the folder of a test may have more.
        tempfile.TemporaryDirectory(dir="/tmp") as near,
        # It listens before HAProxy does: whoever connects early waits.
        socket.create_server(("127.0.0.1", 0), backlog=128) as listener,
    ):
        control = Path(near, "haproxy.sock")
        file = folder / "haproxy.cfg"
        file.write_text(configuration(started, store, listener.fileno(), control, parallel), "utf-8")
        command = ["haproxy", "-db", "-f", str(file)]
        checked = subprocess.run(
            [*command, "-c"], pass_fds=[listener.fileno()], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        proxy = Proxy(command, listener.fileno(), log)
        proxy.start()
        try:
            yield Boards(url, started, control, log, proxy)
        finally:
            proxy.kill()


def configuration(
    started: Mapping[str, Board], store: str | None, listener: int, control: Path, parallel: int | None = None
) -> str:
    """The configuration for these boards, and for a user without rights."""
    given = [{"name": name, "address": board.address, "parallel": parallel} for name, board in started.items()]
    text = haproxy_configuration(Config.model_validate({"boards": given, "store": {"url": store}}))
    return public_configuration(text, listener, control)


def public_configuration(text: str, listener: int, control: Path) -> str:
    """A configuration of HAProxy for a user without rights, who listens already."""
    text = re.sub(rf"^    (?:{'|'.join(_PRIVATE)}) .*\n", "", text, flags=re.MULTILINE)
    changes = {
        "bind :80\n": f"bind fd@{listener}\n",
        "log /dev/log local0": "log stdout format raw local0",
        "/run/haproxy/admin.sock mode 660": f"{control} mode 600",
        "127.0.0.1:10024": f"unix@{control}.peer",
    }
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    return text
