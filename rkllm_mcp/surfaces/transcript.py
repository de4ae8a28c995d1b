"""A conversation as Markdown, for ``/save``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from rkllm_mcp.messages import Message


def transcript(messages: Sequence[Message]) -> str:
    """A conversation as Markdown, tool calls and their results included."""
    parts: list[str] = []
    for message in messages:
        if message.role == "system":
            parts.append(f"> {message.text}")
        elif message.role == "user":
            parts.append(f"## You\n\n{message.text}")
        elif message.role == "assistant":
            calls = [f"`{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})`" for call in message.calls]
            parts.append(
                "\n\n".join(["## Assistant", *([message.text.strip()] if message.text.strip() else []), *calls])
            )
        else:
            parts += [f"### {result.name}\n\n{_fenced(result.text)}" for result in message.results]
    return "\n\n".join(parts) + "\n"


def _fenced(text: str) -> str:
    """The text as a block of code, whatever blocks it has itself."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
