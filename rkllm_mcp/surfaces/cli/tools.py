"""``rkllm-mcp tools``: list, show, call, switch, history, approvals, serve."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rkllm_mcp.app.stored import forget_approvals, open_stored
from rkllm_mcp.app.tools import open_tools, set_switch
from rkllm_mcp.catalogue import read_catalogue, translate
from rkllm_mcp.errors import GenerationError, UsageError
from rkllm_mcp.events import Approval, Elicitation, ToolFinished, event_to_json
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.protocols import Approver, CallContext, FixedApprover
from rkllm_mcp.surfaces.chat.forms import FormPrompt
from rkllm_mcp.surfaces.chat.input import ConsoleAnswers
from rkllm_mcp.surfaces.cli.attached import Alone, attached_lines, service_to_use
from rkllm_mcp.surfaces.cli.options import (
    AsJson,
    Host,
    Port,
    argument,
    command,
    flag,
    in_loop,
    option,
    require_mcp,
    tool_named,
    unknown_tool,
)
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.tables import (
    call_table,
    call_time,
    grant_table,
    read_pairs,
    switched_line,
    tool_table,
    tool_text,
)
from rkllm_mcp.surfaces.terminal import is_interactive, printable

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import ToolEnvironment
    from rkllm_mcp.surfaces.running_service import RunningService


def read_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as people type them: one JSON object, or ``key=value`` for each.

    A value is JSON where the tool's schema wants something else than a string, and text where it wants one.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            return cast("dict[str, Any]", json.loads(words[0]))
        except json.JSONDecodeError as error:
            raise UsageError(f"the arguments are not JSON: {error.msg} at column {error.colno}; mend them") from None
    properties: Mapping[str, Any] = schema.get("properties") or {}
    pairs = read_pairs(words, advice="write KEY=VALUE, or all of them as one JSON object in quotes")
    arguments: dict[str, Any] = dict(pairs)
    for key, text in pairs.items():
        part = properties.get(key)
        if not isinstance(part, Mapping) or cast("Mapping[str, Any]", part).get("type") != "string":
            with suppress(json.JSONDecodeError):
                arguments[key] = json.loads(text)
    return arguments


def tool_dict(tool: ToolSpec) -> dict[str, Any]:
    """One tool for a program."""
    return {
        "name": tool.name,
        "qualified_name": tool.qualified_name,
        "server": tool.server,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "read_only": tool.read_only,
        "destructive": tool.destructive,
    }


@asynccontextmanager
async def open_servers(session: Session) -> AsyncGenerator[ToolEnvironment, None]:
    """Connect the configured servers, and wait until each is there or has failed."""
    config = session.config()
    require_mcp(config)
    session.note_configuration(config)
    async with open_tools(config, status=session.status) as environment:
        await environment.toolbox.wait_until_connected()
        async with environment.toolbox.attending(session.tokens):
            yield environment


_SAY_YES = "Say --yes to allow it."
_NOT_RUN = f"it was not run, because it may change something and no user could approve it. {_SAY_YES}"


async def switch(session: Session, names: Sequence[str], *, is_on: bool) -> None:
    """Switch tools or servers on or off, for this and every later run."""
    config = session.config()
    require_mcp(config)
    servers = {server.name for server in config.servers}
    # Of a server nothing has to be known; the tools of the others are asked for.
    needed = config.only_servers(()) if servers.issuperset(names) else config
    async with open_tools(needed, status=session.status, required=True) as environment:
        await environment.toolbox.wait_until_connected()
        for name in names:
            server, tool = set_switch(environment.toolbox, config, name, is_on=is_on)
            session.status(switched_line(session.phrases, server, tool, is_on=is_on))
        await environment.store.flush()


app = typer.Typer(no_args_is_help=True)

_Names = Annotated[list[str], argument("Names of tools or servers.", "NAME...")]


@command(app, "list")
async def list_command(session: Session, as_json: AsJson = False) -> None:
    """List the tools that are offered to the model."""
    async with open_servers(session) as environment:
        tools, disabled = environment.toolbox.tools(), environment.toolbox.tools(disabled=True)
    session.show(list(map(tool_dict, tools)), tool_table(tools, session.terminal), as_json=as_json)
    if disabled and not as_json:
        names = ", ".join(tool.name for tool in disabled)
        session.status(f"Switched off: {names}; 'rkllm-mcp tools enable NAME' switches one on.")
    elif not tools and not as_json:
        session.status("No tools; 'rkllm-mcp servers test' says why.")


@command(app, "show")
async def show_command(
    session: Session,
    name: Annotated[str, argument("Name of the tool, with or without its server.")],
    as_json: AsJson = False,
) -> None:
    """Show one tool's description and arguments."""
    async with open_servers(session) as environment:
        tool = tool_named(environment, name)
    session.show(tool_dict(tool), tool_text(tool, session.terminal), as_json=as_json)


@command(app, "call")
def call_command(
    session: Session,
    name: Annotated[str, argument("Name of the tool, with or without its server.")],
    arguments: Annotated[
        list[str] | None, argument("Arguments of the tool; - reads JSON from standard input.", "JSON | KEY=VALUE")
    ] = None,
    as_json: Annotated[bool, flag("Print the result as a JSON event.", "--json")] = False,
    yes: Annotated[bool, flag("Approve the call without asking.", "--yes", "-y")] = False,
    alone: Alone = False,
) -> int:
    """Call a tool and print its result; exit code 1 if it fails. Status lines are shown then, and with -v."""
    is_piped = arguments == ["-"]
    words = [sys.stdin.buffer.read().decode("utf-8", "replace")] if is_piped else arguments or []
    asker: Approver = FixedApprover("once") if yes else FixedApprover("deny", _SAY_YES)
    if not (yes or is_piped) and is_interactive():
        phrases = read_catalogue(session.language(session.config()))
        asker = FormPrompt(session.terminal, ConsoleAnswers(session.terminal).ask, phrases)
    caller = CallContext(asker=asker, tokens=session.tokens)
    config = session.config()
    require_mcp(config)
    service = service_to_use(session, config, alone=alone)

    async def call_tool() -> int:
        with session.details(are_shown=session.verbose) as show_details:
            if service is None:
                async with open_servers(session) as environment:
                    tool = tool_named(environment, name)
                    call = ToolCall("call_1", tool.name, read_arguments(words, tool.input_schema))
                    outcome = await environment.toolbox.call(call, caller)
                seconds = round(outcome.seconds, 3)
                figures = (outcome.is_error, outcome.shown, seconds, outcome.truncated, outcome.ruling)
                result = ToolFinished(outcome.call_id, tool.name, *figures)
            else:
                result = await _call_there(session, service, name, words, caller, approves=yes)
            if result.is_error:
                show_details()
        if as_json:
            sys.stdout.write(f"{event_to_json(replace(result, ruling=''))}\n")
        elif result.is_error:
            session.error(_NOT_RUN if result.ruling == "refused" else result.text)
        else:
            sys.stdout.write(f"{printable(result.text)}\n")
        sys.stdout.flush()
        return EXIT_ANSWER_FAILED if result.is_error else EXIT_DONE

    return in_loop(session, call_tool)


async def _call_there(
    session: Session, service: RunningService, name: str, words: Sequence[str], caller: CallContext, *, approves: bool
) -> ToolFinished:
    """Call a tool of a running service and return its result; the person at this terminal is asked."""
    from rkllm_mcp.surfaces.chat.remote import open_remote

    config = session.config()
    attached, *warnings = attached_lines(session, config, service)
    session.status(attached)
    for warning in warnings:
        session.terminal.note(warning)
    async with open_remote(config, service, session.language(config)) as host:
        tool = await host.find_tool(name)
        if isinstance(tool, str):
            raise unknown_tool(name, tool)
        can_ask = isinstance(caller.asker, FormPrompt)
        options = AnswerOptions(approvals="grant" if approves else "ask", tokens=session.tokens)
        arguments = read_arguments(words, tool.input_schema)
        async with aclosing(host.call_tool(tool.name, arguments, options)) as events:
            async for event in events:
                if isinstance(event, Approval):
                    await host.settle(event.id, await caller.asker.approve(event) or "deny")
                elif isinstance(event, Elicitation):
                    await host.settle(event.id, await caller.asker.elicit(event))
                elif isinstance(event, ToolFinished):
                    return event if can_ask or event.ruling != "deny" else replace(event, ruling="refused")
    raise GenerationError(translate("attached.lost", session.language(config)))


@command(app, "enable")
async def enable_command(session: Session, names: _Names) -> None:
    """Enable tools or servers permanently."""
    await switch(session, names, is_on=True)


@command(app, "disable")
async def disable_command(session: Session, names: _Names) -> None:
    """Disable tools or servers permanently."""
    await switch(session, names, is_on=False)


@command(app, "history")
async def history_command(
    session: Session,
    limit: Annotated[int, option("Number of calls to show, newest first.", "N", min=1)] = 20,
    server: Annotated[str | None, option("Only this server.", "NAME")] = None,
    errors: Annotated[bool, flag("Only calls that failed or were refused.", "--errors")] = False,
    as_json: AsJson = False,
) -> None:
    """Show past tool calls with their arguments, approvals and results."""
    async with open_stored(session.config()) as store:
        calls = await store.calls.latest(limit, server=server, errors_only=errors)
    values = [{**asdict(call), "at": call_time(call).isoformat()} for call in calls]
    listing = call_table(calls, session.terminal)
    session.show(values, listing, as_json=as_json, none="No calls are recorded.")


@command(app, "approvals")
async def approvals_command(
    session: Session,
    forget: Annotated[
        list[str] | None, option("Forget the decision about this tool or server; may be repeated.", "NAME")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or forget permanent approvals and refusals."""
    async with open_stored(session.config()) as store:
        for name in forget or ():
            for server, tool in await forget_approvals(store, name):
                session.status(session.phrases.sentence("chat.forgotten", tool=tool, server=server))
        grants = [(grant.kind, server, tool) for server, tool, grant in await store.grants.all()]
    if forget:
        return
    values = [dict(zip(("decision", "server", "tool"), row, strict=True)) for row in grants]
    listing = grant_table(grants, session.terminal)
    session.show(values, listing, as_json=as_json, none="Nothing is allowed or refused for good.")


@command(app, "serve")
def serve_command(
    session: Session,
    http: Annotated[bool, flag("Use Streamable HTTP instead of standard input and output.", "--http")] = False,
    host: Host = None,
    port: Port = None,
    embed_model: Annotated[str | None, option("Embedding model, if it is not the chat model.", "NAME|PATH")] = None,
    rank_model: Annotated[str | None, option("Reranking model, if it is not the chat model.", "NAME|PATH")] = None,
) -> int:
    """Serve the board as an MCP server with the tools generate, embed, rerank and board_status."""
    from rkllm_mcp.surfaces.mcp_server import serve

    return serve(session, (embed_model, rank_model), over_http=http, host=host, port=port)
