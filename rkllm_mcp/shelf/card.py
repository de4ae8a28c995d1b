"""``ModelCard`` -> text of a ``model.toml`` that reads as the same card.

Default values are omitted, so that a card shows the properties specific to its model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from rkllm_mcp.config.editing import toml_key, toml_value
from rkllm_mcp.config.models import ModelCard


def card_text(card: ModelCard) -> str:
    """Return the card as TOML: plain keys first, then tables."""
    values = card.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if card.source is not None:
        # Always written, because it determines where the file runs.
        values["source"] = {**values.get("source", {}), "platform": card.source.platform}
    return "\n".join([*_lines("", values), ""])


def _lines(path: str, table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict) and value:
            name = f"{path}.{toml_key(key)}" if path else toml_key(key)
            yield f"\n[{name}]"
            yield from _lines(name, cast("dict[str, Any]", value))
