"""Convert a ``tools/call`` result (JSON) to compact text for the model.

text: compacted if it is JSON      structuredContent: instead of blocks that repeat it, after others that leave it out
image, audio, blob: one line that describes it
structuredContent of a search: also its passages with their documents, for display
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

from rkllm_mcp.events import Source, to_json
from rkllm_mcp.messages import Picture, as_list, as_mapping
from rkllm_mcp.text import collapse_whitespace
from rkllm_mcp.toolcalls.lenient_json import iter_nested
from rkllm_mcp.toolcalls.untrusted_text import without_invisible

# Common names of arguments that select a part of a long result, lower case without separators.
_PAGING = frozenset(
    {"offset", "startindex", "start", "page", "cursor", "skip", "line", "startline", "head", "tail", "position", "from"}
)
# A text of which no model is shown the end: it is not compared with the structured content, nor is longer JSON read.
_ENOUGH_CHARS = 100_000
_MOST_JSON_CHARS = 1_000_000
_MOST_LEAVES = 2_000
_BYTES_PER_BASE64_CHAR = 3 / 4  # base64: four characters encode three bytes


def result_text(result: Mapping[str, Any]) -> str:
    """Return the text for the model: the content blocks, and the structured content that they do not contain."""
    blocks = cast("Sequence[Mapping[str, Any]]", result.get("content") or ())
    texts = [text for block in blocks if (text := _block_text(block))]
    structured = result.get("structuredContent")
    if structured is not None:
        # The Python SDK wraps values that are not objects as {"result": …}: before 2026-07-28 results were objects.
        table = as_mapping(structured)
        value: Any = table["result"] if set(table) == {"result"} else structured
        written = value if isinstance(value, str) else to_json(value)
        # Blocks that repeat it are one JSON text, or one text for each element of a list.
        is_text = all(block.get("type") == "text" for block in blocks)
        parsed = [_parse(str(block.get("text", ""))) for block in blocks] if is_text else []
        if not texts or parsed in ([structured], [value]) or (len(parsed) > 1 and parsed == value):
            texts = [written]
        elif sum(map(len, texts)) <= _ENOUGH_CHARS and not _is_needless(texts, result, value):
            texts.append(written)
    joined = "\n".join(texts)
    if not joined.strip():
        joined = "The tool failed without an error message." if result.get("isError") else "(no output)"
    # Lone surrogates cannot be encoded as UTF-8.
    return joined.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit_chars: int, paging: Sequence[str] = (), rest_chars: int = 0) -> tuple[str, bool]:
    """Truncate ``text`` to ``limit_chars`` characters; return it and True if it was truncated.

    A note about the rest, and the ``rest_chars`` that follow the text, is appended; it mentions ``paging``, the
    arguments that select another part of the result.
    """
    if len(text) <= limit_chars and not rest_chars:
        return text, False
    how = f"with another {' or '.join(paging)}" if paging else "for a smaller part"
    notice = (
        f"… truncated, {max(0, len(text) - limit_chars) + rest_chars} more characters; call it again {how} to see them"
    )
    return f"{text[:limit_chars]}\n{notice}", True


def paging_arguments(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments in ``schema`` that select a part of a long result, recognised by name."""
    names = as_mapping(schema.get("properties"))
    return tuple(name for name in names if name.replace("_", "").replace("-", "").lower() in _PAGING)


# Names under which servers return the passages of a search, and the parts of a passage; the first present counts.
_LISTS = ("results", "passages", "hits", "matches", "sources", "documents", "chunks", "items", "result")
_PASSAGE = ("content", "passage", "text", "snippet", "excerpt", "chunk", "page_content")
_DOCUMENT = ("title", "document", "document_title", "source", "file", "filename", "path", "uri", "url", "document_id")
_PAGE = ("page", "page_number", "page_label")
_SCORE = ("score", "similarity", "relevance", "relevance_score")
_MAX_SOURCES = 50
_SOURCE_CHARS = 2000


def sources_of(result: Mapping[str, Any]) -> tuple[Source, ...] | None:
    """Return the passages in the structured content of a search; empty if it found none, None for other results.

    A passage has a text, the name of its document, and a score, a page or an address; the last three may also be in its
    ``metadata``.
    """
    table = as_mapping(result.get("structuredContent"))
    if table.get("results") == [] and not table.get("error"):
        return ()
    source_lists = (tuple(filter(None, map(_source, as_list(table.get(name))[:_MAX_SOURCES]))) for name in _LISTS)
    return next(filter(None, source_lists), None)


def _source(value: Any) -> Source | None:
    entry = as_mapping(value)
    parts = {**as_mapping(entry.get("metadata")), **entry}
    passage, document = _first(parts, _PASSAGE, str), _first(parts, _DOCUMENT, str)
    page, score = _first(parts, _PAGE, int), _first(parts, _SCORE, (int, float))
    is_found = page is not None or score is not None or any(isinstance(parts.get(name), str) for name in ("uri", "url"))
    if not passage or not document or not is_found:
        return None
    excerpt, name = (without_invisible(text)[0][:_SOURCE_CHARS] for text in (passage, document))
    source = Source(document=name, page=page, passage=excerpt, score=score)
    document_id, index = _first(parts, ("document_id",), str), _first(parts, ("chunk_index",), int)
    if document_id and index is not None:
        source["document_id"], source["chunk_index"] = document_id, index
    return source


def _first(parts: Mapping[str, Any], names: Sequence[str], kind: type | tuple[type, ...]) -> Any:
    values = (value for name in names if not isinstance(value := parts.get(name), bool))
    return next((value for value in values if isinstance(value, kind) and value != ""), None)


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return the JSON of a ``tools/call`` result with one text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _is_needless(texts: Sequence[str], result: Mapping[str, Any], value: Any) -> bool:
    """Return True if the structured content, whose unwrapped value is ``value``, adds nothing to the texts."""
    # A copy of the content blocks, as the reference file server sends it.
    if set(as_mapping(result["structuredContent"])) == {"content"}:
        return True
    # A list without items, also in an object that has no other content, such as a count of 0.
    table = as_mapping(value)
    if value == [] or ([] in table.values() and not any(table.values())):
        return True
    # The most of it is in the texts: at least half of the characters of its leaves.
    joined = collapse_whitespace(" ".join(texts))
    values = (item for item in iter_nested(value) if isinstance(item, (str, int, float)) and not isinstance(item, bool))
    leaves = {str(item) for item in islice(values, _MOST_LEAVES)}
    words = [collapse_whitespace(leaf) for leaf in leaves]
    if 2 * sum(len(word) for word in words if word in joined) >= sum(map(len, words)):
        return True
    # Every passage of a search, whose scores and ids are for display.
    sources = sources_of(result)
    return bool(sources) and all(collapse_whitespace(source["passage"]) in joined for source in sources or ())


# A picture takes hundreds of tokens; a server may send any number of them.
_MOST_PICTURES = 4
# What the text of a result says about a picture, until a model sees it.
NOT_SHOWN, SHOWN = ", not shown]", ", shown below]"


def pictures_of(received: Mapping[str, Any]) -> tuple[Picture, ...]:
    """Return the first images of a result, as a model that sees is shown them."""
    pictures: list[Picture] = []
    for block in map(as_mapping, as_list(received.get("content"))):
        data = block.get("data")
        if block.get("type") == "image" and isinstance(data, str) and len(pictures) < _MOST_PICTURES:
            try:
                pictures.append(Picture.of(base64.b64decode(data, validate=True)))
            except (binascii.Error, ValueError):
                continue
    return tuple(pictures)


def _parse(text: str) -> Any:
    if len(text) > _MOST_JSON_CHARS:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _block_text(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return _compact(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return f"[{kind}: {_base64_note(block, 'data')}]"
    if kind == "resource_link":
        about = [str(block[key]) for key in ("title", "description", "mimeType") if block.get(key)]
        size = block.get("size")
        about += [size_text(size)] if isinstance(size, int) else []
        return f"[resource {block.get('name', '')}: {block.get('uri', '')}{''.join(f', {item}' for item in about)}]"
    if kind == "resource":
        resource = as_mapping(block.get("resource"))
        uri = resource.get("uri", "")
        if "text" in resource:
            return f"[resource {uri}]\n{_compact(str(resource['text']))}"
        return f"[resource {uri}: {_base64_note(resource, 'blob')}]"
    return to_json(dict(block))


def _compact(text: str) -> str:
    """Return JSON objects and arrays in compact form if that is shorter; other text unchanged."""
    if text[:_ENOUGH_CHARS].lstrip()[:1] not in ("{", "["):
        return text
    value = _parse(text)
    if isinstance(value, str):
        return text
    compact = to_json(value)
    return compact if len(compact) < len(text) else text


def _base64_note(block: Mapping[str, Any], key: str) -> str:
    data = block.get(key)
    size = size_text(int(len(data) * _BYTES_PER_BASE64_CHAR)) if isinstance(data, str) else "unknown size"
    return f"{block.get('mimeType', 'unknown type')}, {size}{NOT_SHOWN[:-1]}"


def size_text(size_bytes: int) -> str:
    """Return a number of bytes as people write it: ``1.2 kB``."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    return f"{size_bytes / 1000:.1f} kB" if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:.1f} MB"
