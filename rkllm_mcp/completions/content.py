"""Text of the parts and blocks of a message, of every kind that OpenAI's, Anthropic's and MCP's APIs publish.

A block that the model cannot read is one line about it, such as ``[image, not shown]``: a client cannot take it out of
its history, so it must not end the conversation.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from rkllm_mcp.events import to_json
from rkllm_mcp.messages import Picture, as_list, as_mapping

_TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})
# Thinking, the calls that a vendor's service runs itself, with their results, and changes of the tools.
_UNREAD = frozenset(
    {
        *("thinking", "redacted_thinking", "reasoning", "server_tool_use", "mcp_tool_use"),
        *("tool_addition", "tool_removal"),
    }
)
_UNREAD_ENDING = "_tool_result"
# What the kinds of blocks are called in the line about them.
_WORDS: Mapping[str, str] = {
    "image_url": "image",
    "input_image": "image",
    "image-data": "image",
    "image-url": "image",
    "file-data": "file",
    "file-url": "file",
    "computer_screenshot": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
    "input_file": "file",
    "container_upload": "file",
}
_MAX_DEPTH = 8
# A text with a medium in it has one of these; reading it as JSON takes some milliseconds for a megabyte.
_MEDIUM = re.compile(r'"(?:data:[a-z]+/|[A-Za-z0-9+/_=\\\\-]{32})', re.ASCII)
_DATA_URL = re.compile(r"data:([a-z]+)/[a-zA-Z0-9.+-]+(?:;[a-z]+=[^;,\s]*)*;base64,([A-Za-z0-9+/=_-]{16,})", re.ASCII)
# Fields that hold a medium in base64, and those that name its type, in the words of MCP, the AI SDK and others.
_DATA_FIELDS = ("data", "blob", "file_data", "base64")
_TYPE_FIELDS = ("mimeType", "mediaType", "media_type", "mime_type")
_MEDIA = frozenset({"image", "audio", "video"})


def content_text(content: object, depth: int = 0) -> str:
    """Return the text of a content: a text, a block, or a list of both."""
    if isinstance(content, str):
        return content
    if block := as_mapping(content):
        kind = _kind(block)
        if kind in _UNREAD or kind.endswith(_UNREAD_ENDING):
            return ""
        return _text(kind, block, depth) or ("" if kind in _TEXTS else f"[{_label(kind, block)}, not shown]")
    texts = (content_text(block, depth + 1) for block in as_list(content)) if depth < _MAX_DEPTH else ()
    return "\n".join(filter(None, texts))


def is_image(block: Mapping[str, Any]) -> bool:
    """Return True for an image of any API."""
    kind = _kind(block)
    return _WORDS.get(kind, kind) == "image"


def image_of(block: Mapping[str, Any]) -> Picture | None:
    """Return the image of a block that has its data, in base64; None for an address, a path or anything else."""
    sent = block.get("image_url")
    # OpenAI's chat and Responses APIs; Anthropic's; MCP's, Ollama's and the AI SDK's.
    link = as_mapping(sent).get("url", sent)
    source = as_mapping(block.get("source"))
    data = source.get("data", block.get("data"))
    if isinstance(link, str):
        data = link if link[:5].lower() == "data:" else None
    if isinstance(data, str) and data[:5].lower() == "data:":
        header, _, data = data.partition(",")
        data = data if header.lower().endswith(";base64") else None
    if not isinstance(data, str) or not data:
        return None
    try:
        return Picture.of(base64.b64decode("".join(data.split()).translate(_URL_SAFE), validate=True))
    except (binascii.Error, ValueError):
        return None


_URL_SAFE = str.maketrans("-_", "+/")


def without_media(text: str) -> tuple[str, list[Picture]]:
    """Return the text of a result without media, which become the lines about them, and its images.

    Home Assistant, the AI SDK and others write the blocks of a result as JSON into one text; data URLs may be anywhere.
    """
    images: list[Picture] = []

    def line_about(word: str, block: Mapping[str, Any]) -> str:
        image = image_of(block) if word == "image" else None
        images.extend(filter(None, (image,)))
        return f"[{_label(word, block)}, not shown]"

    def shown(value: Any) -> Any:
        if isinstance(value, str):
            # A search takes longer.
            if "data:" not in value:
                return value
            return _DATA_URL.sub(
                lambda match: line_about(match[1] if match[1] in _MEDIA else "file", {"data": match[0]}), value
            )
        if isinstance(value, list):
            return [shown(item) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        block = cast("dict[str, Any]", value)
        if (word := _medium_of(block)) is None:
            return {key: shown(item) for key, item in block.items()}
        data = next((block[name] for name in _DATA_FIELDS if block.get(name)), None)
        # The AI SDK has the data in its own object.
        block = {**block, "data": as_mapping(data).get("data", data)}
        if "uri" in block and isinstance(block.get("blob"), str):
            return {**cast("dict[str, Any]", value), "blob": f"[{word}, not shown]"}
        return line_about(word, block)

    if text.lstrip()[:1] not in ("{", "[") or _MEDIUM.search(text) is None:
        return shown(text), images
    try:
        value = json.loads(text)
        result = shown(value)
    except (ValueError, RecursionError):
        return shown(text), images
    if result == value:
        return text, images
    return (result if isinstance(result, str) else to_json(result)), images


def _medium_of(block: Mapping[str, Any]) -> str | None:
    """Return the word for the medium that a block holds as data; None if it holds none."""
    data = next((block[name] for name in _DATA_FIELDS if block.get(name)), None)
    inner = as_mapping(data).get("data", data)
    kind, sent = _kind(block), as_mapping(block.get("image_url")).get("url", block.get("image_url"))
    word = _WORDS.get(kind, kind)
    if is_image(block) and ((isinstance(sent, str) and sent[:5].lower() == "data:") or image_of(block) is not None):
        return "image"
    if not isinstance(inner, str):
        return None
    medium = next((block[name] for name in _TYPE_FIELDS if isinstance(block.get(name), str)), "")
    if medium:
        word = medium.partition("/")[0]
        word = word if word in _MEDIA else "file"
        return None if word == "file" and medium.startswith("text/") and "blob" not in block else word
    if isinstance(block.get("blob"), str):
        return word if word in _MEDIA else "file"
    return word if word in _MEDIA else None


def is_unreadable(block: Mapping[str, Any]) -> bool:
    """Return True for a block that the model cannot read, such as an image."""
    kind = _kind(block)
    is_skipped = kind in _TEXTS or kind in _UNREAD or kind.endswith(_UNREAD_ENDING)
    return not is_skipped and not _text(kind, block, 0)


def _kind(block: Mapping[str, Any]) -> str:
    return str(block.get("type") or "text")


def _text(kind: str, block: Mapping[str, Any], depth: int) -> str:
    if kind in _TEXTS:
        return next((value for key in ("text", "refusal") if isinstance(value := block.get(key), str)), "")
    if kind == "document":
        source = as_mapping(block.get("source"))
        data, form = source.get("data"), source.get("type")
        if form == "content":
            text = content_text(source.get("content"), depth + 1)
        elif not isinstance(data, str):
            text = ""
        else:
            text = data if form == "text" else _decode_text(data, str(source.get("media_type", "")))
        return _below(block, "title", text) if text else ""
    if kind == "search_result":
        return _below(block, "title", _below(block, "source", content_text(block.get("content"), depth + 1)))
    if kind in ("file", "input_file"):
        # Chat completions have its fields in their own object.
        inner = as_mapping(block.get("file")) or block
        header, _, data = str(inner.get("file_data") or "").partition(",")
        text = _decode_text(data, header.removeprefix("data:")) if data else ""
        return _below(inner, "filename", text) if text else ""
    if kind == "resource":
        return content_text(as_mapping(block.get("resource")).get("text"))
    if kind == "tool_reference":
        return f"[tool {block.get('tool_name', '')}]"
    # Kinds to come usually have a text, or blocks that have one.
    text = block.get("text")
    return text if isinstance(text, str) else content_text(block.get("content"), depth + 1)


def _decode_text(data: str, media_type: str) -> str:
    """Return the text of base64 data of a textual type; empty for any other."""
    if not media_type.startswith(("text/", "application/json")):
        return ""
    try:
        return base64.b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _below(block: Mapping[str, Any], key: str, text: str) -> str:
    head = block.get(key)
    return f"{head}\n{text}" if isinstance(head, str) and head else text


def _label(kind: str, block: Mapping[str, Any]) -> str:
    inner = as_mapping(block.get("file")) or block
    name = next((inner[key] for key in ("title", "filename", "name") if isinstance(inner.get(key), str)), "")
    return " ".join(filter(None, (_WORDS.get(kind, kind.replace("_", " ")), name[:80])))
