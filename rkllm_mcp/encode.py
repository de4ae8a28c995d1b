"""Events to JSON and back: one encoding for ``run --json``, the event stream and transcripts.

One object per event, ``kind`` first, then its fields in a fixed order. Unknown kinds and fields are refused: a reader
that guesses would hide a version it does not know.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from rkllm_mcp.events import EVENT_TYPES, End, Event, ToolCallDetected

_BY_KIND: dict[str, type[Event]] = {event.kind: event for event in EVENT_TYPES}

# A call is written as programs look for it: id and name first; its raw text is for the log of the detector only. An
# exception cannot be written at all.
_FIELD_ORDER: dict[type[Event], tuple[str, ...]] = {
    ToolCallDetected: ("id", "name", "server", "arguments", "repaired"),
    End: ("reason", "error"),
}


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as a JSON object, ``kind`` first."""
    names = _FIELD_ORDER.get(type(event)) or tuple(field.name for field in fields(event))
    return {"kind": event.kind, **{name: getattr(event, name) for name in names}}


def event_to_json(event: Event) -> str:
    """The event as one line of JSON, Japanese left readable."""
    return json.dumps(event_to_dict(event), ensure_ascii=False, separators=(",", ":"))


def event_from_dict(value: dict[str, Any]) -> Event:
    """The event that ``event_to_dict`` wrote.

    Raises:
        ValueError: ``value`` has no known ``kind``, or lacks or adds a field.
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
