"""The database that several boards share: what a board copies into it, and what the boards agree to keep."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from rkllm_mcp.app.settings import store_limits
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.store.copying import Copied, copy_store
from rkllm_mcp.store.database import Transaction, open_database, state_file
from rkllm_mcp.store.limits import StoreLimits, shown_limit
from rkllm_mcp.store.postgres import open_postgres
from rkllm_mcp.store.tables import read_limits, write_limits


async def copy_stored(config: Config, tenant: str, *, back: bool = False) -> Copied:
    """Copy a tenant's file into the database of ``[store]``, or back; a StoreError if one of them cannot be used."""
    lines: list[str] = []
    async with (
        open_database(state_file(os.environ, tenant), on_problem=lines.append, required=True) as file,
        open_postgres(config.store.url or "", tenant, on_problem=lines.append, required=True) as database,
    ):
        source, target = (database, file) if back else (file, database)
        return await copy_store(source, target, tenant)


async def agreed_limits(config: Config, changes: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the limits that the boards of ``[store]`` agree on, after these changes, each ``NAME=VALUE``.

    Of each its name, the value in the database, and what this board's configuration gives, or an empty text. A
    UsageError for a change that is not one; a StoreError if the database cannot be used.
    """
    own_limits, configured = store_limits(config)
    default_limits = StoreLimits().as_settings()
    changed: dict[str, float | bool | None] = {}
    for words in changes:
        name, _, text = words.partition("=")
        if name not in default_limits:
            allowed = ", ".join(default_limits)
            raise UsageError(f"{words!r} changes nothing; write NAME=VALUE, with one of the names {allowed}")
        if isinstance(default_limits[name], bool):
            if text not in ("true", "false"):
                raise UsageError(f"{name} is true or false, not {text!r}")
            changed[name] = text == "true"
        elif text == "unlimited" and default_limits[name] is None:
            changed[name] = None
        else:
            number = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else -1.0
            # Without days or number no call is recorded; conversations have at least one.
            least_is_zero = name.startswith("security.")
            if number < 0 or (number == 0 and not least_is_zero):
                raise UsageError(f"{name} is a number{'' if least_is_zero else ' above 0, or unlimited'}, not {text!r}")
            changed[name] = int(number) if number.is_integer() else number

    def change(transaction: Transaction) -> StoreLimits:
        before = read_limits(transaction) or own_limits
        limits = StoreLimits.of_settings({**before.as_settings(), **changed})
        write_limits(limits, transaction)
        return limits

    limits = own_limits
    # A tenant sees its own rows, so each has the limits among them.
    for tenant in (*(section.name for section in config.tenants), ""):
        async with open_postgres(config.store.url or "", tenant, on_problem=lambda _: None, required=True) as database:
            limits = await database.ask(change, durable=True)
    here = own_limits.as_settings()
    return [
        (name, shown_limit(value), shown_limit(here[name]) if name in configured else "")
        for name, value in limits.as_settings().items()
    ]
