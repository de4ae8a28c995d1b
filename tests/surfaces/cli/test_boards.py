"""``rkllm-mcp boards``: the proxy's configuration as a real HAProxy reads it, and its rule next to the common queue."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bench.boards import COMMON_QUEUE, Load, rule_of, simulate
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import BoardSection, Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.boards import BoardStatus, differences
from rkllm_mcp.surfaces.cli.boards import board_statuses, haproxy_configuration
from tests.support.boards import public_configuration

Json = dict[str, Any]
_PATIENCE_S = 30.0
ALIKE: Sequence[Json] = [{"address": f"192.168.1.1{number}:8080"} for number in (1, 2, 3)]
AGENTS: Sequence[Json] = [{**board, "agent_port": 8079} for board in ALIKE]
# One name, then what its entry says.
SCHOOL: Mapping[str, Json] = {
    "first": {"models": ["qwen3-1.7b"]},
    "second": {"models": ["qwen3-1.7b", "gemma3-1b"]},
    "eye": {"models": ["qwen3-vl-2b"], "vision": True},
    "index": {"embeddings": True},
}


# One board for each model; the small one has another for what is too long for it, and while it is away.
FALLBACKS: Mapping[str, Json] = {
    "small": {"models": ["qwen3-0.6b"], "context_tokens": 1024, "fallback": "qwen3-4b"},
    "large": {"models": ["qwen3-4b"], "fallback": "qwen3-0.6b"},
    "eye": {"models": ["qwen3-vl-2b"], "vision": True},
}


def configured(entries: Sequence[Json], **more: Any) -> Config:
    return Config.model_validate({"boards": entries, **more})


def school(addresses: Mapping[str, str] | None = None) -> Config:
    where = addresses or {name: f"{name}.lan:8080" for name in SCHOOL}
    return configured([{"name": name, "address": where[name], **SCHOOL[name]} for name in SCHOOL])


CONFIGURATIONS = {
    "three alike": configured(ALIKE),
    "one": configured(ALIKE[:1]),
    "a school": configured([{"name": name, "address": "127.0.0.1:80", **SCHOOL[name]} for name in SCHOOL]),
    "embeddings only": configured([{"address": "[fd00::1]:8080", "embeddings": True}]),
    "tools for every chat": configured(ALIKE, service={"mcp": True, "parallel": 4}),
    "one store": configured(ALIKE, store={"url": "postgresql://db.lan/rkllm"}),
    "boards that say how much they take": configured(AGENTS),
    "other models": configured([{"name": name, "address": "127.0.0.1:80", **FALLBACKS[name]} for name in FALLBACKS]),
    "a hundred": configured([{"address": f"board{number}.lan:8080", "models": ["m"]} for number in range(100)]),
    "models without a list beside others": configured([{**ALIKE[0], "models": ["a"]}, *ALIKE[1:]]),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_haproxy_accepts_the_configuration_without_a_warning(name: str, tmp_path: Path) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not here: sudo apt install haproxy")
    file = tmp_path / "haproxy.cfg"
    # Names are looked up when it is checked.
    text = re.sub(r"[a-z0-9]+\.lan:", "127.0.0.1:", haproxy_configuration(CONFIGURATIONS[name]))
    assert "@" not in re.sub(r"fd@|unix@", "", text)
    file.write_text(text, "utf-8")
    checked = subprocess.run(["haproxy", "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert (checked.returncode, "WARNING" in checked.stderr) == (0, False), checked.stderr


def test_a_configuration_without_boards_says_what_to_write() -> None:
    with pytest.raises(UsageError, match=r"write \[\[boards\]\] with address"):
        haproxy_configuration(Config())


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('address = "192.168.1.11"', "boards[0].address"),
        ('address = "a:80\\nlisten x"', "boards[0].address"),
        ('address = "a:80"\nname = "a b"', "boards[0].name"),
        ('address = "a:80"\nmodels = ["a b } "]', "boards[0].models"),
        ('address = "a:80"\nmodels = ["a"]\nfallback = "b"', "no other entry has models"),
        ('address = "a:80"\nfallback = "b"\n[[boards]]\naddress = "b:80"\nmodels = ["c"]', "other entries have c"),
        ('address = "a:80"\nname = "board2"\n[[boards]]\naddress = "b:80"', "another entry has this name"),
    ],
)
def test_an_entry_that_would_break_the_file_is_refused(entry: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[[boards]]\n{entry}\n", "utf-8")
    with pytest.raises(Exception, match=re.escape(problem)):
        load_config(file)


# --- the rule --------------------------------------------------------------------------------------------------------

LOADS = {
    "30 people, 10 boards": Load(30, 10, hours=1),
    "50 people, 10 boards": Load(50, 10, hours=1),
    "12 people, 3 boards": Load(12, 3, hours=1),
    "50 people, 3 boards": Load(50, 3, hours=1, think_s=180),
    "persons are asked": Load(30, 10, hours=1, persons_asked=0.1),
    "one answer in twenty is long": Load(12, 3, hours=1, long_answers=0.05),
}


@pytest.mark.parametrize("load", LOADS)
def test_the_generated_rule_is_as_quick_as_one_common_queue(load: str) -> None:
    generated = simulate(rule_of(haproxy_configuration(configured(ALIKE))), LOADS[load])
    assert generated.percentile(0.95) <= 1.2 * simulate(COMMON_QUEUE, LOADS[load]).percentile(0.95)


def test_a_board_that_says_how_much_it_takes_is_given_more_while_a_person_is_asked_and_not_during_an_answer() -> None:
    agents = rule_of(haproxy_configuration(configured(AGENTS)))
    two = replace(agents, counts_persons=False)
    assert (agents.at_once, agents.counts_persons) == (2, True)
    asked, long = Load(40, 10, hours=1, persons_asked=0.3), LOADS["one answer in twenty is long"]
    assert simulate(agents, asked).percentile(0.95) < 0.8 * simulate(COMMON_QUEUE, asked).percentile(0.95)
    assert simulate(agents, long).percentile(0.95) <= 1.3 * simulate(COMMON_QUEUE, long).percentile(0.95)
    # Two answers at a time leave short questions waiting for a long one.
    assert simulate(two, long).percentile(0.99) > 1.3 * simulate(agents, long).percentile(0.99)


def test_a_rule_that_pins_conversations_is_not(tmp_path: Path) -> None:
    text = haproxy_configuration(configured(ALIKE))
    pinned = re.sub(
        r"^ *use-server .* eq 0 \}$", "    stick match var(txn.thread) table threads", text, flags=re.MULTILINE
    )
    slow = simulate(rule_of(pinned), LOADS["30 people, 10 boards"]).percentile(0.95)
    assert slow > 2 * simulate(COMMON_QUEUE, LOADS["30 people, 10 boards"]).percentile(0.95)


# --- the choice of a board, by a real HAProxy before servers that say nothing but their names ------------------------


class _Named(BaseHTTPRequestHandler):
    """Answers everything with its name, and the headers and path it got."""

    name = ""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        told = {"board": self.name, "header": self.headers.get("X-Board", "")}
        body = json.dumps({**told, "fallback": self.headers.get("X-Fallback-Model", "")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/v1/execute":
            self.send_header("X-Conversation-Id", self.headers.get("X-Conversation-Id", f"of-{self.name}"))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        del format, args


@contextmanager
def named(name: str, handler: type[_Named] = _Named) -> Generator[str, None, None]:
    """A server that answers with its name; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"name": name})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def proxied(config: Config) -> Generator[httpx2.Client, None, None]:
    """A client of HAProxy with the generated file."""
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not here: sudo apt install haproxy")
    with ExitStack() as stack:
        near = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        text = public_configuration(haproxy_configuration(config), listener.fileno(), Path(near, "a"))
        file = Path(near, "haproxy.cfg")
        file.write_text(text, "utf-8")
        command = ["haproxy", "-db", "-f", str(file)]
        silent = subprocess.DEVNULL
        process = stack.enter_context(
            subprocess.Popen(command, pass_fds=[listener.fileno()], stdout=silent, stderr=silent)
        )
        stack.callback(process.kill)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield stack.enter_context(httpx2.Client(base_url=url, timeout=_PATIENCE_S))


@pytest.fixture(scope="module")
def proxy() -> Generator[httpx2.Client, None, None]:
    """A client of HAProxy before the boards of the school."""
    with ExitStack() as stack:
        addresses = {name: stack.enter_context(named(name)) for name in SCHOOL}
        yield stack.enter_context(proxied(school(addresses)))


def asked(content: Any, **more: Any) -> Json:
    return {"messages": [{"role": "user", "content": content}], **more}


PICTURE = [
    {"type": "text", "text": "what is it?"},
    {"type": "image_url", "image_url": {"url": "data:," + "A" * 400_000}},
]
ANTHROPIC = [{"type": "image", "source": {"type": "base64", "data": "AA"}}, {"type": "text", "text": "and that?"}]
QWEN = {"first", "second"}
CHOICES: Mapping[str, tuple[str, Json, Json, set[str]]] = {
    "no model": ("/v1/chat/completions", asked("a"), {}, QWEN),
    "an alias": ("/v1/chat/completions", asked("b", model="gpt-4o"), {}, QWEN),
    "a model": ("/v1/chat/completions", asked("c", model="qwen3-vl-2b"), {}, {"eye"}),
    "a model of one of two": ("/v1/chat/completions", asked("d", model="gemma3-1b"), {}, {"second"}),
    "as Ollama writes it": ("/api/chat", asked("e", model="gemma3-1b:latest"), {}, {"second"}),
    "Anthropic": ("/v1/messages", asked("f", model="qwen3-vl-2b"), {}, {"eye"}),
    "the older completions": ("/v1/completions", {"prompt": "g", "model": "qwen3-vl-2b"}, {}, {"eye"}),
    "responses": ("/v1/responses", {"input": "h", "model": "qwen3-vl-2b"}, {}, {"eye"}),
    "a header": ("/v1/chat/completions", asked("i"), {"X-Model": "qwen3-vl-2b"}, {"eye"}),
    "a large image, then an unknown model": ("/v1/chat/completions", asked(PICTURE, model="auto"), {}, {"eye"}),
    "an image, and a model that does not see": (
        "/v1/chat/completions",
        {"model": "qwen3-1.7b", **asked(PICTURE)},
        {},
        QWEN,
    ),
    "Anthropic's image": ("/v1/messages", asked(ANTHROPIC), {}, {"eye"}),
    "Ollama's image": ("/api/generate", {"prompt": "j", "images": ["AA"]}, {}, {"eye"}),
    "embeddings": ("/v1/embeddings", {"input": "k", "model": "qwen3-1.7b"}, {}, {"index"}),
    "ranking": ("/v1/rerank", {"query": "l", "documents": []}, {}, {"index"}),
    "Ollama's embeddings": ("/api/embed", {"input": "m"}, {}, {"index"}),
    "an open question": ("/v1/approvals/question_eye.3", {"decision": "once"}, {}, {"eye"}),
    "a form": ("/v1/elicitations/question_second.12", {"action": "cancel"}, {}, {"second"}),
    "a response goes on": ("/v1/responses", {"input": "n", "previous_response_id": "resp_eye.f00"}, {}, {"eye"}),
    "a response of a board that left the file": (
        "/v1/responses",
        {"input": "o", "previous_response_id": "resp_gone.f00"},
        {},
        QWEN,
    ),
    "the page's board": ("/v1/execute", {"message": "p"}, {"Cookie": "board=eye"}, {"eye"}),
    "not JSON": ("/v1/chat/completions", {}, {}, QWEN),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_request_goes_to_a_board_that_can_answer_it(name: str, proxy: httpx2.Client) -> None:
    path, body, headers, boards = CHOICES[name]
    content = b"\xff{" if name == "not JSON" else json.dumps(body).encode()
    for _ in range(3):
        answer = proxy.post(path, content=content, headers={"Content-Type": "application/json", **headers})
        told = answer.raise_for_status().json()
        assert told["board"] in boards
        # The board is told its name, whatever the client says.
        assert told["board"] == told["header"] == answer.headers["x-board"]
        proxy.cookies.clear()


def test_a_conversation_stays_with_its_board_though_another_model_is_named(proxy: httpx2.Client) -> None:
    begun = proxy.post("/v1/execute", json={"message": "a", "model": "qwen3-vl-2b"})
    conversation = begun.headers["x-conversation-id"]
    for body in ({"conversation": conversation}, {"conversation": conversation, "model": "gemma3-1b"}):
        assert proxy.post("/v1/execute", json={"message": "b", **body}).json()["board"] == "eye"
    assert proxy.get(f"/v1/conversations/{conversation}").json()["board"] == "eye"


def test_a_request_goes_to_another_model_if_it_is_too_long_or_its_own_is_away(tmp_path: Path) -> None:
    with ExitStack() as stack:
        addresses = {name: stack.enter_context(named(name)) for name in ("large", "eye")}
        small = ExitStack()
        addresses["small"] = small.enter_context(named("small"))
        entries = [{"name": name, "address": addresses[name], **FALLBACKS[name]} for name in FALLBACKS]
        client = stack.enter_context(proxied(configured(entries)))

        def ask(text: str, **more: Any) -> tuple[str, str]:
            told = client.post("/v1/chat/completions", json=asked(text, **more)).raise_for_status().json()
            return told["board"], told["fallback"]

        with small:
            # Four bytes for each token of the window, and what fits stays.
            fits, long = "x" * 3000, "x" * 4096
            assert ask(fits, model="qwen3-0.6b") == ask(fits) == ("small", "qwen3-4b")
            assert ask(long, model="qwen3-0.6b") == ask(long) == ("large", "qwen3-4b")
            assert ask(long, model="qwen3-4b") == ("large", "qwen3-0.6b")
            assert ask(long, model="qwen3-vl-2b") == ("eye", "")
            pictures = [{"type": "image_url", "image_url": {"url": "data:," + "A" * 5000}}]
            assert client.post("/v1/chat/completions", json=asked(pictures)).json()["board"] == "eye"
            forged = client.post("/v1/chat/completions", json=asked("a", model="qwen3-vl-2b"), headers=FORGED)
            assert forged.json()["fallback"] == ""
        # Its board is gone; the question finds the other model's, which is told what it stands in for.
        assert ask("b", model="qwen3-0.6b") == ask("c") == ("large", "qwen3-4b")
        assert client.get("/v1/queue").json() == client.get("/v1/queue?model=qwen3-vl-2b").json() == {"waiting": 0}


def test_without_any_board_the_proxy_says_so_by_a_code_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with proxied(configured([{"address": address}])) as client:
        answer = client.post("/v1/execute", json={"message": "x"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["error"] == {
        "message": "no board can answer now; ask again in a moment",
        "type": "server_error",
        "param": None,
        "code": "no_board",
    }


FORGED = {"X-Fallback-Model": "qwen3-4b"}


def test_a_client_cannot_name_the_board_itself(proxy: httpx2.Client) -> None:
    told = proxy.post("/v1/chat/completions", json=asked("x"), headers={"X-Board": "evil"}).json()
    assert told["header"] == told["board"]


def compared(**changes: Any) -> Json:
    same = {"version": "0.1.0", "model_bytes": 2_000_000_000, "template": "qwen3", "servers": ["weather"]}
    return {**same, "limits": {"service.history_days": "null"}, "clock_ahead_s": 0.2, **changes}


def test_what_is_not_the_same_at_all_boards_is_named_with_who_has_it() -> None:
    def boards(*told: tuple[str, Json | None]) -> list[BoardStatus]:
        return [
            BoardStatus(f"board{number}", "a:80", True, "ready", model, compared=each)
            for number, (model, each) in enumerate(told, 1)
        ]

    alike = ("qwen3-1.7b", compared())
    assert differences(boards(alike, ("qwen3-1.7b", compared(clock_ahead_s=-1.5)), ("gone", None))) == []
    # Another model has another file and another form.
    assert differences(boards(alike, alike, ("gemma", compared(model_bytes=5, template="gemma")))) == []
    # A file of the same size is another one, once all boards have read theirs.
    one, two = compared(model_digest="a" * 64), compared(model_digest="b" * 64)
    assert differences(boards(("m", one), ("m", two), ("m", one))) == [
        ("model file m", "2,000,000,000 bytes, SHA-256 aaaaaaaaaaaa…", "board1, board3"),
        ("model file m", "2,000,000,000 bytes, SHA-256 bbbbbbbbbbbb…", "board2"),
    ]
    assert differences(boards(("m", one), ("m", compared()))) == []
    odd = compared(version="0.2.0", clock_ahead_s=-259_199.8, servers=[], limits={"service.history_days": "2"})
    assert differences(boards(alike, alike, ("qwen3-1.7b", {**odd, "model_bytes": 7}))) == [
        ("clock", "the same", "board1, board2"),
        ("clock", "3 d behind", "board3"),
        ("version", "0.1.0", "board1, board2"),
        ("version", "0.2.0", "board3"),
        ("model file qwen3-1.7b", "2,000,000,000 bytes", "board1, board2"),
        ("model file qwen3-1.7b", "7 bytes", "board3"),
        ("servers", "weather", "board1, board2"),
        ("servers", "none", "board3"),
        ("service.history_days", "null", "board1, board2"),
        ("service.history_days", "2", "board3"),
    ]


# --- status -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_program_that_is_not_a_board_and_an_address_that_nobody_has_are_told_apart() -> None:
    with named("x") as address, socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        closed.close()
        boards = {"a": BoardSection(address=address), "b": BoardSection(address=nobody)}
        states = [(status.is_ready, status.state) for status in await board_statuses(boards, {})]
    assert states[0] == (False, "unreadable: model: Field required")
    assert states[1][0] is False
    assert states[1][1].startswith("not reachable (")


class _Refusing(_Named):
    """A board that takes questions and does not know the other boards; ``name`` is its date."""

    def do_GET(self) -> None:
        self.send_response_only(200 if self.path == "/readyz" else 401)
        self.send_header("Date", self.name)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("ahead_s", "reason"),
    [
        (2.0, "it has another boards_secret; 'rkllm-mcp boards join' there"),
        (259_230.0, "its clock is 3 d ahead of this machine's; 'timedatectl' on both shows which is wrong"),
        (-7230.0, "its clock is 2 h behind this machine's; 'timedatectl' on both shows which is wrong"),
    ],
)
async def test_a_board_that_does_not_know_the_others_by_its_clock_is_told_from_one_with_another_secret(
    ahead_s: float, reason: str
) -> None:
    date = formatdate(time.time() + ahead_s, usegmt=True)
    with named(date, _Refusing) as address:
        [status] = await board_statuses({"a": BoardSection(address=address)}, {}, "secret")
    assert status.is_ready
    assert re.sub(r" \d+ (?:min|s)\b", "", status.state) == f"ready ({reason})"
