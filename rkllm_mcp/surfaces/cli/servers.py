"""The configured servers: ``rkllm-mcp servers``."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs, urlsplit

import typer

from rkllm_mcp.catalogue import read_catalogue, translate
from rkllm_mcp.config.claude_desktop import entries_of
from rkllm_mcp.config.editing import add_server, add_servers, checked_servers, names_in, remove_server, tidy
from rkllm_mcp.config.loading import read_file
from rkllm_mcp.config.secrets import redacted_arguments, redacted_text
from rkllm_mcp.errors import ConfigError, UsageError
from rkllm_mcp.surfaces.cli.files import filled_template
from rkllm_mcp.surfaces.cli.options import AsJson, argument, command, flag, option, require_mcp, server_names
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.tables import read_pairs, tool_table
from rkllm_mcp.surfaces.terminal import YELLOW, write_json

if TYPE_CHECKING:
    from rkllm_mcp.config.servers import ServerConfig


app = typer.Typer(no_args_is_help=True)

_NONE = "add one with 'rkllm-mcp servers add NAME -- COMMAND ARGS'"


@command(app, "list")
def list_command(session: Session, as_json: AsJson = False) -> None:
    """List the configured servers without starting them."""
    config = session.config()
    if as_json:
        write_json(config.dump_redacted()["servers"])
        return
    rows: list[tuple[str, ...]] = []
    for server in config.servers:
        unset = config.origin.unset.get(server.name, ())
        state = f"left out, not set: {', '.join(unset)}" if unset else "on"
        state = state if server.enabled else "off"
        rows.append((server.name, server.transport, session.terminal.word(state), _how(server)))
    sys.stdout.write(session.terminal.table(("NAME", "TRANSPORT", "STATE", "HOW"), rows))
    if not rows:
        session.note_configuration(config)
        session.status(f"No servers; {_NONE}.")
    if not config.origin.mcp_enabled:
        session.status("MCP is switched off (MCP_ENABLED=false or --no-mcp), so none of them is used.")


@command(app, "show")
async def show_command(
    session: Session,
    name: Annotated[str, argument("Name of the server.", autocompletion=server_names)],
    as_json: AsJson = False,
) -> None:
    """Show one server's settings, without secrets, and its tools as they were listed last."""
    from rkllm_mcp.app.tools import tools_without_a_start

    config = session.config()
    _check_known("server", name, [server.name for server in config.servers])
    values = next(server for server in config.dump_redacted()["servers"] if server["name"] == name)
    if not as_json:
        server = next(server for server in config.servers if server.name == name)
        # A server in this process has neither.
        if how := _how(server):
            values = {session.terminal.word("runs" if hasattr(server, "command") else "address"): how, **values}
    session.show_value(values, as_json=as_json)
    if as_json:
        return
    if tools := await tools_without_a_start(config, name):
        sys.stdout.write(f"\n{tool_table(tools, session.terminal)}")
    else:
        session.status(f"Its tools: rkllm-mcp servers test {shlex.quote(name)}")


@command(app, "test")
async def check_command(
    session: Session,
    names: Annotated[
        list[str] | None, argument("Names of servers. Default: all.", "NAME", autocompletion=server_names)
    ] = None,
    as_json: AsJson = False,
    tenant: Annotated[str | None, option("Test them with this tenant's logins.", "NAME")] = None,
) -> int:
    """Start servers, list their tools and stop them; exit code 1 if a server fails."""
    from rkllm_mcp.app.tools import open_tools

    config = session.config()
    require_mcp(config)
    if tenant is not None:
        tenants = {section.name: section for section in config.tenants}
        _check_known("tenant", tenant, tenants)
        config = config.for_tenant(tenants[tenant])
    for name in names or ():
        _check_known("server", name, [server.name for server in config.servers])
    chosen = config.only_servers(names) if names else config
    count = len(chosen.active_servers)
    starting = f"Starting {count} {'server' if count == 1 else 'servers'} …"
    session.status(starting if count else f"No servers to test; {_NONE}.")

    async def log_in(server: str, url: str) -> None:
        wish = f"Server '{server}' wants you to log in; open this address in a browser on this machine:"
        session.status(f"{wish}\n  {url}")
        port = urlsplit(parse_qs(urlsplit(url).query).get("redirect_uri", [""])[0]).port
        session.status(f"(Over ssh, connect with 'ssh -L {port}:127.0.0.1:{port}' first and use your own browser.)")

    async with open_tools(chosen, log_in=log_in) as environment:
        await environment.toolbox.wait_until_started()
        async with environment.toolbox.attending(session.tokens):
            states = environment.toolbox.servers()
            tools = environment.toolbox.tools()
    word = session.terminal.word
    rows = [
        (
            s.name,
            word(s.state),
            session.phrases.sentence("chat.tool_count", count=s.tool_count),
            f"{s.connect_seconds:.1f} s",
            "",
        )
        if s.state == "ready"
        else (s.name, word(s.state), "-", "-", session.phrases.phrase(s.reason))
        for s in states
    ]
    listing = session.terminal.table(("NAME", "STATE", "TOOLS", "START", "REASON"), rows)
    session.show(list(map(asdict, states)), listing, as_json=as_json)
    if names and tools and not as_json:
        sys.stdout.write(f"\n{tool_table(tools, session.terminal)}")
    for state in () if as_json else states:
        # Of a server that is there only our own remarks are news: what of it was left out, and why.
        for line in (line for line in state.last_lines if state.state != "ready" or line.startswith("(")):
            session.status(f"{state.name}: {line}")
    return EXIT_DONE if all(state.state == "ready" for state in states) else EXIT_ANSWER_FAILED


@command(app, "import")
def import_command(
    session: Session,
    file: Annotated[str, argument("File with mcpServers, such as claude_desktop_config.json.", "FILE")],
) -> None:
    """Import servers from another MCP host's configuration (mcpServers); those whose name is taken are left out."""
    path = Path(file).expanduser()
    if not path.is_file():
        advice = "name another host's configuration, such as claude_desktop_config.json"
        raise UsageError(f"there is no file {path}; {advice}")
    raw = {key: value for key, value in read_file(path).items() if key in {"mcpServers", "servers"}}
    # Variables are copied as they are, but they have to be usable: the file is checked as it would be used.
    entries = entries_of(raw, {}, str(path))
    tables = [entry.table for entry in entries]
    checked_servers(raw, str(path), path)
    if not tables:
        expected = 'it must have {"mcpServers": {"NAME": {"command": "…"}}}'
        raise ConfigError(str(path), "mcpServers", "no servers", expected)
    target = session.target_file()
    used_names = names_in(target)
    new = [entry for entry in tables if entry["name"] not in used_names]
    if new:
        add_servers(target, [tidy(entry) for entry in new])
    for remark in filter(None, (entry.remark for entry in entries)):
        session.status(remark)
    for entry in tables:
        outcome = f"added to {target}" if entry in new else f"left out: {target} has a server of this name"
        session.result(f"{entry['name']}: {outcome}")
    _tell_unset(session, new)


@command(app, "add")
def add_command(
    session: Session,
    name: Annotated[str, argument("Name of the new server.")],
    command: Annotated[list[str] | None, argument("Command that starts the server.", "-- COMMAND ARGS")] = None,
    url: Annotated[str | None, option("URL of a remote server, instead of a command.", "URL")] = None,
    transport: Annotated[str | None, option("Transport: stdio, http, sse or websocket.", "NAME")] = None,
    env: Annotated[
        list[str] | None, option("Environment variable of the server; may be repeated.", "NAME=VALUE")
    ] = None,
    header: Annotated[list[str] | None, option("HTTP header to send; may be repeated.", "NAME:VALUE")] = None,
) -> None:
    """Add a server to the configuration."""
    if bool(command) == (url is not None):
        raise UsageError("a server has either a command or a --url: rkllm-mcp servers add NAME -- COMMAND ARGS")
    words = {"command": command[0], "args": command[1:]} if command else {}
    values = {"url": url, "transport": transport}
    headers = read_pairs(header or (), ":", "write --header NAME:VALUE")
    values |= {
        "env": read_pairs(env or (), advice="write --env NAME=VALUE"),
        "headers_template": {key.strip(): value.strip() for key, value in headers.items()},
    }
    _add(session, {"name": name, **words, **{key: value for key, value in values.items() if value}})


@command(app, "install")
def install_command(
    session: Session,
    name: Annotated[str | None, argument("Name in the gallery. Default: show the gallery.")] = None,
    folder: Annotated[str | None, option("The folder that the server may read and change.", "PATH")] = None,
    no_sandbox: Annotated[
        bool, flag("Let it run without the sandbox, where that is not usable.", "--no-sandbox")
    ] = False,
) -> None:
    """Install a server of the gallery: a pinned version, in the sandbox. The knowledge server is part of rkllm-mcp."""
    from rkllm_mcp.config.gallery import gallery
    from rkllm_mcp.diagnostics.doctor import gallery_server
    from rkllm_mcp.diagnostics.programs import SANDBOX, missing_programs, needed_programs
    from rkllm_mcp.surfaces.chat.forms import TerminalApprover

    config, missing = session.config(), missing_programs()
    language = session.language(config)
    entries = {
        entry["name"]: (entry, needed_programs(entry["command"][0], is_sandboxed=entry["is_sandboxed"]))
        for entry in gallery()
    }
    notes = entries[name][1] if name in entries else ()
    for program in (program for program in missing if name is None or program in notes):
        purpose = read_catalogue(language).table("programs")[program]
        text = translate("servers.missing", language, name=program, purpose=purpose, command=missing[program])
        session.terminal.note(text, YELLOW)
    if name is None:
        rows = [
            (
                entry_name,
                ", ".join(program for program in needed if program in missing),
                entry["description_ja"] if language == "ja" else entry["description"],
            )
            for entry_name, (entry, needed) in entries.items()
        ]
        sys.stdout.write(session.terminal.table(("NAME", "MISSING", "DESCRIPTION"), rows))
        return
    at = str(Path(folder).expanduser().absolute()) if folder else None
    is_sandboxed = SANDBOX not in notes or SANDBOX not in missing
    # Its own mistakes are told before a person is asked.
    new = gallery_server(name, at, config, session.target_file(), is_sandboxed=is_sandboxed)
    line = shlex.join(word.replace("${PYTHON}", sys.executable) for word in (new["command"], *new["args"]))
    question = translate("servers.no_sandbox", language, name=name, command=line)
    if not (
        is_sandboxed
        or no_sandbox
        or TerminalApprover(session.terminal).confirm(question, "--no-sandbox", default=False)
    ):
        session.status("Nothing was changed.")
        return
    _add(session, new)
    session.status(f"It runs in a sandbox, with the network: {line}" if new.get("sandbox") else f"It runs: {line}")
    session.status(f"Try it with: rkllm-mcp servers test {name}")


def _add(session: Session, entry: dict[str, Any]) -> None:
    from rkllm_mcp.diagnostics.programs import absent_program

    target = session.target_file()
    table = add_server(target, entry)
    session.result(f"{entry['name']}: added to {target}")
    _tell_unset(session, [table])
    if program := absent_program(table):
        advice = f"install it, or take the server out again: rkllm-mcp servers remove {shlex.quote(entry['name'])}"
        text = f"There is no program {program!r} on this machine, so the server cannot start; {advice}"
        session.status(text, YELLOW)


@command(app, "remove")
def remove_command(
    session: Session, name: Annotated[str, argument("Name of the server.", autocompletion=server_names)]
) -> None:
    """Remove a server from the configuration."""
    target = session.target_file()
    if not target.is_file():
        raise UsageError(f"there is no configuration file to change; {target} does not exist")
    remove_server(target, name)
    session.result(f"{name}: removed from {target}")


def _check_known(what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise UsageError(f"there is no {what} {name!r}; the configuration has {', '.join(names) or 'none'}")


def _how(server: ServerConfig) -> str:
    command = getattr(server, "command", None)
    if command is not None:
        return " ".join([command, *redacted_arguments(getattr(server, "args", ()))])
    return redacted_text(str(getattr(server, "url", "") or getattr(server, "openapi_base_url", "") or ""))


def _tell_unset(session: Session, tables: Sequence[dict[str, Any]]) -> None:
    """Name the variables that the servers just written need and the environment lacks."""
    used = [table for table in tables if table.get("enabled", True)]
    # Headers are filled when a call is made.
    text = json.dumps([{key: value for key, value in table.items() if key != "headers_template"} for table in used])
    needed = set(re.findall(r"(?<!\$)\$\{(?:env:)?([A-Za-z_]\w*)\}", text)) - {*os.environ, "PYTHON"}
    if needed:
        names = ", ".join(sorted(needed))
        session.status(f"Not set in the environment: {names}. Without, the server is left out.", YELLOW)


FILES = ("server.py", "test_server.py", "pyproject.toml", "README.md")
# What may name a tool's server, a Python project and the scheme of a URI at once.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")


@command(app, "new")
def new_command(
    session: Session,
    name: Annotated[str, argument("Name of the new server.")],
    folder: Annotated[str | None, option("Folder to write to. Default: ./NAME.", "FOLDER")] = None,
    is_added: Annotated[bool, flag("Also add it to the configuration.", "--add")] = False,
) -> None:
    """Create the source of a small MCP server with tests."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a server; use letters, digits, - and _, and begin with a letter")
    target = Path(folder or name).expanduser().absolute()
    words = {
        "NAME": name,
        "TITLE": name.replace("-", " ").replace("_", " ").capitalize(),
        "SCHEME": name.lower().replace("_", "-"),
        "PATH": shlex.quote(str(target / "server.py")),
    }
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise UsageError(f"{target} is not empty; name another folder with --folder")
        for file in FILES:
            (target / file).write_text(filled_template(f"server_template/{file}", words), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target} cannot be written ({error.strerror}); name another folder with --folder") from None
    for file in FILES:
        sys.stdout.write(f"{target / file}\n")
    if is_added:
        _add(session, {"name": name, "command": "${PYTHON}", "args": [str(target / "server.py")]})
    else:
        session.status(f"Add it with: rkllm-mcp servers add {name} -- python {words['PATH']}")
