"""The page around the conversation, in a real Chromium: lists, drawer, key, languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import PHONE, visiting
from tests.support.page_service import Json, PageService, download, known_model, running, text
from tests.support.page_views import busy_service, server, tool

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload


def test_servers_and_tools_have_switches_and_show_their_cost(browser: Browser) -> None:
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


def test_the_history_is_a_timeline_and_a_table_that_say_the_same(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.open_panel("servers")
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


def test_conversations_are_found_renamed_exported_and_deleted(browser: Browser) -> None:
    with running(PageService({"x": [text("a")], "y": [text("b")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        visit.begin_anew()
        visit.answered("y")
        page.get_by_label("Search conversations").fill("zzz")
        page.wait_for_selector("text=No conversation contains this.")
        page.get_by_label("Search conversations").fill("")
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
        page.get_by_role("button", name="More about x").click()
        page.get_by_role("menuitem", name="Pin").click()
        page.wait_for_selector(".conversations .group >> text=Pinned")
        assert page.locator(".conversations li > a").all_inner_texts()[0].startswith("x")
        # What is deleted can be taken back for some seconds, and is gone afterwards or when the page is left.
        for button, left in (("Undo", ["c1", "c2"]), ("", ["c1"])):
            page.click("#manage")
            page.get_by_role("menuitem", name="Delete").click()
            page.wait_for_selector("#welcome")
            assert page.locator(".conversations li > a").count() == 1
            if button:
                page.get_by_role("button", name=button).click()
                page.wait_for_selector(".conversations li:nth-child(4) > a")
            else:
                with page.expect_response(lambda response: response.request.method == "DELETE"):
                    page.evaluate("dispatchEvent(new Event('pagehide'))")
            assert list(service.conversations) == left


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


def test_a_conversation_has_settings_of_its_own_before_and_after_its_first_question(browser: Browser) -> None:
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


def test_an_emulated_model_is_marked_at_first_sight_and_at_every_answer(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url, PHONE) as visit:
        assert "demo runs on the emulated NPU" in visit.page.inner_text("#welcome")
        visit.answered("x")
        assert visit.page.is_visible("#emulated")


def test_a_question_that_waits_from_elsewhere_can_be_answered_here(browser: Browser) -> None:
    asked: Json = {"kind": "approval", "id": "q7", "name": "send_mail", "arguments": {}, "reason": "It sends."}
    with running(PageService(questions=[asked])) as service, visiting(browser, service.url) as visit:
        visit.page.get_by_role("button", name="Don’t allow").click()
        visit.page.wait_for_selector("text=You did not allow this.")
        assert service.sent("/v1/approvals/q7") == [{"decision": "deny"}]


def test_a_server_is_added_from_the_gallery_and_a_lasting_permission_taken_back(browser: Browser) -> None:
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
        page.locator(".fold > summary", has_text="Remembered permissions").click()
        page.wait_for_selector("text=files / write_file")
        page.get_by_role("button", name="Ask again").click()
        page.wait_for_selector("text=Nothing is allowed or refused for good.")
        assert service.permissions == []


def test_documents_are_added_searched_and_removed(browser: Browser) -> None:
    with (
        running(PageService(documents={"a.md": "remote work"})) as service,
        visiting(browser, service.url, PHONE) as visit,
    ):
        page = visit.page
        visit.open_panel("documents")
        page.wait_for_selector(".documents >> text=a.md")
        new: FilePayload = {"name": "b.txt", "mimeType": "text/plain", "buffer": b"allowance"}
        page.locator("#panel [type=file]").set_input_files([new])
        page.wait_for_selector(".documents >> text=b.txt")
        page.fill("#document-search", "allowance")
        page.press("#document-search", "Enter")
        page.wait_for_selector(".source >> text=0.83")
        page.locator(".documents li", has_text="a.md").get_by_role("button", name="Remove").click()
        page.get_by_role("button", name="Remove", exact=True).first.click()
        page.wait_for_selector(".documents >> text=a.md", state="detached")


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


def test_another_model_is_chosen_in_the_header(browser: Browser) -> None:
    models: list[Json] = [{"id": "small", "loaded": True}, {"id": "large", "loaded": False}]
    with running(PageService({"x": [text("a")]}, models=models)) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.get_by_role("button", name="small").click()
        with page.expect_response("**/v1/models:load"):
            page.get_by_role("menuitemradio", name="large").click()
        page.wait_for_selector("#model:has-text('large')")
        assert service.sent("/v1/models:load") == [{"model": "large"}]
        visit.answered("x")
        page.get_by_role("button", name="Ask again").click()
        page.get_by_role("menuitem", name="With small").click()
        page.wait_for_selector("#stop", state="hidden")
        assert service.sent("/v1/execute")[-1]["model"] == "small"


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


def test_what_was_searched_is_marked_in_the_words_around_it(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.answered("an osaka trip")
        service.conversations["c1"]["passage"] = "…the weather in ＯＳＡＫＡ and in Osaka"
        page.click("#menu")
        page.wait_for_selector(".conversations li")
        assert page.locator(".conversations mark").count() == 0
        page.get_by_label("Search conversations").fill("osaka")
        page.wait_for_selector(".conversations mark")
        assert page.locator(".conversations mark").all_inner_texts() == ["osaka", "ＯＳＡＫＡ", "Osaka"]


def test_settings_have_the_size_of_text_a_text_about_the_person_and_all_their_data(browser: Browser) -> None:
    with running(PageService({"x": [text("a")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        visit.open_panel("settings")
        size = "parseFloat(getComputedStyle(document.querySelector('#question')).fontSize)"
        usual = page.evaluate(size)
        page.get_by_label("Largest").check()
        assert page.evaluate(size) > usual * 1.5
        visit.reload()
        assert page.evaluate(size) > usual * 1.5, "this browser remembers it"
        visit.open_panel("settings")
        page.get_by_label("Usual").check()
        page.get_by_text("rkllm-mcp 0.1.0").wait_for()
        page.get_by_role("textbox", name="About me").fill("Taro, Osaka")
        page.locator("#panel").get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("Saved. New conversations get it.").wait_for()
        assert service.about == "Taro, Osaka"
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save everything as a file").click()
        assert json.loads(Path(saved.value.path()).read_text("utf-8"))["about"] == "Taro, Osaka"
        page.get_by_role("button", name="Delete everything…").click()
        assert service.conversations, "one press deletes nothing"
        page.get_by_role("button", name="Delete everything for good").click()
        page.get_by_text("Everything was deleted.").wait_for()
        page.wait_for_selector("text=Nothing was said yet.")
        assert (service.conversations, service.about) == ({}, "")
        assert page.get_by_role("textbox", name="About me").input_value() == ""
        page.wait_for_selector("#welcome")
