"""What callers give -> what the library works with, or a sentence about what is wrong with it.

Nothing behind this module sees an argument out of range, a text that is no Unicode (a lone surrogate from JSON cannot
be stored), or a document that its giver could not read afterwards.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from mcp_servers.knowledge.errors import (
    AccessDeniedError,
    BadArgumentError,
    MaxResultsError,
    TextTooLongError,
    ThresholdError,
)
from mcp_servers.knowledge.types import MAX_CLEARANCE, MAX_RESULTS, Access, NewChunk, NewDocument, SearchRequest

MAX_QUERY_CHARACTERS = 10_000
_MAX_LABEL = 2000
_MAX_FIELDS = 100


def checked_request(request: SearchRequest) -> SearchRequest:
    """A request that can be searched for.

    Raises:
        BadArgumentError: the query is empty.
        TextTooLongError: the query is a document.
        ThresholdError, MaxResultsError: out of range.
    """
    query = _unicode(request.query)
    if not query.strip():
        raise BadArgumentError("query", "is empty", "Ask for something")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise TextTooLongError(len(query), MAX_QUERY_CHARACTERS)
    # Written so that a threshold that is no number does not pass.
    if not 0 <= request.threshold <= 1:
        raise ThresholdError(request.threshold)
    if not 1 <= request.max_results <= MAX_RESULTS:
        raise MaxResultsError(request.max_results, MAX_RESULTS)
    fields = {_unicode(name): _unicode(value) for name, value in request.fields.items()}
    if len(fields) > _MAX_FIELDS:
        raise BadArgumentError("fields", "are too many", f"Give at most {_MAX_FIELDS}")
    collection = None if request.collection is None else _unicode(request.collection)
    return replace(request, query=query, fields=fields, collection=collection)


def checked_access(access: Access) -> Access:
    """An access whose parts can stand in a query."""
    clearance = min(max(access.clearance, 0), MAX_CLEARANCE)
    return replace(access, tenant=_unicode(access.tenant), department=_unicode(access.department), clearance=clearance)


def checked_document(document: NewDocument, base_id: str, access: Access) -> NewDocument:
    """A document that can be kept, its tenant settled.

    Raises:
        AccessDeniedError: the giver could not read it afterwards.
        BadArgumentError: it has no chunks, or a part of it is out of range.
    """
    if not document.chunks:
        raise BadArgumentError("document", f"{document.title!r:.80} has no text", "Give one with text in it")
    if not 0 <= document.clearance <= MAX_CLEARANCE:
        raise BadArgumentError("clearance", "is out of range", f"Give a number from 0 to {MAX_CLEARANCE}")
    if len(document.fields) > _MAX_FIELDS:
        raise BadArgumentError("fields", "are too many", f"Give at most {_MAX_FIELDS}")
    tenant = _unicode(document.tenant) or access.tenant
    department = _unicode(document.department)
    if not access.is_unrestricted:
        _check_readable(base_id, tenant, department, document.clearance, access)
    return replace(
        document,
        title=checked_text("title", document.title, maximum=_MAX_LABEL, may_be_empty=True),
        uri=checked_text("uri", document.uri, maximum=_MAX_LABEL, may_be_empty=True),
        collection=checked_text("collection", document.collection, maximum=_MAX_LABEL),
        content_hash=checked_text("content_hash", document.content_hash, maximum=_MAX_LABEL),
        chunks=tuple(_chunk(chunk) for chunk in document.chunks),
        tenant=tenant,
        department=department,
        fields={_unicode(name): _unicode(value) for name, value in document.fields.items()},
    )


def checked_text(name: str, text: str, *, maximum: int, may_be_empty: bool = False) -> str:
    """A short text of an argument.

    Raises:
        BadArgumentError: it is empty, or longer than ``most`` characters.
    """
    checked = _unicode(text).strip()
    if not checked and not may_be_empty:
        raise BadArgumentError(name, "is empty", f"Give a {name}")
    if len(checked) > maximum:
        raise BadArgumentError(name, f"has {len(checked)} characters", f"Give at most {maximum}")
    return checked


def parse_uuid(text: str) -> str | None:
    """An id as it is kept; None for a text that cannot be one."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def _check_readable(base_id: str, tenant: str, department: str, clearance: int, access: Access) -> None:
    if tenant != access.tenant:
        raise AccessDeniedError(base_id, f"you may not add for the tenant {tenant!r:.80}")
    if department not in {"", access.department}:
        raise AccessDeniedError(base_id, f"you may not add for the department {department!r:.80}")
    if clearance > access.clearance:
        raise AccessDeniedError(base_id, f"you may not add above your clearance of {access.clearance}")


def _chunk(chunk: NewChunk) -> NewChunk:
    return replace(chunk, text=_unicode(chunk.text), headings=tuple(map(_unicode, chunk.headings)))


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
