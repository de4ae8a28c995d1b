"""Names of tools and of their arguments: valid for every model service, and unique.

An operation is named by its ``operationId``, or by method and path: ``get_users_list``. The same specification always
gives the same names.

Reference: mission "MCP統合設計", ツール名の生成.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rkllm_mcp.tools.names import safe_name

_NOT_IN_PATH_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
# Characters that model services accept in argument names; letters of any script are allowed.
_NOT_IN_KEYS = re.compile(r"[^\w.-]+")
_MAX_KEY_CHARS = 64


def operation_name(operation_id: str, method: str, path: str, taken: Collection[str]) -> str:
    """Return a name for an operation that is not in ``taken``."""
    by_path = safe_name(path_name(method, path))
    wanted = [safe_name(operation_id), by_path] if operation_id.strip() else [by_path]
    return next((name for name in wanted if name not in taken), None) or _numbered(by_path, taken)


def path_name(method: str, path: str) -> str:
    """Return ``get_users_list`` for GET /users/list; names of placeholders count as words."""
    return f"{method.lower()}_{_NOT_IN_PATH_NAMES.sub('_', path).strip('_') or 'root'}"


def argument_key(name: str, place: str, taken: Collection[str]) -> str:
    """Return a name for an argument that is not in ``taken``, with its location appended if necessary."""
    key = _NOT_IN_KEYS.sub("_", name).strip("_")[:_MAX_KEY_CHARS] or place
    if key not in taken:
        return key
    with_place = f"{key[: _MAX_KEY_CHARS - len(place) - 1]}_{place}"
    return with_place if with_place not in taken else _numbered(with_place, taken)


def _numbered(name: str, taken: Collection[str]) -> str:
    number = 2
    while (numbered := f"{name[: _MAX_KEY_CHARS - 5]}_{number}") in taken:
        number += 1
    return numbered
