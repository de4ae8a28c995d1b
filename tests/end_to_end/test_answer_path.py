"""The files that a streamed answer with a tool call goes through, as docs/development/architecture.md names them."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.request
from array import array
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rkllm_mcp.generation import GenerationOptions, TokenInput
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.worker import Worker
from tests.support.demo_app import TIME_SERVER
from tests.support.served import scripted_model, served
from tests.support.shared import REPOSITORY

RULES = """
rule the call
  results 0
  call get_current_time {"timezone": "Asia/Tokyo"}

rule the answer from its result
  results 1
  say It is late in Tokyo now.
"""
ANSWER = "It is late in Tokyo now."
# Files that the path enters and that need not be read to follow it. They return values, except for the three that pass
# something back: ``Run`` and the socket of the worker (tokens), and the tasks of the calls of a round.
LEAVES = (
    # values, texts and tasks of layer 0
    *("catalogue.py", "events.py", "generation.py", "messages.py", "protocols.py", "sampling.py"),
    *("tasks.py", "text.py"),
    # before the route: tenants, rights, body, one thread for long work
    *("surfaces/http/app.py", "surfaces/http/middleware.py", "surfaces/http/route.py", "surfaces/http/rights.py"),
    *("surfaces/http/state.py", "surfaces/http/admission.py", "surfaces/http/bodies.py", "surfaces/http/models.py"),
    *("surfaces/http/errors.py", "surfaces/http/metrics.py"),
    # what all APIs have in common, and the parts of an answer
    *("completions/api.py", "completions/content.py", "completions/request.py", "completions/reply.py"),
    "completions/conversation_cache.py",
    # what an assistant consists of, and what it waits for
    *("app/tenants.py", "app/environment.py", "app/models.py", "app/server_wait.py", "app/warmup.py"),
    # the question, its tools, and steps that count and filter
    *("agent/call_check.py", "agent/facts.py", "agent/instructions.py", "agent/markup_filter.py", "agent/question.py"),
    *("agent/repairs.py", "agent/system_text.py", "agent/tool_set.py", "agent/usage.py"),
    # text to a turn, and how long a prefill takes
    *("providers/turn_builder.py", "providers/prefill_progress.py"),
    # state of the engine, order of the runs, the bytes between host and worker
    *("runtime/calls.py", "runtime/inputs.py", "runtime/kv_cache.py", "runtime/prompt_cache.py", "runtime/run.py"),
    *("runtime/scheduler.py", "runtime/supervisor.py", "runtime/frames.py", "runtime/worker_process.py"),
    "runtime/abi/",
    # rooms of other chapters: prompt and detector, the path of a tool call, settings
    *("prompt/", "toolcalls/", "tools/", "mcp_client/", "store/", "config/", "models/"),
)
# From the HTTP response to the frame that begins a run, and from a token's frame to the connection.
# Of the leaves before the route, the one that waits for the answer.
AROUND = "surfaces/http/middleware.py"
DOWN = (
    "surfaces/http/streaming.py",
    "surfaces/http/completions.py",
    "completions/completion.py",
    "app/assistant.py",
    "agent/loop.py",
    "providers/rkllm.py",
    "runtime/engine.py",
    "runtime/worker_process.py",
)
UP = (
    "runtime/worker_process.py",
    "runtime/engine.py",
    "runtime/run.py",
    "providers/rkllm.py",
    "agent/loop.py",
    "app/answer.py",
    "surfaces/http/streaming.py",
)
CALL = (*DOWN[:5], "agent/handlers.py")
_PACKAGE = f"{REPOSITORY / 'rkllm_mcp'}/"


@dataclass
class Trace:
    """The files of the package that are entered, and those on the stack where a function is entered."""

    is_on: bool = False
    entered: set[str] = field(default_factory=set[str])
    stacks: dict[str, set[tuple[str, ...]]] = field(default_factory=dict[str, set[tuple[str, ...]]])

    def on_event(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call; a function of ``sys.setprofile``."""
        del argument
        code = frame.f_code
        if event != "call" or not self.is_on or not code.co_filename.startswith(_PACKAGE):
            return
        name = code.co_filename.removeprefix(_PACKAGE)
        self.entered.add(name)
        if code.co_name in {"send", "feed", "resolve"}:
            self.stacks.setdefault(f"{name}:{code.co_name}", set()).add(_files(frame))


def _files(frame: FrameType | None) -> tuple[str, ...]:
    """The files of a stack, the outermost first, each where it is entered from another."""
    files: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename.removeprefix(_PACKAGE)
        if name != frame.f_code.co_filename and (not files or files[-1] != name):
            files.append(name)
        frame = frame.f_back
    return tuple(reversed(files))


@contextmanager
def tracing() -> Generator[Trace, None, None]:
    """Trace the threads that are started in the block, while ``is_on``."""
    trace = Trace()
    threading.setprofile(trace.on_event)
    try:
        yield trace
    finally:
        threading.setprofile(None)


def documented() -> list[str]:
    """The files of the numbered list in the documentation."""
    text = (REPOSITORY / "docs/development/architecture.md").read_text("utf-8")
    section = text.partition("## The path of one streamed answer\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([a-z_/]+\.py)`: ", section, re.MULTILINE)


def trace_service(folder: Path) -> Trace:
    # Slow enough that the host waits for each token.
    model = scripted_model(folder / "model", RULES, template="qwen3", speed="prefill 20000 decode 100")
    with tracing() as trace, served(folder / "home", model, (TIME_SERVER,), speed="") as service:
        # The first answer loads modules.
        assert answer_of(service.url) == ANSWER
        trace.is_on = True
        assert answer_of(service.url) == ANSWER
        trace.is_on = False
    return trace


def answer_of(url: str) -> str:
    body = {"stream": True, "mcp": True, "messages": [{"role": "user", "content": "What time is it in Tokyo?"}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        records = re.findall(r"^data: ({.*})$", response.read().decode(), re.MULTILINE)
    return "".join(json.loads(record)["choices"][0]["delta"].get("content", "") for record in records)


def trace_worker(folder: Path) -> Trace:
    """Trace one run of the worker, in a thread of this process."""
    host, worker = socket.socketpair()
    reader = frames.FrameReader()

    def receive(kind: int) -> None:
        while all(found != kind for found, _ in reader.feed(host.recv(65_536))):
            pass

    with tracing() as trace, host:
        thread = threading.Thread(target=Worker(worker).serve)
        thread.start()
        load = LoadParameters(str(folder / "model/model.rkllm"), str(emulator_library()), context_tokens=512)
        host.sendall(frames.pack(load))
        receive(frames.LOADED)
        trace.is_on = True
        run = frames.RunCommand(1, TokenInput(array("i", [1, 2, 3])), GenerationOptions(4))
        host.sendall(frames.pack_run(run))
        receive(frames.RUN_ENDED)
        trace.is_on = False
        host.sendall(frames.frame(frames.SHUTDOWN))
        thread.join(60)
    return trace


def test_a_streamed_answer_with_a_tool_call_goes_through_the_documented_files_and_leaves(tmp_path: Path) -> None:
    path = documented()
    service, worker = trace_service(tmp_path), trace_worker(tmp_path)
    entered = service.entered | worker.entered
    assert len(path) <= 12
    assert set(path) - entered == set()
    assert sorted(name for name in entered - {*path} if not name.startswith(LEAVES)) == []
    assert [name for name in LEAVES if not (Path(_PACKAGE) / name).exists()] == []
    assert (AROUND, *DOWN) in service.stacks["runtime/worker_process.py:send"]
    assert UP in service.stacks["surfaces/http/streaming.py:feed"]
    assert (AROUND, *CALL) in service.stacks["agent/handlers.py:resolve"]
    assert {*DOWN, *UP, *CALL} - {"runtime/worker_process.py", "runtime/run.py"} <= {*path}
