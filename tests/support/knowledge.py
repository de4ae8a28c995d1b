"""Small documents for tests of the knowledge base."""

from __future__ import annotations

import hashlib
from typing import Any

from mcp_servers.knowledge.types import NewChunk, NewDocument


def document(*texts: str, title: str = "", uri: str = "", **more: Any) -> NewDocument:
    """A document of one chunk for each text, its content hash made of them."""
    content_hash = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()
    return NewDocument(title, tuple(map(NewChunk, texts)), content_hash, uri=uri, **more)
