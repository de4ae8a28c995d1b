"""Keys of devices over HTTP: from the code to the key, what the key may do, and its end."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2
import pytest
import segno

from tests.support.served import Served, scripted_model, served

EXTRA = """[service]
api_keys = ["all-of-the-owner"]
[[service.keys]]
key = "chat-key-of-owner"
allow = ["chat"]
[[tenants]]
name = "ann"
api_key = "key-of-the-tenant"
may_approve = true
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("service")
    with served(folder, scripted_model(folder / "model", "rule\n  say Hello there.\n"), extra=EXTRA) as it:
        yield it


def send(service: Served, method: str, path: str, key: str = "", **body: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx2.request(method, f"{service.url}{path}", headers=headers, json=body or None, timeout=60)


def test_a_code_becomes_a_key_of_the_owner_which_the_owner_revokes(service: Served) -> None:
    code = service.new_code()
    linked = send(service, "POST", "/v1/devices:exchange", "revoked", code=code, name="phone")
    device = linked.json()
    assert (linked.status_code, device["name"], linked.headers["cache-control"]) == (200, "phone", "no-store")
    again = send(service, "POST", "/v1/devices:exchange", code=code)
    assert (again.status_code, again.json()["error"]["message"], again.json()["error"]["code"]) == (
        403,
        "the code was used or is older than five minutes; 'rkllm-mcp service link' makes another",
        "device_code",
    )
    assert send(service, "GET", "/v1/me", device["key"]).json()["tenant"] == ""
    asked = send(service, "POST", "/v1/execute", device["key"], message="Hi")
    assert (asked.status_code, '"answered"' in asked.text) == (200, True)
    listed = send(service, "GET", "/v1/devices", device["key"]).json()["devices"]
    assert listed == [{name: device[name] for name in ("id", "name", "linked", "allow")}]
    assert device["allow"] == ["chat", "tools", "approve", "write"]
    path = f"/v1/devices/{device['id']}"
    assert [send(service, "DELETE", path, "all-of-the-owner").status_code for _ in range(2)] == [204, 404]
    assert send(service, "GET", "/v1/me", device["key"]).status_code == 401


def test_a_code_that_many_use_at_once_links_one_device(service: Served) -> None:
    code = service.new_code()

    def exchange(name: str) -> httpx2.Response:
        return send(service, "POST", "/v1/devices:exchange", code=code, name=name)

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(exchange, ["racer"] * 24))
    assert sorted(answer.status_code for answer in answers) == [200, *[403] * 23]
    devices = send(service, "GET", "/v1/devices", "all-of-the-owner").json()["devices"]
    assert [device["name"] for device in devices].count("racer") == 1


def test_a_program_gets_a_key_for_questions_only_which_the_owner_revokes(service: Served) -> None:
    made = send(service, "POST", "/v1/devices", "all-of-the-owner", name="Home  Assistant")
    program = made.json()
    assert (made.status_code, program["name"], program["allow"]) == (200, "Home Assistant", ["chat"])
    key = program["key"]
    assert send(service, "POST", "/v1/execute", key, message="Hi").status_code == 200
    # It manages nothing, and is no device of the owner that may add servers.
    for method, path, body in (
        ("GET", "/v1/tools", {}),
        ("GET", "/v1/devices", {}),
        ("POST", "/v1/devices", {"name": "another"}),
        ("POST", "/v1/servers", {"name": "x", "url": "http://127.0.0.1:1/mcp"}),
        ("POST", "/api/pull", {"model": "qwen3-0.6b"}),
    ):
        assert send(service, method, path, key, **body).status_code == 403, path
    assert send(service, "DELETE", f"/v1/devices/{program['id']}", "all-of-the-owner").status_code == 204
    assert send(service, "POST", "/v1/execute", key, message="Hi").status_code == 401
    assert send(service, "POST", "/v1/devices", "all-of-the-owner", name="x", allow=[]).status_code == 422
    assert send(service, "POST", "/v1/devices", "all-of-the-owner", name="x", allow=["root"]).status_code == 422


def test_a_qr_code_links_a_phone_only_for_a_device_that_is_linked_itself(service: Served) -> None:
    body = {"address": "http://board.local:8080"}
    first = send(service, "POST", "/v1/devices:exchange", code=service.new_code(), name="laptop").json()["key"]
    codes = [send(service, "POST", "/v1/devices:qr", first, **body).json() for _ in range(2)]
    assert [code["is_linking"] for code in codes] == [True, True]
    assert codes[0]["svg"] != codes[1]["svg"], "each has a code of its own"
    # A key of the configuration may not add servers here, so it does not make a device that may.
    plain = send(service, "POST", "/v1/devices:qr", "all-of-the-owner", **body).json()
    expected = BytesIO()
    segno.make(f"{body['address']}/", error="l", micro=False).save(
        expected, kind="svg", xmldecl=False, border=4, light="#fff"
    )
    assert plain == {"svg": expected.getvalue().decode(), "is_linking": False}
    assert plain["svg"].startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    for key, status in (("chat-key-of-owner", 403), ("key-of-the-tenant", 403), ("", 401)):
        assert send(service, "POST", "/v1/devices:qr", key, **body).status_code == status
    for address in ("javascript:alert(1)", "http://board.local/path", "http://a b"):
        assert send(service, "POST", "/v1/devices:qr", first, address=address).status_code == 422


def test_a_key_grants_no_right_that_it_has_not(service: Served) -> None:
    first = send(service, "POST", "/v1/devices", "all-of-the-owner", name="door", allow=["chat", "approve"]).json()[
        "key"
    ]
    refused = send(service, "POST", "/v1/devices", first, name="x", allow=["write"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "key_purpose")
    assert send(service, "POST", "/v1/devices", first, name="x", allow=["chat"]).json()["allow"] == ["chat"]


def test_only_the_owner_manages_devices(service: Served) -> None:
    for key, status in (
        ("", 401),
        ("sk-rkllm-device-0-1", 401),
        ("chat-key-of-owner", 403),
        ("key-of-the-tenant", 403),
    ):
        assert send(service, "GET", "/v1/devices", key).status_code == status
        assert send(service, "DELETE", "/v1/devices/1", key).status_code == status
        assert send(service, "POST", "/v1/devices", key, name="x").status_code == status


def test_a_key_lasts_beyond_a_restart_of_the_service(tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "model", "rule\n  say Hello there.\n")
    with served(tmp_path, model, extra=EXTRA) as service:
        key = send(service, "POST", "/v1/devices:exchange", code=service.new_code()).json()["key"]
    with served(tmp_path, model, extra=EXTRA) as service:
        assert send(service, "GET", "/v1/me", key).status_code == 200
