"""Tools that run in this process, as a server: built-in ones by name, and configured Python functions.

``LoadedSource`` opens ``open_builtin``. A tool that cannot be loaded is omitted with a note.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from rkllm_mcp.calling import CallContext
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.builtin.catalogue import NAMES, own_tool
from rkllm_mcp.tools.builtin.function import Function, LocalFunction, Threads, validated
from rkllm_mcp.tools.servers import LocalTool, ServerSpec
from rkllm_mcp.tools.transports.lines import LastLines


class EntryPointError(ValueError):
    """A tool that cannot be loaded; the message contains the reason and the remedy."""


class LocalTools:
    """Functions by the name of their tool."""

    def __init__(self, functions: Mapping[str, LocalFunction]) -> None:
        self._functions = functions
        self.tools = tuple(function.tool for function in functions.values())

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Run a tool; exceptions become error results."""
        del context  # local functions need no approval channel and send no headers
        return await self._functions[tool].call(arguments)


@asynccontextmanager
async def open_builtin(spec: ServerSpec, notes: LastLines) -> AsyncGenerator[LocalTools]:
    """Load the tools of a server.

    ``notes`` receives a line for each omitted tool.

    Raises:
        ServerUnavailableError: no tool can be loaded.
    """
    functions: dict[str, LocalFunction] = {}
    problems: list[str] = []
    threads = Threads()
    # Every call is validated with it; import it now, so that the first call is not delayed.
    await threads.run(partial(importlib.import_module, "jsonschema"))
    for configured in spec.local_tools:
        # Importing foreign code can take long and must not block the event loop.
        loaded = await threads.run(partial(_loaded_or_reason, configured, spec))
        if isinstance(loaded, str):
            problems.append(loaded)
            notes.add(f"(tool {configured.name!r} is left out: {loaded})")
        elif configured.name in functions:
            notes.add(f"(tool {configured.name!r} is listed twice; the first is used)")
        else:
            functions[configured.name] = loaded
    if problems and not functions:
        raise ServerUnavailableError(problems[0])
    yield LocalTools(functions)


def _loaded_or_reason(configured: LocalTool, spec: ServerSpec) -> LocalFunction | str:
    try:
        return _loaded(configured, spec)
    except ValueError as error:
        return str(error)


def _loaded(configured: LocalTool, spec: ServerSpec) -> LocalFunction:
    own = None if configured.entry_point else own_tool(configured.name, spec.read_device)
    if own is None and not configured.entry_point:
        raise EntryPointError(f"unknown tool {configured.name!r}; name an entry_point, or one of {', '.join(NAMES)}")
    base = own or LocalFunction(ToolSpec(configured.name), entry_point(configured.entry_point))
    tool = base.tool
    changed = replace(
        tool,
        description=configured.description or tool.description,
        input_schema=tool.input_schema if configured.input_schema is None else validated(configured.input_schema),
        read_only=tool.read_only if configured.read_only is None else configured.read_only,
        destructive=tool.destructive if configured.destructive is None else configured.destructive,
    )
    return replace(base, tool=changed)


def entry_point(name: str) -> Function:
    """Import and return the function that ``package.module:function`` names.

    Raises:
        EntryPointError: the module cannot be imported or has no such function.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise EntryPointError(f"its entry_point is {name!r}; write package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise EntryPointError(
            f"its entry_point needs the module {error.name!r}, which is not installed; install it, or correct {name!r}"
        ) from None
    except BaseException as error:  # noqa: BLE001  (foreign code can raise anything when imported)
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise EntryPointError(f"its entry_point {name!r} cannot be imported: {reason}; correct the module") from None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise EntryPointError(f"its entry_point {name!r} is not a function; name a function of {module_name}")
    return found
