"""Base address of an API: the ``servers`` of a specification with variables filled and relative addresses resolved.

Reference: OpenAPI 3.1.1, Server Object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urljoin, urlsplit

from rkllm_mcp.tools.openapi.references import Node, as_list, as_node

_VARIABLE = re.compile(r"\{([^{}]*)\}")


def address_of(levels: Iterable[Any], spec_url: str) -> str:
    """Return the address of an operation without a trailing slash; empty if the specification names none.

    ``levels`` holds the ``servers`` of the operation, of its path and of the document; the first non-empty one is used.
    Relative addresses are resolved against ``spec_url``, which is empty if the specification did not come from a URL.
    """
    for servers in levels:
        for server in as_list(servers):
            address = _whole(_filled(as_node(server)), spec_url)
            if address:
                return address.rstrip("/")
    # The default without servers: the origin of the specification.
    return _whole("/", spec_url).rstrip("/")


def origin_of(url: str) -> str:
    """Return scheme, host and port in normalised form; empty for an address without them."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return ""
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}" if parts.hostname else ""


def _filled(server: Node) -> str:
    variables = as_node(server.get("variables"))

    def value(match: re.Match[str]) -> str:
        variable = as_node(variables.get(match.group(1)))
        choices = as_list(variable.get("enum"))
        return str(variable.get("default", choices[0] if choices else match.group(0)))

    return _VARIABLE.sub(value, str(server.get("url", "")))


def _whole(address: str, spec_url: str) -> str:
    try:
        address = urljoin(spec_url, address.strip()) if spec_url else address.strip()
        parts = urlsplit(address)
    except ValueError:
        return ""
    usable = parts.scheme in {"http", "https"} and parts.hostname and "{" not in address
    return address.partition("?")[0].partition("#")[0] if usable else ""
