"""Expansion of ``${VAR}`` and ``${VAR:-default}`` in strings from the environment.

All strings are expanded except those that use the same syntax for another purpose: headers (filled per call), tool
definitions and inline specifications. ``$${`` is a literal ``${``. ``${PYTHON}`` is always the Python interpreter that
runs this program, even if an environment variable has that name: a bundled server needs the same libraries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, TypeGuard
from urllib.parse import quote

from rkllm_mcp.errors import ConfigError

UNTOUCHED_KEYS = frozenset({"headers", "headers_template", "tools"})
_DATABASE = "store.url"
# Other hosts write "env:" before environment variables.
_VARIABLE = re.compile(r"(\$?)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")


def expand(value: Any, env: Mapping[str, str], *, source: str, key: str = "") -> Any:
    """Return the value with every variable replaced; a ConfigError if one without a default is not set.

    ``source`` and ``key`` are the file and the dotted key for error messages.
    """
    if is_list(value):
        return [expand(item, env, source=source, key=f"{key}[{index}]") for index, item in enumerate(value)]
    if is_table(value):
        expanded: dict[str, Any] = {}
        for name, item in value.items():
            where = f"{key}.{name}" if key else name
            expanded[name] = expand(item, env, source=source, key=where) if _has_variables(name, item) else item
        return expanded
    if not isinstance(value, str):
        return value
    pieces: list[str] = []
    end = 0
    for match in _VARIABLE.finditer(value):
        escaped, name, has_default, default = match.groups()
        if escaped:
            inserted = match.group(0)[1:]
        elif name == "PYTHON":
            inserted = sys.executable
        else:
            # As in a shell, an empty variable counts as unset if a default is given.
            inserted = (env.get(name) or default) if has_default else env.get(name)
        if inserted is None:
            problem = f"${{{name}}}, which is not set in the environment"
            raise ConfigError(source, key, problem, f"set {name}, or write ${{{name}:-default}}")
        # A password may have any character, which ends it in an address.
        is_part = key == _DATABASE and "://" in value[: match.start()]
        pieces += [value[end : match.start()], quote(inserted, safe="") if is_part else inserted]
        end = match.end()
    return "".join([*pieces, value[end:]])


def unset_variables(value: Any, env: Mapping[str, str]) -> list[str]:
    """Return the variables that ``expand`` would miss, in order, without duplicates."""
    unset: list[str] = []
    if isinstance(value, str):
        for match in _VARIABLE.finditer(value):
            escaped, name, has_default, _ = match.groups()
            if not escaped and has_default is None and name != "PYTHON" and name not in env:
                unset.append(name)
    elif is_list(value):
        unset = [name for item in value for name in unset_variables(item, env)]
    elif is_table(value):
        parts = [item for name, item in value.items() if _has_variables(name, item)]
        unset = unset_variables(parts, env)
    return list(dict.fromkeys(unset))


def _has_variables(key: str, value: object) -> bool:
    return key not in UNTOUCHED_KEYS and not (key == "openapi_spec" and is_table(value))


def is_table(value: object) -> TypeGuard[dict[str, Any]]:
    """Return True for a table of a file."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return True for a list of a file."""
    return isinstance(value, list)


def expand_known(text: str, env: Mapping[str, str]) -> str:
    """Replace the variables that are set; others stay as placeholders for a request's tokens."""
    return _VARIABLE.sub(lambda match: env.get(match[2], match[0] if match[4] is None else match[4]), text)
