"""A key ends with the one that made it and has no more rights, and only the owner's own keys revoke and delete."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rkllm_mcp.config.sections import RIGHTS
from tests.support.served import Served, scripted_model, served

APPROVER = "approve-key-of-owner"
EXTRA = f"""[service]
api_keys = ["all-of-the-owner"]
[[service.keys]]
key = "{APPROVER}"
allow = ["chat", "approve"]
[[tenants]]
name = "ann"
api_key = "key-of-the-tenant"
may_approve = true
"""
RULES = "rule\n  user endless\n  say word word word\n  fault hang after 2\nrule\n  say Hello there.\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("service")
    with served(folder, scripted_model(folder / "model", RULES), extra=EXTRA) as it:
        yield it


def send(service: Served, method: str, path: str, key: str = "", **body: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx2.request(method, f"{service.url}{path}", headers=headers, json=body or None, timeout=60)


def linked(service: Served, code: str) -> dict[str, Any]:
    return send(service, "POST", "/v1/devices:exchange", code=code, name="phone").raise_for_status().json()


def made(service: Served, key: str, *allow: str) -> dict[str, Any]:
    return send(service, "POST", "/v1/devices", key, name="p", allow=list(allow)).raise_for_status().json()


def revoke(service: Served, key: str, device: dict[str, Any]) -> int:
    return send(service, "DELETE", f"/v1/devices/{device['id']}", key).status_code


def is_known(service: Served, key: str) -> bool:
    return send(service, "GET", "/v1/board", key).status_code == 200


def test_revoking_a_key_revokes_all_that_come_from_it_and_no_other(service: Served) -> None:
    phone, other = (linked(service, service.new_code()) for _ in range(2))
    qr_code = send(service, "POST", "/v1/devices:qr", phone["key"], address="http://192.0.2.1:8080")
    assert qr_code.json()["is_linking"] is True
    program = made(service, phone["key"], *RIGHTS)
    grandchild = made(service, program["key"], "approve", "chat")
    keys = [each["key"] for each in (phone, program, grandchild, other)]
    assert [is_known(service, key) for key in keys] == [True] * 4
    assert revoke(service, "all-of-the-owner", phone) == 204
    assert [is_known(service, key) for key in keys] == [False, False, False, True]
    listed = send(service, "GET", "/v1/devices", other["key"]).json()["devices"]
    assert [device["id"] for device in listed if device["id"] in (program["id"], grandchild["id"])] == []
    assert revoke(service, "all-of-the-owner", other) == 204


# What a key may do to the owner's keys and data: each row of the table in docs/security.md.
OWNING = {
    "the owner's key of the configuration with all rights": True,
    "a device that the owner linked": True,
    "a key of the configuration for some purposes": False,
    "a key that was made for a program with all rights": False,
    "a key that was made by a key for approvals": False,
}


@pytest.mark.parametrize("holder", OWNING)
def test_only_the_owners_own_key_and_linked_devices_revoke_keys_and_delete_data(service: Served, holder: str) -> None:
    key = {
        "the owner's key of the configuration with all rights": lambda: "all-of-the-owner",
        "a device that the owner linked": lambda: linked(service, service.new_code())["key"],
        "a key of the configuration for some purposes": lambda: APPROVER,
        "a key that was made for a program with all rights": lambda: made(service, "all-of-the-owner", *RIGHTS)["key"],
        "a key that was made by a key for approvals": lambda: made(service, APPROVER, "approve", "chat")["key"],
    }[holder]()
    victim = made(service, "all-of-the-owner", "chat")
    asked = send(service, "POST", "/v1/execute", "all-of-the-owner", message="Hi", stream=False).json()
    deleting = f"/v1/conversations/{asked['conversation']}"
    done = [
        send(service, "DELETE", f"/v1/devices/{victim['id']}", key).status_code,
        send(service, "DELETE", deleting, key).status_code,
        send(service, "DELETE", "/v1/me/data", key).status_code,
    ]
    assert done == ([204, 204, 200] if OWNING[holder] else [403, 403, 403])
    assert send(service, "GET", "/v1/me", key).json()["may_delete"] is OWNING[holder]
    assert is_known(service, victim["key"]) is not OWNING[holder]
    # A tenant owns what is its own, and no key.
    asked = send(service, "POST", "/v1/execute", "key-of-the-tenant", message="Hi", stream=False).json()
    deleting = f"/v1/conversations/{asked['conversation']}"
    assert send(service, "DELETE", deleting, "key-of-the-tenant").status_code == 204
    assert revoke(service, "key-of-the-tenant", victim) == 403


def test_a_program_deletes_its_own_responses_and_those_of_no_one_else(service: Served) -> None:
    program, other = (made(service, "all-of-the-owner", "chat") for _ in range(2))

    def answered(key: str) -> str:
        return send(service, "POST", "/v1/responses", key, input="Hi").raise_for_status().json()["id"]

    def deleted(key: str, response: str) -> int:
        return send(service, "DELETE", f"/v1/responses/{response}", key).status_code

    own, of_owner, of_tenant = answered(program["key"]), answered("all-of-the-owner"), answered("key-of-the-tenant")
    shown = send(service, "GET", f"/v1/responses/{own}", other["key"]).raise_for_status().json()
    assert not any("made_with" in name for name in shown)
    assert [deleted(other["key"], own), deleted(program["key"], of_owner)] == [403, 403]
    assert [deleted(each["key"], of_tenant) for each in (program, other)] == [404, 404]
    assert [deleted(program["key"], own), deleted(program["key"], own)] == [200, 404]
    assert [deleted("all-of-the-owner", of_owner), deleted("key-of-the-tenant", of_tenant)] == [200, 200]
    # The owner deletes those of every key of the owner.
    assert deleted("all-of-the-owner", answered(other["key"])) == 200


def test_a_key_ends_with_the_entry_of_the_configuration_that_made_it_and_has_no_more_rights(tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "model", RULES)
    with served(tmp_path, model, extra=EXTRA) as service:
        of_approver, of_owner = made(service, APPROVER, "chat", "approve"), made(service, "all-of-the-owner", "chat")
    with served(tmp_path, model, extra=EXTRA.replace('["chat", "approve"]', '["chat"]')) as service:
        assert send(service, "GET", "/v1/devices", of_approver["key"]).status_code == 403
        assert is_known(service, of_approver["key"])
    with served(tmp_path, model, extra=EXTRA.replace(APPROVER, "another-key-of-owner")) as service:
        assert [is_known(service, made["key"]) for made in (of_approver, of_owner)] == [False, True]


@pytest.mark.parametrize("is_detached", [False, True], ids=["attached", "detached"])
def test_an_open_stream_ends_when_its_key_is_revoked_and_so_does_its_answer(service: Served, is_detached: bool) -> None:
    phone = linked(service, service.new_code())
    program = made(service, phone["key"], "chat")
    headers = {"Authorization": f"Bearer {program['key']}"}
    body = {"message": "endless", "detached": is_detached}
    with httpx2.stream("POST", f"{service.url}/v1/execute", headers=headers, json=body, timeout=60) as stream:
        lines = stream.iter_lines()
        conversation = stream.headers["x-conversation-id"]
        assert any('"text"' in line for line in lines)
        assert revoke(service, "all-of-the-owner", phone) == 204
        # Without a revocation it would say that it lives until the client gives up.
        rest = [json.loads(line.removeprefix("data: ")) for line in lines if re.match(r"data: \{", line)]
    assert [event for event in rest if event["kind"] == "end" and event["reason"] == "answered"] == []
    # While an answer is under way, a conversation takes no other question.
    again = {"conversation": conversation, "message": "Hi", "stream": False}
    statuses = iter(lambda: send(service, "POST", "/v1/execute", "all-of-the-owner", **again).status_code, 200)
    assert set(islice(statuses, 1000)) <= {409}
