"""The Servers panel in a real Chromium, with a real service: tests, logins and new servers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.support.browser import DESKTOP, PHONE, Visit, visiting
from tests.support.demo_app import NO_VARIABLES, PythonServer
from tests.support.mcp_servers.protected import Protected
from tests.support.mcp_servers.web import Mcp, Reply, echoed, serving_beside
from tests.support.page_service import PageService, running
from tests.support.served import Served, scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

KEY, SECRET = "key-of-the-owner-1", "a-secret-of-the-shop-4711"
KEYED = f'[security]\ninstall_servers = true\n[service]\napi_keys = ["{KEY}"]\n'
NOTES: PythonServer = ("notes", ("-m", "tests.support.mcp_servers.notebook"), NO_VARIABLES)


@contextmanager
def opened(browser: Browser, it: Served, size: tuple[int, int] = DESKTOP, **profile: Any) -> Generator[Visit]:
    """The panel, in a window that has the key."""
    stored = {"origin": it.url, "localStorage": [{"name": "rkllm-mcp.key", "value": KEY}]}
    with visiting(browser, it.url, size, storage_state={"cookies": [], "origins": [stored]}, **profile) as visit:
        visit.open_panel("servers")
        yield visit


def card(visit: Visit, name: str) -> Locator:
    """The card of a server in use."""
    return visit.page.locator(".server", has=visit.page.locator(f"[data-control='test {name}']"))


def test_a_server_is_tested_in_its_own_row(browser: Browser, tmp_path: Path) -> None:
    broken = '[[servers]]\nname = "broken"\ncommand = "false"\n'
    with (
        served(tmp_path, scripted_model(tmp_path / "model", "rule\n  say Hi.\n"), (NOTES,), extra=broken + KEYED) as it,
        opened(browser, it, PHONE, locale="ja-JP", has_touch=True, is_mobile=True) as visit,
    ):
        test = card(visit, "notes").get_by_role("button", name="テスト")
        test.focus()
        visit.page.keyboard.press("Enter")
        card(visit, "notes").get_by_text("動作しています").wait_for()
        assert card(visit, "notes").locator(".outcome code", has_text="write_file").count() == 1
        assert test.evaluate("(node) => node === document.activeElement"), "the focus stays where it was"
        assert test.evaluate("(node) => node.getBoundingClientRect().height") >= 44
        card(visit, "broken").get_by_role("button", name="テスト").click()
        card(visit, "broken").get_by_text("動作しません。").wait_for()
        assert "exited with code 1" in card(visit, "broken").locator(".outcome").inner_text()


@pytest.mark.parametrize("is_here", [True, False])
def test_a_person_logs_in_with_this_browser_or_hands_the_last_address_over(
    browser: Browser, tmp_path: Path, is_here: bool
) -> None:
    server = Protected()
    with serving_beside(server) as server.url:
        entry = f'[[servers]]\nname = "crm"\nurl = "{server.url}/mcp"\nauth = "oauth"\n'
        model = scripted_model(tmp_path / "model", "rule\n  say Hi.\n")
        with served(tmp_path, model, extra=entry + KEYED) as it, opened(browser, it) as visit:
            page, crm = visit.page, card(visit, "crm")
            crm.get_by_text("wants a login").wait_for()
            crm.get_by_role("button", name="Log in").click()
            link = crm.get_by_role("link", name="Open the page")
            link.wait_for()
            assert server.url.removeprefix("http://") in crm.inner_text(), "its host is shown before"
            assert server.challenges == {}, "nothing opens by itself"
            if is_here:
                with page.context.expect_page() as popup:
                    link.click()
                popup.value.get_by_text("You can close this window").wait_for()
            else:
                other = page.context.request.get(link.get_attribute("href") or "", max_redirects=0)
                crm.locator("summary", has_text="cannot open the last page").click()
                field = crm.get_by_label("Address that the browser shows")
                field.fill("https://example.com/?code=1")
                crm.get_by_role("button", name="Finish the login").click()
                crm.get_by_text("This is not the address").wait_for()
                field.fill(other.headers["location"])
                crm.get_by_role("button", name="Finish the login").click()
            crm.get_by_text("Logged in.").wait_for()
            crm.locator(".badge", has_text="ready").wait_for()
            assert crm.get_by_role("button", name="Log in").is_hidden()
            assert "access-" not in page.content()


def test_a_server_is_added_by_address_after_a_try_and_its_key_is_gone(browser: Browser, tmp_path: Path) -> None:
    shop = Mcp({"find_order": echoed})
    shop.meanwhile = lambda request: (
        Reply(200, b"<html>")
        if request.path == "/page"
        else None
        if request.headers.get("authorization") == f"Bearer {SECRET}"
        else Reply(401)
    )
    model = scripted_model(tmp_path / "model", "rule\n  say Hi.\n")
    with (
        serving_beside(shop) as url,
        served(tmp_path, model, (NOTES,), extra=KEYED) as it,
        opened(browser, it, PHONE) as visit,
    ):
        page = visit.page
        page.locator(".fold > summary", has_text="Add a server").click()
        form = page.locator(".server", has=page.locator("[name=url]"))
        form.get_by_label("Name").fill("shop")
        assert form.locator("[name=key]").get_attribute("type") == "password"
        for address, key, said in (
            ("shop.example.com", "", "This has to be an address"),
            ("ftp://shop.example.com", "", "begins with http:// or https://"),
            ("http://127.0.0.1:9/mcp", "", "Nothing answers at this address."),
            (f"{url}/page", "", "is not an MCP server"),
            (f"{url}/mcp", "wrong", "It wants a key"),
            (f"{url}/mcp", SECRET, "It works. Tools: 1,"),
        ):
            form.get_by_label("Address").fill(address)
            form.locator("[name=key]").fill(key)
            form.get_by_role("button", name="Try it first").click()
            form.get_by_text(said).wait_for()
            can_be_added = form.get_by_role("button", name="Add it").count()
            assert can_be_added == (1 if key == SECRET else 0), address
        form.get_by_role("button", name="Add it").click()
        card(visit, "shop").get_by_text("It works. Tools: 1,").wait_for()
        assert "find_order" in card(visit, "shop").inner_text()
        card(visit, "shop").get_by_role("switch", name="Server shop").click()
        page.wait_for_selector("[role=switch][aria-label='Server shop'][aria-checked=false]")
        visit.reload()
        visit.open_panel("servers")
        card(visit, "shop").wait_for()
        assert SECRET not in page.content()
        assert SECRET in (tmp_path / "mcp_config.toml").read_text("utf-8")


def test_for_a_key_that_may_not_add_the_command_replaces_the_form(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url) as visit:
        visit.open_panel("servers")
        visit.page.locator(".fold > summary", has_text="Add a server").click()
        visit.page.get_by_text("install_servers = true").wait_for()
        assert visit.page.get_by_text("rkllm-mcp servers add NAME --url URL").is_visible()
        assert visit.page.get_by_role("button", name="Try it first").count() == 0


def test_servers_of_the_registry_are_found_in_the_copy_and_asked_for_only_on_request(browser: Browser) -> None:
    with running(PageService(can_add=True)) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.open_panel("servers")
        page.locator(".fold > summary", has_text="Add a server").click()
        page.get_by_text("of a copy of 2026-11-27").wait_for()
        field = page.get_by_label("Search servers")
        field.fill("brave")
        page.get_by_text("1 of a copy").wait_for()
        program = page.locator("[data-registry='io.github.brave/brave-search-mcp-server']")
        command = "rkllm-mcp servers add brave-search-mcp-server --env BRAVE_API_KEY=VALUE -- npx -y"
        assert command in program.inner_text()
        assert program.get_by_role("button", name="Put it into the form").count() == 0
        # What is searched for comes while the keyboard is in the list already.
        field.fill("neo")
        page.evaluate("document.querySelector('[data-registry] button, [data-registry] pre').focus()")
        focused = page.evaluate("document.activeElement.closest('[data-registry]').dataset.registry")
        page.get_by_text("1 of a copy").wait_for()
        page.wait_for_selector("[data-registry='io.github.brave/brave-search-mcp-server']", state="detached")
        assert focused == "io.github.brave/brave-search-mcp-server"
        assert page.evaluate("document.activeElement.id") == "registry-search", "not at the top of the page"
        field.fill("neon")
        remote = page.locator("[data-registry='com.neon/mcp']")
        remote.wait_for()
        assert service.registry_searches == [], "nothing left the board"
        page.get_by_role("button", name="Ask the registry").click()
        page.get_by_text("News of today").wait_for()
        assert service.registry_searches == ["neon"]
        remote.get_by_role("button", name="Put it into the form").click()
        form = page.locator(".server", has=page.locator("[name=url]"))
        assert form.locator("[name=url]").input_value() == "https://mcp.neon.tech/mcp"
        assert form.locator("[name=name]").input_value() == "mcp"
        assert "It wants these headers: Authorization, x-read-only" in form.inner_text()
        assert service.sent("/v1/servers:try") == []
        form.get_by_role("button", name="Try it first").click()
        form.get_by_role("button", name="Add it").wait_for()
        assert service.sent("/v1/servers:try")[0]["url"] == "https://mcp.neon.tech/mcp"


@pytest.mark.parametrize("can_add", [True, False])
def test_an_install_link_fills_the_panel_and_adds_nothing(browser: Browser, can_add: bool) -> None:
    from playwright.sync_api import expect

    evil = "https://tools.example/mcp?a='; rm -rf ~ #"
    link = f"#add-server={quote(evil, safe='')}&name=x%3B&headers=X:1&key=k"
    service = PageService(can_add=can_add)
    with running(service), visiting(browser, f"{service.url}/{link}") as visit:
        page = visit.page
        page.get_by_text(f"A link names the server “{evil}”. Nothing was added or started").wait_for()
        assert "add-server" not in page.url
        if can_add:
            assert page.locator("[name=url]").input_value() == evil
            assert page.locator("[name=name]").input_value() == "x;"
            assert (page.locator("[name=key]").input_value(), page.locator("[name=headers]").input_value()) == ("", "")
        else:
            quoted = "rkllm-mcp servers add 'x;' --url 'https://tools.example/mcp?a='\\''; rm -rf ~ #'"
            assert page.get_by_text(quoted).is_visible()
        page.evaluate("location.hash = '#add-server=fetch'")
        page.get_by_text("A link names the server “fetch”").wait_for()
        page.locator(".fold .server h3", has_text="Fetch").or_(
            page.locator(".fold .server pre", has_text="fetch")
        ).first.wait_for()
        page.evaluate("location.hash = '#add-server=io.github.upstash/context7'")
        # The whole list stands there until the search is over.
        expect(page.locator("[data-registry]")).to_have_count(1)
        assert page.locator("[data-registry='io.github.upstash/context7']").is_visible()
        posted = [path for method, path, _ in service.requests if method != "GET"]
        assert (posted, service.registry_searches) == ([], []), "opening a link adds, tries and sends nothing"
