"""Codes and keys of devices: each code once and for five minutes, each key until it is revoked."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rkllm_mcp.store import open_store
from rkllm_mcp.store.tables import CODE_VALID_S, DeviceKeys

pytestmark = pytest.mark.anyio


async def test_a_code_is_taken_once_and_for_five_minutes(tmp_path: Path) -> None:
    now, boot, wall = 1000.0, "first", 1300.0
    async with open_store(path=tmp_path / "state.db") as store, open_store(path=tmp_path / "state.db") as other:
        keys, service = (DeviceKeys(each.database, lambda: wall, lambda _: (boot, now)) for each in (store, other))
        late, code = await keys.new_code(), await keys.new_code()
        now += CODE_VALID_S
        linked = await service.exchange(code, "  a\nphone ")
        assert linked is not None
        device, key = linked
        assert (device.name, device.linked, await keys.all()) == ("a phone", 1300.0, [device])
        assert await service.exchange(code, "another") is None
        assert await service.exchange("guess", "") is None
        # A clock that is set back makes no code younger, nor does a restart, whatever the time since then.
        now, wall = now + 1, 0.0
        assert await service.exchange(late, "late") is None
        now, boot = 1000.0, "second"
        assert await service.exchange(late, "late") is None
        now, boot = 1000.0, "first"
        early = await keys.new_code()
        now, boot = 900.0, "second"
        assert await service.exchange(early, "early") is None
        assert [await keys.find(each) for each in (key, key + "x", key[:-1], "sk-rkllm-device--", "")] == [
            device,
            None,
            None,
            None,
            None,
        ]


async def test_a_revoked_key_is_refused_at_once_and_nothing_on_disk_is_a_key(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(path=path) as store, open_store(path=path) as other:
        code = await store.devices.new_code()
        linked = await store.devices.exchange(code, "phone")
        assert linked is not None
        device, key = linked
        rows = sqlite3.connect(path).execute("SELECT key, text FROM texts").fetchall()
        assert not [row for row in rows for word in (key, code, key.rpartition("-")[2]) if word in "".join(row)]
        assert await store.devices.find(key) == device
        assert [await other.devices.revoke(device.id), await other.devices.revoke(device.id)] == [True, False]
        assert (await store.devices.find(key), await store.devices.all()) == (None, [])
