"""Security schemes of a specification, and the credentials of a request.

Headers from the configuration have precedence. Otherwise the first alternative is used for which every scheme has a
token, named after the scheme or the server. Without one the request is sent without credentials and the API reports the
missing ones.

Reference: OpenAPI 3.1.1, Security Scheme and Security Requirement Object; RFC 6750, RFC 7617.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from rkllm_mcp.openapi.document import Node, References, as_text
from rkllm_mcp.openapi.operations import Operation, Scheme


@dataclass(frozen=True)
class Credentials:
    """Credentials of one request."""

    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    query: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    cookies: dict[str, str] = field(default_factory=dict[str, str], repr=False)


def schemes_of(definitions: Node, references: References) -> dict[str, Scheme]:
    """Return the schemes of a document by name, without kinds that a token cannot satisfy."""
    schemes: dict[str, Scheme] = {}
    for name, node in ((str(name), references.resolve(node)) for name, node in definitions.items()):
        kind, key = as_text(node.get("type")).lower(), as_text(node.get("name"))
        location = as_text(node.get("in"))
        if kind == "apikey" and key:
            if location in ("header", "query", "cookie"):
                schemes[name] = Scheme(name, location, key)
        elif kind == "http" and as_text(node.get("scheme")).lower() == "basic":
            schemes[name] = Scheme(name, "basic")
        elif kind in {"http", "oauth2", "openidconnect"}:
            schemes[name] = Scheme(name, "bearer")
    return schemes


def credentials_for(
    operation: Operation, written: Mapping[str, str], tokens: Mapping[str, str], server: str
) -> Credentials:
    """Return the credentials of a request.

    ``written`` holds the configuration's headers with placeholders filled; a name that is an API key of the query or a
    cookie is sent there. ``tokens`` are the request's tokens by name.
    """
    schemes = [scheme for alternative in operation.security for scheme in alternative]
    elsewhere = {scheme.key.lower(): scheme for scheme in schemes if scheme.kind in {"query", "cookie"}}
    credentials = Credentials()
    targets = {"query": credentials.query, "cookie": credentials.cookies}
    for name, value in written.items():
        scheme = elsewhere.get(name.lower(), Scheme("", "header", name))
        targets.get(scheme.kind, credentials.headers)[scheme.key] = value
    settled = {name.lower() for name in (*credentials.headers, *credentials.query, *credentials.cookies)}
    # The first alternative that the headers of the configuration satisfy, or the tokens with them.
    for alternative in operation.security:
        open_schemes = [scheme for scheme in alternative if scheme.key.lower() not in settled]
        if len(open_schemes) < len(alternative) and not open_schemes:
            break
        values = [(scheme, (tokens.get(scheme.name) or tokens.get(server) or "").strip()) for scheme in open_schemes]
        if not values or not all(token for _, token in values):
            continue
        for scheme, token in values:
            text = token
            if scheme.kind == "basic" and not token.lower().startswith("basic "):
                text = f"Basic {base64.b64encode(token.encode()).decode() if ':' in token else token}"
            elif scheme.kind == "bearer" and " " not in token:
                text = f"Bearer {token}"
            targets.get(scheme.kind, credentials.headers)[scheme.key] = text
        break
    return credentials
