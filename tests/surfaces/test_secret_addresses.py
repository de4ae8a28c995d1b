"""Keys inside the addresses and arguments of servers reach no tenant, no log and no report."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import httpx2

from tests.support.outcome import run_here
from tests.support.served import scripted_model, served

TENANT_KEY = "key-of-the-kitchen"
SECRETS = (
    "first-secret",
    "second-secret",
    "third-secret",
    "fourth-secret",
    "fifth-secret",
    "sixth-secret",
    "last-secret",
)
SERVERS = """
[service]
api_keys = ["key-of-the-owner"]
[[tenants]]
name = "kitchen"
api_key = "key-of-the-kitchen"
[[servers]]
name = "one"
url = "http://ann:first-secret@127.0.0.1:9/mcp"
[[servers]]
name = "two"
url = "http://127.0.0.1:9/mcp?api_key=second-secret"
[[servers]]
name = "three"
url = "ws://127.0.0.1:9/mcp?tavilyApiKey=third-secret"
[[servers]]
name = "four"
openapi_spec = "http://127.0.0.1:9/spec.json?exaApiKey=fourth-secret"
[[servers]]
name = "five"
command = "false"
args = ["--api-key", "fifth-secret", "https://h/?token=sixth-secret", "--token=last-secret"]
"""


def printed(folder: Path, *arguments: str) -> str:
    """Return what the command line prints, on both streams."""
    done = run_here(dict(os.environ), "--config", str(folder / "mcp_config.toml"), *arguments)
    return done.stdout + done.stderr


def settled_servers(url: str) -> list[dict[str, Any]]:
    """Return the servers as the tenant sees them when none of them is connecting any more."""
    headers = {"Authorization": f"Bearer {TENANT_KEY}"}
    servers: list[dict[str, Any]] = []
    for _ in range(600):
        servers = httpx2.get(f"{url}/v1/servers", headers=headers).raise_for_status().json()["servers"]
        if all(server["state"] not in {"connecting", "waiting"} for server in servers):
            return servers
        time.sleep(0.05)
    raise AssertionError(servers)


def test_no_secret_of_an_unreachable_server_is_shown(tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "model", "rule\n  say Hello.\n")
    with served(tmp_path, model, extra=SERVERS) as service:
        servers = settled_servers(service.url)
        doctor = printed(tmp_path, "doctor")
        listed = printed(tmp_path, "servers", "list")
        tried = "".join(
            printed(tmp_path, "--debug", "servers", "test", name) for name in ("one", "two", "three", "four")
        )
    shown = {"GET /v1/servers": str(servers), "doctor": doctor, "servers list": listed, "servers test": tried}
    assert {server["name"] for server in servers if server["error"]} == {"one", "two", "three", "four", "five"}
    assert "api_key=[REDACTED]" in str(servers)
    assert "http://ann:[REDACTED]@127.0.0.1:9/mcp" in doctor
    leaks = [(where, secret) for where, text in shown.items() for secret in SECRETS if secret in text]
    assert leaks == []
