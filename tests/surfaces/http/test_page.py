"""The page's files over HTTP: what a browser gets, what it keeps, and what it may do with them."""

from __future__ import annotations

import json
import re

import anyio
import httpx2
import pytest

from rkllm_mcp.app.tenants import Tenants
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.page import FOLDER, page, page_files, page_version
from rkllm_mcp.surfaces.http.state import ServiceState
from tests.support.http_app import BASE_URL, config_with

pytestmark = pytest.mark.anyio


KEYED = config_with(service={"api_keys": ["secret"]})


async def fetch(path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    """What the application answers somebody who has no key, where one is needed."""
    responses: list[httpx2.Response] = []
    async with anyio.create_task_group() as tasks:
        app = create_app(ServiceState(Tenants(KEYED, tasks, None)), (page,))
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE_URL)
        with anyio.fail_after(60):
            responses.append(await client.get(path, headers=headers))
            await client.aclose()
    return responses[0]


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/", "text/html; charset=utf-8"),
        ("js/main.js", "text/javascript; charset=utf-8"),
        ("css/base.css", "text/css; charset=utf-8"),
        ("icons.svg", "image/svg+xml"),
        ("icon-192.png", "image/png"),
    ],
)
async def test_a_file_has_its_type_on_machines_with_other_tables_of_types(path: str, media: str) -> None:
    response = await fetch(path if path == "/" else f"/static/{page_version()}/{path}")
    assert (response.status_code, response.headers["content-type"]) == (200, media)
    content = (FOLDER / (path.lstrip("/") or "index.html")).read_bytes()
    if path.endswith(".js"):
        assert b"/**" in content
        assert response.content.count(b"\n") == content.count(b"\n"), "an error names the line of the source"
        code, is_comment = list[bytes](), False
        for line in content.splitlines():
            is_comment = is_comment or line.lstrip().startswith(b"/**")
            if is_comment and b"*/" not in line:
                continue
            # What is after a comment is code again.
            code.append(line.partition(b"*/")[2] if is_comment else line)
            is_comment = False
        assert [line for line in response.content.splitlines() if line] == [line for line in code if line]
        return
    assert re.sub(rb"/static/[0-9a-f]{12}/", b"/static/", response.content) == content


async def test_a_browser_asks_for_the_index_alone_and_gets_it_again_only_when_it_is_another() -> None:
    first = await fetch("/")
    assert first.headers["cache-control"] == "no-cache"
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = await fetch("/", {"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert (await fetch("/", {"If-None-Match": '"other"'})).status_code == 200
    named = set(re.findall(r'(?:href|src)="(/static/[^"#]+)', first.text))
    assert {path.split("/")[2] for path in named} == {re.findall(r"/static/([0-9a-f]{12})/", first.text)[0]}
    for path in named:
        file = await fetch(path)
        assert (file.status_code, file.headers["cache-control"]) == (200, "public, max-age=31536000, immutable"), path


def test_the_first_load_and_all_files_together_stay_small() -> None:
    files = page_files()
    first = re.findall(r'(?:href|src)="/static/[0-9a-f]{12}/([^"#]+)', files["index.html"].content.decode())
    sent = {name: min(len(file.gzipped_content), len(file.content)) for name, file in files.items()}
    pictures = {"icon-192.png", "page.webmanifest"}  # a browser asks for them when the page is installed
    assert sum(sent[name] for name in {*first, "index.html", "icons.svg"} - pictures) <= 120 * 1024
    assert sum(sent.values()) <= 260 * 1024


async def test_the_page_may_run_nothing_but_its_own_files() -> None:
    policy = (await fetch("/")).headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "style-src 'self'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert not [rule for rule in policy if "unsafe" in rule or "http" in rule or "*" in rule]


@pytest.mark.parametrize("path", ["js", "%2e%2e/http/page.py", "package.json"])
async def test_no_address_reaches_another_file(path: str) -> None:
    assert (await fetch("/static/")).status_code == 404
    assert (await fetch(f"/static/{page_version()}/{path}")).status_code == 404


async def test_a_page_of_another_release_gets_no_file_of_this_one_but_its_worker_learns_of_it() -> None:
    assert (await fetch("/static/0123456789ab/js/main.js")).status_code == 404
    worker = await fetch("/static/0123456789ab/worker.js")
    assert (worker.status_code, worker.headers["cache-control"]) == (200, "no-cache")
    assert f"/static/{page_version()}/" in worker.text
    names = set(json.loads(re.findall(r"const FILES = (.*);", worker.text)[0]))
    own = {name for name in page_files() if not name.startswith("js/vendor/")}
    assert names == own - {"index.html", "worker.js"}


def test_every_file_of_the_page_is_served() -> None:
    served = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert {name for name in served - set(page_files()) if not name.startswith("js/vendor/")} == {"package.json"}
