"""OAuth: logging in as a person and as the program, against an authorization server made of three answers."""

from __future__ import annotations

import base64
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest

from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices, open_connection_services
from rkllm_mcp.mcp_client.oauth import BrowserConsent, SignIn, TokenFile
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.clock import standing_clock, turn
from tests.support.mcp_servers.calling import said
from tests.support.mcp_servers.leftovers import Holdings
from tests.support.mcp_servers.protected import Protected
from tests.support.mcp_servers.specs import PATIENCE_S, altered, remote_server
from tests.support.mcp_servers.web import Reply, Request, serving
from tests.support.outside import hostile_server

pytestmark = pytest.mark.anyio


class Browser:
    """Somebody with a browser, who follows the address that is shown."""

    def __init__(self) -> None:
        self.visited: list[tuple[str, str]] = []
        self.query: dict[str, list[str]] = {}
        self.page = ""

    async def __call__(self, server: str, url: str) -> None:
        self.visited.append((server, urlsplit(url).path))
        self.query = parse_qs(urlsplit(url).query)
        client = httpx2.AsyncClient(timeout=60)
        async with client:
            # Strangers and curious pages come to the port too.
            redirect = (await client.get(url)).headers["location"]
            port, state = urlsplit(redirect).netloc, parse_qs(urlsplit(redirect).query)["state"][0]
            strays = (
                "favicon.ico",
                "callback?error=x",
                "callback?error=x&state=",
                f"callback?code=1&state={state[1:]}",
            )
            for stray in strays:
                assert (await client.get(f"http://{port}/{stray}")).status_code == 404
            self.page = (await client.get(redirect)).text


def host(folder: Path, browser: Browser | None) -> AbstractContextManager[ConnectionServices]:
    return (
        open_connection_services(folder)
        if browser is None
        else open_connection_services(folder, consent=BrowserConsent(browser))
    )


def spec(server: Protected, **settings: Any) -> RemoteServer:
    return remote_server("cloud", "http", url=f"{server.url}/mcp", **{"auth": "oauth", **settings})


async def test_a_person_logs_in_once_and_the_token_is_stored_for_the_next_time(tmp_path: Path) -> None:
    server, browser = Protected(), Browser()
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            before = Holdings()
            for _ in range(2):
                with host(tmp_path, browser) as own:
                    async with open_toolbox([spec(server, scopes=("read", "write"))], host=own) as toolbox:
                        await toolbox.wait_until_connected()
                        assert await said(toolbox, "echo") == ("echoed", False)
            assert Holdings().descriptors <= before.descriptors + 1
    assert browser.visited == [("cloud", "/authorize")]
    assert browser.query["resource"] == [f"{server.url}/mcp"]
    assert browser.query["redirect_uri"][0].startswith("http://127.0.0.1:")
    assert "You can close this window" in browser.page
    assert len(server.grants) == 1
    (registered,) = server.registrations
    assert (registered["client_name"], registered["scope"]) == ("rkllm-mcp", "read write")
    path = tmp_path / "oauth.json"
    assert path.stat().st_mode & 0o777 == 0o600
    (issuer,) = json.loads(path.read_text())
    assert issuer.rstrip("/") == server.url


@pytest.mark.parametrize(
    ("stated", "iss", "state"),
    [
        ("", None, "ready"),
        ("/", None, "ready"),
        ("", "", "ready"),
        ("/", "/", "ready"),
        ("/", "", "failed"),
        ("", "/", "failed"),
    ],
)
async def test_metadata_may_end_the_issuer_with_a_slash_and_an_answer_has_to_spell_it_as_they_do(
    tmp_path: Path, stated: str, iss: str | None, state: str
) -> None:
    server, browser = Protected(), Browser()
    server.issuer_end, server.iss_end = stated, iss
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            with host(tmp_path, browser) as own:
                async with open_toolbox([spec(server)], host=own) as toolbox:
                    await toolbox.wait_until_connected()
                    assert toolbox.servers()[0].state == state


async def test_an_expired_token_is_renewed_without_a_user(tmp_path: Path) -> None:
    server, browser = Protected(), Browser()
    server.expires_in = -10
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            with host(tmp_path, browser) as own:
                async with open_toolbox([spec(server)], host=own) as toolbox:
                    await toolbox.wait_until_connected()
                    assert await said(toolbox, "echo") == ("echoed", False)
    assert len(browser.visited) == 1
    assert {grant["grant_type"] for grant in server.grants} == {"authorization_code", "refresh_token"}


async def test_two_accounts_at_one_path_log_in_at_the_same_time(tmp_path: Path) -> None:
    server = Protected()
    both_wait = anyio.Event()
    waiting: list[str] = []
    pages: list[int] = []

    async def browse(name: str, url: str) -> None:
        waiting.append(url)
        if len(waiting) == 2:
            both_wait.set()
        await both_wait.wait()
        client = httpx2.AsyncClient(timeout=60)
        async with client:
            pages.append((await client.get((await client.get(url)).headers["location"])).status_code)

    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            specs = [
                remote_server(team, "http", url=f"{server.url}/mcp?team={team}", auth="oauth") for team in ("a", "b")
            ]
            with open_connection_services(tmp_path, consent=BrowserConsent(browse)) as own:
                async with open_toolbox(specs, host=own) as toolbox:
                    await toolbox.wait_until_connected()
    # The server takes the latest token only, so the other account may have to log in again.
    assert set(pages) == {200}
    assert len({parse_qs(urlsplit(url).query)["redirect_uri"][0] for url in waiting}) == 2


async def test_the_redirect_of_an_earlier_registration_stays(tmp_path: Path) -> None:
    tokens, account = TokenFile(tmp_path / "oauth.json"), "cloud https://h/mcp"
    derived = tokens.redirect_uri(account)
    assert derived == TokenFile(tmp_path / "oauth.json").redirect_uri(account)
    assert derived != TokenFile(tmp_path / "tenant.json").redirect_uri(account)
    tokens.keep(account, "https://h", {"client": {"redirect_uris": ["http://127.0.0.1:61001/callback"]}})
    assert tokens.redirect_uri(account) == "http://127.0.0.1:61001/callback"


@pytest.mark.parametrize(
    ("denies", "registers", "browser", "words"),
    [
        (True, True, Browser(), "the login to server 'cloud' was refused: not today"),
        (False, False, Browser(), "registration failed; configure client_id and redirect_uri for 'cloud'"),
        (False, True, None, "'cloud' requires a login in a browser; run 'rkllm-mcp servers test cloud'"),
    ],
    ids=["refused", "no registration", "no user"],
)
async def test_a_login_that_cannot_be_completed_says_what_to_do(
    tmp_path: Path, denies: bool, registers: bool, browser: Browser | None, words: str
) -> None:
    server = Protected()
    server.denies, server.registers = denies, registers
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            with host(tmp_path, browser) as own:
                async with open_toolbox([spec(server)], host=own) as toolbox:
                    await toolbox.wait_until_connected()
                    (state,) = toolbox.servers()
    assert state.state == "failed"
    assert words in state.reason
    assert bool(server.registrations) == denies


@standing_clock
async def test_a_person_may_take_longer_than_a_server_and_not_for_ever() -> None:
    is_asked, asked = anyio.Event(), list[str]()

    async def never(server: str, url: str) -> None:
        asked.append(server)
        is_asked.set()

    server = Protected()
    sign_in = SignIn(TokenFile(), BrowserConsent(never, timeout_s=40.0))
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            slow = altered(spec(server), connect_timeout_s=20.0)
            async with open_toolbox([slow], host=ConnectionServices(sign_in=sign_in)) as toolbox:
                await is_asked.wait()
                for _ in range(2):
                    await turn(0)
                    assert toolbox.servers()[0].state == "connecting"
                    await turn(20.0)
                await toolbox.wait_until_connected()
                assert "the login to server 'cloud' was not completed within 40 s" in toolbox.servers()[0].reason
    assert asked == ["cloud"]


async def test_a_name_that_was_registered_by_hand_is_used(tmp_path: Path) -> None:
    server, browser = Protected(), Browser()
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            with host(tmp_path, browser) as own:
                known = spec(server, client_id="mine", client_secret="s3cret")
                async with open_toolbox([known], host=own) as toolbox:
                    await toolbox.wait_until_connected()
                    assert await said(toolbox, "echo") == ("echoed", False)
    assert server.registrations == []
    assert base64.b64decode(server.basic[0].removeprefix("Basic ")) == b"mine:s3cret"


async def test_the_program_logs_in_as_itself(tmp_path: Path) -> None:
    server = Protected()
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            with host(tmp_path, None) as own:
                itself = spec(
                    server,
                    client_id="robot",
                    client_secret="s3cret",
                    auth="client_credentials",
                    scopes=("read",),
                    issuer=server.url,
                )
                async with open_toolbox([itself], host=own) as toolbox:
                    await toolbox.wait_until_connected()
                    assert await said(toolbox, "echo") == ("echoed", False)
    assert [grant["grant_type"] for grant in server.grants] == ["client_credentials"]
    assert server.grants[0]["scope"] == "read"


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint", "registration_endpoint", "issuer"])
async def test_a_server_leads_no_login_further_inside(tmp_path: Path, endpoint: str) -> None:
    inside = "http://169.254.169.254/latest"

    class Misleading(Protected):
        def answer(self, request: Request) -> Reply | None:
            if endpoint == "issuer" and request.path.startswith("/.well-known/oauth-protected-resource"):
                return Reply(200, {"resource": f"{self.url}/mcp", "authorization_servers": [inside]})
            return super().answer(request)

        def metadata(self) -> dict[str, Any]:
            return {**super().metadata(), **({} if endpoint == "issuer" else {endpoint: inside})}

    server = Misleading()
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            with host(tmp_path, Browser()) as own:
                async with open_toolbox([spec(server)], host=own) as toolbox:
                    await toolbox.wait_until_connected()
                    reason = toolbox.servers()[0].reason
    assert "http://169.254.169.254:80 is a link-local or metadata address" in reason
    assert "set issuer of 'cloud' if it is the right address" in reason
    assert server.grants == []


@pytest.mark.parametrize("endpoint", ["token_endpoint", "registration_endpoint"])
async def test_an_endpoint_of_a_login_that_answers_without_end_fails_the_login(tmp_path: Path, endpoint: str) -> None:
    with hostile_server() as outside:
        outside.way = "endless"
        reason = await _reason_with(tmp_path, {endpoint: outside.url})
        assert "the login cannot go on at 127.0.0.1: its answer is longer than 1,048,576 bytes" in reason
        assert outside.sent < 50_000_000


async def test_a_redirect_of_a_login_is_not_followed(tmp_path: Path) -> None:
    with hostile_server() as outside:
        outside.way = "given"
        outside.body = {"access_token": "stolen", "token_type": "Bearer"}
        elsewhere = Reply(307, b"", {"Location": outside.url})
        async with serving(lambda _: elsewhere) as redirecting:
            reason = await _reason_with(tmp_path, {"token_endpoint": f"{redirecting}/token"})
        assert "307" in reason
        assert outside.seen == []


async def test_metadata_of_another_issuer_ends_the_login_before_anything_is_sent_there(tmp_path: Path) -> None:
    with hostile_server() as outside:
        reason = await _reason_with(tmp_path, {"issuer": outside.url, "token_endpoint": outside.url})
        assert "issuer" in reason
        assert outside.seen == []


async def _reason_with(folder: Path, changed: dict[str, str]) -> str:
    """Return why a login fails at an authorization server whose metadata has these values."""

    class Misleading(Protected):
        def metadata(self) -> dict[str, Any]:
            return {**super().metadata(), **changed}

    server = Misleading()
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as server.url:
            with host(folder, Browser()) as own:
                async with open_toolbox([spec(server)], host=own) as toolbox:
                    await toolbox.wait_until_connected()
                    [shown] = toolbox.servers()
                    assert shown.state == "failed"
                    return shown.reason


async def test_a_port_in_use_is_reported() -> None:
    server = Protected()

    async def show(name: str, url: str) -> None:
        del name, url

    with anyio.fail_after(PATIENCE_S):
        async with serving(lambda _: Reply()) as taken, serving(server) as server.url:
            sign_in = SignIn(TokenFile(), BrowserConsent(show))
            busy = spec(server, redirect_uri=f"{taken}/callback")
            async with open_toolbox([busy], host=ConnectionServices(sign_in=sign_in)) as toolbox:
                await toolbox.wait_until_connected()
                assert "cannot listen on" in toolbox.servers()[0].reason
                assert "set another redirect_uri" in toolbox.servers()[0].reason


def test_another_issuer_of_the_same_server_replaces_the_first(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "oauth.json")
    file.keep("https://server/mcp", "https://one", {"tokens": {"access_token": "a"}})
    file.keep("https://other/mcp", "https://one", {"tokens": {"access_token": "b"}})
    file.keep("https://server/mcp", "https://two", {"client": {"client_id": "c"}})
    assert file.entry("https://server/mcp") == ("https://two", {"client": {"client_id": "c"}})
    assert file.entry("https://other/mcp")[0] == "https://one"
    (tmp_path / "oauth.json").write_text("{broken")
    assert file.entry("https://server/mcp") == ("", {})
