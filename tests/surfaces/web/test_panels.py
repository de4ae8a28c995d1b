"""The page around the conversation, in a real Chromium: lists, drawer, key, languages, and access for everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import DESKTOP, PHONE, Visit, visiting
from tests.support.page_service import HOLD, Json, PageService, call, result, running, text

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Everything that shows text, and everything that can be reached, without a name or without contrast.
CHECK = (Path(__file__).parent / "accessibility.js").read_text("utf-8")
LOADING = "[data-say=loading]"
UNFOLD = "document.querySelectorAll('.panel details').forEach((part) => { part.open = true })"
# 1280 pixels at 200 %.
ZOOMED = (640, 400)


def tool(name: str, server: str, *, enabled: bool = True, destructive: bool = False) -> Json:
    return {
        "name": name,
        "qualified_name": f"mcp__{server}__{name}",
        "server": server,
        "description": f"Does what {name} says.",
        "input_schema": {},
        "enabled": enabled,
        "tokens": 120,
        "read_only": not destructive,
        "destructive": destructive,
    }


def server(name: str, state: str = "ready", error: str = "") -> Json:
    return {
        "name": name,
        "transport": "stdio",
        "state": state,
        "error": error,
        "tools": 1,
        "tokens": 120,
        "enabled": True,
    }


def past(name: str, started: float, *, error: str = "") -> Json:
    return {
        "name": name,
        "server": "files" if "file" in name else "weather",
        "conversation": "c9",
        "started": f"2026-11-21T10:00:{started:06.3f}Z",
        "seconds": 1.25,
        "is_error": bool(error),
        "error": error,
        "ruling": "once" if error else "free",
        "arguments": "{}",
    }


def busy_service() -> PageService:
    """A service with something of everything."""
    form = {"properties": {"name": {"type": "string"}, "size": {"enum": ["s", "l"]}}, "required": ["name"]}
    asked = {"kind": "elicitation", "id": "q1", "server": "trains", "message": "Who?", "schema": form, "url": ""}
    answer = [
        {"kind": "thinking", "text": "Hm."},
        call("1", "get_weather", {"place": "東京"}),
        result("1", "get_weather", "no such place", is_error=True),
        text("# 題\n\n[x](https://example.com) `code` and a_very_long_word_" + "x" * 90),
        text("\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\n" + "x" * 200 + "\n```\n\n> said\n\n- [x] done\n\n"),
        asked,
        HOLD,
    ]
    return PageService(
        {"x": answer},
        servers=[server("weather"), server("files"), server("notes", "failed", "it exited with code 1")],
        tools=[tool("get_weather", "weather"), tool("delete_file", "files", destructive=True)],
        calls=[
            past("delete_file", 9, error="there is no such file"),
            past("a_tool_with_a_very_long_name_of_many_words", 1),
        ],
        resources={
            "resources": [{"uri": "m://1", "name": "One", "server": "desk", "description": "D"}],
            "templates": [],
        },
        prompts=[
            {"name": "review", "server": "dev", "description": "R", "arguments": [{"name": "a", "required": True}]}
        ],
    )


def test_servers_and_tools_have_switches_and_say_what_they_cost(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.open_panel("tools")
        page.wait_for_selector("text=Tools take 240 of the model's 4,096 tokens.")
        assert "it exited with code 1" in page.inner_text(".server:has-text('notes')")
        page.click(".server:has-text('files') summary")
        switch = page.get_by_role("switch", name="Tool delete_file")
        assert switch.get_attribute("aria-checked") == "true"
        switch.focus()
        page.keyboard.press("Space")
        page.wait_for_selector("text=Tools take 120 of")
        assert service.sent("/v1/tools/mcp__files__delete_file:disable") == [{}]
        assert switch.get_attribute("aria-checked") == "false"
        assert switch.evaluate("(node) => node === document.activeElement"), "the focus stays where it was"
        page.get_by_role("switch", name="Server weather").click()
        page.wait_for_selector("[role=switch][aria-label='Server weather'][aria-checked=false]")
        assert service.sent("/v1/servers/weather:disable") == [{}]


def test_the_history_is_a_timeline_and_a_table_that_say_the_same(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.open_panel("history")
        page.wait_for_selector(".timeline")
        assert page.get_attribute(".timeline", "aria-label") == (
            "Timeline of 2 calls, 1 failed; the table below says the same."
        )
        assert page.locator(".timeline rect.bar").count() == 2
        assert page.locator(".timeline .failed + .mark").count() == 1, "a failure differs in shape, too"
        table = page.inner_text(".panel-body table")
        assert "there is no such file" in table
        assert "allowed once" in table
        assert "1.25 s" in table
        overflow = "(table) => table.scrollWidth - table.clientWidth"
        assert page.eval_on_selector(".panel-body .table", overflow) == 0, "no column is pushed out of the drawer"
        page.get_by_label("Only errors").check()
        page.wait_for_selector("text=Calls: 1, failed: 1")
        page.select_option("#history-server", "weather")
        page.wait_for_selector("text=No calls.")


def test_the_board_is_measured_while_it_is_looked_at_and_what_is_not_known_is_a_dash(browser: Browser) -> None:
    service = busy_service()
    service.board["temperature_c"] = None
    with running(service), visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        page.clock.install()
        visit.open_panel("board")
        page.wait_for_selector(".sparkline")
        shown = page.inner_text(".charts")
        assert "62 % · 58 % · 0 %" in shown
        assert "Temperature\n\n–" in shown
        assert "84 %: 9,620 reused, 1,840 read" in shown
        assert "The NPU is emulated" in page.inner_text(".notice")
        assert page.locator(".measure:first-child polyline").count() == 3
        with page.expect_response("**/v1/board"):
            page.clock.run_for(2000)
        page.click("#tab-settings")
        asked = service.count("/v1/board")
        page.clock.run_for(60_000)
        page.evaluate("fetch('/v1/me')")
        assert service.count("/v1/board") == asked >= 2, "nobody looks, so nobody asks"


def test_conversations_are_found_renamed_exported_and_deleted(browser: Browser) -> None:
    with running(PageService({"x": [text("a")], "y": [text("b")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        page.click("#new")
        visit.answered("y")
        page.get_by_label("Search conversations").fill("zzz")
        page.wait_for_selector("text=No conversation contains this.")
        page.get_by_label("Search conversations").fill("")
        page.get_by_role("button", name="More about y").click()
        page.get_by_role("button", name="Rename").click()
        page.get_by_label("Title").fill("天気/予報")
        page.keyboard.press("Enter")
        page.wait_for_selector(".conversations >> text=天気/予報")
        page.wait_for_selector("#title:has-text('天気/予報')")
        for action, name in (("Save as Markdown", "天気 予報.md"), ("Save as JSON", "天気 予報.json")):
            page.click("#manage")
            with page.expect_download() as download:
                page.get_by_role("button", name=action).click()
            assert download.value.suggested_filename == name
            saved = Path(download.value.path()).read_text("utf-8")
            assert (saved == "# 天気/予報\n") if name.endswith("md") else json.loads(saved)["title"] == "天気/予報"
        for button, left in (("Cancel", ["c1", "c2"]), ("Delete", ["c1"])):
            page.click("#manage")
            page.get_by_role("button", name="Delete").click()
            assert "Delete “天気/予報” for good?" in page.inner_text("dialog")
            page.get_by_role("button", name=button).click()
            page.wait_for_selector("dialog", state="detached")
            if button == "Delete":
                page.wait_for_selector("#welcome")
            assert list(service.conversations) == left


def test_a_key_is_asked_for_once_kept_in_the_window_and_sent_in_a_header_only(browser: Browser) -> None:
    with running(PageService({"x": [text("ok")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        service.key = "sk-right"
        visit.ask("x")
        page.wait_for_selector("dialog")
        for wrong, problem in (("sk-ｗｉｄｅ", "only ASCII letters"), ("sk-wrong", "does not know this key")):
            page.get_by_role("textbox", name="Key").fill(wrong)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#key-error:has-text('{problem}')")
        page.get_by_role("textbox", name="Key").fill("sk-right")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog", state="detached")
        page.wait_for_selector("text=ok")
        page.reload()
        page.wait_for_selector(".conversations a")
        assert service.headers[-1]["authorization"] == "Bearer sk-right"
        assert not [address for address in visit.addresses if "sk-" in address]
        assert page.evaluate("JSON.stringify(localStorage) + location.href + document.cookie").count("sk-") == 0
        visit.open_panel("settings")
        page.get_by_role("button", name="Forget the key").click()
        page.wait_for_selector("dialog >> text=No key was given.")
        assert page.evaluate("JSON.stringify(sessionStorage)").count("sk-") == 0


def test_the_language_and_the_colours_follow_the_browser_until_they_are_chosen(browser: Browser) -> None:
    with (
        running(busy_service()) as service,
        visiting(browser, service.url, locale="ja-JP", color_scheme="dark") as visit,
    ):
        page = visit.page
        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.inner_text("#new") == "新しい会話"
        assert page.evaluate(ground) == "rgb(22, 24, 27)"
        visit.open_panel("settings")
        page.get_by_label("English").check()
        page.get_by_label("Light").check()
        assert page.inner_text("#new") == "New conversation"
        assert page.get_attribute("html", "lang") == "en"
        assert page.get_attribute("#question", "placeholder") == "Ask something"
        assert page.evaluate(ground) == "rgb(250, 249, 247)"
        page.reload()
        page.wait_for_selector("text=New conversation")
        assert page.evaluate(ground) == "rgb(250, 249, 247)"


def test_a_model_that_is_emulated_is_said_to_be_on_the_first_sight_and_beside_every_answer(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url, PHONE) as visit:
        assert "demo is emulated" in visit.page.inner_text("#welcome")
        visit.answered("x")
        assert visit.page.is_visible("#emulated")


def test_a_question_that_waits_from_elsewhere_can_be_answered_here(browser: Browser) -> None:
    asked: Json = {"kind": "approval", "id": "q7", "name": "send_mail", "arguments": {}, "reason": "It sends."}
    with running(PageService(questions=[asked])) as service, visiting(browser, service.url) as visit:
        visit.page.get_by_role("button", name="No", exact=True).click()
        visit.page.wait_for_selector("text=Refused.")
        assert service.sent("/v1/approvals/q7") == [{"decision": "deny"}]


def test_everything_is_reached_by_keys_and_what_is_covered_is_not(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        active = "document.activeElement.id || document.activeElement.dataset.panel || document.activeElement.tagName"
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Tab")
        assert page.evaluate(active) == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate(active) == "question"
        page.click("#menu")
        assert page.evaluate("[document.getElementById('main').inert, document.activeElement.id]") == [True, "new"]
        page.keyboard.press("Escape")
        assert page.evaluate("[document.getElementById('main').inert, document.activeElement.id]") == [False, "menu"]
        visit.open_panel("tools")
        page.keyboard.press("ArrowRight")
        assert page.evaluate(active) == "tab-history"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(active) == "tab-settings"
        page.keyboard.press("Escape")
        assert page.is_hidden("#panel")


@pytest.mark.parametrize(
    ("size", "locale", "scheme"),
    [(PHONE, "ja-JP", "dark"), (PHONE, "en-US", "light"), (ZOOMED, "en-US", "dark"), (DESKTOP, "ja-JP", "light")],
)
def test_nothing_is_cut_off_unnamed_or_too_pale(
    browser: Browser, size: tuple[int, int], locale: str, scheme: Any
) -> None:
    def check(visit: Visit, where: str) -> None:
        assert {where: visit.page.evaluate(CHECK)} == {where: []}

    with running(busy_service()) as service:
        visited = visiting(browser, service.url, size, locale=locale, color_scheme=scheme, reduced_motion="reduce")
        with visited as visit:
            page = visit.page
            check(visit, "welcome")
            visit.ask("x")
            page.wait_for_selector("form.form")
            page.click("form [type=submit]")
            check(visit, "form with an error")
            for name in ("tools", "history", "board", "settings"):
                visit.open_panel(name)
                page.wait_for_selector(LOADING, state="detached")
                page.evaluate(UNFOLD)
                check(visit, name)
                page.click("#panel-close")
            for opener in ("attach", "prompts", "manage"):
                page.evaluate("(id) => { document.getElementById(id).disabled = false }", opener)
                page.click(f"#{opener}")
                page.wait_for_selector(LOADING, state="detached")
                check(visit, opener)
                page.keyboard.press("Escape")
            page.wait_for_selector("dialog", state="detached")
