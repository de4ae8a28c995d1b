"""The tools over HTTP: MCP and plain JSON, behind a door."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_servers.knowledge.http import create_app, serve_http
from mcp_servers.knowledge.service import open_service
from mcp_servers.knowledge.settings import HttpSettings, Settings, SettingsError, TokenSettings
from tests.support.knowledge_server import RULES, Mode, said

pytestmark = pytest.mark.anyio

SECRET = "a secret of more than thirty-two bytes"
WITH_TOKENS = HttpSettings(port=0, tokens=TokenSettings(SECRET))
OPEN = HttpSettings(port=0)


def token(tenant: str = "acme", seconds: float = 600, **more: Any) -> dict[str, str]:
    made = jwt.encode({"exp": time.time() + seconds, "tenant": tenant, **more}, SECRET, "HS256")
    return {"Authorization": f"Bearer {made}"}


@dataclass(frozen=True)
class Web:
    """The service at an address."""

    client: httpx2.AsyncClient
    address: str

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
        answer = await self.client.request(method, self.address + path, json=body, headers=headers)
        return answer.status_code, answer.json()

    async def base(self) -> str:
        """A new knowledge base with one document."""
        code, made = await self.ask("POST", "/knowledge_bases", {"name": "規程"})
        assert code == 201
        code, _ = await self.ask("POST", f"/knowledge_bases/{made['knowledge_base_id']}/documents", {"text": RULES})
        assert code == 201
        return made["knowledge_base_id"]


@asynccontextmanager
async def served(folder: Path, http: HttpSettings, **headers: str) -> AsyncGenerator[Web, None]:
    ports: list[int] = []
    is_open = anyio.Event()

    def tell(port: int) -> None:
        ports.append(port)
        is_open.set()

    client = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60)
    with anyio.fail_after(60):
        async with (
            client,
            open_service(Settings(folder)) as service,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(serve_http, create_app(service, http), http, tell)
            await is_open.wait()
            yield Web(client, f"http://127.0.0.1:{ports[0]}")
            tasks.cancel_scope.cancel()


async def test_every_tool_has_a_path(tmp_path: Path) -> None:
    async with served(tmp_path, OPEN) as web:
        base_id = await web.base()
        base = f"/knowledge_bases/{base_id}"
        _, listed = await web.ask("GET", "/knowledge_bases")
        _, one = await web.ask("GET", base)
        _, found = await web.ask("POST", f"{base}/search", {"query": "リモートワーク手当の金額は？", "threshold": 0.5})
        _, summary = await web.ask("GET", f"{base}/summary")
        _, indexed = await web.ask("POST", f"{base}/reindex")
        _, corrected = await web.ask("POST", "/normalize", {"text": "マネ-ジャ-"})
        (document,) = one["documents"]
        refused, _ = await web.ask("DELETE", base)
        removed, _ = await web.ask("DELETE", f"/documents/{document['document_id']}")
        gone, _ = await web.ask("DELETE", base)
        healthy = await web.client.get(f"{web.address}/healthz")
    assert [entry["name"] for entry in listed["knowledge_bases"]] == ["規程"]
    assert found["results"][0]["content"] == "リモートワーク手当は月額5,000円を支給する。"
    assert summary["statistics"]["total_chunks"] == indexed["chunks"] == 2
    assert corrected["normalized_text"] == "マネージャー"
    assert (refused, removed, gone, healthy.text) == (422, 200, 200, "ok")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_token_says_who_asks_over_mcp(tmp_path: Path, mode: Mode) -> None:
    async with served(tmp_path, WITH_TOKENS, **token("acme")) as web:
        base_id = await web.base()

        async def ask(headers: dict[str, str]) -> list[str]:
            client = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60)
            async with (
                client,
                Client(streamable_http_client(f"{web.address}/mcp", http_client=client), mode=mode) as connected,
            ):
                arguments = {"query": "リモートワーク手当", "knowledge_base_id": base_id}
                answer = said(await connected.call_tool("search_documents", arguments))
                path = said(
                    await connected.call_tool("add_document", {"knowledge_base_id": base_id, "path": "/etc/hostname"})
                )
                return [answer.text if answer.is_error else "found", path.text]

        own, other = await ask(token("acme")), await ask(token("other"))
    assert own[0] == "found"
    assert own[1].startswith("The path is not read: it is on the server's machine")
    assert [answer.partition(".")[0] for answer in other] == ["Access denied to this knowledge base"] * 2


async def test_the_promised_statuses(tmp_path: Path) -> None:
    async with served(tmp_path, WITH_TOKENS, **token("acme")) as web:
        base_id = await web.base()
        base, nowhere = f"/knowledge_bases/{base_id}", f"/knowledge_bases/{base_id[:-12]}000000000000"
        cases: list[tuple[tuple[int, dict[str, Any]], int, str]] = [
            (await web.ask("GET", f"{base}/summary", **token("other")), 403, "Access denied to this knowledge base"),
            (await web.ask("GET", f"{nowhere}/summary"), 404, "Knowledge base not found"),
            (await web.ask("POST", f"{base}/search", {"query": "量子力学"}), 404, "No results found"),
            (await web.ask("POST", f"{base}/search", {"query": "x", "threshold": 2}), 422, "threshold out of range"),
            (await web.ask("POST", f"{base}/search", {"query": "x", "max_results": 51}), 422, "max_results exceeds"),
            (await web.ask("POST", f"{base}/search", ["query"]), 422, "the body is not an object"),
            (await web.ask("POST", "/normalize", {"text": "ア" * 10_001}), 413, "Text too long (max 10000 chars)"),
            (await web.ask("POST", "/normalize", {"text": "ア" * 4_200_000}), 413, "The request has more than 4 MB"),
        ]  # fmt: skip
        expired = "Invalid authentication credentials: it has expired"
        for path in ("/mcp", f"{base}/summary", "/knowledge_bases", "/none"):
            cases += [(await web.ask("POST", path, {}, **token(seconds=-100)), 401, expired)]
        challenge = await web.client.get(f"{web.address}/mcp", headers={"Authorization": ""})
        lost = await web.client.get(f"{web.address}/none")
    for (code, answer), expected, words in cases:
        assert (code, answer["error"]["status"]) == (expected, expected)
        assert answer["error"]["message"].startswith(words)
    assert (challenge.status_code, challenge.headers["www-authenticate"]) == (401, "Bearer")
    assert lost.status_code == 404


async def test_without_tokens_only_programs_of_this_machine_are_let_in(tmp_path: Path) -> None:
    async with served(tmp_path, OPEN) as web:
        codes = [
            (await web.ask("GET", "/knowledge_bases", **headers))[0]
            for headers in (
                {"Host": "evil.example"},
                {"Host": "127.0.0.1.evil.example"},
                {"Origin": "https://evil.example"},
                {"Origin": "null"},
                {"Origin": "http://localhost:3000"},
                {"Host": "localhost"},
            )
        ]
        mcp = await web.client.post(f"{web.address}/mcp", json={}, headers={"Origin": "https://evil.example"})
    assert codes == [403, 403, 403, 403, 200, 200]
    assert mcp.status_code == 403


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async with served(tmp_path, OPEN) as web:
        taken = HttpSettings(port=int(web.address.rpartition(":")[2]))
        with pytest.raises(SettingsError, match="Cannot listen on"):
            await _alone(taken)


async def _alone(http: HttpSettings) -> None:
    async def nothing(*_: Any) -> None:
        raise AssertionError

    await serve_http(nothing, http, lambda _: None)
