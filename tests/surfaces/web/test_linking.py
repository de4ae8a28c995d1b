"""A phone opens the page by the address with a code: the code becomes a key, which lasts if that is wanted."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
        page.wait_for_selector("#key-error:has-text('コードは使用済みか、5分を過ぎています')")
        page.fill("#key", "all-of-the-owner")
        page.keyboard.press("Enter")
        asks_and_hears(page)
