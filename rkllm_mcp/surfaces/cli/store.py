"""``rkllm-mcp store``: where conversations are stored, a file of this board or a database that several boards share."""

from __future__ import annotations

from typing import Annotated

import typer

from rkllm_mcp.app.preview import copy_stored
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli.options import command, flag
from rkllm_mcp.surfaces.invocation import Session

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Commands of the group; a group of one command would be that command."""


@command(app, "migrate")
async def migrate_command(
    session: Session,
    back: Annotated[bool, flag("Copy from the database into the files of this board.", "--back")] = False,
) -> None:
    """Copy what the owner and all tenants have stored into the database of [store] url.

    Conversations with their answers and pictures, responses, calls, permissions, what is switched off, linked devices,
    daily tokens. What is there already stays; nothing is removed. Stop the service first.
    """
    config = session.config()
    if config.store.url is None:
        raise UsageError('no database is configured; write url = "postgresql://USER@HOST/NAME" below [store]')
    for tenant in ("", *(section.name for section in config.tenants)):
        copied = await copy_stored(config, tenant, back=back)
        known = f", {copied.known} conversations were there" if copied.known else ""
        session.status(
            f"{tenant or 'owner'}: {copied.conversations} conversations, {copied.responses} responses, "
            f"{copied.calls} calls, {copied.permissions} permissions, {copied.devices} devices copied{known}"
        )
