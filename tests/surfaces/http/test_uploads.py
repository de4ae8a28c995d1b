"""Documents that are sent to the service, for the knowledge base of its knowledge server."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.demo_app import NO_VARIABLES
from tests.support.served import scripted_model, served

WRITER, CHAT = "the-key-of-a-writer", "the-key-of-a-chat"
KITCHEN, GARAGE = "the-key-of-the-kitchen", "the-key-of-the-garage"
KEYS = f"""
[[service.keys]]
key = "{WRITER}"
allow = ["write"]
[[service.keys]]
key = "{CHAT}"
allow = ["chat", "tools"]
[[tenants]]
name = "kitchen"
api_key = "{KITCHEN}"
may_write = true
[[tenants]]
name = "garage"
api_key = "{GARAGE}"
"""


@contextmanager
def serving(folder: Path, megabytes: int, keys: str = "") -> Generator[str, None, None]:
    """The address of a service whose knowledge server takes files of this size."""
    server = ("knowledge", ("-m", "mcp_servers.knowledge", "--folder", str(folder / "knowledge")), NO_VARIABLES)
    model = scripted_model(folder / "model", "rule\n  say Hi.\n")
    with served(folder, model, (server,), extra=f"[service]\nupload_mb = {megabytes}\n{keys}") as service:
        yield service.url


def megabytes_without_room() -> int:
    """More than the disk has free."""
    free = os.statvfs(tempfile.gettempdir())
    return free.f_bavail * free.f_frsize // 2**20 + 1000


@pytest.fixture(scope="module")
def spacious(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """A service that takes files for which the disk has no room."""
    with serving(tmp_path_factory.mktemp("spacious"), 2 * megabytes_without_room(), KEYS) as url:
        yield url


def post(url: str, key: str, **request: Any) -> httpx2.Response:
    return httpx2.post(url, headers={"Authorization": f"Bearer {key}"}, timeout=120, **request)


def test_a_key_with_the_right_to_write_adds_documents_of_any_size(spacious: str) -> None:
    documents, create = f"{spacious}/v1/documents", f"{spacious}/v1/knowledge/create_knowledge_base"
    assert post(create, KITCHEN, json={"arguments": {"name": "規程"}}).status_code == 200
    for key, status in {WRITER: 201, CHAT: 403, KITCHEN: 201, GARAGE: 403}.items():
        sent = ("a.md", f"# {key}\n\ntext".encode())
        assert post(documents, key, files={"file": sent}).status_code == status, key
    # It goes to the knowledge server in parts; what counts is in the first and in the last.
    rules = "".join(f"<h2>第{number}条</h2><p>通勤手当は{number}円とする。</p>" for number in range(40))
    long = f"{rules}<!--{'x' * 1_200_000}-->{rules}".encode()
    form = {"knowledge_base": "規程", "title": "規則"}
    whole = post(documents, WRITER, files={"file": ("規則.html", long)}, data=form)
    (document,) = whole.json()["documents"]
    assert (whole.status_code, document["title"], document["is_new"]) == (201, "規則", True)
    assert document["chunks"] >= 80
    broken = post(documents, WRITER, files={"file": ("a.pdf", b"%PDF-1.7 nothing of the kind")})
    assert (broken.status_code, broken.json()["error"]["message"].partition(":")[0]) == (422, "a.pdf is damaged")
    file = ("b.html", b"<h1>B</h1><p>Only read.</p>")
    read = post(f"{spacious}/v1/attachments", CHAT, files={"file": file})
    attached = read.json()
    assert (read.status_code, "Only read." in attached["text"], attached["tokens"] > 2) == (200, True, True)
    no_form, no_file = post(documents, WRITER, json={}), post(documents, WRITER, files={"x": ("a", b"b")})
    for refused in (no_form, no_file):
        assert (refused.status_code, refused.json()["error"]["param"]) == (422, "file")


def announced(url: str, length: int, key: str = "") -> tuple[int, dict[str, Any]]:
    """The answer to an upload of which nothing but its length is sent."""
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/attachments HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\nX-Api-Key: {key}\r\n"
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

    with serving(tmp_path, megabytes=2) as url:
        before = without_names()
        by_length = announced(url, 490_000_000)
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        counted = httpx2.post(f"{url}/v1/attachments", content=form(), headers=headers, timeout=60)
        small = httpx2.post(f"{url}/v1/attachments", files={"file": ("a.txt", b"text")}, timeout=120)
        left = without_names() - before
    said = "the file is larger than 2 MB; send a smaller one, or raise upload_mb in [service]"
    assert (by_length[0], by_length[1]["message"]) == (413, said)
    assert (counted.status_code, counted.json()["error"]["message"]) == (413, said)
    assert (small.status_code, small.json()["text"].strip(), left) == (200, "text", 0)


def test_a_file_without_space_on_the_disk_is_a_507_before_it_is_sent(spacious: str) -> None:
    status, error = announced(spacious, megabytes_without_room() * 2**20, CHAT)
    assert (status, error["code"]) == (507, "no_space")
