"""Expansion of ``${VAR}`` and ``${VAR:-default}`` in strings from the environment.

All strings are expanded except those that use the same syntax for another purpose: headers (filled per call), tool
definitions and inline specifications. ``$${`` is a literal ``${``. ``${PYTHON}`` is always the Python interpreter that
runs this program, even if an environment variable has that name: a bundled server needs the same libraries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, cast

from rkllm_mcp.errors import ConfigError

UNTOUCHED_KEYS = frozenset({"headers", "headers_template", "tools"})
# Other hosts write "env:" before environment variables.
_VARIABLE = re.compile(r"(\$?)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")


def expand(value: Any, env: Mapping[str, str], *, source: str, key: str = "") -> Any:
    """Return the value with every variable replaced.

    ``source`` and ``key`` are the file and the dotted key for error messages.

    Raises:
        ConfigError: a variable without a default is not set.
    """
    if isinstance(value, str):
        return _expand_text(value, env, source, key)
    if isinstance(value, list):
        return [
            expand(item, env, source=source, key=f"{key}[{index}]")
            for index, item in enumerate(cast("list[Any]", value))
        ]
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {
            name: item
            if _is_untouched(name, item)
            else expand(item, env, source=source, key=f"{key}.{name}" if key else name)
            for name, item in table.items()
        }
    return value


def unset_variables(value: Any, env: Mapping[str, str]) -> list[str]:
    """Return the variables that ``expand`` would miss, in order, without duplicates."""
    if isinstance(value, str):
        found = [match.group(2) for match in _VARIABLE.finditer(value) if not match.group(1) and match.group(3) is None]
        return [name for name in dict.fromkeys(found) if name != "PYTHON" and name not in env]
    if isinstance(value, list):
        parts = cast("list[Any]", value)
    elif isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        parts = [item for name, item in table.items() if not _is_untouched(name, item)]
    else:
        parts = []
    return list(dict.fromkeys(name for part in parts for name in unset_variables(part, env)))


def expand_known(text: str, env: Mapping[str, str]) -> str:
    """Replace the variables that are set; others stay as placeholders for a request's tokens."""

    def replace(match: re.Match[str]) -> str:
        _, name, _, default = match.groups()
        return env.get(name, match.group(0) if default is None else default)

    return _VARIABLE.sub(replace, text)


def _is_untouched(name: str, item: Any) -> bool:
    return name in UNTOUCHED_KEYS or (name == "openapi_spec" and isinstance(item, dict))


def _expand_text(text: str, env: Mapping[str, str], source: str, key: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped, name, has_default, default = match.groups()
        if escaped:
            return match.group(0)[1:]
        if name == "PYTHON":
            return sys.executable
        value = env.get(name)
        if has_default:
            # As in a shell, an empty variable counts as unset.
            return value or default
        if value is None:
            raise ConfigError(
                source,
                key,
                f"${{{name}}}, which is not set in the environment",
                f"set {name}, or write ${{{name}:-default}}",
            )
        return value

    return _VARIABLE.sub(replace, text)
