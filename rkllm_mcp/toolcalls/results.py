"""Convert a ``tools/call`` result (JSON) to compact text for the model.

text: compacted if it is JSON      structuredContent: only if the blocks repeat it or are empty
image, audio, blob: one line that describes it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

# Common names of arguments that select a part of a long result, lower case without separators.
_PAGING = frozenset(
    {"offset", "startindex", "start", "page", "cursor", "skip", "line", "startline", "head", "tail", "position", "from"}
)
# base64: four characters encode three bytes.
_BYTES_PER_BASE64_CHAR = 3 / 4


def result_text(result: Mapping[str, Any]) -> str:
    """Return the text for the model: the content blocks, or the structured content if the blocks only repeat it."""
    blocks = cast("Sequence[Mapping[str, Any]]", result.get("content") or ())
    texts = [text for block in blocks if (text := _block_text(block))]
    structured = result.get("structuredContent")
    if structured is not None and (not texts or _repeats(blocks, structured)):
        texts = [_structured_text(structured)]
    whole = "\n".join(texts)
    if not whole.strip():
        whole = "The tool failed without an error message." if result.get("isError") else "(no output)"
    # Lone surrogates cannot be encoded as UTF-8.
    return whole.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit_chars: int, paging: Sequence[str] = ()) -> tuple[str, bool]:
    """Truncate ``text`` to ``limit_chars`` characters; return it and True if it was truncated.

    A note about the rest is appended; it mentions ``paging``, the arguments that select another part of the result.
    """
    if len(text) <= limit_chars:
        return text, False
    how = f"with another {' or '.join(paging)}" if paging else "for a smaller part"
    rest = f"… truncated, {len(text) - limit_chars} more characters; call it again {how} to see them"
    return f"{text[:limit_chars]}\n{rest}", True


def paging_arguments(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments in ``schema`` that select a part of a long result, recognised by name."""
    properties = schema.get("properties")
    names = tuple(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else ()
    return tuple(name for name in names if name.replace("_", "").replace("-", "").lower() in _PAGING)


def compact_json(value: Any) -> str:
    """Serialise ``value`` without spaces, with non-ASCII characters unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _structured_text(structured: Any) -> str:
    value = _unwrapped(structured)
    return value if isinstance(value, str) else compact_json(value)


def _unwrapped(structured: Any) -> Any:
    # The Python SDK wraps values that are not objects as {"result": …}: results had to be objects before 2026-07-28.
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return cast("dict[str, Any]", structured)["result"]
    return cast("Any", structured)


def _repeats(blocks: Sequence[Mapping[str, Any]], structured: Any) -> bool:
    """Return True if the blocks repeat the structured content: as one JSON text, or as one text per list element."""
    if any(block.get("type") != "text" for block in blocks):
        return False
    texts = [_parsed(str(block.get("text", ""))) for block in blocks]
    value = _unwrapped(structured)
    return texts in ([structured], [value]) or (len(texts) > 1 and texts == value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _block_text(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return _compacted(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return f"[{kind}: {block.get('mimeType', 'unknown type')}, {_base64_size(block.get('data'))}, not shown]"
    if kind == "resource_link":
        about = [str(block[key]) for key in ("title", "description", "mimeType") if block.get(key)]
        size = block.get("size")
        about += [_size(size)] if isinstance(size, int) else []
        return f"[resource {block.get('name', '')}: {block.get('uri', '')}{''.join(f', {item}' for item in about)}]"
    if kind == "resource":
        return _resource_text(cast("Mapping[str, Any]", block.get("resource") or {}))
    return compact_json(dict(block))


def _resource_text(resource: Mapping[str, Any]) -> str:
    uri = resource.get("uri", "")
    if "text" in resource:
        return f"[resource {uri}]\n{_compacted(str(resource['text']))}"
    return (
        f"[resource {uri}: {resource.get('mimeType', 'unknown type')}, {_base64_size(resource.get('blob'))}, not shown]"
    )


def _compacted(text: str) -> str:
    """Return JSON objects and arrays in compact form if that is shorter; other text unchanged."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    value = _parsed(text)
    if isinstance(value, str):
        return text
    compact = compact_json(value)
    return compact if len(compact) < len(text) else text


def _base64_size(data: Any) -> str:
    return _size(int(len(data) * _BYTES_PER_BASE64_CHAR)) if isinstance(data, str) else "unknown size"


def _size(size_bytes: int) -> str:
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    return f"{size_bytes / 1000:.1f} kB" if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:.1f} MB"
