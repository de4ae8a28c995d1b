"""``${VAR}`` and ``${VAR:-default}`` in string values become what the environment says.

All strings expand but those that use the same signs for something else: headers (filled when a call is made), tool
definitions and specifications written in place. ``$${`` is a literal ``${``. ``${PYTHON}`` is predefined as the Python
that runs this program, and an environment variable of that name is not looked at: a bundled server must start with the
libraries it needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, cast

from rkllm_mcp.errors import ConfigError

UNTOUCHED_KEYS = frozenset({"headers", "headers_template", "tools"})
# "env:" is how other hosts' files name the environment.
_VARIABLE = re.compile(r"(\$?)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")


def expand(value: Any, env: Mapping[str, str], *, source: str, key: str = "") -> Any:
    """The same value with every variable replaced.

    Args:
        value: a parsed TOML or JSON value.
        env: the environment.
        source: the file it stands in, for the error.
        key: its dotted key, for the error.

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
    """The variables that ``expand`` would miss, each once, in the order in which they stand there."""
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
    """The text with the variables that are set replaced; the others stay, as placeholders for a request's tokens."""

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
            # As in a shell, an empty variable counts as none.
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
