"""Security schemes of a specification, and how a request's tokens satisfy them.

A header that the configuration writes comes first: what it names is settled. For the rest the first alternative counts
that every token is there for, by the name of the scheme, else by the name of the server. Without one the request goes
as it is, and the API says what it wants.

Followed: OpenAPI 3.1.1, Security Scheme and Security Requirement Object; RFC 6750, RFC 7617.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.tools.openapi.operation import Operation, Scheme
from rkllm_mcp.tools.openapi.references import Node, References, as_list, as_node, as_text


def _nothing() -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Credentials:
    """What goes with a request to say who is asking.

    Args:
        headers: by name.
        query: parameters by name.
        cookies: by name.
    """

    headers: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    query: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    cookies: Mapping[str, str] = field(default_factory=_nothing, repr=False)


def schemes_of(definitions: Node, references: References) -> dict[str, Scheme]:
    """The schemes of a document by name; kinds that a token cannot satisfy are left out."""
    found: dict[str, Scheme] = {}
    for name, definition in definitions.items():
        scheme = _scheme(str(name), references.resolved(definition))
        if scheme is not None:
            found[str(name)] = scheme
    return found


def _scheme(name: str, definition: Node) -> Scheme | None:
    kind, key = as_text(definition.get("type")).lower(), as_text(definition.get("name"))
    if kind == "apikey" and key:
        places = {"header": "header", "query": "query", "cookie": "cookie"}
        place = places.get(as_text(definition.get("in")))
        return Scheme(name, place, key) if place in ("header", "query", "cookie") else None
    if kind == "http" and as_text(definition.get("scheme")).lower() == "basic":
        return Scheme(name, "basic")
    return Scheme(name, "bearer") if kind in {"http", "oauth2", "openidconnect"} else None


def alternatives(requirements: Any, schemes: Mapping[str, Scheme]) -> tuple[tuple[Scheme, ...], ...]:
    """The security of an operation: alternatives of schemes; one with a scheme that is not known cannot be met."""
    found = [list(as_node(requirement)) for requirement in as_list(requirements)]
    return tuple(tuple(schemes[name] for name in names) for names in found if all(name in schemes for name in names))


def credentials_for(
    operation: Operation, written: Mapping[str, str], tokens: Mapping[str, str], server: str
) -> Credentials:
    """What goes with a request.

    Args:
        operation: whose security counts.
        written: the configuration's headers, placeholders filled. One that has the name of a key in the query or in a
            cookie goes there.
        tokens: the request's tokens by name.
        server: the configuration's name of the server.
    """
    schemes = [scheme for alternative in operation.security for scheme in alternative]
    elsewhere = {scheme.key.lower(): scheme for scheme in schemes if scheme.kind in {"query", "cookie"}}
    headers, query, cookies = _nothing(), _nothing(), _nothing()
    places = {"query": query, "cookie": cookies}
    for name, value in written.items():
        scheme = elsewhere.get(name.lower())
        if scheme is None:
            headers[name] = value
        else:
            places[scheme.kind][scheme.key] = value
    settled = {name.lower() for name in (*headers, *query, *cookies)}
    for scheme, token in _met(operation.security, settled, tokens, server):
        place = places.get(scheme.kind, headers)
        place[scheme.key] = _spelled(scheme, token)
    return Credentials(headers, query, cookies)


def _met(
    security: Sequence[Sequence[Scheme]], settled: set[str], tokens: Mapping[str, str], server: str
) -> list[tuple[Scheme, str]]:
    """The schemes of the first alternative that can be met and are not settled, with their tokens."""
    for alternative in security:
        open_schemes = [scheme for scheme in alternative if scheme.key.lower() not in settled]
        if len(open_schemes) < len(alternative) and not open_schemes:
            return []
        found = [(scheme, _token(scheme, tokens, server)) for scheme in open_schemes]
        if found and all(token for _, token in found):
            return found
    return []


def _token(scheme: Scheme, tokens: Mapping[str, str], server: str) -> str:
    return (tokens.get(scheme.name) or tokens.get(server) or "").strip()


def _spelled(scheme: Scheme, token: str) -> str:
    """A token as its scheme is written; one that already is stays as it is."""
    if scheme.kind == "basic" and not token.lower().startswith("basic "):
        return f"Basic {base64.b64encode(token.encode()).decode()}" if ":" in token else f"Basic {token}"
    if scheme.kind == "bearer" and " " not in token:
        return f"Bearer {token}"
    return token
