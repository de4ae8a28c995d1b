"""Who sends a request, and whether it may come in: keys, Host and Origin.

    request ─▶ Host (DNS rebinding) ─▶ Origin (foreign pages) ─▶ key ─▶ ``request.state.tenant``, ``.key``

Rules: where no key is configured nobody needs one, and such a service listens on loopback only. Every key is compared,
each in the same time whatever was sent. A key is in no log and no answer. ``state.key`` names whose key it was, for the
queue, and is not the key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from rkllm_mcp.config import Config
from rkllm_mcp.config.keys import matches
from rkllm_mcp.config.service import is_loopback
from rkllm_mcp.surfaces.http.problems import Problem

OWNER = ""
_KEY_HEADERS = ("x-api-key", "api-key")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Caller:
    """Somebody who may come in.

    Args:
        tenant: the tenant's name; empty for the owner.
        key: which of the keys it was, as a name that tells nothing of it; empty without one.
    """

    tenant: str
    key: str


def needs_key(config: Config) -> bool:
    """Whether nobody comes in without a key."""
    return bool(config.service.api_keys or config.tenants)


def caller_of(headers: Mapping[str, str], config: Config) -> Caller:
    """Who sends these headers.

    Raises:
        Problem: 401, a key is missing or wrong.
    """
    if not needs_key(config):
        return Caller(OWNER, "")
    key = _key(headers)
    if not key:
        raise Problem(401, "a key is required; send it as 'Authorization: Bearer KEY'")
    known = [(Caller(OWNER, f"owner {number}"), entry) for number, entry in enumerate(config.service.api_keys)]
    known += [(Caller(tenant.name, f"tenant {tenant.name}"), tenant.api_key) for tenant in config.tenants]
    # All of them, whichever it is: the time tells nothing.
    callers = [caller for caller, entry in known if matches(key, entry)]
    if not callers:
        raise Problem(401, "the key is not known here; 'rkllm-mcp config add-key' makes one")
    return callers[0]


def _key(headers: Mapping[str, str]) -> str:
    kind, _, token = headers.get("authorization", "").strip().partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    named = next((headers[name].strip() for name in _KEY_HEADERS if headers.get(name)), "")
    return named or (_password(token) if kind.lower() == "basic" else "")


def _password(token: str) -> str:
    """The key of a program that takes nothing but an address, as in ``http://me:KEY@board:8080``."""
    try:
        return base64.b64decode(token.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def check_host(headers: Mapping[str, str], config: Config) -> None:
    """Refuse a name that is not the board's, where no key protects it.

    A page can give a name of its own the address 127.0.0.1 and so reach whatever listens there; it cannot choose what
    the browser sends as Host. Behind a key it reaches nothing.

    Raises:
        Problem: 403.
    """
    service = config.service
    host = headers.get("host", "").lower()
    name = _name(host)
    allowed = {each.lower() for each in service.allowed_hosts}
    if name in allowed or host in allowed:
        return
    if not allowed and needs_key(config):
        return
    if name is not None and (is_loopback(name) or name == service.host.lower()):
        return
    raise Problem(403, f"{host or 'no name'} is not a name of this board; add it to allowed_hosts in [service]")


def _name(host: str) -> str | None:
    """The name in a Host header, without the port; None when it is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def allowed_origin(headers: Mapping[str, str], config: Config) -> str | None:
    """The origin of the page that sends a request, if it may; None where no page does.

    Raises:
        Problem: 403, the page is neither the board's own nor one of ``cors``.
    """
    origin = headers.get("origin")
    if origin is None:
        return None
    if origin in config.service.cors or "*" in config.service.cors or _is_own(origin, headers.get("host", "")):
        return origin
    raise Problem(403, f"pages of {origin} may not use this board; add it to cors in [service]")


def _is_own(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
        own = urlsplit(f"//{host}")
        default = _DEFAULT_PORTS.get(parts.scheme)
        there, here = (parts.hostname, parts.port or default), (own.hostname, own.port or default)
    except ValueError:
        return False
    return default is not None and there == here
