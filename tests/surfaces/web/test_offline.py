"""At home on a device: the page opens without its service, a new release is picked up, and an answer is notified of."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from rkllm_mcp.surfaces.http.page import page_version
from tests.support.browser import LONG_PAUSE, OFFLINE, PHONE, Visit, visiting
from tests.support.page_service import HOLD, PageService, running, text
from tests.support.served import scripted_model, served

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

LOST = "No connection to the board. The page keeps trying."


def release_of(visit: Visit) -> set[str]:
    """The releases from which the page has its files."""
    names: list[str] = visit.page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    return {found[1] for name in names if (found := re.search(r"/static/(\w+)/", name))}


def kept(visit: Visit) -> list[str]:
    """The caches of the worker, once it is active."""
    return visit.page.evaluate("navigator.serviceWorker.ready.then(() => caches.keys())")


def test_the_page_opens_without_its_service_stores_the_draft_and_sends_it_on_request(browser: Browser) -> None:
    service = PageService({"x": [text("Here.")]})
    with ExitStack() as stack:
        with running(service):
            visit = stack.enter_context(visiting(browser, service.url, PHONE))
            assert kept(visit) == [f"rkllm-mcp /static/{page_version()}/"]
        page = visit.page
        visit.reload()
        page.wait_for_selector(OFFLINE)
        page.wait_for_selector("#offline >> text=/^No connection. Trying again in [0-9]+ s.$/")
        assert page.locator("#announcements p").all_inner_texts()[0] == LOST
        # What is loaded when it is first needed is there as well.
        page.click("#attach")
        page.wait_for_selector(".popover >> text=Choose files")
        page.keyboard.press("Escape")
        page.fill("#question", "x")
        visit.reload()
        visit.await_question("x")
        page.press("#question", "Enter")
        page.wait_for_selector("text=The connection was lost before this was answered.")
        page.wait_for_selector(LONG_PAUSE)
        with running(service):
            page.click("text=Try now")
            page.wait_for_selector("#offline", state="hidden")
            assert service.sent("/v1/execute") == [], "nothing is asked unasked"
            page.click("text=Ask again")
            page.wait_for_selector("text=Here.")


def test_the_page_of_the_real_service_opens_without_it(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        with served(tmp_path / "home", scripted_model(tmp_path / "model", "rule\nsay Here.")) as service:
            visit = stack.enter_context(visiting(browser, service.url))
            kept(visit)
        visit.reload()
        visit.page.wait_for_selector(OFFLINE)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_that_answers_for_a_board_that_is_away_is_no_board(browser: Browser, status: int) -> None:
    service = PageService({"x": [text("Here.")]})
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        page.route("**/v1/**", lambda route: route.fulfill(status=status, body="<h1>Bad Gateway</h1>"))
        visit.reload()
        page.wait_for_selector(OFFLINE)
        visit.ask("x")
        page.wait_for_selector("text=The connection was lost before this was answered.")
        page.wait_for_selector(LONG_PAUSE)
        page.unroute("**/v1/**")
        page.click("text=Try now")
        page.wait_for_selector("#offline", state="hidden")
        page.click("text=Ask again")
        page.wait_for_selector("text=Here.")


def test_a_new_release_of_the_page_is_picked_up_whole(browser: Browser) -> None:
    service = PageService({"x": [text("Here.")]})
    old, new = page_version(), f"{page_version()}b"
    with ExitStack() as stack:
        with running(service):
            visit = stack.enter_context(visiting(browser, service.url))
            page = visit.page
            kept(visit)
            service.release = "b"
            visit.look_again()
            page.wait_for_selector("text=There is a new release of this page.")
            assert release_of(visit) == {old}
            visit.load_release(new)
            assert release_of(visit) == {new}
            assert kept(visit) == [f"rkllm-mcp /static/{new}/"]
        visit.reload()
        page.wait_for_selector(OFFLINE)
        assert release_of(visit) == {new}
        assert page.is_hidden("#toast")


def test_without_a_cache_a_part_of_an_earlier_release_is_not_taken_from_the_new_one(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url_from_elsewhere) as visit:
        assert not visit.page.evaluate("isSecureContext")
        service.release = "b"
        visit.page.click("#attach")
        visit.load_release(f"{page_version()}b")
        visit.page.click("#attach")
        visit.page.wait_for_selector(".popover >> text=Choose files")


@pytest.mark.parametrize("is_wanted", [True, False])
def test_an_answer_that_is_ready_behind_another_tab_is_notified_of_if_that_is_wanted(
    browser: Browser, is_wanted: bool
) -> None:
    from playwright.sync_api import expect

    service = PageService({"x": [text("One"), HOLD, text(" two.")], "y": [text("Other.")]})
    with running(service), visiting(browser, service.url, permissions=["notifications"]) as visit:
        page = visit.page
        kept(visit)
        if is_wanted:
            visit.open_panel("settings")
            page.get_by_role("switch", name="Notice when an answer is ready").click()
            page.wait_for_selector("#panel [role=switch][aria-checked=true]")
            page.click("#panel-close")
        visit.ask("x")
        page.wait_for_selector("text=One")
        visit.begin_anew()
        visit.answered("y")
        # Playwright has every tab believe that it is in front, so the page is told otherwise.
        page.evaluate(HIDDEN)
        service.go_on()
        expect(page).to_have_title(re.compile("^●"))
        notification = {"title": "x", "body": "End of the answer", "data": f"{service.url}/#/c/c1"}
        assert shown(visit, is_wanted) == ([notification] if is_wanted else [])
        if is_wanted:
            (worker,) = page.context.service_workers
            worker.evaluate(CLICK)
            expect(page).to_have_url(f"{service.url}/#/c/c1")
            page.wait_for_selector("text=One two.")
            assert shown(visit) == []


HIDDEN = """() => {
    Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
}"""
# As the browser does it; only the browser itself may bring a window to the front.
CLICK = """async () => {
    const [notification] = await registration.getNotifications();
    dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}"""


def shown(visit: Visit, is_awaited: bool = False) -> list[dict[str, Any]]:
    """The notifications that are shown; one that is awaited may come a moment later."""
    script = """async (isAwaited) => {
        const registration = await navigator.serviceWorker.ready;
        let found = await registration.getNotifications();
        while (isAwaited && found.length === 0) {
            await new Promise(requestAnimationFrame);
            found = await registration.getNotifications();
        }
        return found.map(({ title, body, data }) => ({ title, body, data }));
    }"""
    return visit.page.evaluate(script, is_awaited)
