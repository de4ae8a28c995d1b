"""What only the owner may do over HTTP, and with which key."""

from __future__ import annotations

from starlette.requests import Request

from rkllm_mcp.config.sections import RIGHTS
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.middleware import LINKED_DEVICE
from rkllm_mcp.surfaces.http.state import OWNER, service_of


def refusal_of_key(request: Request) -> HTTPError | None:
    """Return the refusal of a key that may not do what only the owner decides."""
    if request.state.tenant == OWNER and set(RIGHTS) <= set(request.state.rights):
        return None
    return HTTPError(403, "this takes a key of the owner with all rights", code="key_purpose")


def may_delete(request: Request) -> bool:
    """Return True for the owner's own key and a device that the owner linked, and for a tenant, which owns its data."""
    return request.state.tenant != OWNER or request.state.is_own


def check_own(request: Request, what: str) -> None:
    """Refuse what only a key that ``may_delete`` may do to keys and data.

    Raises:
        HTTPError: 403.
    """
    if not may_delete(request):
        advice = "use a key of the owner with all rights that is in the configuration, or a linked device"
        raise HTTPError(403, f"this key does not {what}; {advice}", code="key_purpose")


def refusal_of_adding(request: Request) -> HTTPError | None:
    """Return the refusal of a key that may not add servers.

    A linked device is the owner at a page that a terminal of the board let in; an address is not proof of that, since
    every program of the machine and every client of a proxy has the same. Other keys need the owner's setting.
    """
    if refusal := refusal_of_key(request):
        return refusal
    key: str = request.state.key
    if key.startswith(LINKED_DEVICE):
        return None
    if not key:
        advice = (
            "open the page at the address that 'rkllm-mcp service link' prints, or run 'rkllm-mcp servers' on the board"
        )
        return HTTPError(403, f"servers are added with a key of the owner; {advice}", code="needs_key")
    if not service_of(request).config.security.install_servers:
        advice = (
            "open the page at the address that 'rkllm-mcp service link' prints, set install_servers = true in "
            "[security], or run 'rkllm-mcp servers' on the board"
        )
        return HTTPError(403, f"this key may not add servers; {advice}", code="install_servers")
    return None
