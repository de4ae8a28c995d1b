"""The values of one operation: what a model is shown, and how its arguments become a request.

Values only; ``conversion`` makes them of a specification, ``requests`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Place: TypeAlias = Literal["path", "query", "header", "cookie"]


@dataclass(frozen=True)
class Parameter:
    """An argument outside the body.

    Args:
        key: its name among the tool's arguments.
        name: the API's name of it.
        place: where it goes.
        style: how lists and objects are written: ``form``, ``simple``, ``label``, ``matrix``, ``spaceDelimited``,
            ``pipeDelimited``, ``deepObject``, or ``json`` for parameters that carry a document.
        explode: lists and objects are written as one value each.
        allow_reserved: characters such as ``/`` and ``:`` are left as they are.
    """

    key: str
    name: str
    place: Place
    style: str
    explode: bool
    allow_reserved: bool = False


@dataclass(frozen=True)
class BodyField:
    """An argument that is one field of the body.

    Args:
        key: its name among the tool's arguments.
        name: the API's name of it.
        style: as of a parameter, for forms; empty where the specification leaves it open.
        explode: as of a parameter.
        content_type: the media type of a multipart part; empty where the value decides.
        is_file: the part is a file.
    """

    key: str
    name: str
    style: str = ""
    explode: bool = True
    content_type: str = ""
    is_file: bool = False


@dataclass(frozen=True)
class Body:
    """The body of a request.

    Args:
        media_type: what it is sent as.
        fields: its fields, where it is an object with known ones.
        whole: the argument that is all of it, where it is not; empty otherwise.
        required: a request without it makes no sense.
        open: arguments that nothing else takes are fields of it.
    """

    media_type: str
    fields: tuple[BodyField, ...] = ()
    whole: str = ""
    required: bool = False
    open: bool = False


@dataclass(frozen=True)
class Scheme:
    """One way to say who is asking.

    Args:
        name: the specification's name of it, and the name of the token for it.
        kind: ``bearer``, ``basic``, or where a key goes.
        key: the header, query parameter or cookie that carries it.
    """

    name: str
    kind: Literal["bearer", "basic", "header", "query", "cookie"]
    key: str = "Authorization"


def _no_schema() -> Mapping[str, Any]:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    Args:
        name: the tool's name: safe, and no other operation's.
        id: the specification's ``operationId``; empty without one.
        method: in capitals.
        path: with its placeholders.
        address: what stands before the path; without a slash at its end.
        description: for the model, one line.
        input_schema: the tool's arguments.
        tags: the specification's groups that it is in.
        parameters: the arguments outside the body.
        body: the body; None when it has none.
        security: alternatives, each of schemes that go together; an empty one needs nothing.
    """

    name: str
    id: str
    method: str
    path: str
    address: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=_no_schema)
    tags: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    security: tuple[tuple[Scheme, ...], ...] = ()
