"""Repairs of the calls that small models write, each in a function.

| when | what |
|---|---|
| before a call is run, repeated or compared | ``usable_arguments``: without undeclared keys and invented values |
| before the first response, where the host begins a call | ``known_arguments``: those that the question gives itself |
| after a failed call of a tool that only reads | ``required_arguments``: once more without what is optional |
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

from rkllm_mcp.messages import ToolSpec, as_list, as_mapping
from rkllm_mcp.text import collapse_whitespace

# Text in the place of a value: <city>, your_folder, {name}.
_PLACEHOLDER = re.compile(
    r"\s*(?:<[^<>]*>|\{[^{}]*\}|\[[^\[\]]*\]|your[ _-]\w+|string|none|null|n/?a)\s*", re.IGNORECASE
)
# Names of the one argument that is the question itself.
_QUESTIONS = frozenset({"query", "question"})


def usable_arguments(arguments: Mapping[str, Any], tool: ToolSpec | None) -> dict[str, Any]:
    """Return the arguments of a call without undeclared keys, and without optional values that are none."""
    schema: Mapping[str, Any] = tool.input_schema if tool is not None else {}
    properties, required = as_mapping(schema.get("properties")), as_list(schema.get("required"))
    if not properties or schema.get("patternProperties"):
        return dict(arguments)
    is_closed = not schema.get("additionalProperties")
    usable = {
        key: value
        for key, value in arguments.items()
        if (key in properties or not is_closed)
        and (key in required or not _is_none(value, key, as_mapping(properties.get(key))))
    }
    # A call of nothing but undeclared keys meant something, which its server has to refuse.
    return usable if usable or not arguments.keys().isdisjoint(properties) else dict(arguments)


def _is_none(value: Any, name: str, schema: Mapping[str, Any]) -> bool:
    """Return True if an optional value is a placeholder, a text of the schema, or no identifier where it has to be."""
    if not isinstance(value, str):
        return value is None
    if schema.get("format") == "uuid":
        try:
            uuid.UUID(value)
        except ValueError:
            return True
    own_texts = {name.casefold(), collapse_whitespace(str(schema.get("description", ""))).casefold()}
    return _PLACEHOLDER.fullmatch(value) is not None or collapse_whitespace(value).casefold() in own_texts


def required_arguments(arguments: Mapping[str, Any], tool: ToolSpec, question: str) -> dict[str, Any]:
    """Return the arguments of a call that its tool requires, and those whose value a person has said."""
    required, words = as_list(tool.input_schema.get("required")), question.casefold()
    return {
        key: value
        for key, value in arguments.items()
        if key in required or any(word in words for word in str(value).casefold().split())
    }


def known_arguments(
    tool: ToolSpec, words: str, known: Mapping[str, Any], *, takes_more: bool = False
) -> Mapping[str, Any] | None:
    """Return the arguments of a tool if the question gives them; None if the model has to write some.

    They are the question's words where only a query is required, the ``known`` value where only one of its kind is, and
    none where nothing is required, unless the tool takes values of the question (``takes_more``).
    """
    required = [str(name) for name in as_list(tool.input_schema.get("required"))]
    if not required:
        return None if takes_more else {}
    if required[0] in _QUESTIONS and len(required) == 1:
        return {required[0]: words}
    return known or None
