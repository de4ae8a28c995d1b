"""The whole assistant as a user would start it: the demo model on an emulated NPU, real servers, a file of settings."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import Event
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.messages import Conversation
from tests.support.outcome import run_here
from tests.support.shared import REPOSITORY

Json = dict[str, Any]
# name, arguments of Python, environment
PythonServer = tuple[str, tuple[str, ...], Mapping[str, str]]
_ENDED_WITHIN_S = 60.0
NO_VARIABLES: Mapping[str, str] = {}
TIME_SERVER: PythonServer = ("time", ("-m", "mcp_server_time"), NO_VARIABLES)


@dataclass(frozen=True)
class Demo:
    """A folder with a configuration, and the environment that belongs to it."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "mcp_config.toml"

    def command(self, *arguments: str) -> list[str]:
        """``rkllm-mcp --config … ARGUMENTS``."""
        return [sys.executable, "-m", "rkllm_mcp", "--config", str(self.config), *arguments]

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments),
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            env={**self.environment, **(environment or {})},
            cwd=self.folder,
            timeout=120,
        )

    def run_here(
        self, *arguments: str, environment: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this process: a new Python takes a second, on a busy machine five."""
        words = ("--config", str(self.config), *arguments)
        variables = {**self.environment, **(environment or {})}
        return run_here(variables, *words, stdin=stdin.encode(), folder=self.folder)

    @contextmanager
    def started(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Generator[subprocess.Popen[str], None, None]:
        """Start a command with its output in pipes; it is killed at the end if it is still there."""
        with subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **(environment or {})},
            cwd=self.folder,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


# A busy machine starts servers slowly, and an answer goes without those of which nothing is known.
PATIENT = {"RKLLM_MCP_AGENT__WAIT_FOR_SERVERS_S": "60"}


def make_demo(
    folder: Path,
    servers: Sequence[PythonServer] = (TIME_SERVER,),
    *,
    model: str = "",
    path: Path | None = None,
    extra: str = "",
    speed: str = "flat",
) -> Demo:
    """A configuration in ``folder`` with Python ``servers`` (name, arguments, environment), and its own home.

    Args:
        model: more lines of the section.
        path: of the folder of another model than the demo's.
    """
    named = 'name = "demo"' if path is None else f'path = "{path}"'
    lines = [f'[model]\n{named}\n{model}[runtime]\nlibrary = "emulator"\n', extra]
    for name, arguments, env in servers:
        lines.append(
            f'\n[[servers]]\nname = "{name}"\ncommand = "${{PYTHON}}"\nargs = {json.dumps(list(arguments))}\n'
            f"env = {{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in env.items())} }}\n"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mcp_config.toml").write_text("".join(lines), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RKLLM", "XDG", "MCP"))}
    environment |= {"HOME": str(folder), "PYTHONPATH": str(REPOSITORY)}
    if speed:
        environment["RKLLM_EMULATOR_SPEED"] = speed
    environment |= {"PYTHONWARNINGS": "error::ResourceWarning", "LANG": "C.UTF-8"}
    environment |= {} if "wait_for_servers_s" in extra else PATIENT
    return Demo(folder, environment)


@asynccontextmanager
async def running(
    demo: Demo, *, status: Callable[[str], None] | None = None, one_shot: bool = False, **environment: str
) -> AsyncGenerator[App, None]:
    """The assistant of a demo in this process, with more variables of the environment; bounded."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**demo.environment, **environment}.items():
            patch.setenv(name, value)
        with anyio.fail_after(120):
            async with open_app(load_config(demo.config), status=status, one_shot=one_shot) as app:
                yield app


async def reply_of(
    app: App, text: str, conversation: Conversation | None = None, options: AnswerOptions | None = None
) -> list[Event]:
    """The events of an answer, in a new conversation when none is given."""
    async with aclosing(app.reply(conversation or app.new_conversation(), text, options)) as stream:
        return [event async for event in stream]


def events_of(output: str) -> list[Json]:
    """The events that ``run --json`` printed."""
    return [json.loads(line) for line in output.splitlines()]


def text_of(events: Sequence[Json]) -> str:
    """The answer in them."""
    return "".join(event["text"] for event in events if event["kind"] == "text")


def timeless(event: Json) -> Json:
    """An event without what a clock put into it."""
    clocks = {"seconds", "prefill_ms", "decode_ms", "time_to_first_token_ms"}
    return {key: value for key, value in event.items() if key not in clocks}


def descendants(pid: int) -> set[int]:
    """Every process under ``pid`` that is still there, zombies left out."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def own_processes() -> set[int]:
    """Every process under this one, without the database that tests share."""
    return {pid for pid in descendants(os.getpid()) if "postgres" not in command_line(pid)}


def open_descriptors() -> int:
    """How many descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


def command_line(pid: int) -> str:
    """How a process was started; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def wait_for_end(pids: Iterable[int]) -> None:
    """Wait until processes are gone that somebody else has started, and that nobody may have waited for."""
    for pid in pids:
        try:
            ending = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([ending], [], [], _ENDED_WITHIN_S)[0], command_line(pid)
        finally:
            os.close(ending)


def wait_asleep(pid: int) -> None:
    """Wait until no thread of a process wakes up any more; what a start leaves to be done ends some time."""
    deadline = time.monotonic() + _ENDED_WITHIN_S
    before = _switches(pid)
    time.sleep(1.5)
    while (after := _switches(pid)) != before:
        assert time.monotonic() < deadline, f"it woke up {after - before} times"
        before = after
        time.sleep(1.5)


def _switches(pid: int) -> int:
    """How often the threads of a process have gone to sleep."""
    status = "".join(path.read_text("ascii") for path in Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(map(int, re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)))


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
