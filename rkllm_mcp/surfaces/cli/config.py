"""``rkllm-mcp config``: check, show, schema, init, add-key; and the text of a new configuration."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rkllm_mcp.config import editing
from rkllm_mcp.config.editing import toml_value
from rkllm_mcp.config.loading import configuration_schema, read_file
from rkllm_mcp.config.secrets import hash_key, new_key, plain_keys, readable_secrets
from rkllm_mcp.diagnostics.doctor import config_warnings
from rkllm_mcp.errors import ConfigError, ModelNotFoundError, UsageError
from rkllm_mcp.models.cards import list_models
from rkllm_mcp.surfaces.cli.files import filled_template, write_whole
from rkllm_mcp.surfaces.cli.options import AsJson, argument, command, flag, option
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.terminal import YELLOW, write_json

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True)
class NewConfiguration:
    """Contents of a new configuration file."""

    model: str  # name, or a path with a slash; none when empty
    library: str = "auto"
    language: str = ""  # the question's when empty
    host: str = "127.0.0.1"
    port: int = 8080
    key_entry: str = ""  # stored form of the owner's key; none when empty
    folder: Path | None = None  # for the files server, which is a comment when None

    def text(self) -> str:
        """Return the file."""
        files = f'[[servers]]\nname = "files"\nfolder = {toml_value(str(self.folder or "~/notes"))}\nwrite = false'
        values = {
            "LIBRARY": toml_value(self.library),
            "MODEL": f"{'path' if '/' in self.model else 'name'} = {toml_value(self.model)}"
            if self.model
            else '# name = "qwen3-1.7b"',
            "LANGUAGE": f"language = {toml_value(self.language)}" if self.language else '# language = "ja"',
            "HOST": toml_value(self.host),
            "PORT": toml_value(self.port),
            "KEYS": f"api_keys = {toml_value([self.key_entry] if self.key_entry else [])}",
            "FILES": files if self.folder else "\n".join(f"# {line}" for line in files.splitlines()),
        }
        return filled_template("config_template.toml", values)


@command(app, "check")
def check(session: Session, as_json: AsJson = False) -> None:
    """Check the configuration; exit code 2 if it is invalid."""
    config = session.config()
    notes = config_warnings(config)
    where = config.origin.source or session.phrases.sentence("config.none")
    names = [server.name for server in config.active_servers]
    advice = "any reader of the file has it; 'rkllm-mcp config add-key' stores a hash instead"
    file = read_file(source) if (source := config.origin.source) else {}
    notes += [f"{key_path} is a key as it is: {advice}" for key_path in plain_keys(file)]
    if source is not None and (problem := readable_secrets(source, file)):
        notes.append(problem)
    if as_json:
        write_json({"file": str(source) if source else None, "servers": names, "notes": notes})
        return
    servers = ", ".join(names) or session.terminal.word("none")
    if not config.origin.mcp_enabled:
        servers = "none, MCP is switched off (MCP_ENABLED=false or --no-mcp)"
    sys.stdout.write(f"{where}\n")
    session.result(f"right; servers: {servers}")
    for note in notes:
        session.status(note, YELLOW)


@command(app, "add-key")
def add_key(
    session: Session,
    tenant: Annotated[str | None, option("Tenant that the key belongs to; added if it does not exist.", "NAME")] = None,
    name: Annotated[str, option("Comment that is written next to the key.", "LABEL")] = "",
) -> None:
    """Create an API key, print it once, and store its hash in the configuration."""
    if tenant is not None and not tenant.strip():
        raise UsageError("a tenant needs a name; write it behind --tenant")
    key, target = new_key(), session.target_file()
    if tenant is None:
        editing.add_key(target, hash_key(key), name)
    else:
        editing.add_tenant(target, tenant, hash_key(key), name)
    sys.stdout.write(f"{key}\n")
    whose = f"the key of the tenant '{tenant}'" if tenant else "a key of yours"
    session.status(f"{target} has the hash of it, as {whose}. It is shown this once; send it as")
    session.status("Authorization: Bearer KEY. A service that runs takes it after a reload (SIGHUP) or a restart.")


@command(app, "show")
def show(session: Session) -> None:
    """Print the effective configuration as JSON, with defaults and without secrets."""
    config = session.config()
    session.status(f"# {config.origin.source or session.phrases.sentence('config.none')}")
    write_json(config.dump_redacted())


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of the configuration."""
    write_json(configuration_schema())


@command(app, "init")
def init(
    session: Session,
    path: Annotated[
        str | None, argument("File to write. Default: --config, else your own configuration file.", "FILE")
    ] = None,
    force: Annotated[bool, flag("Overwrite an existing file.", "--force")] = False,
) -> None:
    """Create a configuration file with what works here; 'rkllm-mcp setup' does that and more."""
    target = Path(path).expanduser() if path else session.target_file()
    if target.exists() and not force:
        raise UsageError(f"{target} exists; name another file, or write over it with --force")
    model = session.model or ""
    if session.model is None:
        # The newest that is here.
        with suppress(ModelNotFoundError, ConfigError):
            real = [folder for folder in list_models() if not folder.missing and not folder.card.emulated]
            if real:
                model = max(real, key=lambda folder: folder.file.stat().st_mtime).folder.name
    write_whole(target, NewConfiguration(model).text())
    sys.stdout.write(f"{target}\n")
    if not model:
        session.status("It names no model yet: 'rkllm-mcp setup' gets one, 'rkllm-mcp models list' shows the names.")
