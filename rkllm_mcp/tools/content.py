r"""MCP content to what the model reads: text, compact, of a bounded size.

A small model pays for every token, so JSON loses its indentation and its ``\u`` escapes, and what only repeats the
structured result is not shown twice. What a text model cannot read (images, sounds, files) becomes one line that says
what it was. Works on the JSON of a ``tools/call`` result; knows neither the SDK nor the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

# What servers call an argument that chooses a part of what there is.
_PAGING = frozenset(
    {"offset", "startindex", "start", "page", "cursor", "skip", "line", "startline", "head", "tail", "position", "from"}
)
# base64: four characters carry three bytes.
_BYTES_PER_BASE64_CHAR = 3 / 4


def result_text(result: Mapping[str, Any]) -> str:
    """What a model reads of a ``tools/call`` result: its text, or its structured content where that is the same."""
    blocks = cast("Sequence[Mapping[str, Any]]", result.get("content") or ())
    texts = [text for block in blocks if (text := _block_text(block))]
    structured = result.get("structuredContent")
    if structured is not None and (not texts or _repeats(blocks, structured)):
        texts = [_structured_text(structured)]
    whole = "\n".join(texts)
    if not whole.strip():
        whole = "The tool failed without saying why." if result.get("isError") else "(no output)"
    # Halves of characters cannot be written anywhere.
    return whole.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit_chars: int, paging: Sequence[str] = ()) -> tuple[str, bool]:
    """``text`` cut to ``limit_chars`` characters with a remark about the rest, and whether it was.

    Args:
        text: what a tool said.
        limit_chars: how much of it stays, characters.
        paging: arguments of the tool that choose another part of it.
    """
    if len(text) <= limit_chars:
        return text, False
    how = f"with another {' or '.join(paging)}" if paging else "for a smaller part"
    rest = f"… truncated, {len(text) - limit_chars} more characters; call it again {how} to see them"
    return f"{text[:limit_chars]}\n{rest}", True


def paging_arguments(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments of a tool that choose which part of a long result comes, by what such arguments are called."""
    properties = schema.get("properties")
    names = tuple(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else ()
    return tuple(name for name in names if name.replace("_", "").replace("-", "").lower() in _PAGING)


def compact_json(value: Any) -> str:
    """JSON without spaces, other scripts left readable."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _structured_text(structured: Any) -> str:
    value = _unwrapped(structured)
    return value if isinstance(value, str) else compact_json(value)


def _unwrapped(structured: Any) -> Any:
    # The Python SDK wraps what is no object as {"result": …}, because results had to be objects until 2026-07-28.
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return cast("dict[str, Any]", structured)["result"]
    return cast("Any", structured)


def _repeats(blocks: Sequence[Mapping[str, Any]], structured: Any) -> bool:
    """Whether the blocks are the structured content once more: as one JSON text, or a text per element of a list."""
    if any(block.get("type") != "text" for block in blocks):
        return False
    said = [_parsed(str(block.get("text", ""))) for block in blocks]
    meant = _unwrapped(structured)
    return said in ([structured], [meant]) or (len(said) > 1 and said == meant)


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
    """The text, or its compact form when it is a JSON object or array that gets shorter by that."""
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
