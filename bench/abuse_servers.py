"""Attacks by MCP servers, and by keys that were made with other keys."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2

from bench.abuse_frame import Attack, Scene
from bench.load_service import KEYS, REPOSITORY

# A stream ends this long after its key was revoked at most, seconds; the machine may be busy.
_REVOKED_S = 1.5
_BEHAVIOURS = ("sprawls", "changes", "prints")


@contextmanager
def hostile_servers(folder: Path) -> Generator[str, None, None]:
    """The service with servers that send too much; see ``tests.support.mcp_servers.unruly``."""
    del folder
    yield "".join(
        f"""
[[servers]]
name = "{word}"
command = {json.dumps(sys.executable)}
args = ["-S", "-m", "tests.support.mcp_servers.unruly", "{word}"]
cwd = {json.dumps(str(REPOSITORY))}
excluded_tools = ["echo"]
idle_stop_s = 3
timeout_s = 30
"""
        for word in _BEHAVIOURS
    )


async def _call(http: httpx2.AsyncClient, server: str, tool: str, **arguments: Any) -> dict[str, Any]:
    body = {"arguments": arguments, "approve": True}
    return (await http.post(f"/v1/tools/mcp__{server}__{tool}:call", json=body)).json()


def _forgive_new_tools(scene: Scene) -> None:
    """Drop what is found because a conversation was told of new tools: the emulated model has no rule for that.

    One with eyes has the last one, of ``bench.load_service``.
    """
    findings, without_rule = scene.run.tally.findings, ("no rule of the script fits", "foreign text 'I see.'")
    findings[:] = [finding for finding in findings if not any(words in finding for words in without_rule)]


async def _have_it_tested(server: str, tools: Sequence[str], scene: Scene) -> None:
    """Have a server started and listed again and again, and call its tools."""
    async with scene.client(KEYS[0]) as http:
        for _ in range(2):
            tested = await http.post(f"/v1/servers/{server}:test")
            if tested.status_code != HTTPStatus.OK:
                scene.find(f"{server} was not tested: {tested.status_code} {tested.text[:200]}")
        for tool in tools:
            began = time.monotonic()
            called = await _call(http, server, tool, text="x")
            if time.monotonic() - began > 25:  # far less than the time limit of a call, on a busy machine too
                scene.find(f"{tool} of {server} took {time.monotonic() - began:.1f} s: {str(called)[:100]}")
            if len(json.dumps(called)) > 1_000_000:
                scene.find(f"{tool} of {server} returned {len(json.dumps(called))} characters")
        listed = await http.get("/v1/tools")
        if len(listed.content) > 16_000_000:
            scene.find(f"the list of tools has {len(listed.content)} bytes")
    _forgive_new_tools(scene)


async def _print_without_end(scene: Scene) -> None:
    async with scene.client(KEYS[0]) as http:
        await _call(http, "prints", "start")
        with anyio.move_on_after(60):
            state = "ready"
            while state == "ready":
                servers = (await http.get("/v1/servers")).json()["servers"]
                state = next(each["state"] for each in servers if each["name"] == "prints")
            _forgive_new_tools(scene)
            return
        scene.find("a server that prints without end was not ended")


async def _outlive_a_revocation(scene: Scene) -> None:
    """A key for approvals makes others, which read, revoke and delete after it was revoked."""
    async with scene.client(KEYS[0]) as owner:

        async def made(http: httpx2.AsyncClient, *allow: str) -> dict[str, Any]:
            response = await http.post("/v1/devices", json={"name": "guest", "allow": list(allow)})
            return response.raise_for_status().json()

        first = await made(owner, "chat", "approve")
        async with scene.client(first["key"]) as guest:
            child = await made(guest, "chat", "approve")
            asked = await owner.post("/v1/execute", json={"message": "plain 1.0", "stream": False})
            conversation = asked.raise_for_status().json()["conversation"]
            for path in (f"/v1/devices/{child['id']}", f"/v1/conversations/{conversation}", "/v1/me/data"):
                if (status := (await guest.delete(path)).status_code) != HTTPStatus.FORBIDDEN:
                    scene.find(f"a key for approvals got {status} for DELETE {path}")
            if (await guest.post("/v1/devices", json={"name": "x", "allow": ["tools"]})).is_success:
                scene.find("a key granted a right that it has not")

        async def read_on(http: httpx2.AsyncClient) -> float:
            """Return when a stream of the child ended, which would go on for long."""
            body = {"message": "long 1.0"}
            with anyio.move_on_after(30):
                async with http.stream("POST", "/v1/execute", json=body) as stream:
                    reading.set()
                    async for _ in stream.aiter_bytes():
                        pass
            return time.monotonic()

        reading, ended, revoked_at = anyio.Event(), [0.0], 0.0
        async with scene.client(child["key"]) as http, anyio.create_task_group() as tasks:

            async def read() -> None:
                ended[0] = await read_on(http)

            tasks.start_soon(read)
            await reading.wait()
            (await owner.delete(f"/v1/devices/{first['id']}")).raise_for_status()
            revoked_at = time.monotonic()
        if ended[0] - revoked_at > _REVOKED_S:
            scene.find(f"a stream went on for {ended[0] - revoked_at:.1f} s after the revocation of its key")
        async with scene.client(child["key"]) as http:
            if (status := (await http.get("/v1/board")).status_code) != HTTPStatus.UNAUTHORIZED:
                scene.find(f"a key that came from a revoked one got {status}")


async def _count_for_a_guest(scene: Scene) -> None:
    """Have the tokens of sixty long texts counted with the key of a program; the owner's requests go first."""
    async with scene.client(KEYS[0]) as owner:
        made = await owner.post("/v1/devices", json={"name": "guest", "allow": ["chat"]})
        guest = made.raise_for_status().json()
        text = "日本語 and other words, " * 40_000

        async def count(number: int) -> None:
            await http.post("/v1/tokens", json={"texts": [f"{number} {text}"]})

        async with scene.client(guest["key"]) as http:
            await scene.storm(60, count, within_s=20)
        await owner.delete(f"/v1/devices/{guest['id']}")


async def _extend_chunks(scene: Scene) -> None:
    """Send chunks whose extensions are as long as their data."""
    address = urlsplit(scene.service.url)
    head = (
        f"POST /v1/tokens HTTP/1.1\r\nHost: board\r\nAuthorization: Bearer {KEYS[-1]}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"2000;" + b"x" * 8000 + b"\r\n" + b" " * 0x2000 + b"\r\n"

    async def send(number: int) -> None:
        del number
        async with await anyio.connect_tcp(str(address.hostname), int(address.port or 80)) as stream:
            await stream.send(head.encode())
            try:
                for _ in range(100):
                    await stream.send(chunk)
                answer = await stream.receive()
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return
            if not answer.startswith(b"HTTP/1.1 4"):
                scene.find(f"800 kB of chunk extensions were read: {answer[:60]!r}")

    await scene.storm(20, send)


_SPRAWLED = ("values", "text", "json", "leaves", "error", "nest", "form")
SERVERS: Sequence[Attack] = (
    Attack(
        "a server with too much of everything",
        partial(_have_it_tested, "sprawls", _SPRAWLED),
        hostile_servers,
        host_mb=300,
    ),
    Attack(
        "a server that changes its tools without end",
        partial(_have_it_tested, "changes", ()),
        hostile_servers,
        host_mb=300,
    ),
    Attack("a server that prints without end", _print_without_end, hostile_servers, host_mb=300),
    Attack("keys that make keys", _outlive_a_revocation),
    Attack("sixty long texts of a guest", _count_for_a_guest),
    Attack("extensions of chunks", _extend_chunks),
)
