"""Documents that are sent to the service, for the knowledge base of its knowledge server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
