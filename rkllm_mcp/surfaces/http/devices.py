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
from rkllm_mcp.app.preview import reached_host
from rkllm_mcp.config.editing import add_boards
from rkllm_mcp.config.section import DocumentedModel, Right
from rkllm_mcp.config.sections import RIGHTS, web_address
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.owner import check_own, refusal_of_adding
from rkllm_mcp.surfaces.http.route import Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.state import OWNER, service_of, tenant_of
from rkllm_mcp.surfaces.invitations import WrongCodeError, join_message

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


class Invitation(DocumentedModel):
    """A code for a new board."""

    code: str = Field(description="For one board, ten minutes and five tries.")


class JoinBody(bodies.RequestBody):
    """A board that wants to join."""

    invitation: str = Field(min_length=4, max_length=4, description="The first group of its code.")
    nonce: str = Field(min_length=32, max_length=64, description="A random number of the board, in hexadecimal.")
    address: str = Field("", max_length=256, description="Host and port of its service; its own when not given.")
    port: int = Field(8080, ge=1, le=65535, description="Of its service, where it gives no address.")
    model: str = Field("", max_length=256, description="The model that it answers with.")
    proof: str = Field(min_length=64, max_length=64, description="Of invitation, nonce, address, port and model.")


class Joined(DocumentedModel):
    """What all boards share, encrypted with a key of the code."""

    box: str = Field(description="In hexadecimal; surfaces.invitations opens it.")


@Route("POST", "/v1/boards:invite", answers=(RouteResponse(Invitation),), problems=(403,))
async def invite_board(request: Request) -> Invitation:
    """Make a code by which a new board gets what the boards share: keys, database, and the list of boards."""
    _owner(request)
    check_own(request, "invite boards")
    return Invitation(code=service_of(request).invitations.invite())


@Route(
    "POST",
    "/v1/boards:join",
    body=JoinBody,
    answers=(RouteResponse(Joined),),
    problems=(403,),
    is_open=True,  # the proof replaces a key
)
async def join_board(request: Request) -> Joined:
    """Give a new board what all share, and add it to the list of this board."""
    body, service = await bodies.read(request, JoinBody), service_of(request)
    try:
        nonce, proof = bytes.fromhex(body.nonce), bytes.fromhex(body.proof)
        message = join_message(body.invitation, nonce, body.address, body.port, body.model)
        keys = await to_thread.run_sync(service.invitations.accept, body.invitation, nonce, message, proof)
    except (WrongCodeError, ValueError):
        sentence = "the code is wrong, was used, or is older than ten minutes; 'rkllm-mcp boards invite' makes another"
        raise HTTPError(403, sentence, code="invitation") from None
    config = service.config
    listed = [
        {**board.model_dump(mode="json", exclude_unset=True), "name": config.board_name(number)}
        for number, board in enumerate(config.boards)
    ]
    is_first = not listed
    if is_first:
        listed.append(
            {"name": "board1", "address": request.headers.get("host", ""), "models": [service.model_host.name]}
        )
    host = (request.client.host if request.client else "") or "127.0.0.1"
    address = body.address or f"{f'[{host}]' if ':' in host else host}:{body.port}"
    names = {board["name"] for board in listed}
    name = next(name for number in range(1, len(names) + 2) if (name := f"board{number}") not in names)
    added = {"name": name, "address": address, **({"models": [body.model]} if body.model else {})}
    if service.config_file is not None:
        await to_thread.run_sync(add_boards, service.config_file, [*(listed if is_first else ()), added])
        if service.reload is not None:
            await service.reload()
    given = {"name": name, "store": config.store.url, "api_keys": list(config.service.api_keys)}
    return Joined(box=keys.seal({**given, "boards": [*listed, added]}).hex())


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
