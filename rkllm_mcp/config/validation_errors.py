"""pydantic errors -> one ConfigError: key as written in the file, value, allowed values.

Only the first problem is reported; correcting it often corrects the others. Values of keys that hold a secret are
described, not shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rkllm_mcp.config.claude_desktop import Entry
from rkllm_mcp.config.secrets import is_secret_name, redacted_text
from rkllm_mcp.config.sections import Sections
from rkllm_mcp.config.servers import SERVER_KEYS, SERVER_TYPES, TYPE_OF, ServerBase
from rkllm_mcp.errors import ConfigError, did_you_mean
from rkllm_mcp.text import shorten

# pydantic's error type -> allowed values; {…} are fields of the error's context.
_ALLOWED: Mapping[str, str] = {
    "string_type": "a string is allowed",
    "bool_type": "true or false is allowed",
    "int_type": "a whole number is allowed",
    "int_from_float": "a whole number is allowed",
    "float_type": "a number is allowed",
    "tuple_type": "a list is allowed",
    "dict_type": "a table is allowed",
    "model_type": "a table is allowed",
    "model_attributes_type": "a table is allowed",
    "path_type": "a path is allowed",
    "greater_than": "a number above {gt:g} is allowed",
    "greater_than_equal": "a number from {ge:g} on is allowed",
    "less_than_equal": "a number up to {le:g} is allowed",
    "string_too_short": "it must not be empty",
    "string_pattern_mismatch": "auto, or a version such as 1.2.3, is allowed",
}
_KIND = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a table"}
_SHOWN_CHARS = 60


def explain(
    error: ValidationError,
    source: str,
    entries: Sequence[Entry] = (),
    origins: Mapping[str, str] | None = None,
    root: type[BaseModel] = Sections,
) -> ConfigError:
    """Return the first problem of a file, which ``root`` describes, as a ConfigError.

    ``entries`` are the servers of the file with the names used there; ``origins`` maps dotted keys that did not come
    from the file to their origin.
    """
    # An unknown key is usually the reason why another one is missing.
    details = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    location: list[int | str] = []
    for index, part in enumerate(details["loc"]):
        # pydantic's name of a union member is not in the file.
        is_type = str(part).startswith(("tuple[", "bool", "function-", "dict[", "lax-or-strict"))
        if not is_type and not (details["loc"][0] == "servers" and index == 2):
            location.append(part)
    context = details.get("ctx", {})
    if details["type"] == "combination":
        location += [str(context["key"])] if context["key"] else []
        problem, allowed = str(context["found"]), str(context["allowed"])
    elif details["type"] == "extra_forbidden":
        key = str(location[-1])
        if location[0] == "servers" and len(location) == 3:
            transport = str(entries[cast("int", location[1])].table["transport"])
            names = list(TYPE_OF[transport].model_fields)
            allowed = f"known for {transport} servers are {', '.join(names)}{did_you_mean(key, SERVER_KEYS)}"
            if type_names := [name for name, kind in SERVER_TYPES.items() if key in kind.model_fields]:
                owners = ("http, sse and websocket" if name == "remote" else name for name in type_names)
                allowed = f"it is for {' and '.join(owners)} servers and this one is {transport}"
                allowed += "; remove it, or change 'transport'"
        else:
            section = root
            for part in location[:-1]:
                if part == "servers":
                    section = ServerBase
                elif isinstance(part, str):
                    # Keys of a single type of server are not in the base class.
                    owners = (section, *SERVER_TYPES.values()) if section is ServerBase else (section,)
                    held = [owner.model_fields[part].annotation for owner in owners if part in owner.model_fields]
                    section = next(filter(None, map(_section_in, held)), section)
            names = list(section.model_fields)
            names += ["mcpServers"] if location[:-1] == [] and root is Sections else []
            allowed = f"known here are {', '.join(names)}{did_you_mean(key, names)}"
        problem = "an unknown key"
    elif details["type"] == "missing":
        problem, allowed = "nothing", "it is required"
    else:
        problem, allowed = describe(details["input"], str(location[-1])), allowed_for(details)
    origin = (origins or {}).get(".".join(str(part) for part in location[:2]), source)
    # The dotted key in the spelling of the file.
    if len(location) > 1 and location[0] == "servers" and isinstance(location[1], int):
        entry, steps = entries[location[1]], location[2:]
        if steps and isinstance(steps[0], str):
            steps[0] = entry.written.get(steps[0], steps[0])
        location = [entry.label, *steps]
    key = ""
    for part in location:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else part
    return ConfigError(origin, key, problem, allowed)


def describe(value: Any, key: str = "") -> str:
    """Return a value as written, with its type: ``'8080' (a string)``."""
    kind = next((words for types, words in _KIND.items() if isinstance(value, types)), "a value")
    if value is None:
        return "null"
    if is_secret_name(key) and isinstance(value, str):
        return kind
    if isinstance(value, (bool, int, float)):
        return f"{json.dumps(value)} ({kind})"
    if isinstance(value, str):
        return f"{shorten(redacted_text(value), _SHOWN_CHARS)!r} ({kind})"
    return kind


def allowed_for(details: ErrorDetails) -> str:
    """Return the allowed values for a failed check."""
    context = details.get("ctx", {})
    if "inherit_env" in details["loc"]:
        return "true, false or a list of names is allowed"
    if details["type"] == "literal_error":
        options = str(context["expected"])
        names = options.replace("'", "").replace(" or ", ", ").split(", ")
        return f"allowed are {options}{did_you_mean(str(details['input']), names)}"
    return _ALLOWED.get(details["type"], details["msg"]).format(**context)


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section that a field holds, directly, as an optional value, or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((section for part in get_args(annotation) if (section := _section_in(part))), None)
