"""Resources and prompts of the configured servers: ``rkllm-mcp resources`` and ``rkllm-mcp prompts``."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from rkllm_mcp.protocols import CallContext
from rkllm_mcp.surfaces.cli.config import write_new
from rkllm_mcp.surfaces.cli.options import AsJson
from rkllm_mcp.surfaces.cli.tools import with_tools
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.tables import prompt_table, read_pairs, resource_table
from rkllm_mcp.surfaces.terminal import printable, write_json

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import ToolEnvironment


def _bytes(part: Any) -> bytes:
    """One part of a resource as it is: ``text`` as UTF-8, or ``blob`` decoded."""
    if "blob" in part:
        return base64.b64decode(part["blob"])
    return str(part.get("text", "")).encode("utf-8", "replace")


app = typer.Typer(no_args_is_help=True)
prompts_app = typer.Typer(no_args_is_help=True)

_Server = Annotated[str | None, typer.Argument(metavar="[SERVER]", help="Only this server.")]
_Resource = Annotated[str, typer.Argument(metavar="URI", help="SERVER:URI, or a URI that only one server offers.")]


@app.command("list")
def list_resources_command(context: typer.Context, server: _Server = None, as_json: AsJson = False) -> None:
    """List resources and resource templates."""
    session: Session = context.obj
    caller = CallContext(tokens=session.tokens)

    async def work(environment: ToolEnvironment) -> None:
        resources, templates = await environment.toolbox.offerings.readable(server, caller)
        if as_json:
            write_json({"resources": list(map(asdict, resources)), "templates": list(map(asdict, templates))})
            return
        sys.stdout.write(resource_table(resources, templates, session.terminal.columns))
        if not resources and not templates:
            session.status("No resources; 'rkllm-mcp servers test' says how the servers are.")

    with_tools(session, work)


@app.command("read")
def read_command(
    context: typer.Context,
    uri: _Resource,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the content to a new file instead of printing it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a resource."""
    session: Session = context.obj
    caller = CallContext(tokens=session.tokens)

    async def work(environment: ToolEnvironment) -> None:
        content = await environment.toolbox.offerings.read_resource(uri.removeprefix("@"), context=caller)
        if output is not None:
            data = b"".join(_bytes(part) for part in content.contents)
            write_new(Path(output), data)
            session.status(f"{len(data)} bytes written to {output}")
        elif as_json:
            write_json({"server": content.server, "uri": content.uri, "contents": [dict(c) for c in content.contents]})
        else:
            text = printable(content.text)
            sys.stdout.write(text if text.endswith("\n") else f"{text}\n")

    with_tools(session, work)


@app.command("subscribe")
def subscribe_command(
    context: typer.Context,
    uri: _Resource,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Exit after N changes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a line whenever a resource changes; Ctrl-C ends."""
    session: Session = context.obj
    caller = CallContext(tokens=session.tokens)

    async def work(environment: ToolEnvironment) -> None:
        left = count
        enough = anyio.Event()

        async def changed(changed_uri: str) -> None:
            nonlocal left
            sys.stdout.write(
                f"{json.dumps({'uri': changed_uri}, ensure_ascii=False) if as_json else printable(changed_uri)}\n"
            )
            sys.stdout.flush()
            left = None if left is None else left - 1
            if left == 0:
                enough.set()

        async with anyio.create_task_group() as tasks:
            await tasks.start(environment.toolbox.offerings.subscribe, uri.removeprefix("@"), changed, caller)
            session.status(f"Waiting for changes of {uri}; Ctrl-C ends.")
            await enough.wait()
            tasks.cancel_scope.cancel()

    with_tools(session, work)


@prompts_app.command("list")
def list_prompts_command(context: typer.Context, server: _Server = None, as_json: AsJson = False) -> None:
    """List prompts and their arguments."""
    session: Session = context.obj
    caller = CallContext(tokens=session.tokens)

    async def work(environment: ToolEnvironment) -> None:
        prompts = await environment.toolbox.offerings.prompts(server, caller)
        if as_json:
            write_json(list(map(asdict, prompts)))
            return
        sys.stdout.write(prompt_table(prompts, session.terminal.columns))
        if not prompts:
            session.status("No prompts; 'rkllm-mcp servers test' says how the servers are.")

    with_tools(session, work)


@prompts_app.command("get")
def get_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="SERVER:NAME, or a name that only one server offers.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments of the prompt.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a prompt with its arguments filled in."""
    session: Session = context.obj
    values = read_pairs(arguments or ())
    caller = CallContext(tokens=session.tokens)

    async def work(environment: ToolEnvironment) -> None:
        filled = await environment.toolbox.offerings.fill_prompt(name, values, caller)
        turns = [(message.role, message.text) for message in filled.messages]
        if as_json:
            template = filled.template
            messages = [{"role": role, "text": text} for role, text in turns]
            write_json({"server": template.server, "name": template.name, "messages": messages})
        else:
            sys.stdout.write("\n\n".join(f"── {role}\n{printable(text)}" for role, text in turns) + "\n")

    with_tools(session, work)
