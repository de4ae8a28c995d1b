"""What is remembered, as JSON that can be imported again and as Markdown for people, and what other products export."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rkllm_mcp.errors import UsageError
from rkllm_mcp.memory.statements import is_secret
from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.records import LONGEST_ROW, MOST_ROWS, MemoryRow
from rkllm_mcp.text import collapse_whitespace, moment, shorten, stamp

# Claude says of each line whether it was stated.
_BULLET = re.compile(r"^(?:[-*+•・]|\d+[.)])\s+(?:\[\w+\]\s+)?")
# A long line goes on in the next one.
_WRAPPED = re.compile(r"^.{50,}[^\s.!?:]\n[a-z]", re.MULTILINE)
_HEADING = re.compile(r"^(?:#|-{3,}$|\*\*[^*]+\*\*:?$)")
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


def memories_as_text(rows: Sequence[MemoryRow], form: Literal["json", "markdown"]) -> str:
    """Return rows as a list for people, or as a file to keep, which ``memories_from_json`` reads."""
    if form == "markdown":
        return "".join(f"- {row.text} *({moment(row.created)})*\n" for row in rows)
    content = {"format": "rkllm-mcp memory 1", "memories": list(map(row_dict, rows))}
    return f"{json.dumps(content, ensure_ascii=False, indent=2)}\n"


def memories_from_json(text: str | bytes) -> list[ImportedRow]:
    """Return the rows of an export; a UsageError names the first wrong field."""
    try:
        return _Export.model_validate_json(text).memories
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        remedy = "'rkllm-mcp memory export' writes one"
        raise UsageError(f"this is no export of a memory: {where}: {first['msg']}; {remedy}") from None


def memories_from_file(content: bytes) -> tuple[list[ImportedRow], list[str]]:
    """Return the rows of an export of this product or of another one, and what is left out: long texts and secrets.

    Others' are the JSON of mem0, the file of the MCP server ``memory``, Claude's ``memories.json``, and a list with a
    row on each line, as text or Markdown, as it is copied from a page; a UsageError names what is wrong.
    """
    text = content.decode("utf-8", "replace").lstrip("\ufeff")
    texts: list[str] = []
    values: list[Any] = []
    if not text.lstrip().startswith(("{", "[")):
        texts = _texts_of_list(text)
    else:
        try:
            values = [json.loads(text)]
        except ValueError:
            with suppress(ValueError):
                values = [json.loads(line) for line in text.splitlines() if line.strip()]
    whole: Mapping[str, Any] = as_mapping(values[0]) if len(values) == 1 else {}
    entries = whole.get("results", whole.get("entities", values[0] if len(values) == 1 else values))
    for entry in map(as_mapping, cast("list[Any]", entries) if isinstance(entries, list) else [entries]):
        # mem0, Claude, the server ``memory``
        if isinstance(row := entry.get("memory", None if "role" in entry else entry.get("content")), str):
            texts.append(collapse_whitespace(row))
        for part in (
            entry.get("conversations_memory"),
            *(as_mapping(file).get("content") for file in as_list(entry.get("memory_files"))),
        ):
            texts += _texts_of_list(part) if isinstance(part, str) else []
        name = str(entry.get("name", "")).replace("_", " ")
        texts += [f"{name}: {observation}" for observation in as_list(entry.get("observations"))]
    if not texts:  # JSON of this product, or of none that is known
        return memories_from_json(text), []
    rows = [text for text in texts if len(text) <= LONGEST_ROW and not is_secret(text)]
    if len(rows) > MOST_ROWS:
        raise UsageError(f"a memory has at most {MOST_ROWS} rows, and this file has {len(rows)}")
    if not rows:
        raise UsageError(f"a row has at most {LONGEST_ROW} characters; shorten {shorten(texts[0], 60)!r}")
    return [ImportedRow(text=text) for text in rows], [text for text in texts if text not in rows]


def _texts_of_list(text: str) -> list[str]:
    if _WRAPPED.search(text):
        raise UsageError("this is a running text, and a list has a row on each line")
    lines = (_BULLET.sub("", line.strip()).strip() for line in text.splitlines() if not _HEADING.match(line.strip()))
    return [line for line in lines if line]
