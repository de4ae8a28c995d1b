"""``RKLLM_MCP_<SECTION>__<KEY>`` in the environment overrides a key of a section that is a table.

A value is parsed by the type of its key: strings unchanged, numbers and true/false, lists as JSON. An empty variable
counts as unset, as in a shell.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, cast, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from rkllm_mcp.config.section import Section
from rkllm_mcp.config.sections import Sections
from rkllm_mcp.errors import ConfigError

PREFIX = "RKLLM_MCP_"


def apply_overrides(table: dict[str, Any], env: Mapping[str, str], source: str) -> dict[str, str]:
    """Write the overrides of ``env`` into the sections of ``table``.

    Returns:
        The overridden dotted keys, each with its variable, for error messages.

    Raises:
        ConfigError: a variable names an unknown section or key, or its value has the wrong type.
    """
    origins: dict[str, str] = {}
    for variable in sorted(env):
        section, separator, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not variable.startswith(PREFIX) or not separator or not env[variable]:
            continue
        field = _field(section, key, variable)
        values = table.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(source, section, repr(values), "a table is allowed")
        cast("dict[str, Any]", values)[key] = _read(field, env[variable], variable)
        origins[f"{section}.{key}"] = f"environment variable {variable}"
    return origins


def table_sections() -> dict[str, type[Section]]:
    """Return the sections that are one table each, by name."""
    found: dict[str, type[Section]] = {}
    for name, field in Sections.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found[name] = field.annotation
    return found


def _field(section: str, key: str, variable: str) -> FieldInfo:
    sections = table_sections()
    where = f"environment variable {variable}"
    if section not in sections:
        raise ConfigError(where, "", f"section {section.upper()!r}", _allowed("sections", section, list(sections)))
    fields = sections[section].model_fields
    if key not in fields:
        raise ConfigError(where, "", f"key {key.upper()!r}", _allowed(f"keys of {section}", key, list(fields)))
    return fields[key]


def _allowed(what: str, found: str, names: list[str]) -> str:
    close = difflib.get_close_matches(found, names, n=1)
    hint = f"; did you mean {close[0].upper()}?" if close else ""
    return f"the {what} are {', '.join(name.upper() for name in names)}{hint}"


def _read(field: FieldInfo, text: str, variable: str) -> Any:
    kinds = _kinds(field.annotation)
    if kinds & {"tuple", "dict"}:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            raise ConfigError(
                f"environment variable {variable}", "", repr(text), 'a list in JSON is allowed, such as ["a", "b"]'
            ) from None
    for kind in (bool, int, float):
        if kind.__name__ in kinds:
            try:
                return TypeAdapter(kind).validate_python(text.strip(), strict=False)
            except ValidationError:
                return text  # the check of the section reports the allowed values
    return text


def _kinds(annotation: Any) -> set[str]:
    """Return the plain types in an annotation: ``tuple[str, ...] | None`` has tuple, str and NoneType."""
    own = getattr(annotation, "__origin__", annotation)
    kinds = {own.__name__} if isinstance(own, type) else set[str]()
    if own is tuple or own is dict:
        return kinds
    for inner in get_args(annotation):
        kinds |= _kinds(inner)
    return kinds
