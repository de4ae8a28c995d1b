"""Tools that run in this process, as a server: built-in ones by name, those of a folder, and configured functions.

A tool that cannot be loaded is omitted with a note.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from rkllm_mcp.builtin.calculator import calculate, calculate_question
from rkllm_mcp.builtin.clock import clock, clock_question, system_now
from rkllm_mcp.builtin.files import file_tools
from rkllm_mcp.builtin.function import (
    QUESTION,
    Function,
    FunctionThreads,
    LocalFunction,
    LocalToolError,
    definitions,
)
from rkllm_mcp.builtin.python_tool import PythonTool
from rkllm_mcp.builtin.sentences import sentences_for
from rkllm_mcp.builtin.units import convert_question, convert_units
from rkllm_mcp.config.servers import BuiltinServer, BuiltinTool
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.toolcalls.schemas import SchemaError, check_schema

# Returns (quantity, reading) pairs about the machine. Reads files, so it runs in a thread.
DeviceReader: TypeAlias = Callable[[], Sequence[tuple[str, str]]]


def _told(read_device: DeviceReader | None, question: str) -> str:
    readings: Sequence[tuple[str, str]] = read_device() if read_device else ()
    if not readings:
        raise LocalToolError("This machine does not report its NPU, temperature or memory.")
    names: Mapping[str, str] = sentences_for(question)["readings"] if question else {}
    lines = [
        f"{names.get(name, name)}: {state.removesuffix(' available') if question else state}"
        for name, state in readings
    ]
    return "\n".join(lines)


# Each makes the function of a tool from a device reader, which is None without readings.
MAKERS: Mapping[str, Callable[[DeviceReader | None], Function]] = {
    "clock": lambda _: partial(clock, system_now),
    "calculator": lambda _: calculate,
    "convert_units": lambda _: convert_units,
    "device_status": lambda read_device: lambda: _told(read_device, ""),
}


# Each makes what answers the user's own words, of the tools that find their values in them.
_OF_QUESTION: Mapping[str, Callable[[DeviceReader | None], Callable[[str], str]]] = {
    "clock": lambda _: partial(clock_question, system_now),
    "calculator": lambda _: calculate_question,
    "convert_units": lambda _: convert_question,
    "device_status": lambda read_device: partial(_told, read_device),
}


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

    async def shares_in_data(self, question: str) -> dict[str, float]:
        """Return by tool which part of a question's own words its data has, from 0 to 1, of tools that have data."""
        shares: dict[str, float] = {}
        for name, function in self._functions.items():
            if function.share_in_data is not None:
                shares[name] = await function.threads.run(partial(function.share_in_data, question))
        return shares


@asynccontextmanager
async def open_builtin(
    spec: BuiltinServer, note: Callable[[str], None], read_device: DeviceReader | None = None
) -> AsyncGenerator[LocalTools]:
    """Load the tools of a server.

    ``note`` receives a line for each omitted tool; ``read_device`` gives the tool ``device_status`` its readings.

    Raises:
        ServerUnavailableError: no tool can be loaded.
    """
    functions: dict[str, LocalFunction] = {}
    if spec.folder is not None:
        if not spec.folder.is_dir():
            raise ServerUnavailableError(f"there is no folder {spec.folder}; make it, or correct 'folder'")
        functions = {tool.tool.name: tool for tool in file_tools(spec.folder, write=spec.write)}
    problems: list[str] = []
    threads = FunctionThreads()
    # Every call is validated with it; import it now, so that the first call is not delayed.
    await threads.run(partial(importlib.import_module, "jsonschema"))
    for configured in spec.tools:
        # Importing foreign code can take long and must not block the event loop.
        try:
            loaded = await threads.run(partial(_load, configured, read_device))
        except ValueError as error:
            problems.append(str(error))
            note(f"(tool {configured.name!r} is left out: {error})")
            continue
        if configured.name in functions:
            note(f"(tool {configured.name!r} is listed twice; the first is used)")
        else:
            functions[configured.name] = loaded
    if problems and not functions:
        raise ServerUnavailableError(problems[0])
    yield LocalTools(functions)


def _load(configured: BuiltinTool, read_device: DeviceReader | None) -> LocalFunction:
    """Return a configured tool with its function; a ValueError that says why, if it cannot be loaded."""
    if configured.problem:
        raise EntryPointError(configured.problem)
    if isinstance(configured, PythonTool):
        base = LocalFunction(ToolSpec(configured.name), configured.function)
    elif configured.entry_point is None:
        function, make = MAKERS[configured.name](read_device), _OF_QUESTION.get(configured.name)
        of_question = make(read_device) if make is not None else None
        base = LocalFunction(
            definitions()[configured.name], function, of_question=of_question, is_answer=of_question is not None
        )
    else:
        name = configured.entry_point
        module_name, _, path = name.partition(":")
        try:
            member: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            missing = f"its entry_point needs the module {error.name!r}, which is not installed"
            raise EntryPointError(f"{missing}; install it, or correct {name!r}") from None
        except BaseException as error:  # noqa: BLE001  (foreign code can raise anything when imported)
            reason = f"its entry_point {name!r} cannot be imported: {type(error).__name__}: {str(error)[:200]}"
            raise EntryPointError(f"{reason}; correct the module") from None
        for part in path.split("."):
            member = getattr(member, part, None)
        if not callable(member):
            raise EntryPointError(f"its entry_point {name!r} is not a function; name a function of {module_name}")
        base = LocalFunction(ToolSpec(configured.name), member)
    tool = base.tool
    schema = tool.input_schema
    if configured.input_schema is not None:
        kind = configured.input_schema.get("type", "object")
        if kind != "object":
            raise ValueError(f"its input_schema has the type {kind!r}; arguments are an object")
        schema = {"type": "object", "properties": dict[str, Any](), **configured.input_schema}
        try:
            check_schema(schema, is_closed=False)
        except SchemaError as error:
            raise ValueError(f"its input_schema {str(error).removeprefix('it ')}") from None
    changed = replace(
        tool,
        description=configured.description or tool.description,
        texts={} if configured.description or configured.input_schema is not None else tool.texts,
        input_schema=schema,
        read_only=tool.read_only if configured.read_only is None else configured.read_only,
        destructive=tool.destructive if configured.destructive is None else configured.destructive,
        question_argument=QUESTION if base.of_question is not None else "",
    )
    return replace(base, tool=changed)
