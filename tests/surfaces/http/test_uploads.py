"""Documents that are sent to the service, for the knowledge base of its knowledge server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.support.demo_app import NO_VARIABLES
from tests.support.served import scripted_model, served

KEYS = """
[[service.keys]]
key = "the-key-of-a-writer"
allow = ["write"]
[[service.keys]]
key = "the-key-of-a-chat"
allow = ["chat", "tools"]
[[tenants]]
name = "kitchen"
api_key = "the-key-of-the-kitchen"
may_write = true
[[tenants]]
name = "garage"
api_key = "the-key-of-the-garage"
"""


def upload(url: str, key: str, name: str, content: bytes, **fields: str) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.post(
        f"{url}/v1/documents", files={"file": (name, content)}, data=fields, headers=headers, timeout=120
    )


def test_a_key_with_the_right_to_write_adds_documents_of_any_size(tmp_path: Path) -> None:
    folder = tmp_path / "knowledge"
    made = ["-m", "rkllm_mcp", "knowledge", "create", "規程"]
    environment = {"KNOWLEDGE_FOLDER": str(folder), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, *made], check=True, env=environment, cwd=tmp_path, capture_output=True)
    server = ("knowledge", ("-m", "mcp_servers.knowledge", "--folder", str(folder)), NO_VARIABLES)
    long = "".join(f"第{number}条 通勤手当は{number}円とする。\n\n" for number in range(40_000)).encode()
    with served(tmp_path, scripted_model(tmp_path / "model", "rule\n  say Hi.\n"), (server,), extra=KEYS) as service:
        codes = {
            key: upload(service.url, f"the-key-of-{key}", "a.md", f"# {key}\n\ntext".encode()).status_code
            for key in ("a-writer", "a-chat", "the-kitchen", "the-garage")
        }
        whole = upload(service.url, "the-key-of-a-writer", "規則.txt", long, knowledge_base="規程", title="規則")
        broken = upload(service.url, "the-key-of-a-writer", "a.pdf", b"%PDF-1.7 nothing of the kind")
        headers = {"Authorization": "Bearer the-key-of-a-writer"}
        read = httpx2.post(
            f"{service.url}/v1/attachments",
            files={"file": ("b.html", b"<h1>B</h1><p>Only read.</p>")},
            headers={"Authorization": "Bearer the-key-of-a-chat"},
            timeout=120,
        )
        no_form = httpx2.post(f"{service.url}/v1/documents", json={}, headers=headers)
        no_file = httpx2.post(f"{service.url}/v1/documents", files={"x": ("a", b"b")}, headers=headers)
    assert codes == {"a-writer": 201, "a-chat": 403, "the-kitchen": 201, "the-garage": 403}
    attached = read.json()
    assert (read.status_code, "Only read." in attached["text"], attached["tokens"] > 2) == (200, True, True)
    (document,) = whole.json()["documents"]
    assert len(long) > 1_000_000
    assert (whole.status_code, document["title"], document["is_new"], document["chunks"] > 1000) == (
        201,
        "規則",
        True,
        True,
    )
    assert (broken.status_code, broken.json()["error"]["message"].partition(":")[0]) == (422, "a.pdf is damaged")
    assert [answer.status_code for answer in (no_form, no_file)] == [422, 422]
    assert no_file.json()["error"]["message"] == "file: is missing; send multipart/form-data with a file"


HUGE = """
[service]
upload_mb = {megabytes}
"""


def knowledge(folder: Path) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """A knowledge server."""
    return ("knowledge", ("-m", "mcp_servers.knowledge", "--folder", str(folder)), dict(NO_VARIABLES))


def announced(url: str, length: int) -> tuple[int, dict[str, Any]]:
    """The answer to an upload of which nothing but its length is sent."""
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/attachments HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    status, _, rest = answer.decode().partition("\r\n")
    return int(status.split()[1]), json.loads(rest.partition("\r\n\r\n")[2])["error"]


def without_names() -> int:
    """The number of open files of this process that have no name any more, in the folder for temporary files."""
    links: list[str] = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            links.append(str(path.readlink()))
    return sum(link.startswith(tempfile.gettempdir()) and link.endswith("(deleted)") for link in links)


def test_a_file_that_is_too_large_is_refused_by_its_length_or_while_it_comes_and_leaves_nothing(tmp_path: Path) -> None:
    def form() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        for _ in range(64):
            yield b"word " * 13_000

    model, server = scripted_model(tmp_path / "model", "rule\n  say Hi.\n"), knowledge(tmp_path / "knowledge")
    with served(tmp_path, model, (server,), extra=HUGE.format(megabytes=2)) as service:
        before = without_names()
        by_length = announced(service.url, 490_000_000)
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        counted = httpx2.post(f"{service.url}/v1/attachments", content=form(), headers=headers, timeout=60)
        small = httpx2.post(f"{service.url}/v1/attachments", files={"file": ("a.txt", b"text")}, timeout=120)
        left = without_names() - before
    said = "the file is larger than 2 MB; send a smaller one, or raise upload_mb in [service]"
    assert (by_length[0], by_length[1]["message"]) == (413, said)
    assert (counted.status_code, counted.json()["error"]["message"]) == (413, said)
    assert (small.status_code, small.json()["text"].strip(), left) == (200, "text", 0)


def test_a_file_without_space_on_the_disk_is_a_507_before_it_is_sent(tmp_path: Path) -> None:
    free = os.statvfs(tempfile.gettempdir())
    megabytes = free.f_bavail * free.f_frsize // 2**20 + 1000
    model, server = scripted_model(tmp_path / "model", "rule\n  say Hi.\n"), knowledge(tmp_path / "knowledge")
    with served(tmp_path, model, (server,), extra=HUGE.format(megabytes=megabytes)) as service:
        status, error = announced(service.url, megabytes * 2**20)
    message = "the board has no space for this file; free some in its folder for temporary files"
    assert (status, error["message"], error["code"]) == (507, message, "no_space")
