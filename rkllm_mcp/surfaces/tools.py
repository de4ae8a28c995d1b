"""The tools of the configured servers, without a model: ``rkllm-mcp tools``."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.surfaces.run import unknown_tool
from rkllm_mcp.surfaces.servers import require_mcp
from rkllm_mcp.surfaces.session import EXIT_DONE, Session, run_async
from rkllm_mcp.surfaces.table import table
from rkllm_mcp.surfaces.terminal import printable

if TYPE_CHECKING:
    from rkllm_mcp.inspection import Toolbox


def list_all(session: Session, *, as_json: bool) -> int:
    """Print every tool that a model is shown."""

    async def work(toolbox: Toolbox) -> int:
        tools = toolbox.tools()
        if as_json:
            write_json([tool_dict(tool) for tool in tools])
        else:
            sys.stdout.write(tool_table(tools, session.terminal.columns))
            off = [tool.name for tool in toolbox.tools(disabled=True)]
            if off:
                session.status(f"Switched off: {', '.join(off)}; 'rkllm-mcp tools enable NAME' switches one on.")
            elif not tools:
                session.status("No tools; 'rkllm-mcp servers test' says why.")
        return EXIT_DONE

    return with_tools(session, work)


def show(session: Session, name: str, *, as_json: bool) -> int:
    """Print one tool."""

    async def work(toolbox: Toolbox) -> int:
        tool = found_tool(toolbox, name)
        if as_json:
            write_json(tool_dict(tool))
        else:
            sys.stdout.write(tool_text(tool, session.terminal.columns))
        return EXIT_DONE

    return with_tools(session, work)


def read_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as people type them: one JSON object, or ``key=value`` for each.

    A value is JSON where the tool's schema wants something else than a string, and text where it wants one.

    Raises:
        UsageError: a word is neither.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            return cast("dict[str, Any]", json.loads(words[0]))
        except json.JSONDecodeError as error:
            raise UsageError(f"the arguments are not JSON: {error.msg} at column {error.colno}; mend them") from None
    properties: Mapping[str, Any] = schema.get("properties") or {}
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{word!r} is no argument; write KEY=VALUE, or all of them as one JSON object in quotes")
        arguments[key] = _argument(text, properties.get(key))
    return arguments


def _argument(text: str, schema: Any) -> Any:
    wanted: Any = cast("Mapping[str, Any]", schema).get("type") if isinstance(schema, Mapping) else None
    if wanted == "string":
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def tool_table(tools: Sequence[ToolSpec], columns: int | None = None) -> str:
    """The tools as lines for a person: name, server, the first line of what it does."""
    rows = [(tool.name, tool.server, tool.description.strip().split("\n", 1)[0][:100]) for tool in tools]
    return table(("NAME", "SERVER", "DESCRIPTION"), rows, columns)


def tool_text(tool: ToolSpec, columns: int | None = None) -> str:
    """One tool for a person."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    required: Sequence[str] = tool.input_schema.get("required") or ()
    rows = [
        (f"  {name}", _type_of(schema), "required" if name in required else "", str(schema.get("description", "")))
        for name, schema in ((name, _table(schema)) for name, schema in properties.items())
    ]
    head = f"{tool.name}  ({tool.qualified_name})\n{printable(tool.description.strip())}\n"
    return f"{head}\n{table((), rows, columns)}" if rows else f"{head}\nno arguments\n"


def _table(schema: Any) -> Mapping[str, Any]:
    """A schema as a table; JSON Schema also knows true and false."""
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _type_of(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    kind: Any = schema.get("type", "any")
    return " | ".join(str(part) for part in cast("list[Any]", kind)) if isinstance(kind, list) else str(kind)


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


def found_tool(toolbox: Toolbox, name: str) -> ToolSpec:
    """The tool of that name.

    Raises:
        UsageError: there is none.
    """
    tool = toolbox.resolve(name)
    if tool is None:
        raise unknown_tool(name, toolbox.suggest(name))
    return tool


def with_tools(session: Session, work: Callable[[Toolbox], Awaitable[int]]) -> int:
    """Connect the servers, wait until each is there or has failed, and do ``work``; returns its exit code."""
    from rkllm_mcp.inspection import open_tools

    config = session.config()
    require_mcp(config)
    tokens = session.tokens

    async def connected() -> int:
        async with open_tools(config, session.status) as toolbox:
            await toolbox.connected()
            async with toolbox.attending(tokens):
                return await work(toolbox)

    return run_async(connected)


def write_json(value: Any) -> None:
    """Print a value for a program."""
    sys.stdout.write(f"{json.dumps(value, ensure_ascii=False, indent=2)}\n")
