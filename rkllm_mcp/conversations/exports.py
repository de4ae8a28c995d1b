"""Stored conversations as Markdown for people, and as JSON that can be imported again.

Markdown omits the text that the host put before a question, and pictures; JSON has everything, with times in UTC.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import (
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.conversations.imports import foreign_conversations
from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import Ending, Picture, StoredTurn
from rkllm_mcp.records import ConversationSummary, StoredConversation
from rkllm_mcp.text import moment, stamp, with_closed_fence

Format = Literal["markdown", "json"]
# Identifies the format of old files.
FORMAT = "rkllm-mcp conversation 1"
# The file with everything that is stored of a person.
DATA_FORMAT = "rkllm-mcp data 1"
_SPEAKERS = {"user": "You", "assistant": "Assistant"}


def as_markdown(stored: StoredConversation) -> str:
    """Return a conversation as Markdown."""
    paragraphs = [f"# {stored.title or stored.id}"]
    paragraphs.append(f"*{moment(stored.created)} – {moment(stored.updated)}, {stored.id}*")
    for turn in stored.turns:
        paragraphs.append(f"## {_SPEAKERS[turn.role]}, {moment(turn.at)}")
        if turn.thinking.strip():
            thinking = with_closed_fence(turn.thinking.strip())
            paragraphs.append(f"<details><summary>Thinking</summary>\n\n{thinking}\n\n</details>")
        paragraphs += ["*[picture]*"] * len(turn.pictures)
        if turn.text.strip():
            paragraphs.append(with_closed_fence(turn.text.strip()))
        if ending := read_catalogue("en").table("ending").get(turn.ending):
            paragraphs.append(f"*[{ending}]*")
    return "\n\n".join(paragraphs) + "\n"


def as_json(conversations: Sequence[StoredConversation]) -> str:
    """Return JSON: an object for one conversation, a list for several."""
    objects: list[dict[str, Any]] = []
    for stored in conversations:
        messages: list[dict[str, Any]] = []
        for turn in stored.turns:
            fields = {name: getattr(turn, name) for name in ("role", "text", "thinking", "context", "ending")}
            if pictures := [base64.b64encode(picture.data).decode() for picture in turn.pictures if picture.data]:
                fields["pictures"] = pictures
            messages.append({**fields, "created": stamp(turn.at)})
        objects.append(
            {
                "format": FORMAT,
                "id": stored.id,
                "title": stored.title,
                "created": stamp(stored.created),
                "updated": stamp(stored.updated),
                "system": stored.system,
                "calls_made": stored.calls_made,
                "messages": messages,
            }
        )
    return f"{json.dumps(objects[0] if len(objects) == 1 else objects, ensure_ascii=False, indent=2)}\n"


_LAZY = ConfigDict(defer_build=True)


class _ImportedMessage(BaseModel):
    model_config = _LAZY

    role: Literal["user", "assistant"]
    text: str
    thinking: str = ""
    context: str = ""
    ending: Ending = ""
    created: AwareDatetime
    pictures: tuple[Base64Bytes, ...] = ()


class _Imported(BaseModel):
    model_config = _LAZY

    format: Literal["rkllm-mcp conversation 1"]
    id: str = Field(default="", max_length=64)
    title: str
    created: AwareDatetime
    updated: AwareDatetime
    system: str | None = None
    calls_made: int = Field(default=0, ge=0)
    messages: list[_ImportedMessage] = Field(min_length=1)


class _ImportedData(BaseModel):
    model_config = _LAZY

    format: Literal["rkllm-mcp data 1"]
    conversations: list[_Imported]


def _kind_of(read: Any) -> str:
    if isinstance(read, list):
        return "several"
    is_data = isinstance(read, dict) and cast("dict[str, Any]", read).get("format") == DATA_FORMAT
    return "data" if is_data else "one"


_Read: TypeAlias = Annotated[
    Annotated[_ImportedData, Tag("data")]
    | Annotated[_Imported, Tag("one")]
    | Annotated[list[_Imported], Tag("several")],
    Discriminator(_kind_of),
]
_ADAPTER: TypeAdapter[_Read] = TypeAdapter(_Read, config=_LAZY)


def from_json(text: str | bytes) -> list[StoredConversation]:
    """Parse an export, also of another program, or raise a UsageError that names the first wrong field."""
    try:
        read = _ADAPTER.validate_json(text)
    except ValidationError as error:
        with suppress(ValueError, RecursionError):
            if (foreign := foreign_conversations(json.loads(text))) is not None:
                return foreign
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"] if part not in {"data", "one", "several"}) or "the whole"
        remedy = "'rkllm-mcp conversations export ID --format json' writes one"
        raise UsageError(f"this is no export of a conversation: {where}: {first['msg']}; {remedy}") from None
    if isinstance(read, _ImportedData):
        read = read.conversations
    conversations: list[StoredConversation] = []
    for imported in read if isinstance(read, list) else [read]:
        turns = tuple(
            StoredTurn(
                turn.role,
                turn.text,
                turn.thinking,
                turn.context,
                turn.ending,
                turn.created.timestamp(),
                pictures=tuple(map(Picture.of, turn.pictures)),
            )
            for turn in imported.messages
        )
        times = imported.created.timestamp(), imported.updated.timestamp()
        further = imported.system, imported.calls_made
        conversations.append(StoredConversation(imported.id, imported.title, *times, turns, *further))
    return conversations


def summary_dict(summary: ConversationSummary) -> dict[str, Any]:
    """Return a conversation without its turns, for JSON."""
    return {**asdict(summary), "created": stamp(summary.created), "updated": stamp(summary.updated)}
