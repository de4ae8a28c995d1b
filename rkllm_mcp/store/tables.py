"""The small tables: decisions about tools, switches, texts by key, limits, the tokens of a day, and keys of devices.

Methods that wait raise ``StoreError`` if the file cannot be read or written, unless they say otherwise; others return
at once and never raise.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rkllm_mcp.config.secrets import CONFIGURED, DEVICE_PREFIX, hash_key, matches
from rkllm_mcp.errors import StoreAwayError, StoreError
from rkllm_mcp.records import Device, StoredApproval, Switch
from rkllm_mcp.store.database import Database, Transaction, in_transaction
from rkllm_mcp.store.limits import Limits, StoreLimits, shown_limit
from rkllm_mcp.store.outbox import Outbox

CODE_VALID_S = 300
# The kind of tokens of a day in an outbox.
TOKENS = "tokens"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Eight days of tokens, and of seconds of sound.
_DAYS_COUNTED = 16
_PUT_GRANT = "INSERT OR REPLACE INTO grants (server, tool, kind, fingerprint, at) VALUES (?, ?, ?, ?, ?)"
_PUT_SWITCH = "INSERT OR REPLACE INTO switches (server, tool, is_on, at) VALUES (?, ?, ?, ?)"
_PUT_TEXT = "INSERT OR REPLACE INTO texts (kind, key, text, at) VALUES (?, ?, ?, ?)"
_FIRST_TEXT = "INSERT INTO texts (kind, key, text, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_TEXTS = "SELECT key, text FROM texts WHERE kind = ?"
# Kinds of texts: the limits that boards agree on; the tokens of the last days; of a code its hash, boot with the
# parent, and end of validity; of a key its id, name, hash, rights and parent.
_TOKENS, _CODES, DEVICE_KEYS = ("daily tokens", "spent"), "device codes", "device keys"
# What a person has set: the text about them, and the page.
PERSON = "person"
_LIMITS = ("limits", "history")


@dataclass(eq=False)
class ApprovalTable:
    """Stored approvals and refusals of tools."""

    database: Database
    _could_read: bool = field(default=True, init=False)

    @property
    def is_readable(self) -> bool:
        """False if refusals or switches of before are lost, or were not readable at the last look: every call asks."""
        return self._could_read and not {"grants", "switches"} & self.database.lost_tables

    async def find(self, server: str, tool: str) -> StoredApproval | None:
        """Return the stored decision for a tool; None if it is missing, or cannot be read (see ``is_readable``)."""
        query = "SELECT kind, fingerprint FROM grants WHERE server = ? AND tool = ?"
        try:
            rows = await self.database.rows(query, (server, tool))
        except StoreError:
            self._could_read = False
            return None
        self._could_read = True
        return StoredApproval(*rows[0]) if rows else None

    def keep(self, server: str, tool: str, grant: StoredApproval) -> None:
        """Store a decision, replacing the previous one; returns at once and never raises."""
        row = (server, tool, grant.kind, grant.fingerprint, time.time())
        self.database.tell(lambda transaction: transaction.execute(_PUT_GRANT, row))

    async def all(self) -> list[tuple[str, str, StoredApproval]]:
        """Return server, tool and decision of every stored decision."""
        query = "SELECT server, tool, kind, fingerprint FROM grants ORDER BY server, tool"
        rows = await self.database.rows(query)
        return [(server, tool, StoredApproval(kind, fingerprint)) for server, tool, kind, fingerprint in rows]

    async def forget(self, server: str, tool: str) -> bool:
        """Delete the decision for a tool; return False if none is stored."""
        return await self.database.change("DELETE FROM grants WHERE server = ? AND tool = ?", (server, tool)) > 0


@dataclass(eq=False)
class SwitchTable:
    """Tools and servers that were switched on or off at run time."""

    database: Database

    async def all(self) -> list[Switch] | None:
        """Return all switches; None if they cannot be read, or one of this process could not be written."""
        try:
            rows = await self.database.rows("SELECT server, tool, is_on FROM switches ORDER BY server, tool")
        except StoreError:
            return None
        switches = [Switch(server, tool, bool(is_on)) for server, tool, is_on in rows]
        # A database in memory has every change of this process, and what could be read of the file.
        is_complete = self.database.problem is None if self.database.is_lasting else not self.database.lost_tables
        return switches if is_complete else None

    def keep(self, changes: Sequence[Switch]) -> None:
        """Replace the stored switches."""
        changes = tuple(changes)

        def write(transaction: Transaction) -> None:
            for change in changes:
                key = (change.server, change.tool)
                if change.is_on is None:
                    transaction.execute("DELETE FROM switches WHERE server = ? AND tool = ?", key)
                else:
                    transaction.execute(_PUT_SWITCH, (*key, change.is_on, time.time()))

        self.database.tell(write)


@dataclass(eq=False)
class KeyValue:
    """Texts of one kind by key; created by ``Store.texts``.

    ``texts`` are read once, so reading does not wait; changes of other processes are visible after ``refresh``.
    """

    kind: str
    texts: dict[str, str]
    database: Database

    def write(self, key: str, text: str) -> None:
        """Store ``text`` under ``key``, replacing the previous one."""
        self.texts[key] = text
        self.database.tell(partial(write_text, self.kind, key, text))

    async def save(self, key: str, text: str) -> None:
        """Store ``text`` under ``key`` before this returns; a StoreError if it cannot be stored."""
        await self.database.ask(partial(write_text, self.kind, key, text), durable=True)
        self.texts[key] = text

    async def refresh(self) -> None:
        """Read what other processes have written; a StoreError if it cannot be read."""
        self.texts = await self.database.ask(partial(read_texts, self.kind), reads=True)


def write_text(kind: str, key: str, text: str, transaction: Transaction) -> None:
    """Store a text of a kind under ``key``, in place of the previous one."""
    transaction.execute(_PUT_TEXT, (kind, key, text, time.time()))


def read_texts(kind: str, transaction: Transaction) -> dict[str, str]:
    """Return the texts of one kind."""
    return dict(transaction.execute(_TEXTS, (kind,)).fetchall())


class AgreedLimits(Limits):
    """The limits of a database that several boards share; the first board that opens it writes its own there.

    A limit that a board's configuration does not give is the agreed one. A board that gives another one reports it, and
    deletes nothing: it would delete what the other boards keep. ``now`` is the clock of the database, which all boards
    have in common.
    """

    def __init__(
        self,
        own: StoreLimits | None,
        given: Collection[str],
        now: Callable[[Transaction], float],
        report: Callable[[str], object],
    ) -> None:
        super().__init__(own, now)
        self._own: Mapping[str, float | bool | None] = self.current.as_settings()
        self._given = given
        self._report = report
        self._reported: list[str] = []

    def read(self, transaction: Transaction) -> StoreLimits | None:
        """See ``Limits``."""
        agreed = read_limits(transaction)
        if agreed is None:
            agreed = StoreLimits.of_settings(self._own)
            write_limits(agreed, transaction)
        self.current = agreed
        settings = agreed.as_settings()
        different = [name for name in settings if name in self._given and settings[name] != self._own[name]]
        if different and different != self._reported:
            here = ", ".join(f"{name} = {shown_limit(self._own[name])}" for name in different)
            there = ", ".join(f"{name} = {shown_limit(settings[name])}" for name in different)
            self._report(
                f"[State: this board has {here}, the shared database has {there}, so this board deletes nothing; "
                "'rkllm-mcp store settings' shows and changes what the boards agree on.]"
            )
        self._reported = different
        return None if different else agreed


def read_limits(transaction: Transaction) -> StoreLimits | None:
    """Return the limits that the boards of a database agree on; None if none has written any."""
    text = read_texts(_LIMITS[0], transaction).get(_LIMITS[1])
    return None if text is None else StoreLimits.of_settings(json.loads(text))


def write_limits(limits: StoreLimits, transaction: Transaction) -> None:
    """Write the limits that the boards of a database agree on."""
    write_text(*_LIMITS, json.dumps(limits.as_settings()), transaction)


@dataclass(eq=False)
class DailyUsage:
    """Token usage per day, and of what else is counted per day, whose days have a name before the date."""

    database: Database
    outbox: Outbox | None = None  # takes tokens while the database is away

    async def add(self, day: str, tokens: int = 0) -> int:
        """Add tokens to the day's total, which begins at 0 on each day, and return it; with 0 only return it.

        The totals of ``_DAYS_COUNTED`` days are stored, so a clock that is set to another day and back makes no tokens
        available again. A StoreError if the database is away; the tokens are added later.
        """
        try:
            return await self.database.ask(partial(add_tokens, (day, tokens)))
        except StoreAwayError:
            if self.outbox is not None and tokens:
                await self.outbox.add(TOKENS, (day, tokens))
            raise


def add_tokens(change: tuple[str, int], transaction: Transaction) -> int:
    """Add the tokens of a day and return its total."""
    day, tokens = change
    totals = daily_totals(transaction, locks=tokens != 0)
    total = totals.pop(day, 0) + tokens
    if tokens:
        # The latest one is the last, whatever its date.
        _put_daily_totals({**totals, day: total}, transaction)
    return total


def daily_totals(transaction: Transaction, *, locks: bool = False) -> dict[str, int]:
    """Return the tokens of the last days, the latest day last.

    With ``locks`` another board that adds at the same time waits for the end of the transaction.
    """
    kind, key = _TOKENS
    if locks:
        transaction.execute(_FIRST_TEXT, (kind, key, "", time.time()))
        transaction.execute("UPDATE texts SET at = at WHERE kind = ? AND key = ?", (kind, key))
    words = read_texts(kind, transaction).get(key, "").split()
    return {date: int(spent) for date, spent in zip(words[::2], words[1::2], strict=False) if spent.isdecimal()}


def raise_daily_totals(totals: Mapping[str, int], transaction: Transaction) -> None:
    """Make the total of each day at least that of ``totals``."""
    if totals:
        stored = daily_totals(transaction, locks=True)
        older = {day: total for day, total in totals.items() if day not in stored}
        raised = {day: max(total, totals.get(day, 0)) for day, total in stored.items()}
        _put_daily_totals({**older, **raised}, transaction)


def _put_daily_totals(totals: Mapping[str, int], transaction: Transaction) -> None:
    text = " ".join(f"{date} {spent}" for date, spent in [*totals.items()][-_DAYS_COUNTED:])
    transaction.execute(_PUT_TEXT, (*_TOKENS, text, time.time()))


def _since_boot(_: Transaction) -> tuple[str, float]:
    """Return the id of this boot and the seconds since then, with those asleep; the same in every process."""
    boot = ""
    with suppress(OSError):
        boot = _BOOT_ID.read_text("ascii").strip()
    return boot, time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(eq=False)
class DeviceKeys:
    """Keys of devices: a code that is valid once and for five minutes becomes a key, of which the hash is stored.

    ``clock`` returns Unix time, and ``since_boot`` the id of this boot of the machine with the seconds since then. The
    age of a code is measured by the latter, because a clock that is set back would make an old code valid; in a
    database of several boards that is the database's time. While that cannot be read, the keys of before count.
    """

    database: Database
    clock: Callable[[], float] = time.time
    since_boot: Callable[[Transaction], tuple[str, float]] = _since_boot
    # The devices as they were read last.
    _latest: list[tuple[Device, str]] | None = field(default=None, init=False)

    @in_transaction(durable=True)
    def new_code(self, transaction: Transaction, parent: str = "") -> str:
        """Return a code that ``exchange`` takes once within ``CODE_VALID_S``, for a device of this parent."""
        code = secrets.token_urlsafe(24)
        boot, now = self.since_boot(transaction)
        # The parent follows the boot, which has no space.
        expired = "DELETE FROM texts WHERE kind = ? AND (substr(text, 1, ?) != ? OR at < ?)"
        transaction.execute(expired, (_CODES, len(boot) + 1, f"{boot} ", now))
        transaction.execute(_PUT_TEXT, (_CODES, _digest(code), f"{boot} {parent}", now + CODE_VALID_S))
        return code

    @in_transaction(durable=True)
    def exchange(self, transaction: Transaction, code: str, name: str) -> tuple[Device, str] | None:
        """Return a new device and its key for a valid code, which is used up; None for any other."""
        boot, now = self.since_boot(transaction)
        code_key = (_CODES, _digest(code))
        rows = transaction.execute("SELECT text FROM texts WHERE kind = ? AND key = ?", code_key).fetchall()
        parent = str(rows[0][0]).partition(" ")[2] if rows else ""
        query = "DELETE FROM texts WHERE kind = ? AND key = ? AND text = ? AND at >= ?"
        if transaction.execute(query, (*code_key, f"{boot} {parent}", now)).rowcount == 0:
            return None
        device, key, row = self._new(name, (), parent)
        transaction.execute(_PUT_TEXT, row)
        return device, key

    async def add(self, name: str, rights: Sequence[str], parent: str = "") -> tuple[Device, str]:
        """Return a new device, such as a program, and its key, which has these rights and no others.

        ``parent`` is the id of the device, or the name of the configured key, that makes it: the key ends with that one
        and has no more rights.
        """
        device, key, row = self._new(name, rights, parent)
        await self.database.change(_PUT_TEXT, row, durable=True)
        return device, key

    def _new(self, name: str, rights: Sequence[str], parent: str) -> tuple[Device, str, tuple[str, str, str, float]]:
        """Return a device, its key and its row."""
        device = Device(secrets.token_hex(4), " ".join(name.split()), self.clock(), tuple(rights), parent)
        key = f"{DEVICE_PREFIX}{device.id}-{secrets.token_urlsafe(32)}"
        # A linked device has no rights in its row, as before there were others.
        entry = [device.name, hash_key(key), *([rights, parent] if rights or parent else [])]
        return device, key, (DEVICE_KEYS, device.id, json.dumps(entry), device.linked)

    async def find(self, key: str) -> Device | None:
        """Return the device of a key; None if it, or a device that it comes from, was revoked or never existed.

        Its rights are those that all the devices that it comes from still have, and its parent is the first of them.
        """
        number = key.removeprefix(DEVICE_PREFIX).partition("-")[0]
        try:
            devices = await self._devices()
        except StoreError:
            if self._latest is None:
                raise
            devices = self._latest
        matching = [device for device, entry in devices if device.id == number and matches(key, entry)]
        if not matching:
            return None
        device, by_id = matching[0], {device.id: device for device, _ in devices}
        rights: tuple[str, ...] = device.rights
        parent, passed = device.parent, {device.id}
        while parent and not parent.startswith(CONFIGURED):
            above = by_id.get(parent)
            if above is None or above.id in passed:
                return None
            passed.add(above.id)
            if above.rights:
                rights = tuple(right for right in above.rights if not rights or right in rights)
                if not rights:
                    return None
            parent = above.parent
        return replace(device, rights=rights, parent=parent)

    async def all(self) -> list[Device]:
        """Return all devices, the oldest first."""
        return [device for device, _ in await self._devices()]

    @in_transaction(durable=True)
    def revoke(self, transaction: Transaction, number: str) -> bool:
        """Delete the key of a device and those that come from it; return False if no device has this id."""
        rows = transaction.execute("SELECT key, text, at FROM texts WHERE kind = ?", (DEVICE_KEYS,)).fetchall()
        devices = [device for device, _ in _devices_of(rows)]
        ending = {number} & {device.id for device in devices}
        while added := {device.id for device in devices if device.parent in ending} - ending:
            ending |= added
        for key in ending:
            transaction.execute("DELETE FROM texts WHERE kind = ? AND key = ?", (DEVICE_KEYS, key))
        return bool(ending)

    async def _devices(self) -> list[tuple[Device, str]]:
        """Return the devices, each with the hash of its key."""
        query = "SELECT key, text, at FROM texts WHERE kind = ? ORDER BY at, key"
        rows = await self.database.rows(query, (DEVICE_KEYS,))
        self._latest = _devices_of(rows)
        return self._latest


def _devices_of(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Device, str]]:
    devices: list[tuple[Device, str]] = []
    for number, text, linked in rows:
        # Rows of before have no parent, and those of linked devices no rights either.
        row: list[Any] = [*json.loads(text), (), ""]
        name, entry, rights, parent = row[:4]
        devices.append((Device(number, name, linked, tuple(rights), parent), entry))
    return devices


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
