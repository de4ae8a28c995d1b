"""What the page offers other programs to copy: their settings, with a key of their own that the owner revokes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from rkllm_mcp.surfaces.http.page import FOLDER
from tests.support.browser import PHONE, Visit, visiting
from tests.support.installed import installed
from tests.support.page_service import PageService, running
from tests.support.served import Served, scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SNIPPETS: list[dict[str, Any]] = json.loads((FOLDER / "snippets.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("service")
    with served(folder, scripted_model(folder / "model", "rule\n  say weather\n")) as it:
        yield it


def opened(visit: Visit) -> None:
    visit.open_panel("settings")
    visit.page.get_by_role("button", name="Address, key and settings to copy").click()
    visit.page.wait_for_selector("dialog pre")


def test_a_program_is_connected_with_a_key_of_its_own_that_is_revoked(browser: Browser, service: Served) -> None:
    with visiting(browser, service.url) as visit:
        opened(visit)
        page = visit.page
        assert "YOUR_KEY" in page.inner_text("dialog pre")
        page.get_by_role("button", name="Make a key").click()
        page.wait_for_selector("text=It is shown only this once")
        command = page.inner_text("dialog pre")
        done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, timeout=120, check=False)
        assert "weather" in done.stdout, done.stderr
        page.select_option("#connect-program", "codex")
        assert f"{service.url}/v1" in page.inner_text("dialog pre")
        assert "YOUR_KEY" in page.inner_text("dialog .connect p"), "each program gets a key of its own"
        page.get_by_role("button", name="Revoke").click()
        page.wait_for_selector("dialog li", state="detached")
    assert httpx2.get(f"{service.url}/v1/devices").json() == {"devices": []}


def test_a_qr_code_takes_a_phone_to_the_page_and_links_it_where_the_key_may(browser: Browser) -> None:
    for can_add, said in ((True, "It links one phone"), (False, "the phone asks for a key")):
        with running(PageService(can_add=can_add)) as it, visiting(browser, it.url_from_elsewhere, PHONE) as visit:
            opened(visit)
            visit.page.get_by_role("button", name="Show a QR code for a phone").click()
            visit.page.get_by_text(said).wait_for()
            picture = visit.page.locator("dialog img")
            assert picture.evaluate("(node) => node.decode().then(() => node.naturalWidth)") == 9
            assert it.sent("/v1/devices:qr") == [{"address": it.url_from_elsewhere}]
    with running(PageService()) as it, visiting(browser, it.url) as visit:
        opened(visit)
        assert visit.page.get_by_text("a phone does not reach").is_visible()
        assert visit.page.get_by_role("button", name="Show a QR code for a phone").count() == 0


def test_on_a_phone_every_text_fits_and_is_japanese(browser: Browser, service: Served) -> None:
    with visiting(browser, service.url, PHONE, locale="ja-JP") as visit:
        visit.open_panel("settings")
        visit.page.get_by_role("button", name="アドレス・キー・設定例を表示").click()
        visit.page.wait_for_selector("dialog pre")
        for snippet in SNIPPETS:
            visit.page.select_option("#connect-program", snippet["id"])
            assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), snippet["id"]
            width = visit.page.evaluate("document.querySelector('dialog').scrollWidth <= innerWidth")
            assert width, snippet["id"]


def filled(snippet: dict[str, Any], url: str) -> str:
    text = "\n".join(snippet["text"])
    for name, value in (("address", url), ("key", "none"), ("model", "default"), ("context", "4096")):
        text = text.replace(f"<{name}>", value)
    assert "<" not in text.replace("<|", ""), "a name that nothing fills in"
    return text


@pytest.mark.parametrize("snippet", [each for each in SNIPPETS if each["language"]], ids=lambda each: each["id"])
def test_a_text_to_copy_runs_or_is_read_by_its_format(snippet: dict[str, Any], service: Served, tmp_path: Path) -> None:
    text = filled(snippet, service.url)
    if snippet["id"] in {"curl", "python"}:
        program = ["bash", "-euc"] if snippet["id"] == "curl" else [sys.executable, "-c"]
        done = subprocess.run([*program, text], capture_output=True, text=True, timeout=120, check=False)
        assert "weather" in done.stdout, done.stderr
    elif snippet["language"] == "json":
        assert service.url in json.dumps(json.loads(text))
    elif snippet["language"] == "toml":
        assert tomllib.loads(text)["model_providers"]["board"]["base_url"] == f"{service.url}/v1"
    elif snippet["language"] == "javascript":
        packages = installed("clients_js")
        if not packages.lines:
            pytest.skip(f"the packages of .clients-js are not here: {packages.reason}")
        (tmp_path / "node_modules").symlink_to(Path(packages.lines[0], "node_modules"))
        (tmp_path / "ask.mjs").write_text(text, "utf-8")
        done = subprocess.run(
            ["node", "ask.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert "weather" in done.stdout, done.stderr
