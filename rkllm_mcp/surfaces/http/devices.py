"""Keys of devices and programs: exchange a code for one, show the code to a phone, make one, list them, revoke one.

Only the owner manages them.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request

from rkllm_base.addresses import is_loopback
from rkllm_mcp.config.section import DocumentedModel, Right
from rkllm_mcp.config.sections import RIGHTS, reached_host, web_address
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.owner import check_own, refusal_of_adding
from rkllm_mcp.surfaces.http.route import Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.state import OWNER, service_of, tenant_of

if TYPE_CHECKING:
    from rkllm_mcp.app.tenants import Tenant


class ExchangeBody(bodies.RequestBody):
    """The code of a device that is to be linked."""

    code: str = Field(min_length=1, max_length=100)
    """The code in the address that `rkllm-mcp service link` shows."""
    name: str = Field("", max_length=80, description="Name of the device in the list.")


class KeyBody(bodies.RequestBody):
    """The key of a program that is to be connected."""

    name: str = Field(min_length=1, max_length=80, description="Name of the program in the list.")
    allow: tuple[Right, ...] = Field(("chat",), min_length=1, description="What the key is for.")


class QrBody(bodies.RequestBody):
    """The address of the page, as the phone reaches it."""

    address: str = Field(pattern=r"^https?://[A-Za-z0-9.:\[\]-]{1,253}$")
    """Scheme, host and port."""


class QrCode(DocumentedModel):
    """An address to scan."""

    svg: str = Field(description="The QR code, a picture in SVG.")
    is_linking: bool
    """It also has a code that links the phone, once and within five minutes; else the phone asks for a key."""


class LinkedDevice(DocumentedModel):
    """A device or a program with a key."""

    id: str
    name: str
    linked: float = Field(description="Unix time at which it got its key.")
    allow: tuple[Right, ...] = Field(description="What its key is for; a linked device has every right.")


class NewDevice(LinkedDevice):
    """A device or a program with its new key."""

    key: str = Field(description="The key, which is returned this once.")


class Devices(DocumentedModel):
    """All devices with a key."""

    devices: list[LinkedDevice]
    address: str = Field(description="Where other machines reach the service; empty if it listens for this one alone.")


@Route(
    "POST",
    "/v1/devices:exchange",
    body=ExchangeBody,
    answers=(RouteResponse(NewDevice),),
    problems=(403,),
    is_open=True,  # the code replaces a key
)
async def exchange(request: Request) -> dict[str, Any]:
    """Exchange a code for the key of a device."""
    body = await bodies.read(request, ExchangeBody)
    linked = await tenant_of(request).app.store.devices.exchange(body.code, body.name)
    if linked is None:
        sentence = "the code was used or is older than five minutes; 'rkllm-mcp service link' makes another"
        raise HTTPError(403, sentence, code="device_code")
    device, key = linked
    return shown(NewDevice, device, key=key, allow=device.rights or RIGHTS)


@Route("POST", "/v1/devices", body=KeyBody, answers=(RouteResponse(NewDevice),), problems=(403,))
async def add_key(request: Request) -> dict[str, Any]:
    """Make a key for a program, with the rights that it needs; it can be revoked like that of a device."""
    body = await bodies.read(request, KeyBody)
    tenant = _owner(request)
    if missing := [right for right in body.allow if right not in request.state.rights]:
        raise HTTPError(403, f"this key has no right to {', '.join(missing)}, so it grants none", code="key_purpose")
    device, key = await tenant.app.store.devices.add(body.name, body.allow, request.state.parent)
    return shown(NewDevice, device, key=key, allow=device.rights)


@Route("GET", "/v1/devices", answers=(RouteResponse(Devices),), problems=(403,))
async def list_devices(request: Request) -> dict[str, Any]:
    """Devices with a key."""
    devices = await _owner(request).app.store.devices.all()
    service = service_of(request).config.service
    address = "" if is_loopback(service.host) else web_address(reached_host(service.host), service.port)
    shown_devices = [shown(LinkedDevice, device, allow=device.rights or RIGHTS) for device in devices]
    # Encrypted connections come to the same port.
    return {"devices": shown_devices, "address": address.replace("http", request.url.scheme, 1)}


@Route("DELETE", "/v1/devices/{id}", answers=(RouteResponse(status=204),), problems=(403, 404))
async def revoke(request: Request) -> None:
    """Revoke the key of a device, and those that were made with it."""
    number: str = request.path_params["id"]
    tenant = _owner(request)
    check_own(request, "revoke keys")
    if not await tenant.app.store.devices.revoke(number):
        raise HTTPError(404, f"there is no device {number!r}; GET /v1/devices lists them")


@Route("POST", "/v1/devices:qr", body=QrBody, answers=(RouteResponse(QrCode),), problems=(403,))
async def qr_code(request: Request) -> QrCode:
    """Draw the address of the page as a QR code for a phone, which is linked by it where this key may."""
    body = await bodies.read(request, QrBody)
    tenant = _owner(request)
    # A code makes a device that may add servers: no key gets more by it than it has.
    is_linking = refusal_of_adding(request) is None
    address = f"{body.address}/"
    if is_linking:
        address += f"#/link/{await tenant.app.store.devices.new_code(request.state.parent)}"
    return QrCode(svg=await to_thread.run_sync(_drawn, address), is_linking=is_linking)


def _drawn(text: str) -> str:
    import segno

    drawn = BytesIO()
    segno.make(text, error="l", micro=False).save(drawn, kind="svg", xmldecl=False, border=4, light="#fff")
    return drawn.getvalue().decode()


def _owner(request: Request) -> Tenant:
    tenant = tenant_of(request)
    if tenant.name != OWNER:
        raise HTTPError(403, "only the owner of the service manages devices", code="key_purpose")
    return tenant
