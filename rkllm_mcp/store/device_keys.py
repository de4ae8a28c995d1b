"""Keys of devices: a code that is valid once and for five minutes becomes a key, of which the hash is stored.

Rows of the table ``texts``: of a code its hash and the end of its validity, of a key its id, name and hash.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable
from functools import partial

from rkllm_mcp.config.secrets import DEVICE_PREFIX, hashed, matches
from rkllm_mcp.records import Device
from rkllm_mcp.store.database import Database

CODE_VALID_S = 300
_CODES, _KEYS = "device codes", "device keys"
_ROW = "INSERT OR REPLACE INTO texts (kind, key, text, at) VALUES (?, ?, ?, ?)"


class DeviceKeys:
    """Codes and keys of devices; ``clock`` returns Unix time."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def new_code(self) -> str:
        """Return a code that ``exchange`` takes once within ``CODE_VALID_S``.

        Raises:
            StoreError: the file cannot be written.
        """
        code, now = secrets.token_urlsafe(24), self._clock()
        await self._database.ask(partial(_add_code, code, now), durable=True)
        return code

    async def exchange(self, code: str, name: str) -> tuple[Device, str] | None:
        """Return a new device and its key for a valid code, which is used up; None for any other.

        Raises:
            StoreError: the file cannot be written.
        """
        device = Device(secrets.token_hex(4), " ".join(name.split()), self._clock())
        key = f"{DEVICE_PREFIX}{device.id}-{secrets.token_urlsafe(32)}"
        is_taken = await self._database.ask(partial(_take_code, code, device, hashed(key)), durable=True)
        return (device, key) if is_taken else None

    async def find(self, key: str) -> Device | None:
        """Return the device of a key; None if there is none (any more).

        Raises:
            StoreError: the file cannot be read.
        """
        number = key.removeprefix(DEVICE_PREFIX).partition("-")[0]
        known = [(device, entry) for device, entry in await self._database.ask(_read) if device.id == number]
        return next((device for device, entry in known if matches(key, entry)), None)

    async def all(self) -> list[Device]:
        """Return all devices, the oldest first.

        Raises:
            StoreError: the file cannot be read.
        """
        return [device for device, _ in await self._database.ask(_read)]

    async def revoke(self, number: str) -> bool:
        """Delete the key of a device; return False if there is none of this id.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._database.ask(partial(_delete, _KEYS, number), durable=True)


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def _add_code(code: str, now: float, connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM texts WHERE kind = ? AND at < ?", (_CODES, now))
    connection.execute(_ROW, (_CODES, _digest(code), "", now + CODE_VALID_S))


def _take_code(code: str, device: Device, entry: str, connection: sqlite3.Connection) -> bool:
    query = "DELETE FROM texts WHERE kind = ? AND key = ? AND at >= ?"
    if not connection.execute(query, (_CODES, _digest(code), device.linked)).rowcount:
        return False
    connection.execute(_ROW, (_KEYS, device.id, json.dumps([device.name, entry]), device.linked))
    return True


def _read(connection: sqlite3.Connection) -> list[tuple[Device, str]]:
    rows = connection.execute("SELECT key, text, at FROM texts WHERE kind = ? ORDER BY at, key", (_KEYS,)).fetchall()
    found: list[tuple[Device, str]] = []
    for number, text, linked in rows:
        name, entry = json.loads(text)
        found.append((Device(number, name, linked), entry))
    return found


def _delete(kind: str, key: str, connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("DELETE FROM texts WHERE kind = ? AND key = ?", (kind, key)).rowcount)
