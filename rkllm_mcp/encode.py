"""JSON encoding of events for ``run --json``, event streams and transcripts; ``kind`` comes first.

Unknown kinds and fields are refused, so that a newer version is noticed.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from rkllm_mcp.events import EVENT_TYPES, End, Event, ToolCallDetected

_BY_KIND: dict[str, type[Event]] = {event.kind: event for event in EVENT_TYPES}

# Order of the fields that are encoded; the raw text of a call and the exception of an End are not.
_FIELD_ORDER: dict[type[Event], tuple[str, ...]] = {
    ToolCallDetected: ("id", "name", "server", "arguments", "repaired"),
    End: ("reason", "error"),
}


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return the event as a JSON object."""
    names = _FIELD_ORDER.get(type(event)) or tuple(field.name for field in fields(event))
    return {"kind": event.kind, **{name: getattr(event, name) for name in names}}


def event_to_json(event: Event) -> str:
    """Return the event as one line of JSON, with non-ASCII characters unescaped."""
    return json.dumps(event_to_dict(event), ensure_ascii=False, separators=(",", ":"))


def event_from_dict(value: dict[str, Any]) -> Event:
    """Decode an event.

    Raises:
        ValueError: ``kind`` is unknown, or a field is missing or unknown.
    """
    rest = dict(value)
    kind = rest.pop("kind", None)
    event_type = _BY_KIND.get(str(kind))
    if event_type is None:
        raise ValueError(f"unknown event kind {kind!r}; known kinds are {', '.join(sorted(_BY_KIND))}")
    try:
        return event_type(**rest)
    except TypeError as error:
        raise ValueError(f"event {kind!r} does not have these fields: {error}") from None
