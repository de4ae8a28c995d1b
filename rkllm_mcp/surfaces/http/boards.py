"""The boards of ``[[boards]]``: how each is, codes by which new ones join, and the list, which all have.

a code ─▶ the new board's request ─▶ its entry is written here ─▶ the list goes to every other board
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.completions import api
from rkllm_mcp.config.editing import set_boards, set_value
from rkllm_mcp.config.loading import read_file
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.errors import ConfigError
from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.surfaces.boards import board_statuses, listed_boards, named_boards, send_boards, taken_boards
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.owner import check_own
from rkllm_mcp.surfaces.http.route import Route, RouteResponse
from rkllm_mcp.surfaces.http.state import OWNER, ServiceState, caller_headers, service_of
from rkllm_mcp.surfaces.invitations import FRESH_S, JoinKeys, WrongCodeError, join_message, new_boards_secret
from rkllm_mcp.text import language_of_header


class BoardOfSeveral(DocumentedModel):
    """A board of `[[boards]]`, as it answered now; null for figures that it does not tell."""

    name: str
    address: str
    is_ready: bool
    state: str = Field(description="ready, or the reason why it takes no questions.")
    model: str | None
    running: int | None
    waiting: int | None
    temperature_c: float | None
    uptime_s: float | None
    compared: dict[str, Any] | None
    """What the boards are compared by, with clock_ahead_s against the board that was asked."""


class Boards(DocumentedModel):
    """The boards of `[[boards]]`, in its order."""

    boards: list[BoardOfSeveral] = Field(description="Empty where none are configured.")


@Route("GET", "/v1/boards", answers=(RouteResponse(Boards),), problems=(403,))
async def all_boards(request: Request) -> dict[str, Any]:
    """State of every board."""
    if request.state.tenant:
        raise HTTPError(403, "the boards tell of everybody; only a key of the owner shows them")
    config = service_of(request).config
    if not config.boards:
        return {"boards": []}
    statuses = await board_statuses(named_boards(config), caller_headers(request), config.service.boards_secret)
    phrase = read_catalogue(language_of_header(request.headers.get("accept-language", "")) or "en").phrase
    # For one that is away the page has a word of its own.
    states = (status.state if status.state.startswith("not reachable") else phrase(status.state) for status in statuses)
    return {"boards": [{**asdict(status), "state": state} for status, state in zip(statuses, states, strict=True)]}


class Invitation(DocumentedModel):
    """A code for a new board."""

    code: str = Field(description="For one board, ten minutes and five tries.")


class JoinBody(bodies.RequestBody):
    """A board that wants to join."""

    invitation: str = Field(min_length=4, max_length=4, description="The first group of its code.")
    nonce: str = Field(min_length=32, max_length=64, description="A random number of the board, in hexadecimal.")
    address: str = Field("", max_length=256, description="Host and port of its service; its own when not given.")
    port: api.Integer = Field(8080, ge=1, le=65535, description="Of its service, where it gives no address.")
    model: str = Field("", max_length=256, description="The model that it answers with.")
    vision: bool = Field(False, description="Its model reads images.")
    proof: str = Field(min_length=64, max_length=64, description="Of what is before it.")


class Joined(DocumentedModel):
    """What all boards share, encrypted with a key of the code."""

    box: str = Field(description="In hexadecimal; surfaces.invitations opens it.")


class ListBody(bodies.RequestBody):
    """The list of boards, encrypted with a key that all boards have."""

    nonce: str = Field(min_length=32, max_length=64, description="A random number of the sender, in hexadecimal.")
    box: str = Field(max_length=2**20, description="In hexadecimal; surfaces.invitations seals it.")


class ListTaken(DocumentedModel):
    """What came of a list."""

    changed: bool = Field(description="False if this board had it already.")


@Route("POST", "/v1/boards:invite", answers=(RouteResponse(Invitation),), problems=(403, 409))
async def invite_board(request: Request) -> Invitation:
    """Make a code by which a new board gets what the boards share: keys, database, and the list of boards."""
    service = service_of(request)
    if request.state.tenant != OWNER:
        raise HTTPError(403, "only the owner of the service invites boards", code="key_purpose")
    check_own(request, "invite boards")
    if service.config_file is None:
        raise HTTPError(409, "this service has no configuration file, in which the boards are listed")
    if not service.config.service.api_keys:
        advice = "make one first: 'rkllm-mcp config add-key', then 'rkllm-mcp service restart'"
        raise HTTPError(409, f"this board has no key of the owner, and a board that others reach needs one; {advice}")
    if service.config.service.boards_secret is None:
        async with service.adding:
            await to_thread.run_sync(set_value, service.config_file, "service", "boards_secret", new_boards_secret())
            if service.reload is not None:
                await service.reload()
    return Invitation(code=service.invitations.invite())


@Route(
    "POST",
    "/v1/boards:join",
    body=JoinBody,
    answers=(RouteResponse(Joined),),
    problems=(400, 403),
    is_open=True,  # the proof replaces a key
)
async def join_board(request: Request) -> Joined:
    """Give a new board what all share, and add it to the list of every board."""
    body, service = await bodies.read(request, JoinBody), service_of(request)
    try:
        nonce, proof = bytes.fromhex(body.nonce), bytes.fromhex(body.proof)
        told = (body.address, body.port, body.model, body.vision)
        message = join_message(body.invitation, nonce, told)
        keys = await to_thread.run_sync(service.invitations.accept, body.invitation, nonce, message, proof)
    except (WrongCodeError, ValueError):
        sentence = (
            "the code is wrong, was used, is older than ten minutes, or another board's: ask the board itself that "
            "shows it, not the proxy; 'rkllm-mcp boards invite' makes another"
        )
        raise HTTPError(403, sentence, code="invitation") from None
    async with service.adding:
        config = service.config
        listed = listed_boards(config)
        if not listed:
            own_address = request.headers.get("host", "")
            # A Host header may leave out the port, which an address of [[boards]] has.
            if own_address.endswith("]") or not own_address.rpartition(":")[2].isdecimal():
                own_address = f"{own_address}:{config.service.port}"
            vision = {"vision": True} if service.model_host.takes_pictures else {}
            listed.append({"name": "board1", "address": own_address, "models": [service.model_host.name], **vision})
        host = (request.client.host if request.client else "") or "127.0.0.1"
        address = body.address or f"{f'[{host}]' if ':' in host else host}:{body.port}"
        # A board that was set up anew, or did not get the answer, keeps its place.
        place = next((number for number, board in enumerate(listed) if board["address"] == address), len(listed))
        names = {board["name"] for board in listed}
        name = next(name for number in range(1, len(names) + 2) if (name := f"board{number}") not in names)
        entry = {"name": name, "address": address, **(listed[place] if place < len(listed) else {})}
        if body.model:
            entry |= {"models": [body.model], **({"vision": True} if body.vision else {})}
        listed[place:] = [entry, *listed[place + 1 :]]
        await _write_boards(service, listed)
    secret = service.config.service.boards_secret or ""
    others = {name: board for name, board in named_boards(service.config).items() if name != entry["name"]}
    missed = await send_boards(others, secret, listed)
    given = {"name": entry["name"], "store": config.store.url, "api_keys": list(config.service.api_keys)}
    return Joined(box=keys.seal({**given, "boards_secret": secret, "boards": listed, "missed": missed}).hex())


@Route(
    "POST",
    "/v1/boards:list",
    body=ListBody,
    answers=(RouteResponse(ListTaken),),
    problems=(400, 403),
    is_open=True,  # what it is encrypted with replaces a key
)
async def take_boards(request: Request) -> ListTaken:
    """Take the list of boards from one that has the secret of all."""
    body, service = await bodies.read(request, ListBody), service_of(request)
    secret = service.config.service.boards_secret
    try:
        # Without one it is opened by no key.
        keys = JoinKeys.of_boards(secret or new_boards_secret(), bytes.fromhex(body.nonce))
        given = keys.open(bytes.fromhex(body.box))
    except (WrongCodeError, ValueError):
        sentence = "this board has another boards_secret, or none; 'rkllm-mcp boards join' there gives it that of all"
        raise HTTPError(403, sentence, code="boards_secret") from None
    async with service.adding:
        if abs(time.time() - given["at"]) > FRESH_S or given["at"] < service.boards_listed_at:
            raise HTTPError(403, "the list is an old one, or the clocks of the boards differ", code="boards_secret")
        is_new = listed_boards(service.config) != given["boards"]
        if is_new:
            await _write_boards(service, given["boards"])
        service.boards_listed_at = given["at"]
    return ListTaken(changed=is_new)


async def _write_boards(service: ServiceState, listed: Sequence[Mapping[str, Any]]) -> None:
    """Write a list of boards into the configuration and put it in force; a 400 for one that cannot be used."""
    file = service.config_file
    if file is None:
        raise HTTPError(400, "this service has no configuration file, in which the boards are listed")

    def write() -> None:
        written = as_list(read_file(file).get("boards") if file.exists() else None)
        set_boards(file, taken_boards(service.config, list(map(as_mapping, written)), listed))

    try:
        await to_thread.run_sync(write)
        if service.reload is not None:
            await service.reload()
    except ConfigError as error:
        raise HTTPError(400, f"the list of boards cannot be written: {error}") from None
