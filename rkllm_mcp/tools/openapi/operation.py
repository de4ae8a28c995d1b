"""Values of one operation: the tool definition, and the mapping of its arguments to a request.

Values only; ``conversion`` creates them, ``requests`` uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Place: TypeAlias = Literal["path", "query", "header", "cookie"]


@dataclass(frozen=True)
class Parameter:
    """An argument outside the body."""

    key: str  # name among the tool's arguments
    name: str  # name in the API
    place: Place  # path, query, header or cookie
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
class Body:
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


def _no_schema() -> Mapping[str, Any]:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    name: str  # tool name, unique
    id: str  # ``operationId``; may be empty
    method: str  # upper case
    path: str  # with placeholders
    address: str  # base address without a trailing slash
    description: str = ""  # for the model, one line
    input_schema: Mapping[str, Any] = field(default_factory=_no_schema)  # the tool's arguments
    tags: tuple[str, ...] = ()  # tags of the specification
    parameters: tuple[Parameter, ...] = ()  # arguments outside the body
    body: Body | None = None  # None without a body
    security: tuple[tuple[Scheme, ...], ...] = ()  # alternatives, each a set of schemes; an empty one needs no token
