"""What a server says about a tool, as a model may read it: without hidden characters and without markers of calls.

Only words change: description, and the titles and descriptions in the schema. Names, defaults and enumerations go back
to the server and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.trust.hidden import without_hidden

# Deeper schemas are cut off where they are shown.
_MAX_DEPTH = 40
_WORDS = frozenset({"description", "title", "$comment"})


def presentable(tool: ToolSpec, clean: Callable[[str], str]) -> tuple[ToolSpec, int]:
    """The tool as a model may read it, and how many hidden characters were taken out of it.

    Args:
        tool: as the server lists it.
        clean: takes the markers out of a text.
    """
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
