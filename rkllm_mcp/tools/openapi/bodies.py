"""Arguments -> request body: JSON, form, multipart form, or text and bytes unchanged.

Reference: OpenAPI 3.0.4 and 3.1.1, Media Type and Encoding Object; RFC 7578 for multipart. A model gives a file as its
text, or as a ``data:`` URL for binary data. Files of this machine are never read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from rkllm_mcp.tools.openapi.operation import Body, BodyField, Parameter
from rkllm_mcp.tools.openapi.styles import in_query, json_text, scalar_text

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[\w.+-]+)*)(;base64)?,(.*)", re.DOTALL)


def body_of(body: Body, arguments: Mapping[str, Any], boundary: str) -> tuple[str, bytes] | None:
    """Return the content type and the bytes to send; None for an empty body.

    An open body takes arguments that are not among its fields as well. ``boundary`` must not occur in any part.
    """
    if body.whole:
        return _whole(body, arguments[body.whole], boundary) if body.whole in arguments else None
    given = [(field, arguments[field.key]) for field in body.fields if field.key in arguments]
    if body.open:
        keys = {field.key for field in body.fields}
        given += [(BodyField(name, name), value) for name, value in arguments.items() if name not in keys]
    if not given and not body.required:
        return None
    return _form(body.media_type, given, boundary) or (
        body.media_type,
        _json({field.name: value for field, value in given}),
    )


def _whole(body: Body, value: Any, boundary: str) -> tuple[str, bytes]:
    if "json" in body.media_type:
        return body.media_type, _json(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value).items()
        form = _form(body.media_type, [(BodyField(str(name), str(name)), inner) for name, inner in members], boundary)
        if form is not None:
            return form
    media_type = f"{body.media_type}; charset=utf-8" if body.media_type.startswith("text/") else body.media_type
    return media_type, _content(value)[1]


def _form(media_type: str, given: Sequence[tuple[BodyField, Any]], boundary: str) -> tuple[str, bytes] | None:
    """Return the content type and the bytes of a form; None if the media type is not a form."""
    if media_type == "application/x-www-form-urlencoded":
        return media_type, "&".join(pair for field, value in given for pair in _form_pairs(field, value)).encode()
    if media_type.startswith("multipart/"):
        return f"{media_type}; boundary={boundary}", _multipart(given, boundary)
    return None


def _json(value: Any) -> bytes:
    return json_text(value).encode("utf-8", "replace")


def _form_pairs(field: BodyField, value: Any) -> list[str]:
    if value is None:
        return []
    if not field.style and (isinstance(value, Mapping) or "json" in field.content_type):
        # Without a style an object is one value with its default content type.
        value = json_text(value)
    style = field.style or "form"
    return in_query(Parameter(field.key, field.name, "query", style, field.explode), value)


def _multipart(given: Sequence[tuple[BodyField, Any]], boundary: str) -> bytes:
    parts = [part for field, value in given for part in _parts(field, value)]
    return b"".join(f"--{boundary}\r\n".encode() + part + b"\r\n" for part in parts) + f"--{boundary}--\r\n".encode()


def _parts(field: BodyField, value: Any) -> Iterator[bytes]:
    if isinstance(value, (list, tuple)) and "json" not in field.content_type:
        for item in cast("Sequence[Any]", value):
            yield from _parts(field, item)
    elif value is not None:
        media_type, content = _content(value)
        name = _quoted(field.name)
        head = f'Content-Disposition: form-data; name="{name}"'
        if field.is_file:
            head += f'; filename="{name}"'
            media_type = media_type or "application/octet-stream"
        media_type = field.content_type if field.content_type and "*" not in field.content_type else media_type
        head += f"\r\nContent-Type: {media_type}" if media_type else ""
        yield head.encode() + b"\r\n\r\n" + content


def _content(value: Any) -> tuple[str, bytes]:
    """Return the media type that a ``data:`` value names, and its bytes."""
    if isinstance(value, (Mapping, list, tuple)):
        return "application/json", _json(value)
    text = scalar_text(value)
    match = _DATA_URL.fullmatch(text) if text.startswith("data:") else None
    if match is None:
        return "", text.encode("utf-8", "replace")
    media_type, _, is_base64, data = match.groups()
    try:
        content = base64.b64decode(data, validate=False) if is_base64 else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        content = text.encode("utf-8", "replace")
    return media_type or "", content


def _quoted(name: str) -> str:
    # Escape as browsers do: these characters would end the name or the line.
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
