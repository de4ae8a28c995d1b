"""The worker's process is small, starts clean, and never outlives its engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from rkllm_mcp.generation import GenerationOptions, TokenInput
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.worker_process import WorkerProcess, open_worker
from tests.support.emulator import Emulator, prompt_of
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio

HEAVY = {
    "asyncio",
    "anyio",
    "pydantic",
    "mcp",
    "rich",
    "typer",
    "tokenizers",
    "httpx2",
    "subprocess",
    "logging",
    "email",
}
SLOW_RULE = f"rule\nsay {'x' * 400}"
SLOW = "speed prefill 100000 decode 100\ncontext 4096"

# Fails, and imports what one that succeeds does.
NO_LOAD = frames.pack(LoadParameters("/m", "/none.so"))

# Opens an engine, says that a token came, and waits to be killed.
PARENT = """
import asyncio, sys
from contextlib import aclosing
from rkllm_mcp.runtime.engine import EngineSettings, open_engine
async def main():
    async with open_engine(EngineSettings(model_path=sys.argv[1], library=sys.argv[2])) as engine:
        async with aclosing(engine.generate(list(b"hello"))) as run:
            async for _ in run:
                {before}
                print(engine.worker_pid, flush=True)
                await asyncio.Event().wait()
asyncio.run(main())
"""


@dataclass
class Reports:
    """What a worker sent."""

    received: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    news: anyio.Event = field(default_factory=anyio.Event)

    def on_frames(self, arrived: list[tuple[int, bytes]]) -> None:
        self.received.extend(arrived)
        self.news.set()
        self.news = anyio.Event()

    async def first(self, kind: int) -> bytes:
        with anyio.fail_after(60):
            while True:
                for found, body in self.received:
                    if found == kind:
                        return body
                await self.news.wait()


@asynccontextmanager
async def working() -> AsyncGenerator[tuple[WorkerProcess, Reports], None]:
    reports = Reports()
    async with open_worker(reports.on_frames, environment={}, stop_timeout_s=5.0) as worker:
        yield worker, reports


def load_of(emulator: Emulator, model: Path) -> bytes:
    return frames.pack(LoadParameters(str(model), str(emulator.library), context_tokens=512, max_new_tokens=400))


def run_of(number: int, limit: int) -> bytes:
    prompt = TokenInput(prompt_of("hello"))
    return frames.pack_run(frames.RunCommand(number, prompt, GenerationOptions(limit)))


def status_of(pid: int, name: str) -> int:
    """A figure of /proc/PID/status, in kB where it is a size."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"/proc/{pid}/status has no {name}")


def open_files_of(pid: int) -> tuple[str, str]:
    """The soft and the hard limit."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            soft, hard = line.split()[3:5]
            return soft, hard
    raise AssertionError(f"/proc/{pid}/limits does not name open files")


async def test_without_a_model_the_worker_needs_less_than_25_mb() -> None:
    async with working() as (worker, reports):
        # A load that fails has imported everything that one which succeeds needs.
        worker.send(frames.pack(LoadParameters("/none.rkllm", "/none.so")))
        failure = frames.unpack(frames.LoadFailed, await reports.first(frames.LOAD_FAILED))
        assert failure.error == "LibraryNotFoundError"
        assert status_of(worker.pid, "VmRSS") < 25 * 1024


def test_the_worker_imports_nothing_heavy() -> None:
    code = "import sys; sys.path.append(sys.argv[1]); import rkllm_mcp.runtime.worker; print(*sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(REPOSITORY)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    # Python 3.10's uuid loads subprocess.
    heavy = HEAVY if sys.version_info >= (3, 11) else HEAVY - {"subprocess"}
    assert not heavy & set(printed.split())


async def test_modules_in_the_working_directory_cannot_shadow_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "socket", "rkllm_mcp", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "json.py"))
    async with working() as (worker, reports):
        worker.send(frames.pack(LoadParameters("/m", "/none.so")))
        await reports.first(frames.LOAD_FAILED)


async def test_the_worker_has_its_own_session_and_may_open_many_files() -> None:
    async with working() as (worker, reports):
        worker.send(frames.pack(LoadParameters("/m", "/none.so")))
        await reports.first(frames.LOAD_FAILED)
        assert os.getsid(worker.pid) == worker.pid != os.getsid(0)
        soft, hard = open_files_of(worker.pid)
        assert soft == (hard if hard != "unlimited" and int(hard) < 102_400 else "102400")


@pytest.mark.parametrize("ending", ["shutdown", "SIGTERM"])
async def test_a_worker_that_is_stopped_in_the_middle_of_a_run_destroys_the_model(
    newest: Emulator, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(newest.log))
    async with working() as (worker, reports):
        worker.send(load_of(newest, newest.model(SLOW_RULE, SLOW)))
        await reports.first(frames.LOADED)
        worker.send(run_of(1, 400))
        await reports.first(frames.TOKEN)
        if ending == "shutdown":
            worker.send(frames.frame(frames.SHUTDOWN))
        else:
            os.kill(worker.pid, signal.SIGTERM)
        with anyio.fail_after(60):
            assert await worker.gone() == 0
    assert [call["call"] for call in newest.calls()][-3:] == ["rkllm_abort", "rkllm_run", "rkllm_destroy"]


async def test_an_abort_right_after_its_run_finds_it_and_one_for_another_run_does_not(newest: Emulator) -> None:
    async with working() as (worker, reports):
        worker.send(load_of(newest, newest.model(SLOW_RULE, SLOW)))
        worker.send(frames.pack(frames.CallCommand("kv_cache_size")))
        await reports.first(frames.REPLY)  # after the load, so the model is there
        worker.send(run_of(1, 400) + frames.pack_numbered(frames.ABORT, 1))
        ended = frames.unpack_run_ended(await reports.first(frames.RUN_ENDED))
        assert (ended.run, ended.failure) == (1, "")
        reports.received.clear()
        worker.send(run_of(2, 5) + frames.pack_numbered(frames.ABORT, 1))
        ended = frames.unpack_run_ended(await reports.first(frames.RUN_ENDED))
        assert (ended.run, sum(kind == frames.TOKEN for kind, _ in reports.received)) == (2, 5)


async def test_a_mistake_of_the_engine_ends_the_worker_with_a_traceback() -> None:
    async with working() as (worker, _):
        worker.send(frames.pack(frames.CallCommand("clear_kv_cache")))
        with anyio.fail_after(60):
            assert await worker.gone() == 70
        assert worker.log.lines()[-1] == "RuntimeError: the engine sent a run before it loaded a model"


def parent_of_a_worker(emulator: Emulator, before: str) -> subprocess.Popen[str]:
    """A process that has opened an engine and prints its worker's id in the middle of an answer."""
    code = PARENT.replace("{before}", before)
    command = [sys.executable, "-c", code, str(emulator.model(SLOW_RULE, SLOW)), str(emulator.library)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


async def died(pid: int) -> None:
    """Wait until a process that is not our child is gone."""
    try:
        ending = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with anyio.fail_after(60):
        await anyio.wait_readable(ending)
    os.close(ending)


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        # A child that inherited the engine's socket keeps it open: only the kernel's signal can tell the worker.
        "import os; os.fork() or (sys.stdin.read(), os._exit(0))",
    ],
    ids=["its end of the socket closes", "somebody else holds the socket"],
)
async def test_the_worker_dies_with_its_parent(newest: Emulator, before: str) -> None:
    with parent_of_a_worker(newest, before) as parent:
        assert parent.stdout is not None
        try:
            pid = int(await anyio.to_thread.run_sync(parent.stdout.readline))
        finally:
            parent.kill()
        await died(pid)
