"""A phone opens the page by the address with a code: the code becomes a key, which lasts if that is wanted."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from rkllm_mcp.store import open_store
from tests.support.browser import PATIENCE_MS, PHONE, READY, Visit
from tests.support.served import Served, scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("service")
    model = scripted_model(folder / "model", "rule\n  say Hello there.\n")
    with served(folder, model, extra='[service]\napi_keys = ["all-of-the-owner"]\n') as it:
        yield it


def new_code(service: Served) -> str:
    assert service.service is not None
    path = service.service.tenants.tenant("").app.store.database.path

    async def make() -> str:
        async with open_store(path=path, required=True) as store:
            return await store.devices.new_code()

    # Playwright's loop is this thread's.
    with ThreadPoolExecutor() as thread:
        return thread.submit(anyio.run, make).result(60)


@contextmanager
def phone(browser: Browser, url: str, locale: str = "en-US") -> Generator[Page]:
    """The page in a new profile; it may show a dialog."""
    context = browser.new_context(viewport={"width": PHONE[0], "height": PHONE[1]}, locale=locale)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url)
    try:
        yield page
    finally:
        context.close()


def asks_and_hears(page: Page) -> None:
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector(READY, state="attached")
    Visit(page, page.url).ask("Hi")
    page.wait_for_selector("text=Hello there.")


@pytest.mark.parametrize(("choice", "lasts"), [("Keep on this device", True), ("Only this window", False)])
def test_a_phone_is_linked_by_the_code_and_keeps_its_key_if_that_is_wanted(
    browser: Browser, service: Served, choice: str, lasts: bool
) -> None:
    code, addresses = new_code(service), list[str]()
    with phone(browser, "about:blank") as page:
        page.on("request", lambda request: addresses.append(request.url.partition("#")[0]))
        page.goto(f"{service.url}/#/link/{code}")
        page.get_by_role("button", name=choice).click()
        asks_and_hears(page)
        assert (code in page.url, any(code in address for address in addresses)) == (False, False)
        assert page.evaluate("localStorage.getItem('rkllm-mcp.key') !== null") is lasts
        if lasts:
            window = page.context.new_page()
            window.goto(service.url)
            asks_and_hears(window)


def test_a_used_code_leads_to_the_question_for_a_key_with_the_reason(browser: Browser, service: Served) -> None:
    with phone(browser, service.url, "ja-JP") as page:
        page.wait_for_selector("dialog")
        assert page.locator("#key-error").inner_text() == "", "nothing is wrong yet"
    with phone(browser, f"{service.url}/#/link/used", "ja-JP") as page:
        page.wait_for_selector("#key-error:has-text('コードは使用済みか、5 分の期限が過ぎています')")
        page.fill("#key", "all-of-the-owner")
        page.keyboard.press("Enter")
        asks_and_hears(page)


@pytest.mark.parametrize(
    ("locale", "turn_on", "add"),
    [
        ("en-US", "Turn documents on", "Add documents"),
        ("ja-JP", "文書の機能をオンにする", "文書を追加"),
    ],
)
def test_a_linked_phone_turns_documents_on_with_one_button(
    browser: Browser, tmp_path: Path, locale: str, turn_on: str, add: str
) -> None:
    model = scripted_model(tmp_path / "model", "rule\n  say Hello there.\n")
    # Without keys: the browser is the owner's by its link, not by its address.
    with served(tmp_path / "home", model) as own, phone(browser, f"{own.url}/#/link/{new_code(own)}", locale) as page:
        page.locator("dialog[open] button").last.click()
        page.wait_for_selector("dialog", state="detached")
        page.get_by_role("button", name=add).first.click()
        shown = page.locator(".panel-body pre").inner_text()
        assert "-m mcp_servers.knowledge" in shown
        assert "${PYTHON}" not in shown
        page.get_by_role("button", name=turn_on).click()
        page.wait_for_selector("#document-base option", state="attached")
        document = tmp_path / "rules.html"
        document.write_text("<h1>House</h1><p>The bins are emptied on Thursday.</p>", "utf-8")
        page.locator(".panel-body input[type=file]").set_input_files(document)
        page.wait_for_selector(".documents >> text=House")


def test_add_a_server_opens_its_part_of_the_panel_and_esc_closes_it(browser: Browser, service: Served) -> None:
    with phone(browser, f"{service.url}/#/link/{new_code(service)}") as page:
        page.locator("dialog[open] button").last.click()
        page.wait_for_selector("dialog", state="detached")
        page.get_by_role("button", name="Add a server").click()
        page.wait_for_selector("details.fold[open] .server h3")
        # This browser may add servers, so there are forms in place of commands for a terminal.
        assert page.locator("details.fold[open] form").count() >= 5
        page.keyboard.press("Escape")
        page.wait_for_selector("#panel", state="hidden")
