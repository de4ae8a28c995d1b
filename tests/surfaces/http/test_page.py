"""The page's files over HTTP: what a browser gets, what it keeps, and what it may do with them."""

from __future__ import annotations

import anyio
import httpx2
import pytest

from rkllm_mcp.app.tenants import Tenants
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.page import FOLDER, ROUTES, mounts, page_files
from rkllm_mcp.surfaces.http.state import ServiceState
from tests.support.http_app import BASE_URL, config_with

pytestmark = pytest.mark.anyio


KEYED = config_with(service={"api_keys": ["secret"]})


async def fetch(path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    """What the application answers somebody who has no key, where one is needed."""
    responses: list[httpx2.Response] = []
    async with anyio.create_task_group() as tasks:
        app = create_app(ServiceState(Tenants(KEYED, tasks, None)), ROUTES, mounts())
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE_URL)
        with anyio.fail_after(60):
            responses.append(await client.get(path, headers=headers))
            await client.aclose()
    return responses[0]


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/static/js/main.js", "text/javascript; charset=utf-8"),
        ("/static/css/base.css", "text/css; charset=utf-8"),
        ("/static/icons.svg", "image/svg+xml"),
    ],
)
async def test_a_file_has_its_type_whatever_the_machine_knows_of_types(path: str, media: str) -> None:
    response = await fetch(path)
    assert (response.status_code, response.headers["content-type"]) == (200, media)
    assert response.content == (FOLDER / (path.removeprefix("/static/").lstrip("/") or "index.html")).read_bytes()


async def test_a_browser_that_has_the_file_gets_it_again_only_when_it_is_another() -> None:
    first = await fetch("/static/js/main.js")
    assert first.headers["cache-control"] == "no-cache"
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = await fetch("/static/js/main.js", {"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert (await fetch("/static/js/main.js", {"If-None-Match": '"other"'})).status_code == 200


async def test_the_page_may_run_nothing_but_its_own_files() -> None:
    policy = (await fetch("/")).headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "style-src 'self'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert not [rule for rule in policy if "unsafe" in rule or "http" in rule or "*" in rule]


@pytest.mark.parametrize("path", ["/static/", "/static/js", "/static/%2e%2e/http/page.py", "/static/package.json"])
async def test_no_address_reaches_another_file(path: str) -> None:
    assert (await fetch(path)).status_code == 404


def test_every_file_of_the_page_is_served() -> None:
    served = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert served - set(page_files()) == {"package.json"}
