"""Tenants behind servers that want a login: each has their own, at one address too, and tokens never cross."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from rkllm_mcp.app.tenants import Tenants, open_tenants
from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.store.database import state_file
from tests.support.demo_app import make_demo
from tests.support.mcp_servers.tiny import Arguments, TinyServer
from tests.support.mcp_servers.web import Mcp, Reply, Request, serving

pytestmark = pytest.mark.anyio
NOBODYS = CallContext()


class Accounts(Mcp):
    """A server that tells whose token it was called with, and its authorization server."""

    def __init__(self) -> None:
        super().__init__({"whose": self.whose})
        self.url = ""
        self.issued: list[str] = []
        self.meanwhile = self.answer

    def whose(self, _: TinyServer, __: Arguments) -> str:
        return self.request.headers["authorization"].removeprefix("Bearer ")

    def answer(self, request: Request) -> Reply | None:
        if request.path.startswith("/.well-known/oauth-protected-resource"):
            return Reply(200, {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})
        if request.path.startswith("/.well-known/oauth-authorization-server"):
            endpoints = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token")}
            methods = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
            return Reply(200, {"issuer": self.url, **endpoints, **methods})
        if request.path == "/authorization":
            query = request.query
            return Reply(302, b"", {"Location": f"{query['redirect_uri']}?code=ok&state={query['state']}"})
        if request.path == "/token":
            name = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode().partition(":")[0]
            self.issued.append(f"token-{len(self.issued)}-of-{name}")
            return Reply(200, {"access_token": self.issued[-1], "token_type": "Bearer", "expires_in": 3600})
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.issued:
            return Reply(401, b"", {"WWW-Authenticate": "Bearer"})
        return None


def entry(name: str, url: str, auth: str) -> str:
    return (
        f'[[servers]]\nname = "crm_{name}"\nurl = "{url}/mcp"\nauth = "{auth}"\nissuer = "{url}"\n'
        f'approve = "dangerous"\nclient_id = "{name}"\nclient_secret = "secret-of-{name}"\n'
    )


def tenant(name: str, server: str) -> str:
    return f'[[tenants]]\nname = "{name}"\napi_key = "key-of-{name}"\nservers = ["crm_{server}"]\n'


@asynccontextmanager
async def world(folder: Path, extra: str) -> AsyncGenerator[Config, None]:
    """A configuration in its own environment."""
    demo = make_demo(folder, [], extra=extra)
    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(120):
        for name, value in {**demo.environment, "RKLLM_MCP_STATE": str(folder / "state")}.items():
            patch.setenv(name, value)
        yield load_config(demo.config)


async def whose(tenants: Tenants, name: str, tool: str = "whose") -> str:
    """Whose token a tenant's call is made with."""
    app = tenants.tenant(name).app
    await app.ready()
    spec = app.toolbox.resolve(tool)
    assert spec is not None, app.toolbox.servers()
    result = await app.toolbox.call(ToolCall("call_1", spec.name, {}), NOBODYS)
    assert not result.is_error, result.text
    return result.text


def kept(folder: Path, name: str) -> Any:
    """The logins that are kept for somebody."""
    path = state_file({"RKLLM_MCP_STATE": str(folder / "state")}, name).with_name("oauth.json")
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


async def test_two_tenants_with_accounts_at_one_address_never_use_each_others(tmp_path: Path) -> None:
    server = Accounts()
    async with serving(server) as server.url:
        people = ("ann", "bob")
        servers = "".join(entry(name, server.url, "client_credentials") for name in people)
        extra = servers + "".join(tenant(name, name) for name in people) + '[security]\napprove = "never"\n'
        async with world(tmp_path, extra) as config:
            # A second time with what was kept the first time.
            for _ in range(2):
                async with open_tenants(config) as tenants:
                    for name in (*people, *reversed(people)):
                        assert (await whose(tenants, name)).endswith(f"-of-{name}")
                    # The owner has both, under both names.
                    for name in people:
                        assert (await whose(tenants, "", f"mcp__crm_{name}__whose")).endswith(f"-of-{name}")
            for name in people:
                ((accounts),) = kept(tmp_path, name).values()
                assert list(accounts) == [f"crm_{name} {server.url}/mcp"]
                assert f"-of-{name}" in json.dumps(accounts)
            assert len(server.issued) == 4
            assert len(next(iter(kept(tmp_path, "").values()))) == 2


async def test_a_login_belongs_to_its_tenant_alone(tmp_path: Path) -> None:
    server = Accounts()

    async def browse(name: str, url: str) -> None:
        client = httpx2.AsyncClient(timeout=60)
        async with client:
            await client.get((await client.get(url)).headers["location"])
        assert name == "crm_shared"

    async with serving(server) as server.url:
        extra = entry("shared", server.url, "oauth") + tenant("ann", "shared") + tenant("bob o'brien", "shared")
        async with world(tmp_path, extra) as config:
            ann = next(section for section in config.tenants if section.name == "ann")
            async with open_tools(config.for_tenant(ann), log_in=browse) as environment:
                await environment.toolbox.wait_until_connected()
                assert environment.toolbox.servers()[0].state == "ready"
            lines: list[str] = []
            everybody_knows = anyio.Event()

            def status(line: str) -> None:
                lines.append(line)
                if sum("requires a login in a browser" in each for each in lines) == 2:
                    everybody_knows.set()

            async with open_tenants(config, status=status) as tenants:
                assert await whose(tenants, "ann") == "token-0-of-shared"
                await everybody_knows.wait()
    said = "\n".join(lines)
    assert "run 'rkllm-mcp servers test crm_shared' in a terminal" in said
    assert "run 'rkllm-mcp servers test crm_shared --tenant " + shlex.quote("bob o'brien") in said
    assert "--tenant ann" not in said
    assert [bool(kept(tmp_path, name)) for name in ("ann", "bob o'brien", "")] == [True, False, False]
