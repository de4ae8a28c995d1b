"""A ``ModelCard`` becomes the text of a ``model.toml``, which reads as the same card.

What has its default value is left out, so that a card says what is particular to its model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rkllm_mcp.config.models import ModelCard


def card_text(card: ModelCard) -> str:
    """The card as TOML: the plain keys first, then its tables."""
    values = card.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if card.source is not None:
        # Said in any case: it decides where the file runs.
        values["source"] = {**values.get("source", {}), "platform": card.source.platform}
    return "\n".join([*_lines("", values), ""])


def _lines(path: str, table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict) and value:
            name = f"{path}.{_key(key)}" if path else _key(key)
            yield f"\n[{name}]"
            yield from _lines(name, cast("dict[str, Any]", value))


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in cast('list[Any]', value))}]"
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_value(item)}" for key, item in cast("dict[str, Any]", value).items())
        return "{" + ", ".join(pairs) + "}"
    # JSON's escapes are TOML's but for DEL, which TOML wants escaped and JSON writes plainly.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
