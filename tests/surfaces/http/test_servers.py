"""Servers over HTTP: tested, logged in to, tried and added; and who may do that."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import RemoteServer, StdioServer
from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.models.embedders import RECOMMENDED, EmbedderSources
from tests.support.feature_demo import NOTES
from tests.support.mcp_servers.protected import Protected
from tests.support.mcp_servers.web import Mcp, Reply, Request, echoed, serving_beside
from tests.support.served import Served, scripted_model, served

Json = dict[str, Any]
RULES = "rule\n  say Hello there.\n"
OWNER, TENANT, LIMITED = "key-of-the-owner-1", "key-of-the-tenant-1", "key-of-the-owner-2"
KEYS = (
    f'[service]\napi_keys = ["{OWNER}"]\n[[service.keys]]\nkey = "{LIMITED}"\nallow = ["chat", "tools", "approve"]\n'
    f'[[tenants]]\nname = "kitchen"\napi_key = "{TENANT}"\nmay_approve = true\nmay_write = true\n'
)
INSTALLS = "[security]\ninstall_servers = true\n"
SECRET = "a-secret-of-the-crm-4711"


def ask(
    service: Served, method: str, path: str, body: Mapping[str, Any] | None = None, key: str = OWNER, **more: Any
) -> httpx2.Response:
    client = httpx2.Client(base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=120)
    with client:
        return client.request(method, path, json=body, **more)


def trial_of(service: Served, name: str, key: str = OWNER) -> Json:
    return ask(service, "POST", f"/v1/servers/{name}:test", {}, key).raise_for_status().json()


def states(service: Served) -> dict[str, str]:
    servers = ask(service, "GET", "/v1/servers").raise_for_status().json()["servers"]
    return {server["name"]: server["state"] for server in servers}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return scripted_model(tmp_path / "model", RULES)


@pytest.fixture
def crm() -> Generator[Mcp]:
    """A server at an address that takes a key."""

    class Crm(Mcp):
        url = ""

    def look(request: Request) -> Reply | None:
        if request.path == "/page":
            return Reply(200, b"<html>")
        if request.path == "/down":
            return Reply(503)
        return None if request.headers.get("x-api-key") == SECRET else Reply(401)

    server = Crm({"echo": echoed})
    server.meanwhile = look
    with serving_beside(server) as server.url:
        yield server


def test_a_server_is_pinged_where_it_runs_and_else_started_and_stopped(tmp_path: Path, model: Path) -> None:
    lazy = (
        '[[servers]]\nname = "lazy"\ncommand = "${PYTHON}"\nargs = ["-m", "tests.support.mcp_servers.notebook"]\n'
        'lazy = true\n[[servers]]\nname = "broken"\ncommand = "false"\n'
    )
    with served(tmp_path / "home", model, (NOTES,), extra=lazy + KEYS) as it:
        running = trial_of(it, "notes")
        assert (running["state"], running["problem"], running["failure"]) == ("ready", "", "")
        assert running["tokens"] == sum(tool["tokens"] for tool in running["tools"]) > 0
        broken = trial_of(it, "broken")
        assert (broken["state"], broken["tools"]) == ("failed", [])
        assert "exited with code 1" in broken["problem"]
        # Without tools of its own from before, a lazy server is started once, at its first use.
        while (before := states(it))["lazy"] == "connecting":
            assert trial_of(it, "notes")["state"] == "ready"
        for key in (OWNER, TENANT):
            assert trial_of(it, "lazy", key)["state"] == "ready"
        assert states(it) == before
        assert ask(it, "POST", "/v1/servers/nothing:test", {}).status_code == 404


def test_a_person_logs_in_on_the_board_or_hands_the_address_over(tmp_path: Path, model: Path) -> None:
    server = Protected()
    with serving_beside(server) as server.url:
        entry = f'[[servers]]\nname = "crm"\nurl = "{server.url}/mcp"\nauth = "oauth"\n'
        with served(tmp_path / "home", model, (NOTES,), extra=entry + KEYS) as it:
            assert trial_of(it, "crm")["failure"] == "login"
            (crm, _) = ask(it, "GET", "/v1/servers").json()["servers"]
            assert (crm["state"], crm["can_log_in"]) == ("failed", True)
            assert not any(each["can_log_in"] for each in ask(it, "GET", "/v1/servers", key=TENANT).json()["servers"])
            for key in (TENANT, LIMITED):
                assert ask(it, "POST", "/v1/servers/crm:login", {}, key).status_code == 403
                assert ask(it, "GET", "/v1/servers/crm:login", key=key).status_code == 403
            assert ask(it, "GET", "/v1/servers/crm:login").status_code == 404, "none was begun"
            assert ask(it, "POST", "/v1/servers/notes:login", {}).status_code == 409

            # The browser is on another machine: its address bar is pasted.
            login = ask(it, "POST", "/v1/servers/crm:login", {}).json()
            assert (login["state"], login["address"].startswith(f"{server.url}/authorize?")) == ("waiting", True)
            sent_to = httpx2.get(login["address"]).headers["location"]
            for wrong in (
                "https://example.com/?code=1",
                sent_to.partition("?")[0],
                "code",
                sent_to.replace(":6", ":5"),
                # A state that the service did not make.
                f"{sent_to.partition('?')[0]}?code=stolen&state=mine",
            ):
                refused = ask(it, "POST", "/v1/servers/crm:login", {"address": wrong})
                assert (refused.status_code, refused.json()["error"]["param"]) == (422, "address"), wrong
            assert server.grants == [], "nothing is exchanged for it"
            login = ask(it, "POST", "/v1/servers/crm:login", {"address": sent_to}).json()
            assert (login["state"], login["problem"]) == ("ready", "")
            assert states(it)["crm"] == "ready"
            assert trial_of(it, "crm")["state"] == "ready"
            (crm, _) = ask(it, "GET", "/v1/servers").json()["servers"]
            assert (crm["error"], crm["can_log_in"]) == ("", False)


def test_a_login_with_a_browser_on_the_board_is_followed_and_a_refused_one_says_so(tmp_path: Path, model: Path) -> None:
    server = Protected()
    with serving_beside(server) as server.url:
        entry = f'[[servers]]\nname = "crm"\nurl = "{server.url}/mcp"\nauth = "oauth"\n'
        with served(tmp_path / "home", model, extra=entry + KEYS) as it:
            for server.denies in (True, False):
                first = ask(it, "POST", "/v1/servers/crm:login", {}).json()
                login = ask(it, "POST", "/v1/servers/crm:login", {}).json()
                assert login["address"] != first["address"], "it begins anew"
                back = httpx2.get(login["address"]).headers["location"]
                assert "close this window" in httpx2.get(back).text
                over = ask(it, "GET", "/v1/servers/crm:login", params={"known": "waiting"}).json()
                assert over["state"] == ("failed" if server.denies else "ready")
                assert ("not today" in over["problem"]) == server.denies
            ask(it, "POST", "/v1/servers/crm:login", {}).raise_for_status()
            assert states(it) == {"crm": "ready"}


def test_a_server_is_tried_and_then_added_by_its_address_and_its_key_is_never_shown(
    tmp_path: Path, model: Path, crm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    new: Json = {"name": "crm", "url": f"{crm.url}/mcp", "headers": {"X-Api-Key": SECRET}}
    said = ""
    with served(tmp_path / "home", model, (NOTES,), extra=INSTALLS + KEYS) as it:
        assert ask(it, "GET", "/v1/servers/gallery").json()["can_add"] is True
        for change, status, what in (
            ({"url": "crm.example.com"}, 422, "url"),
            ({"url": "ftp://example.com/mcp"}, 422, "url"),
            ({"url": f"{crm.url}/${{HOME}}"}, 422, "url"),
            ({"name": "a/b"}, 422, "name"),
            ({"name": ""}, 422, "name"),
            ({"headers": {"X-Api-Key": f"{SECRET}\n"}}, 422, "headers.X-Api-Key"),
            ({"headers": {"X-Api-Key": f"${{{SECRET}}}"}}, 422, "headers"),
            ({"gallery": "time"}, 422, "url"),
        ):
            for path in ("/v1/servers:try", "/v1/servers"):
                refused = ask(it, "POST", path, {**new, **change})
                assert (refused.status_code, refused.json()["error"]["param"]) == (status, what), refused.text
                said += refused.text
        failing: tuple[tuple[Json, str], ...] = (
            ({"url": "http://127.0.0.1:9/mcp"}, "unreachable"),
            ({"url": f"{crm.url}/page"}, "not_mcp"),
            ({"url": f"{crm.url}/down"}, ""),
            ({"headers": {}}, "key"),
        )
        for change, failure in failing:
            tried = ask(it, "POST", "/v1/servers:try", {**new, **change})
            assert (tried.status_code, tried.json()["state"], tried.json()["failure"]) == (200, "failed", failure)
            assert tried.json()["problem"]
            said += tried.text
        tried = ask(it, "POST", "/v1/servers:try", new)
        assert [tool["name"] for tool in tried.json()["tools"]] == ["echo"]
        assert tried.json()["tokens"] > 0
        assert list(states(it)) == ["notes"], "nothing is added by a try"
        added = ask(it, "POST", "/v1/servers", new)
        assert (added.status_code, added.json()) == (
            201,
            {"name": "crm", "is_in_force": True, "problem": "", "embedder_problem": ""},
        )
        assert trial_of(it, "crm")["state"] == "ready"
        again = ask(it, "POST", "/v1/servers", new)
        assert (again.status_code, again.json()["error"]["code"]) == (422, "name_taken")
        for path in ("/v1/servers", "/v1/tools", "/v1/servers/gallery", "/v1/tools/history", "/v1/me"):
            said += ask(it, "GET", path).text
        said += tried.text + added.text + again.text
        config = tmp_path / "home" / "mcp_config.toml"
        (server,) = [each for each in load_config(config).servers if each.name == "crm"]
        assert isinstance(server, RemoteServer)
        assert server.headers_template == {"X-Api-Key": SECRET}
    assert SECRET not in said
    assert SECRET not in caplog.text


def assert_nobody_adds(service: Served, new: Json, codes: Mapping[str, str]) -> None:
    """That no key adds a server, by address or from the gallery, and with which code each is refused."""
    for key, code in codes.items():
        for path in ("/v1/servers:try", "/v1/servers"):
            for body in (new, {"gallery": "time"}):
                refused = ask(service, "POST", path, body, key)
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, code), (key, path)
        assert ask(service, "GET", "/v1/servers/gallery", key=key).json()["can_add"] is False
    assert states(service) == {}
    foreign = {"Origin": "https://evil.example.com", "Authorization": f"Bearer {OWNER}"}
    assert httpx2.post(f"{service.url}/v1/servers", json=new, headers=foreign).status_code == 403


@pytest.mark.parametrize(
    ("keys", "codes"),
    [(KEYS, {TENANT: "key_purpose", LIMITED: "key_purpose"}), ("", {OWNER: "needs_key"})],
    ids=["with keys", "without keys"],
)
def test_where_servers_may_be_added_only_a_whole_key_of_the_owner_adds_them(
    tmp_path: Path, model: Path, crm: Any, keys: str, codes: dict[str, str]
) -> None:
    with served(tmp_path / "home", model, extra=INSTALLS + keys) as it:
        assert_nobody_adds(it, {"name": "crm", "url": f"{crm.url}/mcp"}, codes)
    assert crm.heard == [], "no address was asked"


def test_a_server_of_the_gallery_is_installed_as_the_command_does_it(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("uvx", "npx"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    allowed = f'{INSTALLS}allowed_commands = ["{programs}/npx"]\n'
    with served(tmp_path / "home", model, extra=allowed + KEYS) as it:
        for body, said in (
            ({"gallery": "nothing"}, "the gallery has no server 'nothing'"),
            ({"gallery": "files"}, "works in a folder"),
            ({"gallery": "files", "folder": "notes"}, "write an absolute path"),
            ({"gallery": "files", "folder": str(tmp_path / "gone")}, "there is no folder"),
            ({"gallery": "time"}, "security.allowed_commands allows"),
        ):
            for path in ("/v1/servers:try", "/v1/servers"):
                refused = ask(it, "POST", path, body)
                assert refused.status_code in {400, 422}
                assert said in refused.text
        config = tmp_path / "home" / "mcp_config.toml"
        assert load_config(config).servers == ()
        installed = ask(it, "POST", "/v1/servers", {"gallery": "files", "folder": str(tmp_path)})
        if "bubblewrap" in installed.text:
            pytest.skip("there is no usable bubblewrap here")
        assert installed.json() == {"name": "files", "is_in_force": True, "problem": "", "embedder_problem": ""}
        (server,) = load_config(config).servers
        assert isinstance(server, StdioServer)
        assert (server.command, server.sandbox, server.sandbox_write) == ("npx", True, (tmp_path,))
        assert "exited with code 1" in trial_of(it, "files")["problem"]
        gallery = ask(it, "GET", "/v1/servers/gallery").json()["servers"]
        assert [each["name"] for each in gallery if each["installed"]] == ["files"]


@pytest.mark.parametrize(
    ("keys", "codes"),
    [
        (KEYS, {OWNER: "install_servers", TENANT: "key_purpose", LIMITED: "key_purpose"}),
        ("", {OWNER: "needs_key"}),
    ],
    ids=["with keys", "without keys"],
)
def test_a_browser_that_was_linked_in_a_terminal_adds_the_shown_server_and_nothing_else(
    tmp_path: Path, model: Path, crm: Any, keys: str, codes: dict[str, str]
) -> None:
    with served(tmp_path / "home", model, extra=keys) as it:
        assert_nobody_adds(it, {"name": "crm", "url": f"{crm.url}/mcp"}, codes)
        assert crm.heard == [], "no address was asked"
        key = httpx2.post(f"{it.url}/v1/devices:exchange", json={"code": it.new_code(), "name": "page"}).json()["key"]
        gallery = ask(it, "GET", "/v1/servers/gallery", key=key).json()
        assert gallery["can_add"] is True
        (knowledge,) = [each for each in gallery["servers"] if each["name"] == "knowledge"]
        assert "${PYTHON}" not in knowledge["command"]
        for command in ([], ["sh", "-c", "true"], knowledge["command"][:-1]):
            other = ask(it, "POST", "/v1/servers", {"gallery": "knowledge", "command": command}, key)
            assert (other.status_code, other.json()["error"]["code"]) == (409, "another_command")
        assert list(states(it)) == []
        foreign = {"Origin": "https://evil.example.com", "Authorization": f"Bearer {key}"}
        shown = {"gallery": "knowledge", "command": knowledge["command"]}
        assert httpx2.post(f"{it.url}/v1/servers", json=shown, headers=foreign).status_code == 403
        added = ask(it, "POST", "/v1/servers", shown, key)
        assert (added.status_code, added.json()["is_in_force"]) == (201, True)
        made = ask(it, "POST", "/v1/knowledge/create_knowledge_base", {"arguments": {"name": "Documents"}}, key)
        assert made.status_code == 200, made.text


@pytest.mark.parametrize("problem", ["", "there is no network"], ids=["fetched", "without a network"])
def test_the_knowledge_server_is_added_with_the_embedding_model_or_says_why_it_is_missing(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    fetched = list[str]()

    def pull(self: EmbedderSources, name: str, *_: object) -> None:
        if problem:
            raise ModelFileError(problem, "Free some space.")
        self.folders.folder(name).mkdir(parents=True)
        self.choose(name)
        fetched.append(name)

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(EmbedderSources, "pull", pull)
    with served(tmp_path / "home", model, extra=INSTALLS + KEYS) as it:
        offered = ask(it, "GET", "/v1/servers/gallery").json()["embedder"]
        assert offered == {"name": RECOMMENDED, "download_mb": 31, "memory_mb": 150, "installed": False}
        added = ask(it, "POST", "/v1/servers", {"gallery": "knowledge", "embedder": True}).json()
        assert (added["is_in_force"], added["embedder_problem"]) == (True, problem and f"{problem} Free some space.")
        assert fetched == ([] if problem else [RECOMMENDED])
        assert ask(it, "GET", "/v1/servers/gallery").json()["embedder"]["installed"] is not bool(problem)


@contextmanager
def imitated_registry(answers: list[tuple[int, bytes]]) -> Generator[tuple[str, list[str]]]:
    """A registry that gives one answer after the other; the last one again. Yields its address and what was asked."""
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=60)


def test_the_registry_is_asked_only_when_the_owner_wants_it(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {
        "server": {
            "name": "com.example/weather",
            "description": "Weather",
            "version": "1.0.0",
            "remotes": [{"type": "streamable-http", "url": "https://weather.example/mcp"}],
        },
        "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": True}},
    }
    page = json.dumps({"servers": [entry], "metadata": {"nextCursor": "more of it", "count": 1}}).encode()
    last = json.dumps({"servers": [], "metadata": {"count": 0}}).encode()
    answers = [(200, page), (200, last), (500, b""), (200, b"<html>"), (200, b"[]"), (200, b" " * (5 << 20))]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with imitated_registry(answers) as (address, asked):
        monkeypatch.setenv("RKLLM_MCP_SERVICE__REGISTRY_URL", f"{address}/")
        with served(tmp_path, model, extra=KEYS) as service:

            def search(key: str = OWNER, **query: Any) -> httpx2.Response:
                return ask(service, "GET", "/v1/servers/registry", key=key, params=query)

            copy = search(search="context7").json()
            assert [server["short"] for server in copy["servers"]] == ["context7"]
            assert (copy["registry"], copy["cursor"], bool(copy["date"])) == (f"{address}/", "", True)
            assert asked == [], "the copy is searched here"
            for key in (TENANT, LIMITED):
                assert search(key, search="weather", live=True).status_code == 403
            assert asked == []
            found = search(search="weather & more", live=True).json()
            assert [(server["name"], server["url"]) for server in found["servers"]] == [
                ("com.example/weather", "https://weather.example/mcp")
            ]
            assert (found["date"], found["cursor"]) == ("", "more of it")
            assert search(search="weather & more", live=True, cursor=found["cursor"]).json()["servers"] == []
            query = "/v0/servers?search=weather+%26+more&version=latest&limit=30"
            assert asked == [query, f"{query}&cursor=more+of+it"]
            for reason in ("it answered 500", "not JSON", "no list of servers", "longer than"):
                refused = search(search="x", live=True)
                assert (refused.status_code, reason in refused.text) == (503, True), refused.text
    assert "https://weather.example" not in (tmp_path / "mcp_config.toml").read_text("utf-8")
