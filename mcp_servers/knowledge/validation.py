"""Input validation: arguments of tools and of the library -> values in range, valid Unicode, and permitted.

Lone surrogates from JSON cannot be stored, so all texts are made valid Unicode here.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from mcp_servers.knowledge.errors import (
    AccessDeniedError,
    BadArgumentError,
    KnowledgeError,
    MaxResultsError,
    TextTooLongError,
    ThresholdError,
)
from mcp_servers.knowledge.types import MAX_CLEARANCE, MAX_RESULTS, Access, NewDocument, SearchRequest

BASE = "knowledge_base_id"  # the argument of most tools
MAX_QUERY_CHARACTERS = 10_000
_MAX_LABEL = 2000
_MAX_FIELDS = 100
# Beyond this, numbers are meaningless and Python may refuse to format them.
_MAX_NUMBER = 10**15


@dataclass(frozen=True)
class ToolArguments:
    """Arguments of one call, converted tolerantly.

    Accepts ``"0.7"`` for a number, ``5.0`` for an integer and null for an omitted value. Other mismatches raise
    BadArgumentError.
    """

    arguments: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """True if the argument is given and not null."""
        return self.arguments.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string of valid Unicode; without ``default`` it is required."""
        value = self.arguments.get(name)
        if value is None:
            if default is None:
                raise BadArgumentError(name, "is missing", f"Give a {name}")
            return default
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
            return str(value)
        if not isinstance(value, str):
            raise BadArgumentError(name, f"is {_type_name(value)}", "Give a text")
        return valid_unicode(value)

    def number(self, name: str, default: float) -> float:
        """Return a number, also an infinite or undefined one: the range check rejects those."""
        value = self.arguments.get(name)
        if value is None:
            return default
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                return math.inf if cast("int", value) > 0 else -math.inf
            except ValueError:
                pass
        raise BadArgumentError(name, f"is {_type_name(value)}", "Give a number")

    def integer(self, name: str, default: int) -> int:
        """Return an integer, clamped to ±10^15."""
        value = self.number(name, default)
        if math.isnan(value) or (math.isfinite(value) and value != int(value)):
            raise BadArgumentError(name, "is no whole number", "Give a whole number")
        return int(min(max(value, -_MAX_NUMBER), _MAX_NUMBER))

    def boolean(self, name: str) -> bool:
        """Return True for true, "true" and 1."""
        return self.arguments.get(name) in (True, "true", 1)

    def mapping(self, name: str) -> dict[str, str]:
        """Return an object of strings."""
        value = self.arguments.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise BadArgumentError(name, f"is {_type_name(value)}", "Give an object of texts")
        inner = ToolArguments(cast("Mapping[str, Any]", value))
        return {valid_unicode(str(key)): inner.text(str(key), "") for key in cast("Mapping[str, Any]", value)}


def _type_name(value: Any) -> str:
    kinds = ((bool, "true or false"), (str, "a text"), (int, "a large number"), (float, "a number"), (list, "a list"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "an object")


def checked_request(request: SearchRequest) -> SearchRequest:
    """Return a valid search request."""
    query = valid_unicode(request.query)
    if not query.strip():
        raise BadArgumentError("query", "is empty", "Ask for something")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise TextTooLongError(len(query), MAX_QUERY_CHARACTERS)
    # The comparison is also False for NaN.
    if not 0 <= request.minimum <= 1:
        raise ThresholdError(request.minimum)
    if not 1 <= request.max_results <= MAX_RESULTS:
        raise MaxResultsError(request.max_results, MAX_RESULTS)
    collection = None if request.collection is None else valid_unicode(request.collection)
    previous = valid_unicode(request.previous).strip()
    return replace(
        request, query=query, previous=previous, fields=_checked_fields(request.fields), collection=collection
    )


def _checked_fields(fields: Mapping[str, str]) -> Mapping[str, str]:
    if len(fields) > _MAX_FIELDS:
        raise BadArgumentError("fields", "are too many", f"Give at most {_MAX_FIELDS}")
    return {valid_unicode(name): valid_unicode(value) for name, value in fields.items()}


def checked_access(access: Access) -> Access:
    """Return an access whose values can be query parameters."""
    tenant = valid_unicode(access.tenant)
    department = None if access.department is None else valid_unicode(access.department)
    return replace(access, tenant=tenant, department=department, clearance=min(max(access.clearance, 0), MAX_CLEARANCE))


def check_may_write(access: Access, *, files: bool = False) -> None:
    """Raise KnowledgeError if the caller's role does not permit changes, or with ``files`` no uploads of files."""
    if access.role == "read" or (files and access.role != "write" and not access.is_unrestricted):
        raise KnowledgeError("Role", operation="upload files" if files else "change documents")


def checked_document(document: NewDocument, base_id: str, access: Access) -> NewDocument:
    """Return a valid document with its tenant filled in.

    Raises AccessDeniedError if the caller could not read the document afterwards, BadArgumentError for invalid
    attributes.
    """
    if not document.chunks:
        raise BadArgumentError("document", f"{document.title!r:.80} has no text", "Give one with text in it")
    if not 0 <= document.clearance <= MAX_CLEARANCE:
        raise BadArgumentError("clearance", "is out of range", f"Give a number from 0 to {MAX_CLEARANCE}")
    fields = _checked_fields(document.fields)
    tenant = valid_unicode(document.tenant) or access.tenant
    department = valid_unicode(document.department)
    if not access.is_unrestricted:
        if tenant != access.tenant:
            raise AccessDeniedError(base_id, f"you may not add for the tenant {tenant!r:.80}")
        if access.department is not None and department not in {"", access.department}:
            raise AccessDeniedError(base_id, f"you may not add for the department {department!r:.80}")
        if document.clearance > access.clearance:
            raise AccessDeniedError(base_id, f"you may not add above your clearance of {access.clearance}")
    return replace(
        document,
        title=checked_text("title", document.title, maximum=_MAX_LABEL, may_be_empty=True),
        uri=checked_text("uri", document.uri, maximum=_MAX_LABEL, may_be_empty=True),
        collection=checked_text("collection", document.collection, maximum=_MAX_LABEL),
        content_hash=checked_text("content_hash", document.content_hash, maximum=_MAX_LABEL),
        chunks=tuple(
            replace(chunk, text=valid_unicode(chunk.text), headings=tuple(map(valid_unicode, chunk.headings)))
            for chunk in document.chunks
        ),
        tenant=tenant,
        department=department,
        fields=fields,
    )


def checked_text(name: str, text: str, *, maximum: int, may_be_empty: bool = False) -> str:
    """Return a stripped string of at most ``maximum`` characters; raise BadArgumentError otherwise."""
    checked = valid_unicode(text).strip()
    if not checked and not may_be_empty:
        raise BadArgumentError(name, "is empty", f"Give a {name}")
    if len(checked) > maximum:
        raise BadArgumentError(name, f"has {len(checked)} characters", f"Give at most {maximum}")
    return checked


def parse_uuid(text: str) -> str | None:
    """Return a UUID in its stored form, or None for other text."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def valid_unicode(text: str) -> str:
    """Replace lone surrogates, which cannot be stored."""
    return text.encode("utf-8", "replace").decode("utf-8")
