"""How far inward one may lead that a document or server has named."""

from __future__ import annotations

import socket
from typing import Any

import anyio
import httpx2
import pytest

from rkllm_mcp.config.addresses import Reach
from rkllm_mcp.errors import ServerUnavailableError
from tests.support.mcp_servers.web import Reply, serving

pytestmark = pytest.mark.anyio

# What resolvers, or a proxy, take for an address inside, however it is written.
SPELLINGS = (
    "http://127.0.0.1:9/x",
    "http://localhost:9",
    "http://LOCALHOST.:9",
    "http://api.localhost",
    "http://127.1",
    "http://2130706433",
    "http://0x7f.1",
    "http://017700000001",
    "http://[::1]:9",
    "http://[::ffff:7f00:1]",
    "http://169.254.169.254/latest/meta-data",
    "http://192.168.0.1",
)


@pytest.mark.parametrize("url", SPELLINGS)
def test_a_public_source_names_no_address_inside(url: str) -> None:
    refusal = Reach("https://api.example/openapi.json", [None], "set openapi_base_url").refusal(url)
    assert refusal is not None
    assert "comes from https://api.example:443 may not lead there; set openapi_base_url" in str(refusal)


@pytest.mark.parametrize("url", SPELLINGS)
def test_an_address_in_the_configuration_may_be_anywhere(url: str) -> None:
    assert Reach("https://api.example/openapi.json", [url], "").refusal(url) is None


async def answer_of(reach: Reach, *urls: str) -> str:
    """The status of the last answer, or why the address is refused."""
    client = httpx2.AsyncClient()
    async with client:
        status = ""
        for url in urls:
            request = client.build_request("GET", url)
            try:
                reach.restrict(request)
                status = str((await client.send(request)).status_code)
            except ServerUnavailableError as error:
                return str(error)
        return status


async def test_a_source_on_this_machine_leads_to_this_machine_and_not_to_its_link() -> None:
    with anyio.fail_after(60):
        async with serving(lambda _: Reply()) as one, serving(lambda _: Reply()) as other:
            assert await answer_of(Reach(one, [], "x"), one, other) == "200"
            assert "link-local" in await answer_of(Reach(one, [], "x"), one, "http://169.254.169.254/latest")


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.215.14", "127.0.0.1"]], ids=["inside", "inside later"])
async def test_a_name_that_leads_inside_gets_no_request(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    resolve_as(monkeypatch, {"inside.example": addresses})
    requests: list[str] = []

    def reply(request: Any) -> Reply:
        requests.append(str(request))
        return Reply()

    with anyio.fail_after(60):
        async with serving(reply) as inside:
            url = inside.replace("127.0.0.1", "inside.example")
            reason = await answer_of(Reach("https://api.example", [], "x"), url)
    assert "inside.example" in reason
    assert "on this machine" in reason
    assert requests == []


def resolve_as(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> None:
    """Let each lookup of a name return its next address; the last one stays."""
    resolve = socket.getaddrinfo

    def replaced(host: Any, *args: Any, **settings: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in names:
            return resolve(host, *args, **settings)
        addresses = names[name]
        return resolve(addresses.pop(0) if len(addresses) > 1 else addresses[0], *args, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", replaced)
