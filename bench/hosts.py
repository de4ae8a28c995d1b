r"""Tokens that a host of the runtime prefills for several dialogues, counted in the emulated runtime's call log.

    .venv/bin/python -m bench.hosts [--tokens] [--json]
    .venv/bin/python -m bench.hosts --name other --url http://127.0.0.1:8080/v1 \
        --command 'python server.py --library {library} --model {model} --port 8080'

A host is anything with OpenAI's ``/chat/completions`` that loads ``librkllmrt.so``; without ``--command`` it is
``rkllm-mcp serve``. In its command ``{library}`` is the emulated runtime, ``{folder}`` a folder with the model folder
``host``, ``{model}`` the model's file and ``{port}`` a free port, which ``--url`` may name, too. The client sends the
whole dialogue with each question, as programs do, with twenty tools of its own. Three dialogues of six questions:

* ``alone``    one dialogue after the other
* ``in turn``  a question of each, then the next of each
* ``restart``  the host is started again, and one dialogue goes on; no row where the host breaks the connection

``distinct`` is the floor: every token evaluated one time at its place after the same tokens. ``prefilled`` is what the
runtime evaluated, the host's own runs included. ``cold`` is the first answer after the restart, as a share of its
prompt; for our host there is another row, ``own tools``, where the twenty tools are the host's, whose prompt is saved
on disk: its cold start is measured, too. Tokens that were evaluated by an earlier host process count as distinct again.

``--tokens`` measures what a streamed token costs instead: our host, ``floor`` (``bench.bare_host``) and the one of
``--command`` run side by side and answer in turn at 33 tokens a second. ``cpu`` is the time of all threads of all
processes of the host, the emulated runtime's own included, without the request; ``delivery`` is from the runtime's
callback to the client's read.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shlex
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from bench.tally import processes
from bench.token_path import cpu_ns, prepared
from rkllm_mcp.runtime.emulator import emulator_library
from tests.support.household import SYSTEM, TOOLS
from tests.support.prefix_tree import PrefixTree

REPOSITORY = Path(__file__).resolve().parents[1]
Json = dict[str, Any]
_STARTED_WITHIN_S = 60.0
_ANSWERED_WITHIN_S = 120.0
_STOPPED_WITHIN_S = 30.0
DIALOGUES = tuple(
    (f"Tell me about {name}.", f"weather in {name}", "Thank you.", f"And what else about {name}?", "Go on.", "Good.")
    for name in ("Kyoto", "Lisbon", "Nairobi")
)
# Answers of each host with --tokens, and the tokens of one.
_ROUNDS = 5
_TOKENS = 140
# A host that does not show results to the model is called again and again.
_MOST_ROUNDS = 3
_RESULT = '{"temperature": 21, "sky": "clear"}'
_MODEL = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context 16384
speed flat

rule
  user weather in ([A-Z][a-z]+)
  results 0
  call get_weather {"location": "$1"}

rule
  results 1
  say It is clear there, with twenty-one degrees.

rule
  say I have thought about that for a while and can say no more than this about it.
"""
_CARD = 'name = "host"\ntemplate = "qwen2.5"\nfile = "host.rkllm"\ntokenizer = "tokenizer.json"\nemulated = true\n'
_CONFIG = """[model]
path = "{folder}/host"
max_new_tokens = 256
context_tokens = 16384
prompt_cache = true
[runtime]
library = "emulator"
"""
_OURS = "{python} -m rkllm_mcp --config {folder}/config.toml serve --port {port}"
URL = "http://127.0.0.1:{port}/v1"
FLOOR = "{python} -m bench.bare_host {library} {model} {port}"


@dataclass(frozen=True)
class Row:
    """What one phase evaluated, tokens; ``cold`` is a share of the first prompt, None without a restart."""

    host: str
    phase: str
    runs: int
    prompts: int
    distinct: int
    prefilled: int
    cold: float | None = None

    @property
    def ratio(self) -> float:
        """Prefilled to distinct."""
        return self.prefilled / self.distinct if self.distinct else 0.0


class CallLog:
    """The runs that the emulated runtime logged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._tree = PrefixTree()

    def forget(self) -> None:
        """The host was started again: its cache is empty."""
        self._tree = PrefixTree()

    def phase(self, host: str, phase: str, *, is_cold: bool = False, answered: int = 0) -> Row:
        """Count the runs since the last call; ``answered`` runs at the end belong to requests."""
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        new, self._read = lines[self._read :], len(lines)
        runs = [run for line in new if (run := json.loads(line).get("run")) and run.get("mode") == "generate"]
        distinct = 0
        for run in runs:
            distinct += self._tree.add(run["prompt"])
            self._tree.add([*run["prompt"], *run["sampled"][:-1]])
        prefilled = sum(run["prefill_tokens"] for run in runs)
        first = runs[-answered] if answered else None
        cold = None
        if is_cold and first is not None:
            before = sum(run["prefill_tokens"] for run in runs[: len(runs) - answered])
            cold = (before + first["prefill_tokens"]) / len(first["prompt"])
        return Row(host, phase, len(runs), sum(len(run["prompt"]) for run in runs), distinct, prefilled, cold)


@dataclass
class Dialogue:
    """The messages of one dialogue, asked question by question."""

    url: str
    model: str
    tools: Sequence[Json]
    messages: list[Json]
    runs: int = 0

    def ask(self, question: str) -> None:
        """Ask, give the results of the calls that come back a few times, and keep the answer.

        Raises:
            RuntimeError: the host refused.
        """
        self.messages.append({"role": "user", "content": question})
        for _ in range(_MOST_ROUNDS):
            message = self._answer()
            self.runs += 1
            self.messages.append({key: value for key, value in message.items() if value is not None})
            calls: list[Json] = message.get("tool_calls") or []
            if not calls:
                return
            self.messages += [{"role": "tool", "tool_call_id": call["id"], "content": _RESULT} for call in calls]

    def _answer(self) -> Json:
        body: Json = {"model": self.model, "messages": self.messages, "max_tokens": 200}
        body |= {"tools": self.tools} if self.tools else {"mcp": True}
        encoded, deadline = json.dumps(body).encode(), time.monotonic() + _STARTED_WITHIN_S
        status, content = _request(self.url, "POST", "/chat/completions", encoded)
        while status == 503 and time.monotonic() < deadline:
            # The model is still being loaded.
            time.sleep(0.2)
            status, content = _request(self.url, "POST", "/chat/completions", encoded)
        if status != 200:
            raise RuntimeError(f"{status} {content[:500]!r}")
        return json.loads(content)["choices"][0]["message"]


def _request(url: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_ANSWERED_WITHIN_S)
    try:
        connection.request(method, parts.path + path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@contextmanager
def _running(command: Sequence[str], url: str, environment: dict[str, str]) -> Generator[int, None, None]:
    """Run a host while the block lasts, from its first reply on; give its process.

    Raises:
        RuntimeError: it does not answer.
    """
    with tempfile.TemporaryFile() as log, _started(command, environment, log) as process:
        deadline = time.monotonic() + _STARTED_WITHIN_S
        while True:
            with suppress(OSError):
                if _request(url, "GET", "/models")[0] < 500:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                said = log.read().decode("utf-8", "replace")
                raise RuntimeError(f"the host does not answer at {url}: {shlex.join(command)}\n{said}")
            time.sleep(0.1)
        yield process.pid


@contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str], log: IO[bytes]
) -> Generator[subprocess.Popen[bytes], None, None]:
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(name: str, command: str, url: str, model: str, *, abi: str = "1.3.0", own_tools: bool = False) -> list[Row]:
    """Play the dialogues on one host; with ``own_tools`` the tools are those of our host's configuration."""
    with tempfile.TemporaryDirectory(prefix="hosts-") as scratch:
        folder, port = Path(scratch), _free_port()
        _write(folder, own_tools=own_tools)
        values: dict[str, Any] = {
            "python": sys.executable,
            "folder": folder,
            "library": emulator_library(abi),
            "model": folder / "host" / "host.rkllm",
            "port": port,
        }
        words = [word.format(**values) for word in shlex.split(command)]
        url = url.format(port=port)
        log = CallLog(folder / "calls.jsonl")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("RKLLM", "XDG", "MCP"))}
        environment |= {"HOME": scratch, "RKLLM_MCP_STATE": str(folder / "state"), "PYTHONPATH": str(REPOSITORY)}
        environment["RKLLM_EMULATOR_LOG"] = str(folder / "calls.jsonl")
        tools = [] if own_tools else [_offered(tool.name, tool.description, tool.input_schema) for tool in TOOLS]

        def begun() -> list[Dialogue]:
            system = [] if own_tools else [{"role": "system", "content": SYSTEM}]
            return [Dialogue(url, model, tools, list(system)) for _ in DIALOGUES]

        rows: list[Row] = []
        with _running(words, url, environment):
            for dialogue, questions in zip(begun(), DIALOGUES, strict=True):
                for question in questions:
                    dialogue.ask(question)
            rows.append(log.phase(name, "alone"))
            dialogues = begun()
            for questions in zip(*DIALOGUES, strict=True):
                for dialogue, question in zip(dialogues, questions, strict=True):
                    dialogue.ask(question.replace("Tell me", "Please tell me"))
            rows.append(log.phase(name, "in turn"))
        log.forget()
        with suppress(OSError), _running(words, url, environment):
            # The host's own runs at its start count, too.
            dialogue = begun()[0] if own_tools else dialogues[0]
            dialogue.runs = 0
            dialogue.ask("One more question.")
            rows.append(log.phase(name, "restart", is_cold=True, answered=dialogue.runs))
        return rows


@dataclass(frozen=True)
class TokenRow:
    """What a streamed token costs a host, microseconds."""

    host: str
    tokens: int
    cpu_us: float
    delivery_p50_us: float
    delivery_p99_us: float


@dataclass
class Streaming:
    """A running host that is asked for long answers."""

    name: str
    url: str
    model: str
    pid: int
    callbacks: Path
    costs_us: list[float] = field(default_factory=list[float])
    delays_us: list[float] = field(default_factory=list[float])
    tokens: int = 0

    def ask(self) -> None:
        """Read one answer; the time between its 20th and its last token counts."""
        before = self._callbacks()
        body: Json = {"model": self.model, "stream": True, "max_tokens": _TOKENS}
        body["messages"] = [{"role": "user", "content": "Go on"}]
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=_ANSWERED_WITHIN_S)
        arrivals: list[int] = []
        marks: list[tuple[int, int]] = []
        try:
            while True:
                headers = {"Content-Type": "application/json"}
                connection.request("POST", parts.path + "/chat/completions", json.dumps(body).encode(), headers)
                response = connection.getresponse()
                if response.status != 503:
                    break
                # The model is being loaded.
                response.read()
                time.sleep(0.2)
            while received := response.read1(65_536):
                if b'"content":' not in received or b"[DONE]" in received:
                    continue
                arrivals.append(time.monotonic_ns())
                if len(arrivals) >= 20:
                    marks.append((len(arrivals), self._cpu_ns()))
        finally:
            connection.close()
        called = [ns for (ns,) in struct.iter_unpack("=q", self.callbacks.read_bytes())][before:]
        (first, begun_ns), (last, ended_ns) = marks[0], marks[-1]
        self.costs_us.append((ended_ns - begun_ns) / (last - first) / 1e3)
        self.delays_us += [(each - called[max(bisect_right(called, each) - 1, 0)]) / 1e3 for each in arrivals[20:]]
        self.tokens += last - first

    def _callbacks(self) -> int:
        return self.callbacks.stat().st_size // 8 if self.callbacks.exists() else 0

    def _cpu_ns(self) -> int:
        return sum(map(cpu_ns, {self.pid, *processes(self.pid)}))

    def row(self) -> TokenRow:
        """The medians of the answers so far."""
        delays = sorted(self.delays_us)
        p99 = delays[len(delays) * 99 // 100]
        return TokenRow(self.name, self.tokens, statistics.median(self.costs_us), statistics.median(delays), p99)


def measure_tokens(hosts: Sequence[tuple[str, str, str, str]], *, abi: str, rounds: int = _ROUNDS) -> list[TokenRow]:
    """Run hosts side by side and let them answer in turn; each is its name, command, URL and model."""
    with tempfile.TemporaryDirectory(prefix="hosts-") as scratch, ExitStack() as running:
        streams: list[Streaming] = []
        for name, command, url, model in hosts:
            folder, port = Path(scratch) / name, _free_port()
            folder.mkdir()
            environment = prepared(folder, "board")[1]
            environment["RKLLM_EMULATOR_CALLBACKS"] = str(folder / "callbacks")
            values: dict[str, Any] = {"python": sys.executable, "folder": folder, "port": port}
            values |= {"library": emulator_library(abi), "model": folder / "words" / "words.rkllm"}
            words = [word.format(**values) for word in shlex.split(command)]
            url = url.format(port=port)
            pid = running.enter_context(_running(words, url, environment))
            streams.append(Streaming(name, url, model, pid, folder / "callbacks"))
        for stream in streams * rounds:
            stream.ask()
        return [stream.row() for stream in streams]


def _offered(name: str, description: str, schema: Any) -> Json:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(schema)}}


def _write(folder: Path, *, own_tools: bool) -> None:
    model = folder / "host"
    model.mkdir()
    (model / "host.rkllm").write_text(_MODEL, encoding="utf-8")
    (model / "tokenizer.json").symlink_to(REPOSITORY / "models" / "demo" / "tokenizer.json")
    (model / "model.toml").write_text(_CARD, encoding="utf-8")
    lines = [_CONFIG.format(folder=folder)]
    if own_tools:
        lines.append('[[servers]]\nname = "own"\ntransport = "builtin"\ntrusted = true\n')
        for tool in TOOLS:
            schema = folder / f"{tool.name}.json"
            schema.write_text(json.dumps(dict(tool.input_schema)), encoding="utf-8")
            lines.append(
                f"[[servers.tools]]\nname = {json.dumps(tool.name)}\ndescription = {json.dumps(tool.description)}\n"
                f'entry_point = "bench.hosts:weather"\nread_only = true\ninput_schema = {_toml(tool.input_schema)}\n'
            )
    (folder / "config.toml").write_text("\n".join(lines), encoding="utf-8")


def weather(**arguments: Any) -> str:
    """Answer every call of the host's own tools."""
    del arguments
    return _RESULT


def _toml(value: Any) -> str:
    """A JSON value as an inline value of TOML."""
    if isinstance(value, dict):
        items: Json = dict(value)  # pyright: ignore[reportUnknownArgumentType]  # JSON has text as keys
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in items.items()) + "}"
    return json.dumps(value)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def token_table(rows: Sequence[TokenRow]) -> str:
    """The figures of ``--tokens`` for a person."""
    lines = [f"{'host':16}{'tokens':>8}{'cpu':>10}{'delivery p50':>15}{'p99':>10}   microseconds"]
    for row in rows:
        figures = f"{row.cpu_us:10.0f}{row.delivery_p50_us:15.0f}{row.delivery_p99_us:10.0f}"
        lines.append(f"{row.host:16}{row.tokens:8}{figures}")
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """The figures for a person."""
    lines = [
        f"{'host':16}{'phase':10}{'runs':>6}{'prompts':>9}{'distinct':>10}{'prefilled':>11}{'ratio':>8}{'cold':>8}"
    ]
    for row in rows:
        cold = "-" if row.cold is None else f"{100 * row.cold:.1f} %"
        lines.append(
            f"{row.host:16}{row.phase:10}{row.runs:6}{row.prompts:9}{row.distinct:10}{row.prefilled:11}"
            f"{row.ratio:8.3f}{cold:>8}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--command", help="the host's command line; ours when not given")
    parser.add_argument("--url", default=URL, help="where its OpenAI interface is")
    parser.add_argument("--name", default="other", help="its name in the table")
    parser.add_argument("--model", default="default", help="the model that requests name")
    parser.add_argument("--abi", default="1.3.0", help="the interface of the emulated runtime, such as 1.2.3")
    parser.add_argument("--tokens", action="store_true", help="measure the cost of a streamed token")
    arguments = parser.parse_args()
    if arguments.tokens:
        hosts = [(name, command, URL, "default") for name, command in (("ours", _OURS), ("floor", FLOOR))]
        if arguments.command:
            hosts.append((arguments.name, arguments.command, arguments.url, arguments.model))
        costs = measure_tokens(hosts, abi=arguments.abi)
        print(json.dumps([asdict(row) for row in costs]) if arguments.json else token_table(costs))
        return
    if arguments.command:
        rows = measure(arguments.name, arguments.command, arguments.url, arguments.model, abi=arguments.abi)
    else:
        rows = measure("ours", _OURS, arguments.url, "default")
        rows += measure("ours own tools", _OURS, arguments.url, "default", own_tools=True)
    print(json.dumps([asdict(row) for row in rows]) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
