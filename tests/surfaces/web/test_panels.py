"""The page around the conversation, in a real Chromium: lists, drawer, key, languages, servers, programs, phones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import pytest

from rkllm_mcp.config.sections import RIGHTS
from rkllm_mcp.surfaces.http.page import FOLDER
from tests.support.browser import DESKTOP, PATIENCE_MS, PHONE, READY, Visit, visiting
from tests.support.demo_app import NO_VARIABLES, PythonServer
from tests.support.installed import installed
from tests.support.mcp_servers.protected import Protected
from tests.support.mcp_servers.web import Mcp, Reply, echoed, serving_beside
from tests.support.page_service import Json, PageService, download, known_model, running, text
from tests.support.page_views import busy_service, server, tool
from tests.support.served import Served, scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SNIPPETS: list[dict[str, Any]] = json.loads((FOLDER / "snippets.json").read_text("utf-8"))
KEY, SECRET = "key-of-the-owner-1", "a-secret-of-the-shop-4711"
KEYED = f'[security]\ninstall_servers = true\n[service]\napi_keys = ["{KEY}"]\n'
NOTES: PythonServer = ("notes", ("-m", "tests.support.mcp_servers.notebook"), NO_VARIABLES)


@pytest.fixture(scope="module")
def open_board(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A real board that wants no key."""
    folder = tmp_path_factory.mktemp("open")
    with served(folder, scripted_model(folder / "model", "rule\n  say weather\n")) as it:
        yield it


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A real board that wants a key."""
    folder = tmp_path_factory.mktemp("locked")
    model = scripted_model(folder / "model", "rule\n  say Hello there.\n")
    with served(folder, model, extra='[service]\napi_keys = ["all-of-the-owner"]\n') as it:
        yield it


def test_hundreds_of_tools_are_found_by_their_words_and_drawn_when_they_are_looked_at(browser: Browser) -> None:
    servers = [server(f"server{number}") for number in range(4)]
    tools = [tool(f"tool_{number}", f"server{number % 4}") for number in range(400)]
    with running(PageService(servers=servers, tools=tools)) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.open_panel("servers")
        page.wait_for_selector(".server summary")
        assert page.locator(".tools li").count() == 0
        page.get_by_label("Search tools").fill("ＴＯＯＬ_37")
        page.wait_for_selector("text='Tools found: 11'")
        assert page.locator(".server").count() == 4
        assert page.locator(".tools li").count() == 11
        page.get_by_label("Search tools").fill("tool_399")
        page.wait_for_selector("text='Tools found: 1'")
        assert page.locator(".server h3").all_inner_texts() == ["server3"]
        page.get_by_role("switch", name="Tool tool_399").click()
        page.wait_for_selector("[role=switch][aria-label='Tool tool_399'][aria-checked=false]")
        assert service.sent("/v1/tools/mcp__server3__tool_399:disable") == [{}]
        page.get_by_label("Search tools").fill("")
        page.wait_for_selector("text=Tools found", state="detached")
        assert page.locator(".server").count() == 4
        assert page.locator(".tools li").count() == 0
        page.click(".server:has-text('server2') summary")
        far = page.get_by_role("switch", name="Tool tool_202")
        far.scroll_into_view_if_needed()
        top = "(node) => node.getBoundingClientRect().top"
        before = far.evaluate(top)
        far.click()
        page.wait_for_selector("[role=switch][aria-label='Tool tool_202'][aria-checked=false]")
        assert far.evaluate(top) == before, "what somebody switches stays under their finger"


def test_servers_and_tools_have_switches_costs_and_a_history_that_is_a_timeline_and_a_table(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.open_panel("servers")
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
        page.get_by_text("Activity").click()
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


def test_the_board_is_measured_while_its_panel_is_open_and_an_unknown_value_is_a_dash(browser: Browser) -> None:
    service = busy_service()
    service.board["temperature_c"] = None
    with running(service), visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        page.clock.install()
        visit.open_panel("board")
        page.wait_for_selector(".measure")
        shown = page.inner_text(".measures").replace("\xa0", " ")
        assert "62 % · 58 % · 0 %" in shown
        assert "Temperature\n\n–" in shown
        assert "84 %: 9,620 reused, 1,840 read" in shown
        assert "The NPU is emulated" in page.inner_text("#panel .notice")
        with page.expect_response("**/v1/board"):
            page.clock.run_for(2000)
        page.click("#tab-settings")
        asked = service.count("/v1/board")
        page.clock.run_for(60_000)
        page.evaluate("fetch('/v1/me')")
        assert service.count("/v1/board") == asked >= 2, "nobody looks, so nobody asks"


def test_a_conversation_is_renamed_exported_and_deleted_for_good_when_the_page_is_left(browser: Browser) -> None:
    with running(PageService({"x": [text("a")], "y": [text("b")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        visit.begin_anew()
        visit.answered("y")
        page.get_by_role("button", name="More about y").click()
        page.get_by_role("menuitem", name="Rename").click()
        page.get_by_label("Title").fill("天気/予報")
        page.keyboard.press("Enter")
        page.wait_for_selector(".conversations >> text=天気/予報")
        page.wait_for_selector("#title:has-text('天気/予報')")
        for action, name in (("Save as Markdown", "天気 予報.md"), ("Save as JSON", "天気 予報.json")):
            page.click("#manage")
            with page.expect_download() as download:
                page.get_by_role("menuitem", name=action).click()
            assert download.value.suggested_filename == name
            saved = Path(download.value.path()).read_text("utf-8")
            assert (saved == "# 天気/予報\n") if name.endswith("md") else json.loads(saved)["title"] == "天気/予報"
        # What is deleted can be taken back for some seconds, and is gone when the page is left.
        page.click("#manage")
        page.get_by_role("menuitem", name="Delete").click()
        page.wait_for_selector("#welcome")
        assert list(service.conversations) == ["c1", "c2"]
        with page.expect_response(lambda response: response.request.method == "DELETE"):
            page.evaluate("dispatchEvent(new Event('pagehide'))")
        assert list(service.conversations) == ["c1"]


@pytest.mark.parametrize("titles", [True, False])
def test_the_title_that_the_board_writes_after_the_answer_is_shown_and_looked_for_twice_at_most(
    browser: Browser, titles: bool
) -> None:
    service = PageService({"x": [text("a")], "y": [text("b")]}, titles=titles)
    with running(service) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.clock.install()
        visit.answered("x")
        page.wait_for_selector(".conversations li > a >> text=x")
        service.conversations["c1"]["title"] = "A short title"
        if titles:
            with page.expect_response("**/v1/conversations?*"):
                page.clock.run_for(9000)
            page.wait_for_selector(".conversations li > a >> text=A short title")
            page.wait_for_selector("#title:has-text('A short title')")
            # Of a title that does not come
            visit.answered("y")
        page.evaluate("fetch('/v1/me')")
        listed = service.count("/v1/conversations")
        for pause_ms in (9_000, 21_000) if titles else ():
            with page.expect_response("**/v1/conversations?*"):
                page.clock.run_for(pause_ms)
        page.clock.run_for(60_000)
        page.evaluate("fetch('/v1/me')")
        assert service.count("/v1/conversations") - listed == (2 if titles else 0)


def test_a_conversation_has_its_own_settings_before_and_after_its_first_question(browser: Browser) -> None:
    tools = [
        {"name": name, "qualified_name": f"mcp__s__{name}", "server": "s", "enabled": True, "tokens": 9}
        for name in "ab"
    ]
    with running(PageService(tools=tools)) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        page.click("#manage")
        page.get_by_role("menuitem", name="Settings of this conversation").click()
        page.get_by_label("System text").fill("Be brief.")
        page.get_by_label("Temperature").fill("0.3")
        page.get_by_label("s / b").uncheck()
        page.get_by_role("button", name="Save").click()
        # The settings are taken over when the dialog has closed.
        page.wait_for_selector("dialog", state="detached")
        visit.answered("x")
        sent = service.sent("/v1/execute")[0]
        assert (sent["system"], sent["settings"]) == ("Be brief.", {"temperature": 0.3, "tools": ["mcp__s__a"]})
        service.conversations["c1"].update(settings=sent["settings"], system=sent["system"])
        page.click("#manage")
        page.get_by_role("menuitem", name="Settings of this conversation").click()
        assert page.get_by_label("System text").input_value() == "Be brief."
        page.get_by_label("s / b").check()
        page.get_by_label("On", exact=True).check()
        with page.expect_response("**/v1/conversations/c1"):
            page.get_by_role("button", name="Save").click()
        (changed,) = [body for method, _, body in service.requests if method == "PATCH"]
        assert changed == {"system": "Be brief.", "settings": {"temperature": 0.3, "thinking": True}}


def test_a_key_is_requested_once_stored_in_the_window_and_sent_in_a_header_only(browser: Browser) -> None:
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
        visit.reload()
        assert service.headers[-1]["authorization"] == "Bearer sk-right"
        assert not [address for address in visit.addresses if "sk-" in address]
        assert page.evaluate("JSON.stringify(localStorage) + location.href + document.cookie").count("sk-") == 0
        visit.open_panel("settings")
        page.get_by_role("button", name="Forget the key").click()
        page.wait_for_selector("dialog")
        assert page.locator("#key-error").inner_text() == "", "nothing is wrong yet"
        assert page.evaluate("JSON.stringify(sessionStorage)").count("sk-") == 0
        assert page.get_by_text("Forget the key").is_hidden(), "there is none any more"


@pytest.mark.parametrize("is_own", [True, False], ids=["owner", "program"])
def test_the_page_offers_to_delete_and_revoke_only_with_a_key_that_does(
    browser: Browser, locked: Served, is_own: bool
) -> None:
    headers, words = {"Authorization": "Bearer all-of-the-owner"}, {"name": "p", "allow": list(RIGHTS)}
    made = httpx2.post(f"{locked.url}/v1/devices", json=words, headers=headers).raise_for_status().json()
    with visiting(browser, locked.url, ready="dialog") as visit:
        page = visit.page
        page.get_by_role("textbox", name="Key").fill("all-of-the-owner" if is_own else made["key"])
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog", state="detached")
        visit.answered("x")
        page.click("#manage")
        page.get_by_role("menuitem", name="Save as JSON").wait_for()
        assert page.get_by_role("menuitem", name="Delete").count() == is_own
        page.keyboard.press("Escape")
        visit.open_panel("settings")
        page.get_by_role("button", name="Save everything").wait_for()
        assert page.get_by_role("button", name="Delete everything").count() == is_own
        page.get_by_role("button", name="Address, key and settings to copy").click()
        page.wait_for_selector("dialog li >> text=p")
        assert (page.locator("dialog").get_by_role("button", name="Revoke").count() > 0) is is_own


def test_without_a_key_the_page_asks_again_only_for_a_request(browser: Browser) -> None:
    with running(PageService({"x": [text("ok")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.clock.install()
        service.key = "sk-right"
        visit.open_panel("board")
        page.wait_for_selector("dialog")
        page.keyboard.press("Escape")
        page.wait_for_selector("#panel >> text=The board wants a key: enter it under Settings.")
        with page.expect_response("**/v1/board"):
            page.clock.run_for(2000)
        page.evaluate("fetch('/v1/me')")
        assert page.locator("dialog").count() == 0
        visit.ask("x")
        page.get_by_role("textbox", name="Key").fill("sk-right")
        page.keyboard.press("Enter")
        page.wait_for_selector(".message.assistant >> text=ok")


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
        visit.reload()
        assert page.inner_text("#new") == "New conversation"
        assert page.evaluate(ground) == "rgb(250, 249, 247)"


def test_a_question_that_waits_from_elsewhere_can_be_answered_here(browser: Browser) -> None:
    asked: Json = {"kind": "approval", "id": "q7", "name": "send_mail", "arguments": {}, "reason": "It sends."}
    with running(PageService(questions=[asked])) as service, visiting(browser, service.url) as visit:
        visit.page.get_by_role("button", name="Don’t allow").click()
        visit.page.wait_for_selector("text=You did not allow this.")
        assert service.sent("/v1/approvals/q7") == [{"decision": "deny"}]


def test_a_key_that_may_not_add_servers_gets_commands_to_copy_and_a_lasting_permission_taken_back(
    browser: Browser,
) -> None:
    allowed: Json = {"server": "files", "tool": "write_file", "kind": "always"}
    with (
        running(PageService(permissions=[allowed])) as service,
        visiting(browser, service.url, permissions=["clipboard-read", "clipboard-write"]) as visit,
    ):
        page = visit.page
        page.locator("#welcome-more").get_by_role("button", name="Add a server").click()
        card = page.locator(".server", has_text="Reads web pages.")
        assert "It uses: the internet" in card.inner_text()
        assert "uvx mcp-server-fetch==2026.10.24" in card.inner_text()
        card.get_by_role("button", name="Copy").click()
        page.wait_for_selector("text=Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "rkllm-mcp servers install fetch"
        # This key may not add servers, so there are commands in place of forms.
        page.get_by_text("install_servers = true").wait_for()
        assert page.get_by_text("rkllm-mcp servers add NAME --url URL").is_visible()
        assert page.get_by_role("button", name="Try it first").count() == 0
        page.locator(".fold > summary", has_text="Remembered permissions").click()
        page.wait_for_selector("text=files / write_file")
        page.get_by_role("button", name="Ask again").click()
        page.wait_for_selector("text=Nothing is allowed or refused for good.")
        assert service.permissions == []


def test_a_source_opens_its_passage_in_the_document_and_back_closes_it(browser: Browser) -> None:
    where: Json = {"document_id": "rules.md", "chunk_index": 1}
    source: Json = {"document": "rules.md", "page": 12, "passage": "Two days a week.", "score": 0.8}
    other: Json = {"document": "web", "page": None, "passage": "From elsewhere.", "score": None}
    items = [
        {**source, **where},
        {**source, "passage": "One day.", **where},
        other,
        {**other, **where, "document_id": "x"},
    ]
    answer = [text("Two days."), {"kind": "sources", "items": items}]
    documents = {"rules.md": "Two days a week."}
    with (
        running(PageService({"x": answer}, documents=documents)) as service,
        visiting(browser, service.url, PHONE) as visit,
    ):
        page = visit.page
        visit.answered("x")
        visit.reload()
        page.get_by_text("Sources: 4").click()
        opener = page.locator(".sources .source").first
        opener.click()
        page.wait_for_selector("#panel >> text=How it ends.")
        assert page.locator(".passage-text p").all_inner_texts() == [
            "Rules › Work",
            "How it begins.",
            "Two days a week.",
            "How it ends.",
        ]
        assert page.inner_text(".passage mark") == "Two days a week."
        assert page.inner_text(".passage [role=status]") == "Passage 2 of 3 · p. 12 · score 0.8"
        assert page.evaluate("document.activeElement.textContent") == "rules.md"
        page.get_by_role("button", name="Next passage").click()
        page.wait_for_selector(".passage mark >> text=How it ends.")
        assert page.inner_text(".passage [role=status]") == "Passage 3 of 3 · p. 13"
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Passage before").click()
        page.wait_for_selector(".passage mark >> text=Two days a week.")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        page.go_back()
        page.wait_for_selector("#panel", state="hidden")
        assert opener.evaluate("(node) => node === document.activeElement")
        # Another text stands there now.
        page.locator(".sources .source").nth(1).click()
        page.wait_for_selector(".passage >> text=The document has changed since")
        page.keyboard.press("Escape")
        page.wait_for_selector("#panel", state="hidden")
        # What the knowledge server does not have, or may not show, is the passage that the answer had.
        for place, problem in ((2, ""), (3, "Document not found")):
            page.locator(".sources .source").nth(place).click()
            page.wait_for_selector(".passage mark >> text=From elsewhere.")
            page.wait_for_selector(f".passage [role=status]:has-text('{problem}')", state="attached")
            assert page.is_hidden("text=Next passage")
            page.get_by_role("button", name="Back").click()
            page.wait_for_selector("#panel", state="hidden")
        assert visit.url in page.url, "Back has closed passages, and left no page"
        # From a search it closes to the search, and leaving the tab leaves nothing for Back to close.
        visit.open_panel("documents")
        page.fill("#document-search", "days")
        page.press("#document-search", "Enter")
        page.click("#panel .source")
        page.wait_for_selector("text=score 0.83")
        page.go_back()
        page.wait_for_selector("#panel .source")
        page.click(".documents .names")
        page.wait_for_selector(".passage mark >> text=How it begins.")
        page.click("#tab-board")
        page.wait_for_selector(".passage", state="detached")
        page.click("#tab-documents")
        page.wait_for_selector("#panel .documents >> visible=true")


def test_another_model_is_chosen_for_one_answer_and_what_was_searched_is_marked_in_the_words_around_it(
    browser: Browser,
) -> None:
    models: list[Json] = [{"id": "small", "loaded": True}, {"id": "large", "loaded": False}]
    with running(PageService(models=models)) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.answered("an osaka trip")
        page.get_by_role("button", name="Ask again").click()
        page.get_by_role("menuitem", name="With large").click()
        page.wait_for_selector("#stop", state="hidden")
        assert service.sent("/v1/execute")[-1]["model"] == "large"
        service.conversations["c1"]["passage"] = "…the weather in ＯＳＡＫＡ and in Osaka"
        page.click("#menu")
        page.wait_for_selector(".conversations li")
        assert page.locator(".conversations mark").count() == 0
        page.get_by_label("Search conversations").fill("osaka")
        page.wait_for_selector(".conversations mark")
        assert page.locator(".conversations mark").all_inner_texts() == ["osaka", "ＯＳＡＫＡ", "Osaka"]
        displays = "marks => marks.map(mark => getComputedStyle(mark).display)"
        assert page.eval_on_selector_all(".conversations mark", displays) == ["inline"] * 3
        page.get_by_label("Search conversations").fill("zzz")
        page.wait_for_selector("text=No conversation contains this.")


def models_service() -> PageService:
    """A board with two models, one that fits, one that does not, and a download that is under way."""
    here = [
        known_model("demo", "emulated", loaded=True),
        known_model("small", "here", removable=True),
    ]
    others = [
        known_model("good", recommended=True),
        known_model("begun", partial_bytes=400_000_000),
        known_model("huge", fits="no"),
        known_model("rare", "to convert"),
    ]
    models = [{"id": "demo", "loaded": True}, {"id": "small", "loaded": False}]
    return PageService(catalogue=[*here, *others], models=models)


def test_models_are_downloaded_with_progress_that_a_reload_finds_again(browser: Browser) -> None:
    with running(models_service()) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        page.click("#model")
        page.get_by_role("menuitem", name="More models").click()
        page.wait_for_selector("[data-model=good]")
        assert page.locator("[data-model=huge]").is_hidden(), "what does not fit is folded"
        assert "recommended" in page.inner_text("[data-model=good]")
        assert "400 MB are here" in page.inner_text("[data-model=begun]")
        page.locator("[data-model=good]").get_by_role("button", name="Download").click()
        page.wait_for_selector("[data-model=good] progress")
        assert service.sent("/v1/models:pull") == [{"model": "good"}]
        assert "620 of 1,700 MB (36 %)" in page.inner_text("[data-model=good]")
        visit.reload()
        visit.open_panel("models")
        assert page.locator("[data-model=good] progress").evaluate("(bar) => bar.position") > 0.3
        stop = page.locator("[data-model=good]").get_by_role("button", name="Stop")
        stop.focus()
        service.downloads = [download("good", "running", received=900_000_000)]
        page.wait_for_selector("[data-model=good] >> text=900 of 1,700 MB (52 %)")
        assert stop.evaluate("(node) => node === document.activeElement"), "the progress leaves the focus where it was"
        service.catalogue[2].update(state="here", removable=True)
        service.downloads = [download("good", "ready", folder="good")]
        page.wait_for_selector("[data-model=good] >> text=Use it")
        page.wait_for_selector("#announcements >> text=good is here.", state="attached")
        asked = service.count("/v1/models/downloads")
        page.wait_for_timeout(1500)
        assert service.count("/v1/models/downloads") == asked, "nothing is asked for when no download goes on"


def test_a_model_is_found_used_and_removed_and_a_failed_download_says_why(browser: Browser) -> None:
    service = models_service()
    service.downloads = [download("them/new-rkllm", "failed", problem="The hub cannot be reached. Check the network.")]
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        visit.open_panel("models")
        failed = page.locator("[data-model='them/new-rkllm']")
        failed.get_by_text("The hub cannot be reached.").wait_for()
        failed.get_by_role("button", name="Continue the download").click()
        failed.locator("progress").wait_for()
        field = page.get_by_label("Search models")
        field.fill("SMALL")
        page.wait_for_selector("[data-model=good]", state="detached")
        page.locator("[data-model=small]").get_by_role("button", name="Use it").click()
        page.wait_for_selector("#model >> text=/^small$/")
        assert service.sent("/v1/models:load") == [{"model": "small"}]
        page.locator("[data-model=small]").get_by_role("button", name="Remove").click()
        assert service.catalogue[1]["name"] == "small", "one press removes nothing"
        page.locator("[data-model=small] .outcome").get_by_role("button", name="Remove").click()
        page.wait_for_selector("[data-model=small]", state="detached")
        field.fill("qwen")
        page.get_by_role("button", name="Search the hub").click()
        page.get_by_role("button", name="them/Qwen-rkllm").click()
        assert field.input_value() == "them/Qwen-rkllm"
        page.get_by_text("Its files were not checked.").wait_for()
        page.locator("[data-control='pull them/Qwen-rkllm']").click()
        page.locator("[data-model='them/Qwen-rkllm'] progress").wait_for()
        assert service.sent("/v1/models:pull")[-1] == {"model": "them/Qwen-rkllm"}


def test_a_list_of_models_that_is_drawn_anew_keeps_the_keyboard_where_it_was(browser: Browser) -> None:
    service = models_service()
    service.downloads = [download("good", "running")]
    focused = "document.activeElement.closest('[data-model]')?.dataset.model + ' ' + document.activeElement.innerText"
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        visit.open_panel("models")
        page.wait_for_selector("[data-model=good] progress")
        page.get_by_label("Search models").fill("o")
        more = page.locator("[data-model=small]").get_by_role("button", name="Remove").first
        more.focus()
        page.keyboard.press("Enter")
        assert page.evaluate(focused) == "small Remove"
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == "small Cancel"
        # The download ends, and the list is another one.
        service.downloads = [download("good", "failed", problem="The hub cannot be reached.")]
        page.get_by_text("The hub cannot be reached.").wait_for()
        assert page.evaluate("document.activeElement.closest('[data-model]')?.dataset.model") == "small"
        page.locator("[data-model=good]").get_by_role("button", name="Continue the download").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("[data-model=good] progress")
        assert page.evaluate(focused) == "good Stop"


# --- the servers, with a real service ---------------------------------------------------------------------------------


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


def test_what_a_server_of_the_gallery_lacks_is_told_before_the_click_and_a_person_may_do_without_the_sandbox(
    browser: Browser,
) -> None:
    missing = {"bubblewrap": "sudo apt install bubblewrap", "npx": "sudo apt install npm"}
    fake = PageService(can_add=True, missing=missing)
    with running(fake) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.open_panel("servers")
        page.locator(".fold > summary", has_text="Add a server").click()
        page.get_by_text("bubblewrap is missing on the board: the sandbox of the servers.").wait_for()
        assert page.get_by_text("sudo apt install npm", exact=True).is_visible()
        memory, time, knowledge = (
            page.locator(".server", has=page.locator("h3", has_text=title)) for title in ("Memory", "Time", "Documents")
        )
        assert "It needs bubblewrap, npx, which is missing" in memory.inner_text()
        assert "which is missing" not in knowledge.inner_text()
        time.get_by_label("Run it without the sandbox").check()
        time.get_by_role("button", name="Try it first").click()
        time.get_by_role("button", name="Add it").wait_for()
        (sent,) = service.sent("/v1/servers:try")
        assert (sent["gallery"], sent["without_sandbox"]) == ("time", True)


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


# --- other programs, with their own key that the owner revokes ---------------------------------------------------


def open_connections(visit: Visit) -> None:
    visit.open_panel("settings")
    visit.page.get_by_role("button", name="Address, key and settings to copy").click()
    visit.page.wait_for_selector("dialog pre")


def test_a_program_is_connected_with_its_own_key_that_is_revoked(browser: Browser, open_board: Served) -> None:
    with visiting(browser, open_board.url) as visit:
        open_connections(visit)
        page = visit.page
        assert "YOUR_KEY" in page.inner_text("dialog pre")
        page.get_by_role("button", name="Make a key").click()
        page.wait_for_selector("text=It is shown only this once")
        command = page.inner_text("dialog pre")
        done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, timeout=120, check=False)
        assert "weather" in done.stdout, done.stderr
        page.select_option("#connect-program", "codex")
        assert f"{open_board.url}/v1" in page.inner_text("dialog pre")
        assert "YOUR_KEY" in page.inner_text("dialog .connect p"), "each program gets a key of its own"
        page.get_by_role("button", name="Revoke").click()
        page.wait_for_selector("dialog li", state="detached")
    assert httpx2.get(f"{open_board.url}/v1/devices").json() == {"devices": [], "address": ""}


def test_a_qr_code_takes_a_phone_to_the_page_and_links_it_where_the_key_may(browser: Browser) -> None:
    with running(PageService(can_add=True)) as it:
        with visiting(browser, it.url_from_elsewhere, PHONE) as visit:
            for said in ("It links one phone", "the phone asks for a key"):
                open_connections(visit)
                visit.page.get_by_role("button", name="Show a QR code for a phone").click()
                visit.page.get_by_text(said).wait_for()
                picture = visit.page.locator("dialog img")
                assert picture.evaluate("(node) => node.decode().then(() => node.naturalWidth)") == 9
                assert it.sent("/v1/devices:qr").pop() == {"address": it.url_from_elsewhere}
                it.can_add = False
                visit.reload()
        with visiting(browser, it.url) as visit:
            open_connections(visit)
            assert visit.page.get_by_text("a phone does not reach").is_visible()
            assert visit.page.get_by_role("button", name="Show a QR code for a phone").count() == 0


def test_on_a_phone_every_text_fits_and_is_japanese(browser: Browser, open_board: Served) -> None:
    with visiting(browser, open_board.url, PHONE, locale="ja-JP") as visit:
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
def test_a_text_to_copy_runs_or_is_read_by_its_format(
    snippet: dict[str, Any], open_board: Served, tmp_path: Path
) -> None:
    text = filled(snippet, open_board.url)
    if snippet["id"] in {"curl", "python"}:
        program = ["bash", "-euc"] if snippet["id"] == "curl" else [sys.executable, "-c"]
        done = subprocess.run([*program, text], capture_output=True, text=True, timeout=120, check=False)
        assert "weather" in done.stdout, done.stderr
    elif snippet["language"] == "json":
        assert open_board.url in json.dumps(json.loads(text))
    elif snippet["language"] == "toml":
        assert tomllib.loads(text)["model_providers"]["board"]["base_url"] == f"{open_board.url}/v1"
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


# --- a phone that opens the address with a code, which becomes a key --------------------------------------------------


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
    browser: Browser, locked: Served, choice: str, lasts: bool
) -> None:
    code, addresses = locked.new_code(), list[str]()
    with phone(browser, "about:blank") as page:
        page.on("request", lambda request: addresses.append(request.url.partition("#")[0]))
        page.goto(f"{locked.url}/#/link/{code}")
        page.get_by_role("button", name=choice).click()
        asks_and_hears(page)
        assert (code in page.url, any(code in address for address in addresses)) == (False, False)
        assert page.evaluate("localStorage.getItem('rkllm-mcp.key') !== null") is lasts
        if lasts:
            window = page.context.new_page()
            window.goto(locked.url)
            asks_and_hears(window)


def test_a_used_code_leads_to_the_question_for_a_key_with_the_reason(browser: Browser, locked: Served) -> None:
    with phone(browser, locked.url, "ja-JP") as page:
        page.wait_for_selector("dialog")
        assert page.locator("#key-error").inner_text() == "", "nothing is wrong yet"
    with phone(browser, f"{locked.url}/#/link/used", "ja-JP") as page:
        page.wait_for_selector("#key-error:has-text('コードは使用済みか、5 分の期限が過ぎています')")
        page.fill("#key", "all-of-the-owner")
        page.keyboard.press("Enter")
        asks_and_hears(page)


def refused(folder: Path) -> Path:
    """A file that is not a document."""
    file = folder / "noise.bin"
    file.write_bytes(bytes(range(256)) * 8)
    return file


def test_a_linked_phone_turns_documents_on_with_one_button(browser: Browser, tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "model", "rule\n  say Hello there.\n")
    # Without keys: the browser is the owner's by its link, not by its address.
    with served(tmp_path / "home", model) as own, phone(browser, f"{own.url}/#/link/{own.new_code()}", "ja-JP") as page:
        page.locator("dialog[open] button").last.click()
        page.wait_for_selector("dialog", state="detached")
        page.get_by_role("button", name="文書を追加").first.click()
        # The command is there for who wants to read it.
        assert page.locator(".panel-body pre").is_visible() is False
        page.locator(".panel-body summary").click()
        shown = page.locator(".panel-body pre").inner_text()
        assert "-m mcp_servers.knowledge" in shown
        assert "${PYTHON}" not in shown
        by_meaning = page.get_by_label("単語だけでなく意味でも探せるようにします")
        assert by_meaning.is_checked()
        assert page.locator(".panel-body label", has_text="（31 MB、Apache-2.0、").is_visible()
        page.get_by_role("button", name="文書の機能をオンにする").click()
        page.wait_for_selector("#document-base option", state="attached")
        document = tmp_path / "rules.html"
        document.write_text("<h1>House</h1><p>The bins are emptied on Thursday.</p>", "utf-8")
        page.locator(".panel-body input[type=file]").set_input_files(document)
        page.wait_for_selector(".documents >> text=House")
        copy = tmp_path / "copy.html"
        copy.write_bytes(document.read_bytes())
        page.locator(".panel-body input[type=file]").set_input_files([copy, refused(tmp_path)])
        page.wait_for_selector(".upload >> text=同じ内容の文書がすでにあります。")
        page.wait_for_selector(".upload.refused >> text=/^noise.bin は取り込めません: バイナリファイルです。/")
        assert page.locator(".documents li").count() == 1
        page.locator(".documents >> text=2 か所に保存").wait_for()
        for _ in range(2):
            page.locator(".upload button").first.click()
        assert page.locator(".upload").count() == 0
        page.get_by_role("button", name="「House」について質問").click()
        page.wait_for_selector("#files >> text=House")
        page.wait_for_selector("#suggestions >> text=「House」には何が書いてありますか？")
        page.locator("#files button").click()
        page.click("#menu")
        page.click("[data-panel=documents]")
