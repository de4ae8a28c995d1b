"""Clean tool definitions from servers: remove invisible characters and call markup from descriptions and titles.

Names, defaults and enumerations are sent back to the server and are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.trust.hidden import without_hidden

# Deeper levels are not shown to a model.
_MAX_DEPTH = 40
_WORDS = frozenset({"description", "title", "$comment"})


def presentable(tool: ToolSpec, clean: Callable[[str], str]) -> tuple[ToolSpec, int]:
    """Return the cleaned tool and the number of removed invisible characters; ``clean`` removes call markup."""
    counts: list[int] = []

    def shown(text: str) -> str:
        visible, count = without_hidden(text)
        counts.append(count)
        return clean(visible)

    description = shown(tool.description)
    schema = cast("Mapping[str, Any]", _schema(tool.input_schema, shown, 0))
    if description == tool.description and schema == tool.input_schema:
        return tool, 0
    return replace(tool, description=description, input_schema=schema), sum(counts)


def _schema(value: Any, shown: Callable[[str], str], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {
            key: shown(item) if key in _WORDS and isinstance(item, str) else _schema(item, shown, depth + 1)
            for key, item in items
        }
    if isinstance(value, list):
        return [_schema(item, shown, depth + 1) for item in cast("list[Any]", value)]
    return value
