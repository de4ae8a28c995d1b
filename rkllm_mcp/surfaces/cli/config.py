"""``rkllm-mcp config``: check, show, schema, init, add-key."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.terminal import YELLOW

app = typer.Typer(no_args_is_help=True)


@app.command()
def check(context: typer.Context) -> None:
    """Check the configuration; exit code 2 if it is invalid."""
    from rkllm_mcp.diagnostics.doctor import config_warnings

    config = context.obj.config()
    notes = config_warnings(config)
    where = config.source or "no configuration file: the defaults hold"
    servers = ", ".join(server.name for server in config.active_servers) or "none"
    if not config.mcp_enabled:
        servers = "none, MCP is switched off (MCP_ENABLED=false or --no-mcp)"
    sys.stdout.write(f"{where}\nright; servers: {servers}\n")
    for note in [*notes, *_plain_keys(config.source)]:
        context.obj.terminal.note(note, YELLOW)


def _plain_keys(source: Path | None) -> list[str]:
    """A line for every key that stands in the file as it is."""
    from rkllm_mcp.config.loading import read_file
    from rkllm_mcp.config.secrets import plain_keys

    advice = "whoever reads the file has it; 'rkllm-mcp config add-key' keeps a hash instead"
    return [f"{place} is a key as it is: {advice}" for place in (plain_keys(read_file(source)) if source else ())]


@app.command("add-key")
def add_key(
    context: typer.Context,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Tenant that the key belongs to; added if it does not exist.")
    ] = None,
    name: Annotated[str, typer.Option(metavar="LABEL", help="Comment that is written next to the key.")] = "",
) -> None:
    """Create an API key, print it once, and store its hash in the configuration."""
    from rkllm_mcp.config import editing
    from rkllm_mcp.config.secrets import hashed, new_key

    if tenant is not None and not tenant.strip():
        raise UsageError("a tenant needs a name; write it behind --tenant")
    key, target = new_key(), context.obj.target_file()
    if tenant is None:
        editing.add_key(target, hashed(key), name)
    else:
        editing.add_tenant(target, tenant, hashed(key), name)
    sys.stdout.write(f"{key}\n")
    whose = f"the key of the tenant '{tenant}'" if tenant else "a key of yours"
    context.obj.status(f"{target} has the hash of it, as {whose}. It is shown this once; send it as")
    context.obj.status("Authorization: Bearer KEY. A service that runs takes it after a reload (SIGHUP) or a restart.")


@app.command()
def show(context: typer.Context) -> None:
    """Print the effective configuration as JSON, with defaults and without secrets."""
    config = context.obj.config()
    context.obj.status(f"# {config.source or 'no configuration file: the defaults hold'}")
    sys.stdout.write(f"{json.dumps(config.redacted(), ensure_ascii=False, indent=2)}\n")


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration."""
    from rkllm_mcp.config.loading import configuration_schema

    sys.stdout.write(f"{json.dumps(configuration_schema(), ensure_ascii=False, indent=2)}\n")


@app.command()
def init(
    context: typer.Context,
    path: Annotated[
        str | None, typer.Argument(metavar="FILE", help="File to write. Default: ./mcp_config.toml.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Overwrite an existing file.")] = False,
) -> None:
    """Create a configuration file with comments."""
    from rkllm_mcp.config.loading import example_configuration

    target = Path(path or context.obj.config_path or "mcp_config.toml").expanduser()
    if target.exists() and not force:
        raise UsageError(f"{target} exists; name another file, or write over it with --force")
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # In one piece: half a configuration, or an empty one, would be taken for the wish of its owner.
        draft.write_text(example_configuration(), "utf-8")
        draft.replace(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UsageError(f"{target} cannot be written ({error.strerror}); name another file") from None
    sys.stdout.write(f"{target}\n")
