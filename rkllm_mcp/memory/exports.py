"""What is remembered, as JSON that can be imported again and as Markdown for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rkllm_mcp.errors import UsageError
from rkllm_mcp.records import LONGEST_ROW, MOST_ROWS, MemoryRow
from rkllm_mcp.text import moment, stamp

_LAZY = ConfigDict(defer_build=True)


class ImportedRow(BaseModel):
    """A row of an export."""

    model_config = _LAZY

    text: str = Field(min_length=1, max_length=LONGEST_ROW)
    always: bool = False  # every conversation begins with it


class _Export(BaseModel):
    model_config = _LAZY

    # Of everything that is stored of a person, which the page saves, it is a part.
    format: Literal["rkllm-mcp memory 1", "rkllm-mcp data 1"]
    memories: list[ImportedRow] = Field(max_length=MOST_ROWS)


def row_dict(row: MemoryRow) -> dict[str, Any]:
    """Return a row as an object for JSON, with times in UTC."""
    return {
        "id": row.id,
        "text": row.text,
        "language": row.language,
        "always": row.is_pinned,
        "state": row.state,
        "conversation": row.source,
        "created": stamp(row.created),
        "used": stamp(row.used) if row.used else "",
    }


def memories_as_json(rows: Sequence[MemoryRow]) -> str:
    """Return rows as a file to keep, which ``memories_from_json`` reads."""
    content = {"format": "rkllm-mcp memory 1", "memories": list(map(row_dict, rows))}
    return f"{json.dumps(content, ensure_ascii=False, indent=2)}\n"


def memories_as_markdown(rows: Sequence[MemoryRow]) -> str:
    """Return rows as a list for people."""
    return "".join(f"- {row.text} *({moment(row.created)})*\n" for row in rows)


def memories_from_json(text: str | bytes) -> list[ImportedRow]:
    """Return the rows of an export; a UsageError names the first wrong field."""
    try:
        return _Export.model_validate_json(text).memories
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        remedy = "'rkllm-mcp memory export' writes one"
        raise UsageError(f"this is no export of a memory: {where}: {first['msg']}; {remedy}") from None
