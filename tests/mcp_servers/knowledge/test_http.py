"""The tools over HTTP: MCP and plain JSON, behind a door."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from anyio.abc import SocketStream
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
# Connections without a complete request that one address may have: a third of three quarters of all.
HALF_OPEN = 64


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
async def served(
    folder: Path, http: HttpSettings, settings: Settings | None = None, /, **headers: str
) -> AsyncGenerator[Web, None]:
    ports: list[int] = []
    is_open = anyio.Event()

    def tell(port: int) -> None:
        ports.append(port)
        is_open.set()

    client = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60)
    with anyio.fail_after(60):
        async with (
            client,
            open_service(settings or Settings(folder)) as service,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(serve_http, create_app(service, http), http, tell)
            await is_open.wait()
            yield Web(client, f"http://127.0.0.1:{ports[0]}")
            tasks.cancel_scope.cancel()


async def test_connections_that_send_half_a_request_make_room_for_others(tmp_path: Path) -> None:
    async with served(tmp_path, OPEN) as web, AsyncExitStack() as stack:
        port = int(web.address.rpartition(":")[2])
        connections: list[SocketStream] = []
        for _ in range(HALF_OPEN + 1):
            connections.append(await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)))
            await connections[-1].send(b"GET /healthz HTTP/1.1\r\n")
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await connections[0].receive()
        assert (await web.client.get(f"{web.address}/healthz")).text == "ok"


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


async def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    async with served(tmp_path, OPEN) as web:
        taken = HttpSettings(port=int(web.address.rpartition(":")[2]))
        with pytest.raises(SettingsError, match="Cannot listen on"):
            await _alone(taken)


async def _alone(http: HttpSettings) -> None:
    async def nothing(*_: Any) -> None:
        raise AssertionError

    await serve_http(nothing, http, lambda _: None)


async def upload(web: Web, path: str, name: str, content: bytes, **fields: str) -> tuple[int, dict[str, Any]]:
    answer = await web.client.post(web.address + path, files={"file": (name, content)}, data=fields)
    return answer.status_code, answer.json()


async def test_a_form_adds_a_file_and_a_later_one_of_its_name_replaces_it(tmp_path: Path) -> None:
    async with served(tmp_path, WITH_TOKENS, **token("acme", role="write")) as web:
        _, made = await web.ask("POST", "/knowledge_bases", {"name": "規程"})
        path = f"/knowledge_bases/{made['knowledge_base_id']}/documents"
        code, first = await upload(
            web, path, "../規則.md", RULES.encode("cp932"), collection="人事", fields='{"year": "2026"}'
        )
        _, same = await upload(
            web, path, "規則.md", RULES.encode("cp932"), collection="人事", fields='{"year": "2026"}'
        )
        _, second = await upload(web, path, "規則.md", RULES.replace("5,000", "6,000").encode())
        damaged = await upload(web, path, "a.pdf", b"%PDF-1.7 nothing of the kind")
        missing = await web.client.post(web.address + path, data={"title": "x"}, files={"other": ("a", b"b")})
        broken = await upload(web, path, "規則.md", b"x", fields="{")
    (document,) = first["documents"]
    assert (code, document["title"], document["is_new"]) == (201, "就業規則", True)
    assert document["uri"] == "upload://acme/%E8%A6%8F%E5%89%87.md"
    assert same["documents"][0] == {**document, "is_new": False}
    assert second["documents"][0] == {**document, "version": 2}
    assert (damaged[0], damaged[1]["error"]["message"].partition(":")[0]) == (422, "a.pdf is damaged")
    assert (missing.status_code, missing.json()["error"]["message"].partition(".")[0]) == (422, "file is missing")
    assert (broken[0], broken[1]["error"]["message"].partition(".")[0]) == (422, "fields is not JSON")


async def test_a_role_limits_what_a_token_may_change(tmp_path: Path) -> None:
    async with served(tmp_path, WITH_TOKENS) as web:
        writer, reader, old = (token("acme", 600, **claims) for claims in ({"role": "write"}, {"role": "read"}, {}))
        _, made = await web.ask("POST", "/knowledge_bases", {"name": "規程"}, **writer)
        base = f"/knowledge_bases/{made['knowledge_base_id']}"
        codes: list[list[int]] = []
        for headers in (writer, old, reader):
            files = {"file": ("a.md", RULES.encode())}
            codes.append(
                [
                    (await web.ask("POST", f"{base}/documents", {"text": f"{headers}"[-20:]}, **headers))[0],
                    (await web.client.post(f"{web.address}{base}/documents", files=files, headers=headers)).status_code,
                    (await web.ask("POST", f"{base}/documents", {"data": "YQ==", "file_name": "b"}, **headers))[0],
                    (await web.ask("POST", f"{base}/reindex", **headers))[0],
                    (await web.ask("POST", "/knowledge_bases", {"name": "x"}, **headers))[0],
                    (await web.ask("POST", f"{base}/search", {"query": "手当"}, **headers))[0],
                ]
            )
        refused = await web.ask("POST", f"{base}/reindex", **reader)
        unknown = await web.ask("GET", base, **token("acme", role="admin"))
    assert codes == [[201, 201, 201, 200, 201, 200], [201, 403, 403, 200, 201, 200], [403, 403, 403, 403, 403, 200]]
    assert refused[1]["error"]["message"] == (
        "This token may not change documents. Ask the owner for a token whose role is write."
    )
    assert (unknown[0], "its role is neither read nor write" in unknown[1]["error"]["message"]) == (401, True)


async def test_uploads_are_limited_in_size_and_for_each_tenant(tmp_path: Path) -> None:
    settings = Settings(tmp_path, document_mb=1, tenant_chunks=3)
    async with served(tmp_path, WITH_TOKENS, settings, **token("acme", role="write")) as web:
        _, made = await web.ask("POST", "/knowledge_bases", {"name": "規程"})
        path = f"/knowledge_bases/{made['knowledge_base_id']}/documents"
        large = await upload(web, path, "a.txt", b"word " * 300_000)
        slightly = await upload(web, path, "a.txt", b"a " * 500_001)
        room = await upload(web, path, "a.md", RULES.encode())
        full = await upload(web, path, "b.md", RULES.replace("手当", "休暇").encode())
        _, listed = await web.ask("GET", path.removesuffix("/documents"))
        first = await web.ask("POST", path, {"data": "YQ==", "file_name": "c.md", "more": True})
        for _ in range(3):
            await web.ask("POST", path, {"data": "YQ==", "file_name": "c.md", "more": True})
        many = await upload(web, path, "b.md", b"text")
        other = await web.ask("POST", path, {"data": "YQ==", "upload_id": "x"}, **token("other", role="write"))
    assert (large[0], slightly[0], room[0], full[0], many[0]) == (413, 413, 201, 413, 429)
    assert full[1]["error"]["message"].startswith("The tenant has no room for this document. ")
    assert [document["uri"] for document in listed["documents"]] == ["upload://acme/a.md"]
    assert (first[0], first[1]["received"], other[0]) == (201, 1, 403)


async def test_lists_are_paged(tmp_path: Path) -> None:
    async with served(tmp_path, OPEN) as web:
        base = f"/knowledge_bases/{await web.base()}"
        for number in range(4):
            await web.ask("POST", f"{base}/documents", {"text": f"page {number}", "title": f"document {number}"})
            await web.ask("POST", "/knowledge_bases", {"name": f"base {number}"})
        titles: list[list[str]] = []
        cursor = ""
        for _ in range(3):
            _, page = await web.ask("GET", f"{base}?limit=2&cursor={cursor}")
            titles.append([document["title"] for document in page["documents"]])
            cursor = page.get("next_cursor", "")
        _, bases = await web.ask("GET", "/knowledge_bases?limit=4")
        refused = [await web.ask("GET", f"/knowledge_bases?{query}") for query in ("limit=0", "cursor=next")]
    assert titles == [["document 0", "document 1"], ["document 2", "document 3"], ["就業規則"]]
    assert cursor == ""
    assert ([each["name"] for each in bases["knowledge_bases"]], bases["next_cursor"]) == (
        ["base 0", "base 1", "base 2", "base 3"],
        "4",
    )
    assert [code for code, _ in refused] == [422, 422]
