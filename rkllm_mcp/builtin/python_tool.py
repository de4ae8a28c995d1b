"""A Python function of the calling program as a tool: schema from its signature, texts from its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, cast

from pydantic import ConfigDict, SkipValidation, TypeAdapter, validate_call
from pydantic.errors import PydanticUserError

from rkllm_mcp.config.servers import BuiltinTool
from rkllm_mcp.errors import UsageError

# A line that begins another part of a docstring, of Google's style and of Sphinx's.
_SECTION = re.compile(r"^(?:Args|Arguments|Returns|Yields|Raises|Examples?|Notes?):\s*$|^:\w+", re.MULTILINE)
_GOOGLE_ARGUMENTS = re.compile(r"^(?:Args|Arguments):\s*\n((?:[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+)", re.MULTILINE)
_GOOGLE_ARGUMENT = re.compile(r"^(\w+)(?:\s*\([^)]*\))?:\s*(.*(?:\n[ \t]+.*)*)", re.MULTILINE)
_SPHINX_ARGUMENT = re.compile(r"^:param (?:[\w.\[\]| ]+ )?(\w+):\s*(.*(?:\n[ \t]+.*)*)", re.MULTILINE)


class PythonTool(BuiltinTool):
    """A tool of a builtin server that is a function of this program."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    function: SkipValidation[Callable[..., Any]]
    """Called with the arguments by name, converted to the types of its annotations; async or not."""

    @property
    def problem(self) -> str:
        """Empty: it has its function."""
        return ""


def python_tool(function: Callable[..., Any]) -> PythonTool:
    """Return a function as a tool.

    The name is the function's, the description its docstring up to the first section, and the schema of the arguments
    follows from the annotations. ``Args:`` or ``:param name:`` describe the arguments.

    Raises:
        UsageError: the function has no name or docstring, takes arguments without a name, or has an annotation that
            pydantic cannot read.
    """
    name, documentation = getattr(function, "__name__", ""), inspect.getdoc(function) or ""
    if not name.isidentifier():
        raise UsageError(f"{name or function!r} cannot be a tool; give a function that has a name")
    description = _SECTION.split(documentation, maxsplit=1)[0].strip()
    if not description:
        raise UsageError(f"{name} cannot be a tool without a docstring; the model reads there when to call it")
    nameless = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    if unusable := [
        parameter for parameter in inspect.signature(function).parameters.values() if parameter.kind in nameless
    ]:
        raise UsageError(f"{name} cannot be a tool: its argument {unusable[0]} has no name for the model to give")
    try:
        schema = _without_titles(TypeAdapter[Any](cast("Any", function)).json_schema())
        checked = validate_call(function)
    except (PydanticUserError, NameError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UsageError(f"{name} cannot be a tool: {reason}; change the annotation") from None
    google = _GOOGLE_ARGUMENTS.search(documentation)
    entries = _GOOGLE_ARGUMENT.findall(inspect.cleandoc(f"\n{google[1]}")) if google else []
    entries += _SPHINX_ARGUMENT.findall(documentation)
    texts = {argument: " ".join(text.split()) for argument, text in entries}
    for argument, value in schema.get("properties", {}).items():
        if argument in texts:
            value.setdefault("description", texts[argument])
    return PythonTool(name=name, description=description, input_schema=schema, function=checked)


def _without_titles(value: Any) -> Any:
    """Return a schema without the titles that pydantic makes of names, which would only cost tokens."""
    if isinstance(value, list):
        return [_without_titles(entry) for entry in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    schema = cast("dict[str, Any]", value)
    # A property that is named "title" is a schema, not a text.
    return {
        key: _without_titles(entry) for key, entry in schema.items() if key != "title" or not isinstance(entry, str)
    }
