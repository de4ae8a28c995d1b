"""Resources and prompts of the configured servers: ``rkllm-mcp resources`` and ``rkllm-mcp prompts``."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict
from typing import Annotated

import anyio
import typer

from rkllm_mcp.protocols import CallContext
from rkllm_mcp.surfaces.cli.files import write_new
from rkllm_mcp.surfaces.cli.options import AsJson, argument, command, option
from rkllm_mcp.surfaces.cli.tools import open_servers
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.tables import prompt_table, read_pairs, resource_table
from rkllm_mcp.surfaces.terminal import printable

app = typer.Typer(no_args_is_help=True)
prompts_app = typer.Typer(no_args_is_help=True)

_Server = Annotated[str | None, argument("Only this server.", "SERVER")]
_Resource = Annotated[str, argument("SERVER:URI, or a URI that only one server offers.", "URI")]


@command(app, "list")
async def list_resources_command(session: Session, server: _Server = None, as_json: AsJson = False) -> None:
    """List resources and resource templates."""
    async with open_servers(session) as environment:
        resources, templates = await environment.toolbox.offerings.readable(server, CallContext(tokens=session.tokens))
    values = {"resources": list(map(asdict, resources)), "templates": list(map(asdict, templates))}
    none = "No resources; 'rkllm-mcp servers test' says how the servers are."
    session.show(values, resource_table(resources, templates, session.terminal), as_json=as_json, none=none)


@command(app, "read")
async def read_command(
    session: Session,
    uri: _Resource,
    output: Annotated[str | None, option("Write the content to a new file instead of printing it.", "FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a resource."""
    caller = CallContext(tokens=session.tokens)
    async with open_servers(session) as environment:
        content = await environment.toolbox.offerings.read_resource(uri.removeprefix("@"), context=caller)
    if output is not None:
        data = b"".join(
            base64.b64decode(part["blob"]) if "blob" in part else str(part.get("text", "")).encode("utf-8", "replace")
            for part in content.contents
        )
        write_new(output, data)
        session.status(f"{len(data)} bytes written to {output}")
        return
    value = {"server": content.server, "uri": content.uri, "contents": [dict(c) for c in content.contents]}
    text = printable(content.text)
    session.show(value, text if text.endswith("\n") else f"{text}\n", as_json=as_json)


@command(app, "subscribe")
async def subscribe_command(
    session: Session,
    uri: _Resource,
    count: Annotated[int | None, option("Exit after N changes.", "N", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Print a line whenever a resource changes; Ctrl-C ends."""
    remaining = count
    enough = anyio.Event()

    async def on_change(changed_uri: str) -> None:
        nonlocal remaining
        line = json.dumps({"uri": changed_uri}, ensure_ascii=False) if as_json else printable(changed_uri)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        remaining = None if remaining is None else remaining - 1
        if remaining == 0:
            enough.set()

    async with open_servers(session) as environment, anyio.create_task_group() as tasks:
        caller = CallContext(tokens=session.tokens)
        await tasks.start(environment.toolbox.offerings.subscribe, uri.removeprefix("@"), on_change, caller)
        session.status(f"Waiting for changes of {uri}; Ctrl-C ends.")
        await enough.wait()
        tasks.cancel_scope.cancel()


@command(prompts_app, "list")
async def list_prompts_command(session: Session, server: _Server = None, as_json: AsJson = False) -> None:
    """List prompts and their arguments."""
    async with open_servers(session) as environment:
        prompts = await environment.toolbox.offerings.prompts(server, CallContext(tokens=session.tokens))
    none = "No prompts; 'rkllm-mcp servers test' says how the servers are."
    listing = prompt_table(prompts, session.terminal)
    session.show(list(map(asdict, prompts)), listing, as_json=as_json, none=none)


@command(prompts_app, "get")
async def get_command(
    session: Session,
    name: Annotated[str, argument("SERVER:NAME, or a name that only one server offers.")],
    arguments: Annotated[list[str] | None, argument("Arguments of the prompt.", "NAME=VALUE")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a prompt with its arguments filled in."""
    values = read_pairs(arguments or ())
    async with open_servers(session) as environment:
        caller = CallContext(tokens=session.tokens)
        filled = await environment.toolbox.offerings.fill_prompt(name, values, caller)
    turns = [(message.role, message.text) for message in filled.messages]
    messages = [{"role": role, "text": text} for role, text in turns]
    value = {"server": filled.template.server, "name": filled.template.name, "messages": messages}
    listing = "\n\n".join(f"── {role}\n{printable(text)}" for role, text in turns)
    session.show(value, f"{listing}\n", as_json=as_json)
