"""Mail (eml) and Rich Text (rtf) -> title and text."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Callable
from email.message import MIMEPart
from typing import Any, cast

from mcp_servers.knowledge.importing.documents import CELL
from mcp_servers.knowledge.importing.plain_text import read_plain
from mcp_servers.knowledge.types import Passage

_SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read_mail(content: bytes, html_text: Callable[[str], list[Passage]]) -> tuple[str, list[Passage]]:
    """Return subject and passages of a message; attachments are named."""
    message = email.message_from_bytes(content, policy=email.policy.default)
    heads = [f"{name}: {message[name]}" for name in _SHOWN if message[name]]
    body = message.get_body(("plain", "html"))
    text = _content(body) if body is not None else ""
    is_html = body is not None and body.get_content_subtype() == "html"
    passages = html_text(text) if is_html else read_plain(text)
    names = [name for part in message.iter_attachments() if (name := part.get_filename())]
    if names:
        passages = [*passages, Passage(f"Attachments: {', '.join(names)}")]
    return str(message["Subject"] or ""), [Passage("\n".join(heads)), *passages] if heads else passages


def _content(body: MIMEPart) -> str:
    try:
        return str(body.get_content())
    except (LookupError, UnicodeError):
        payload = body.get_payload(decode=True)
        return payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""


def read_rtf(content: bytes) -> list[Passage]:
    """Return the passages of a Rich Text file; raise ImportError without striprtf."""
    from striprtf import striprtf

    # Characters outside ASCII are escaped in the file.
    text = cast("Any", striprtf).rtf_to_text(content.decode("latin-1"), errors="replace")
    return read_plain(str(text).replace("|", CELL))
