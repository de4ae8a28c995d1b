"""``rkllm-mcp store``: what is stored in a database that several boards share: how long, and copied from and to it."""

from __future__ import annotations

from typing import Annotated

import typer

from rkllm_mcp.app.shared_store import agreed_limits, copy_stored
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli.options import AsJson, command, flag
from rkllm_mcp.surfaces.invocation import Session

app = typer.Typer(no_args_is_help=True)


def _shared_config(session: Session) -> Config:
    config = session.config()
    if config.store.url is None:
        raise UsageError('no database is configured; write url = "postgresql://USER@HOST/NAME" below [store]')
    return config


@command(app, "settings")
async def settings_command(
    session: Session,
    changes: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...")] = None,
    as_json: AsJson = False,
) -> None:
    """Show or change how long the boards of a shared database keep what is stored there.

    The first board that opened the database wrote its limits. A board whose configuration gives another one deletes
    nothing. A number, true, false or unlimited is a value.
    """
    rows = await agreed_limits(_shared_config(session), changes or ())
    heading = ("SETTING", "DATABASE", "THIS BOARD")
    settings = {name: {"database": there, "board": here or None} for name, there, here in rows}
    session.show(settings, session.terminal.table(heading, rows), as_json=as_json)


@command(app, "migrate")
async def migrate_command(
    session: Session,
    back: Annotated[bool, flag("Copy from the database into the files of this board.", "--back")] = False,
) -> None:
    """Copy what the owner and all tenants have stored into the database of [store] url.

    Conversations with their answers and pictures, responses, calls, permissions, what is switched off, linked devices,
    schedules, daily tokens. What is there already stays; nothing is removed. Stop the service first.
    """
    config = _shared_config(session)
    for tenant in ("", *(section.name for section in config.tenants)):
        copied = await copy_stored(config, tenant, back=back)
        note = f", {copied.known} conversations were there" if copied.known else ""
        session.status(
            f"{tenant or 'owner'}: {copied.conversations} conversations, {copied.responses} responses, "
            f"{copied.calls} calls, {copied.permissions} permissions, {copied.devices} devices, "
            f"{copied.schedules} schedules copied{note}"
        )
