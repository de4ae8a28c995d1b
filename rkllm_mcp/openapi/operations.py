"""Values of one operation: the tool definition, and the mapping of its arguments to a request; no IO."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rkllm_mcp.messages import safe_name

_TAG = re.compile(r"<[^<>]{0,300}>")
_LINK = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()\s]{0,500}\)")
_MARKS = re.compile(r"[*`]{1,3}|^#{1,6} +|^ *> +", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_SENTENCE_ENDS = ("。", ". ", "! ", "? ", "！", "？")
# Only this multiple of the limit is searched for markup.
_MARGIN = 4


def shorten_to_sentence(text: str, limit: int) -> str:
    """Shorten ``text`` to ``limit`` characters, at the end of a sentence if one ends in the second half."""
    if limit <= 0 or not text:
        return ""
    line = _SPACE.sub(" ", _MARKS.sub("", _LINK.sub(r"\1", _TAG.sub(" ", text[: limit * _MARGIN + 500])))).strip()
    if len(line) <= limit:
        return line
    head = line[:limit]
    end = max(head.rfind(mark) + len(mark.strip()) for mark in _SENTENCE_ENDS)
    if end > limit // 2:
        return head[:end]
    return f"{line[: limit - 1].rstrip()}…"


def describe(summary: str, description: str, limit: int) -> str:
    """Return summary and description of an operation as one text without repetition."""
    first, details = shorten_to_sentence(summary, limit), shorten_to_sentence(description, limit)
    if not first or details.lower().startswith(first.rstrip(".。…").lower()):
        return details or first
    gap = "" if first.endswith("。") else " " if first[-1] in ".!?…" else ". "
    return shorten_to_sentence(f"{first}{gap}{details}".strip(), limit) if details else first


# A name in a path; ``{name+}``, ``{name*}``, ``{+name}`` and ``{name=projects/*}`` take more than one segment.
PLACEHOLDER = re.compile(r"\{(\+?)([^{}+*=]+)([^{}]*)\}")
# Query parameters that some generators append to a path: ``/things{?page,size}``.
_QUERY_TEMPLATE = re.compile(r"\{[?&][^{}]*\}")
_NOT_IN_PATH_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
# Characters that model services accept in argument names; letters of any script are allowed.
_NOT_IN_KEYS = re.compile(r"[^\w.-]+")
_MAX_KEY_CHARS = 64


def operation_name(operation_id: str, method: str, path: str, used_names: Collection[str]) -> str:
    """Return a name for an operation that is not in ``used_names``."""
    # GET /users/list is get_users_list; names of placeholders count as words.
    by_path = safe_name(f"{method.lower()}_{_NOT_IN_PATH_NAMES.sub('_', path).strip('_') or 'root'}")
    candidates = [safe_name(operation_id), by_path] if operation_id.strip() else [by_path]
    return next((name for name in candidates if name not in used_names), None) or _with_number(by_path, used_names)


def sent_path(path: str) -> str:
    """Return the part of a path that is sent; a fragment only tells operations of one address apart."""
    return _QUERY_TEMPLATE.sub("", path).partition("#")[0]


def argument_key(name: str, location: str, used_keys: Collection[str]) -> str:
    """Return a name for an argument that is not in ``used_keys``, with its location appended if necessary."""
    key = _NOT_IN_KEYS.sub("_", name).strip("_")[:_MAX_KEY_CHARS] or location
    if key not in used_keys:
        return key
    with_place = f"{key[: _MAX_KEY_CHARS - len(location) - 1]}_{location}"
    return with_place if with_place not in used_keys else _with_number(with_place, used_keys)


def _with_number(name: str, used_names: Collection[str]) -> str:
    number = 2
    while (numbered := f"{name[: _MAX_KEY_CHARS - 5]}_{number}") in used_names:
        number += 1
    return numbered


Location: TypeAlias = Literal["path", "query", "header", "cookie"]


@dataclass(frozen=True)
class Parameter:
    """An argument outside the body."""

    key: str  # name among the tool's arguments
    name: str  # name in the API
    location: Location  # path, query, header or cookie
    # format of lists and objects: ``form``, ``simple``, ``label``, ``matrix``, ``spaceDelimited``, ``pipeDelimited``,
    # ``deepObject``; ``json`` for parameters whose value is a document
    style: str
    explode: bool  # lists and objects are written as one value each
    allow_reserved: bool = False  # characters such as ``/`` and ``:`` are not encoded


@dataclass(frozen=True)
class BodyField:
    """An argument that is one field of the body."""

    key: str  # name among the tool's arguments
    name: str  # name in the API
    style: str = ""  # as for a parameter, in forms; empty if the specification names none
    explode: bool = True  # as for a parameter
    content_type: str = ""  # media type of a multipart part; empty if derived from the value
    is_file: bool = False  # the part is a file


@dataclass(frozen=True)
class BodySpec:
    """Body of a request."""

    media_type: str
    fields: tuple[BodyField, ...] = ()  # fields of an object schema
    whole: str = ""  # key of the argument that is the whole body; empty if it has fields
    required: bool = False  # a request needs it
    open: bool = False  # further arguments become fields


@dataclass(frozen=True)
class Scheme:
    """A security scheme."""

    name: str  # name in the specification, and of its token
    kind: Literal["bearer", "basic", "header", "query", "cookie"]  # ``bearer``, ``basic``, or the location of a key
    key: str = "Authorization"  # header, query parameter or cookie


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    name: str  # tool name, unique
    id: str  # ``operationId``; may be empty
    method: str  # upper case
    path: str  # with placeholders, and with the fragment of the specification
    address: str  # base address without a trailing slash
    description: str = ""  # for the model, one line
    input_schema: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )  # the arguments
    tags: tuple[str, ...] = ()  # tags of the specification
    parameters: tuple[Parameter, ...] = ()  # arguments outside the body
    body: BodySpec | None = None  # None without a body
    security: tuple[tuple[Scheme, ...], ...] = ()  # alternatives, each a set of schemes; an empty one needs no token
