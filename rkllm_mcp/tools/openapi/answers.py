"""HTTP response -> tool result: the text, or the error with advice for the model.

Error statuses become results, not exceptions. Tokens that an API echoes are replaced by ``[REDACTED]``, also where
truncation cuts one.

Reference: RFC 9110, status codes; mission "MCP統合設計", 認証エラー.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rkllm_mcp.tools.openapi.operation import Operation
from rkllm_mcp.tools.tokens import redacted

if TYPE_CHECKING:
    from rkllm_mcp.tools.openapi.exchange import Answer

# Length of an error text for the model, after removing HTML.
_MAX_ERROR_CHARS = 600
_MAX_HTML_CHARS = 20_000
_MARKUP = re.compile(r"<(script|style|head)\b[^>]*>.*?</\1\s*>|<!--.*?-->|<[^<>]*>", re.DOTALL | re.IGNORECASE)
_ADVICE = {
    401: "the token is missing, wrong or expired",
    403: "the token is known, but may not do this",
    404: "no such name or id",
    405: "this operation is not supported there",
    409: "the request conflicts with the current state",
    413: "the request is too large",
    429: "too many requests; wait before the next",
}


def result_of(operation: Operation, answer: Answer, secrets: Sequence[str], limit_chars: int) -> dict[str, Any]:
    """Return the JSON of a ``tools/call`` result, with ``secrets`` redacted and at most ``limit_chars`` of text."""
    is_error = answer.status >= 400 or answer.status < 200
    text = _error(operation, answer, secrets) if is_error else _content(answer, secrets, limit_chars)
    return text_result(text, is_error=is_error)


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return the JSON of a ``tools/call`` result with one text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _content(answer: Answer, secrets: Sequence[str], limit_chars: int) -> str:
    status = f"{answer.status} {answer.reason}".strip()
    if not answer.is_text:
        kind = answer.media_type or "data of unknown type"
        return f"[{kind}, {_size(answer)}, not shown]"
    text = _text(answer, secrets)
    if not text.strip():
        location = answer.headers.get("location")
        return f"Done ({status})." + (f" Location: {redacted(location, secrets)}" if location else "")
    if len(text) > limit_chars or answer.is_cut:
        return f"{text[:limit_chars]}\n… the answer has {_size(answer)}; only its beginning was read"
    return text


def _error(operation: Operation, answer: Answer, secrets: Sequence[str]) -> str:
    status = f"{answer.status} {answer.reason}".strip()
    advice = _ADVICE.get(answer.status, "the API itself has failed; try again later" if answer.status >= 500 else "")
    if answer.status == 401 and (wanted := _tokens_of(operation)):
        advice = f"{advice}; it takes the token {wanted}"
    if wait := answer.headers.get("retry-after", "")[:40]:
        advice = f"{advice} (after {wait}{' s' if wait.isdecimal() else ''})"
    text = _text(answer, secrets) if answer.is_text else ""
    if "html" in answer.media_type:
        text = re.sub(r"\s+", " ", _MARKUP.sub(" ", text[:_MAX_HTML_CHARS])).strip()
    if len(text) > _MAX_ERROR_CHARS:
        text = f"{text[:_MAX_ERROR_CHARS]}…"
    sentence = f"The API answered {redacted(status, secrets)}" + (f": {advice}" if advice else "") + "."
    return f"{sentence} It says: {text}" if text.strip() else sentence


def _tokens_of(operation: Operation) -> str:
    names = dict.fromkeys(f"'{scheme.name}'" for alternative in operation.security for scheme in alternative)
    return " or ".join(names)


def _text(answer: Answer, secrets: Sequence[str]) -> str:
    try:
        text = answer.content.decode(answer.charset, "replace")
    except LookupError:
        text = answer.content.decode("utf-8", "replace")
    text = redacted(text, secrets)
    if answer.is_cut and secrets:
        # Truncation may have cut a token; remove a tail that could contain part of one.
        text = text[: -max(map(len, secrets)) * 2] if len(text) > max(map(len, secrets)) * 2 else ""
    return text


def _size(answer: Answer) -> str:
    size = answer.size_bytes
    if size is None:
        return "unknown size"
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
