"""Expansion of ``${VAR}`` and ``${VAR:-default}`` in strings from the environment.

All strings are expanded except those that use the same syntax for another purpose: headers (filled per call), tool
definitions and inline specifications. ``$${`` is a literal ``${``. ``${PYTHON}`` is always the Python interpreter that
runs this program, even if an environment variable has that name: a bundled server needs the same libraries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
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

    def expand_text(text: str, where: str) -> str:
        def replaced(match: re.Match[str]) -> str:
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
                raise ConfigError(source, where, problem, f"set {name}, or write ${{{name}:-default}}")
            # A password may have any character, which ends it in an address.
            is_part = where == _DATABASE and "://" in text[: match.start()]
            return quote(inserted, safe="") if is_part else inserted

        return _VARIABLE.sub(replaced, text)

    return _with_texts(value, key, expand_text)


def unset_variables(value: Any, env: Mapping[str, str]) -> list[str]:
    """Return the variables that ``expand`` would miss, in order, without duplicates."""
    unset: list[str] = []

    def note_unset(text: str, _where: str) -> str:
        matches = [match for match in _VARIABLE.finditer(text) if not match.group(1) and match.group(3) is None]
        unset.extend(match.group(2) for match in matches)
        return text

    _with_texts(value, "", note_unset)
    return [name for name in dict.fromkeys(unset) if name != "PYTHON" and name not in env]


def is_table(value: object) -> TypeGuard[dict[str, Any]]:
    """Return True for a table of a file."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return True for a list of a file."""
    return isinstance(value, list)


def _with_texts(value: Any, key: str, replaced: Callable[[str, str], str]) -> Any:
    """Return the value with every text replaced that may have variables, given the text and its dotted key."""
    if isinstance(value, str):
        return replaced(value, key)
    if is_list(value):
        return [_with_texts(item, f"{key}[{index}]", replaced) for index, item in enumerate(value)]
    if is_table(value):
        changed: dict[str, Any] = {}
        for name, item in value.items():
            is_untouched = name in UNTOUCHED_KEYS or (name == "openapi_spec" and isinstance(item, dict))
            changed[name] = item if is_untouched else _with_texts(item, f"{key}.{name}" if key else name, replaced)
        return changed
    return value


def expand_known(text: str, env: Mapping[str, str]) -> str:
    """Replace the variables that are set; others stay as placeholders for a request's tokens."""
    return _VARIABLE.sub(lambda match: env.get(match[2], match[0] if match[4] is None else match[4]), text)
