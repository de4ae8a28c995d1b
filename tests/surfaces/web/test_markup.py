"""Names and texts with markup in every view of the page, in a real Chromium: they are shown as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.browser import DESKTOP, PHONE, visiting
from tests.support.page_service import HOLD, Json, PageService, running
from tests.support.page_views import busy_service, views

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Ends an attribute, a selector and an address as well.
MARKUP = "\"'><img src=x onerror=hurt=1><svg onload=hurt=2>`${hurt=3}#?&%41"
FOUND = """(markup) => {
    const all = [...document.querySelectorAll("*")];
    const texts = all.flatMap((node) => [...node.childNodes]).filter((node) => node.nodeType === Node.TEXT_NODE);
    const bad = "img, iframe, object, embed, base, a[href^='javascript:' i]";
    return {
        hurt: typeof globalThis.hurt,
        elements: all.filter((node) => node.matches(bad)).length,
        handlers: all.flatMap((node) => node.getAttributeNames()).filter((name) => /^(on|srcdoc)/i.test(name)),
        shown: texts.filter((node) => node.textContent.includes(markup)).length,
    };
}"""


def harmless(page: Page, place: str) -> int:
    """Return how many texts of a page have the markup, none of which may have become anything else."""
    found = page.evaluate(FOUND, MARKUP)
    shown = found.pop("shown")
    assert found == {"hurt": "undefined", "elements": 0, "handlers": []}, place
    return shown


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_markup_in_any_name_or_text_is_text_in_every_view(browser: Browser, size: tuple[int, int]) -> None:
    service = busy_service()
    service.markup = MARKUP
    service.models = [{"id": name, "loaded": name == "small"} for name in ("small", "large")]
    service.storage = "the disk is full"
    with running(service), visiting(browser, service.url, size) as visit:
        shown = {name: harmless(visit.page, name) for name in views(visit, service)}
        outside = {address for address in visit.addresses if not address.startswith(service.url)}
    assert (outside, [name for name, count in shown.items() if not count]) == (set(), [])
    assert len(shown) >= 26


def test_markup_in_errors_files_menus_and_addresses_is_text(browser: Browser) -> None:
    asked: Json = {"kind": "approval", "id": "q7", "name": "send_mail", "arguments": {"to": "x"}, "reason": "It sends."}
    addresses = {
        "script": "javascript:hurt=4",
        "data": "data:text/html,<script>hurt=5</script>",
        "page": f"https://a.example/{MARKUP}",
    }
    login: Json = {"kind": "elicitation", "server": "crm", "message": "Log in.", "schema": {}}
    service = PageService(
        {name: [{**login, "id": name, "url": address}, HOLD] for name, address in addresses.items()},
        questions=[asked],
        refusals=[(400, "not like this", {})],
        models=[{"id": name, "loaded": name == "small"} for name in ("small", "large")],
        markup=MARKUP,
    )
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        page.wait_for_selector(".question >> text=send_mail")
        assert harmless(page, "question from elsewhere") >= 3
        visit.ask("x")
        page.wait_for_selector("text=not like this")
        assert harmless(page, "error") >= 4
        page.get_by_role("button", name="small").click()
        page.get_by_role("menuitemradio", name="large").wait_for()
        assert harmless(page, "models") >= 6
        page.keyboard.press("Escape")
        for name in addresses:
            visit.begin_anew()
            visit.ask(name)
            page.wait_for_selector(".question >> text=Log in.")
            assert harmless(page, name) >= 1
            links = page.eval_on_selector_all(
                ".question a", "(links) => links.map((link) => new URL(link.href).origin)"
            )
            assert links == (["https://a.example"] if name == "page" else [])
            service.go_on()
            page.wait_for_selector("#stop", state="hidden")
        page.click("#attach")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("menuitem", name="Choose files").click()
        chooser.value.set_files([{"name": f"{MARKUP}.txt", "mimeType": "text/plain", "buffer": b"milk"}])
        page.wait_for_selector("#files >> text=.txt")
        assert harmless(page, "file") >= 5
        outside = {address for address in visit.addresses if not address.startswith(service.url)}
    assert outside == set()
