"""The conversation on the page, in a real Chromium: streaming, tools, questions, and everything that can go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.browser import DESKTOP, PHONE, visiting
from tests.support.page_service import END, HOLD, USAGE, Json, PageService, call, result, running, text
from tests.support.page_views import tool

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FORM: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2},
        "seats": {"type": "integer", "title": "Seats", "maximum": 8},
        "class": {"type": "string", "title": "Class", "enum": ["2", "1"], "enumNames": ["Second", "First"]},
        "extras": {"type": "array", "title": "Extras", "items": {"enum": ["meal", "window"]}},
        "news": {"type": "boolean", "title": "News", "default": True},
    },
    "required": ["name", "seats"],
}


def approval(number: str) -> Json:
    return {
        "kind": "approval",
        "id": number,
        "name": "delete_file",
        "arguments": {"path": "one.txt"},
        "reason": "It deletes.",
    }


def elicitation(number: str, schema: Json, url: str = "") -> Json:
    return {"kind": "elicitation", "id": number, "server": "trains", "message": "Who?", "schema": schema, "url": url}


def test_an_answer_streams_as_markdown_and_its_settled_parts_stay_as_they_are(browser: Browser) -> None:
    words = [text("# Title\n\n- one\n- **tw"), HOLD, text("o**\n\n| a |\n|---|\n| 1 |\n\n```py\nx = 1\n```\n")]
    with running(PageService({"x": [*words, USAGE]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.ask("x")
        page.wait_for_selector(".prose li:nth-child(2)")
        page.evaluate("document.querySelector('.prose li').dataset.mark = 'same'")
        service.go_on()
        page.wait_for_selector("#stop", state="hidden")
        shape = page.evaluate("[...document.querySelectorAll('.prose > *')].map((part) => part.tagName)")
        assert shape == ["H3", "UL", "DIV", "DIV"]
        assert page.inner_text(".prose strong") == "two"
        assert page.get_attribute(".prose li", "data-mark") == "same"
        assert page.inner_text(".prose td") == "1"
        assert page.inner_text(".prose pre").strip() == "x = 1"
        page.get_by_label("Figures of this answer").click()
        assert page.inner_text(".costs").splitlines()[:2] == ["9.2 tokens/s · 84 % cached", "96 tokens read in 0.4 s"]


def test_nothing_that_a_model_or_a_tool_says_becomes_markup(browser: Browser) -> None:
    evil = "<img src=x onerror=alert(1)> <script>alert(2)</script> [x](javascript:alert(3)) ![p](http://127.0.0.1:1/p)"
    events = [
        {"kind": "thinking", "text": evil},
        call("1", evil, {evil: evil}, evil),
        result("1", evil, evil, is_error=True),
        {"kind": "tool_call_failed", "raw": evil, "reason": evil},
        {"kind": "resource", "uri": evil},
        text(f"{evil}\n\n```\n{evil}\n```\n| {evil} |\n|---|\n| {evil} |\n"),
    ]
    service = PageService(
        {evil: events}, prompts=[{"name": evil, "server": evil, "description": evil, "arguments": []}]
    )
    with running(service), visiting(browser, service.url) as visit:
        shown = visit.answered(evil)
        assert shown.count("<img src=x onerror=alert(1)>") >= 5
        count = "(name) => document.querySelectorAll(`#thread ${name}`).length"
        assert [visit.page.evaluate(count, name) for name in ("img", "script", "iframe", "[onerror]")] == [0, 0, 0, 0]
        links = visit.page.evaluate("[...document.querySelectorAll('#thread a')].map((a) => [a.href, a.rel, a.target])")
        assert links == [["http://127.0.0.1:1/p", "noopener noreferrer nofollow", "_blank"]] * len(links)
        assert links
        assert {address for address in visit.addresses if not address.startswith(service.url)} == set()


def test_enter_sends_but_not_while_an_input_method_composes(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.click("#messages")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "question"
        page.keyboard.type("one")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        page.dispatch_event("#question", "keydown", {"key": "Enter", "isComposing": True, "bubbles": True})
        page.dispatch_event("#question", "keydown", {"key": "Enter", "keyCode": 229, "bubbles": True})
        visit.await_question("one\ntwo")
        assert service.sent("/v1/execute") == []
        page.keyboard.press("Enter")
        page.wait_for_selector("text=I do not know.")
        assert service.sent("/v1/execute") == [{"message": "one\ntwo", "approvals": "ask", "detached": True}]
        visit.await_question("")


def test_escape_stops_the_answer_and_open_questions_show_it(browser: Browser) -> None:
    events = [
        text("It begins"),
        call("1", "slow", {}),
        {"kind": "tool_progress", "id": "1", "progress": 3, "total": 10},
    ]
    with running(PageService({"x": [*events, HOLD, END]})) as service, visiting(browser, service.url) as visit:
        visit.ask("x")
        visit.page.wait_for_selector(".card progress")
        assert visit.page.inner_text(".card-progress") == "3 / 10"
        with visit.page.expect_response("**/v1/conversations/c1/cancel"):
            visit.page.keyboard.press("Escape")
        visit.page.wait_for_selector("#stop", state="hidden")
        assert service.sent("/v1/conversations/c1/cancel") == [{}]
        assert visit.page.get_attribute(".card", "data-state") == "stopped"
        assert visit.page.inner_text(".ending") == "Stopped. What was written is kept."


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_escape_closes_an_open_dialog_before_it_stops_an_answer(browser: Browser, size: tuple[int, int]) -> None:
    asking: Json = {"kind": "approval", "id": "a1", "name": "save", "arguments": {}, "reason": "It writes."}
    events = [call("1", "save", {}), {**asking, "seconds_left": 300}, HOLD, END]
    notes = [{"uri": f"memo://{name}", "name": name, "server": "desk", "description": ""} for name in ("one", "two")]
    service = PageService({"x": [text("Mild."), END], "y": events}, resources={"resources": notes, "templates": []})
    service.models = [{"id": name, "loaded": name == "demo"} for name in ("demo", "other")]
    with running(service), visiting(browser, service.url, size) as visit:
        page = visit.page

        def press_escape() -> None:
            page.keyboard.press("Escape")
            page.evaluate("fetch('/v1/me')")
            assert service.count("/v1/conversations/c1/cancel") == 0, "the answer goes on"
            assert page.is_visible("[data-decision=once]")

        visit.answered("x")
        visit.ask("y")
        page.click(".more-choices summary")
        press_escape()
        assert not page.is_visible("text=Always allow")
        page.click(".more-choices summary")
        page.click("text=Always allow")
        page.focus("#question")
        press_escape()
        assert not page.is_visible("text=From now on"), "it is closed wherever the focus is"
        page.click(".card summary")
        page.focus(".card summary")
        page.evaluate("document.querySelector('.card details').open = true")
        press_escape()
        assert page.evaluate("document.querySelector('.card details').open") is False
        page.locator(".again").first.click()
        page.wait_for_selector(".popover")
        press_escape()
        assert page.locator(".popover").count() == 0
        page.click("#attach")
        page.get_by_role("menuitem", name="Resource of a server").click()
        page.wait_for_selector("dialog[open]")
        press_escape()
        assert page.locator("dialog[open]").count() == 0
        visit.open_panel("board")
        if size == DESKTOP:
            page.focus("#question")
        press_escape()
        assert page.is_hidden("#panel")
        if size == PHONE:
            page.click("#menu")
            page.fill("#conversation-search", "mild")
            press_escape()
            assert page.input_value("#conversation-search") == ""
            press_escape()
            assert page.get_attribute("#menu", "aria-expanded") == "false"
        with page.expect_response("**/v1/conversations/c1/cancel"):
            page.keyboard.press("Escape")
        page.wait_for_selector("#stop", state="hidden")


def test_calls_of_tools_are_cards_that_fold_long_results(browser: Browser) -> None:
    events = [
        {"kind": "thinking", "text": "I need the weather."},
        call("1", "get_weather", {"place": "東京"}),
        result("1", "get_weather", "x" * 5000),
        call("2", "get_weather", {}),
        result("2", "get_weather", "no such place", is_error=True),
        text("Done."),
    ]
    with running(PageService({"x": events})) as service, visiting(browser, service.url) as visit:
        shown = visit.answered("x")
        assert "place: 東京" in shown
        assert "xxx" not in shown
        assert "no such place" in shown
        assert "I need the weather." not in shown
        visit.page.click(".thinking summary")
        assert "I need the weather." in visit.page.inner_text(".thinking")
        states = visit.page.evaluate("[...document.querySelectorAll('.card')].map((card) => card.dataset.state)")
        assert states == ["done", "failed"]
        visit.page.click(".card summary")
        assert "Result (5,000 characters)" in visit.page.inner_text(".card")
        assert visit.page.locator(".card dl").first.inner_text() == "place\n東京"


def test_a_tool_is_named_by_its_title(browser: Browser) -> None:
    service = PageService(
        {"x": [call("1", "get_weather", {}), result("1", "get_weather", "Mild"), text("Mild."), END]},
        tools=[{**tool("get_weather", "weather"), "title": "Weather"}],
    )
    with running(service), visiting(browser, service.url) as visit:
        visit.answered("x")
        name = visit.page.locator(".card strong")
        assert (name.inner_text(), name.get_attribute("title")) == ("Weather", "weather / get_weather")


def test_on_a_phone_only_the_last_answer_shows_its_actions_and_the_others_after_a_long_press(browser: Browser) -> None:
    from playwright.sync_api import expect

    service = PageService({"x": [text("One."), USAGE, END], "y": [text("Two."), USAGE, END]})
    with running(service), visiting(browser, service.url, PHONE, has_touch=True, is_mobile=True) as visit:
        page = visit.page
        for question in ("x", "y"):
            visit.answered(question)
        heights = "[...document.querySelectorAll('.message-foot')].map((foot) => foot.offsetHeight > 1)"
        assert page.evaluate(heights) == [False, False, False, True]
        # The copy button of a screen reader is there all the same.
        assert page.get_by_role("button", name="Copy").count() == 4
        press = "(node, type) => node.dispatchEvent(new PointerEvent(type, { pointerType: 'touch', bubbles: true }))"
        page.locator(".message.user").first.evaluate(press, "pointerdown")
        expect(page.locator(".message.user").first).to_have_class("message user is-pressed")
        page.locator(".message.user").first.evaluate(press, "pointerup")
        assert page.evaluate(heights) == [True, False, False, True]


def test_send_looks_inactive_as_long_as_there_is_nothing_to_send(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url) as visit:
        states: list[str | None] = []
        for draft in ("", "x", " "):
            visit.page.fill("#question", draft)
            states.append(visit.page.get_attribute("#send", "aria-disabled"))
        assert states == ["true", "false", "true"]


def test_the_owner_decides_about_a_call(browser: Browser) -> None:
    buttons = {
        "Allow once": "once",
        "Allow in this conversation": "conversation",
        "Always allow": "always",
        "Don’t allow": "deny",
        "Never allow": "never",
    }
    answers = {label: [approval(f"q{number}"), HOLD, text("ok")] for number, label in enumerate(buttons)}
    with running(PageService(answers)) as service, visiting(browser, service.url, PHONE) as visit:
        for number, (label, decision) in enumerate(buttons.items()):
            visit.ask(label)
            card = visit.page.locator(".card.question").nth(number)
            assert "It deletes." in card.inner_text()
            assert "path\none.txt" in card.inner_text()
            if decision not in ("once", "deny"):
                card.get_by_text("More choices").click()
            card.get_by_role("button", name=label, exact=True).click()
            if decision in ("always", "never"):
                assert service.sent(f"/v1/approvals/q{number}") == [], "what lasts is asked a second time"
                card.get_by_role("button", name=label, exact=True).click()
            visit.page.wait_for_selector(f".card.question[data-state=over] >> nth={number}")
            visit.page.wait_for_selector("#stop", state="hidden")
            assert service.sent(f"/v1/approvals/q{number}") == [{"decision": decision}]
            assert card.locator("button").count() == 0


def test_a_form_is_made_of_its_schema_and_checked_before_it_goes(browser: Browser) -> None:
    service = PageService(
        {"x": [elicitation("q1", FORM), HOLD, text("booked")]},
        form_error={
            "message": "Seats: at most 8",
            "type": "invalid_request_error",
            "param": "content.seats",
            "code": None,
        },
    )
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        visit.ask("x")
        send = page.get_by_role("button", name="Send", exact=True).locator("visible=true").first
        page.get_by_label("Name").fill("T")
        page.get_by_label("Seats").fill("9")
        send.click()
        assert page.inner_text(".field:has([name=name]) .error") == "At least 2 characters."
        assert page.inner_text(".field:has([name=seats]) .error") == "At most 8."
        assert page.evaluate("document.activeElement.name") == "name"
        assert service.sent("/v1/elicitations/q1") == []
        page.get_by_label("Name").fill("Taro")
        page.get_by_label("Seats").fill("２")
        page.get_by_label("First").check()
        page.get_by_label("window").check()
        page.get_by_label("News").uncheck()
        send.click()
        page.wait_for_selector("[name=seats]:focus")
        assert page.inner_text(".field:has([name=seats]) .error") == "Seats: at most 8", "the board's word on it"
        send.click()
        page.wait_for_selector("#stop", state="hidden")
        content = {"name": "Taro", "seats": 2, "class": "1", "extras": ["window"], "news": False}
        assert service.sent("/v1/elicitations/q1") == [{"action": "accept", "content": content}] * 2
        page.wait_for_selector(".card.question >> text=Sent.")


@pytest.mark.parametrize(
    ("url", "host"), [("https://login.example.com:8443/a?b=c", "login.example.com:8443"), ("javascript:alert(1)", None)]
)
def test_an_address_is_shown_with_its_host_and_opened_only_when_it_is_a_page(
    browser: Browser, url: str, host: str | None
) -> None:
    events = [elicitation("q1", {}, url), HOLD, text("ok")]
    with running(PageService({"x": events})) as service, visiting(browser, service.url) as visit:
        visit.ask("x")
        card = visit.page.locator(".card.question")
        if host is None:
            assert card.locator("a").count() == 0
            assert "is not offered" in card.inner_text()
            return
        assert card.locator(".host").inner_text() == host
        link = card.get_by_role("link", name="Open the page")
        assert link.get_attribute("rel") == "noopener noreferrer nofollow"
        card.get_by_role("button", name="Decline").click()
        visit.page.wait_for_selector("#stop", state="hidden")
        assert service.sent("/v1/elicitations/q1") == [{"action": "decline"}]


def test_a_full_queue_says_when_to_ask_again_and_the_place_in_it_is_shown(browser: Browser) -> None:
    refused = (429, "the queue is full; ask again in 7 s", {"Retry-After": "7"})
    answers = {"x": [{"kind": "queued", "position": 3}, HOLD, text("Here.")]}
    service = PageService(answers, refusals=[refused])
    with running(service), visiting(browser, service.url, locale="ja-JP") as visit:
        visit.ask("x")
        visit.page.wait_for_selector(".error-notice")
        assert "7 秒後に" in visit.page.inner_text(".error-notice")
        visit.page.click("text=もう一度尋ねる")
        visit.page.wait_for_selector("text=順番待ち：前に 3 件")
        service.go_on()
        visit.page.wait_for_selector("#stop", state="hidden")
        assert visit.page.locator(".message").count() == 2, "the question stands there once, and the failure is gone"


@pytest.mark.parametrize(
    ("seconds", "left", "shown"),
    [
        (100, 38, "Reading: about 6[2-9] %"),
        (100, 1, "Reading: about 95 %"),
        (0.1, 0, "Working…"),
        (100, None, "Working…"),
    ],
)
def test_how_much_of_a_long_prompt_is_read_is_estimated_until_the_first_word(
    browser: Browser, seconds: float, left: float | None, shown: str
) -> None:
    prefill: Json = {"kind": "prefill", "tokens": 3400, "seconds": seconds, "seconds_left": left}
    service = PageService({"x": [*([] if left is None else [prefill]), HOLD, text("Here.")]})
    with running(service), visiting(browser, service.url) as visit:
        visit.ask("x")
        bar = ":has(progress)" if "Reading" in shown else ":not(:has(progress))"
        visit.page.wait_for_selector(f".waiting-line{bar} >> text=/{shown}/")
        service.go_on()
        visit.page.wait_for_selector("text=Here.")


def test_an_answer_that_failed_says_why_once_and_can_be_asked_again(browser: Browser) -> None:
    failed: Json = {"kind": "end", "reason": "failed", "error": "the runtime died; it is started again"}
    with running(PageService({"x": [text("So"), failed]})) as service, visiting(browser, service.url) as visit:
        shown = visit.answered("x")
        assert shown.count("The answer failed: the runtime died; it is started again") == 1
        assert shown.count("the runtime died") == 1
        service.answers["x"] = [text("So it is.")]
        assert visit.page.get_by_role("button", name="Ask again").count() == 1
        visit.page.click("text=Ask again")
        visit.page.wait_for_selector("text=So it is.")
        assert visit.page.locator(".error-notice").count() == 0


def test_a_conversation_is_there_again_after_a_reload_as_it_was(browser: Browser) -> None:
    asked: Json = {**approval("q1"), "name": "get_weather", "arguments": {"place": "Kyoto"}}
    events = [
        {"kind": "thinking", "text": "Hm."},
        call("1", "get_weather", {"place": "Kyoto"}),
        asked,
        HOLD,
        {**result("1", "get_weather", "no", is_error=True), "ruling": "deny"},
        text("*Fine.*"),
        USAGE,
    ]
    with running(PageService({"x": events})) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.ask("x")
        card = page.locator(".card.tool")
        card.get_by_role("button", name="Don’t allow").click()
        page.wait_for_selector("#stop", state="hidden")
        assert visit.page.url == f"{service.url}/#/c/c1"
        shown = page.inner_text(".thread")
        assert "You did not allow this." in shown
        assert card.get_attribute("data-state") == "refused"
        visit.reload()
        page.wait_for_selector(".message.assistant em")
        assert page.inner_text(".thread") == shown
        page.click(".card summary")
        assert page.inner_text(".card").count("Kyoto") == 1, "the arguments stand once"
        page.goto(f"{service.url}/#/c/nowhere")
        page.wait_for_selector("text=This conversation is not here")


def test_a_question_is_asked_in_other_words_and_its_earlier_versions_stay(browser: Browser) -> None:
    answers = {words: [text(f"To {words}."), USAGE] for words in ("one", "two", "zwei")}
    with running(PageService(answers)) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.answered("one")
        visit.answered("two")
        question = page.locator(".message.user").nth(0)
        question.get_by_role("button", name="Edit").click()
        field = question.get_by_label("Edit")
        assert field.input_value() == "one"
        field.fill("zwei")
        page.wait_for_selector("text=About 4 tokens are read again")
        field.press("Enter")
        page.wait_for_selector("text=To zwei.")
        page.wait_for_selector("#stop", state="hidden")
        sent = service.sent("/v1/execute")[-1]
        assert (sent["message"], sent["replaces"], sent["conversation"]) == ("zwei", 0, "c1")
        assert page.locator(".message").count() == 2, "what was asked behind it belongs to the earlier version"
        page.wait_for_selector(".versions >> text=Version 2 of 2")
        page.get_by_role("button", name="Earlier version").click()
        page.wait_for_selector("text=To two.")
        assert service.sent("/v1/conversations/c1/versions") == [{"position": 0, "version": 1}]
        page.wait_for_selector(".versions >> text=Version 1 of 2")
        visit.reload()
        page.wait_for_selector("text=To two.")
        # The same again, without tools, from the keyboard.
        page.locator(".message.assistant").last.get_by_role("button", name="Ask again").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=menu] :focus")
        page.keyboard.press("ArrowDown")
        with page.expect_response("**/v1/execute"):
            page.keyboard.press("Enter")
        page.wait_for_selector(".versions >> text=Version 2 of 2")
        sent = service.sent("/v1/execute")[-1]
        assert (sent["message"], sent["replaces"], sent["allowed_tools"]) == ("two", 2, [])


def test_an_answer_goes_on_behind_another_conversation(browser: Browser) -> None:
    with running(PageService({"x": [text("a"), HOLD, text("b")]})) as service, visiting(browser, service.url) as visit:
        visit.ask("x")
        visit.page.wait_for_selector(".conversations .running")
        visit.begin_anew()
        service.go_on()
        visit.page.wait_for_selector(".conversations .running", state="detached")
        visit.page.click(".conversations a")
        visit.page.wait_for_selector("text=ab")


def test_resources_and_prompts_of_servers_go_into_a_question(browser: Browser) -> None:
    resources = [
        {"uri": f"memo://{day.lower()}", "name": day, "server": "desk", "description": "", "mime_type": ""}
        for day in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
    ]
    family = {"uri_template": "docs://{page}/{+path}", "name": "Pages", "server": "desk", "description": ""}
    blanks = [{"name": "language", "description": "", "required": True}, {"name": "style", "required": False}]
    prompt = {"name": "review", "server": "dev", "description": "Reviews.", "arguments": blanks}
    service = PageService(resources={"resources": resources, "templates": [family]}, prompts=[prompt])
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        page.fill("#question", "Sum up")
        page.click("#attach")
        page.get_by_role("menuitem", name="Resource of a server").click()
        page.get_by_label("Search", exact=True).fill("MONDAY")
        page.wait_for_selector("dialog summary", state="hidden")
        page.get_by_role("button", name="Monday").click()
        page.wait_for_selector("#files >> text=Monday")
        page.wait_for_selector("#files >> text=42 tokens")
        page.click("#attach")
        page.get_by_role("menuitem", name="Resource of a server").click()
        page.click("dialog summary")
        page.get_by_label("page").fill("a b")
        page.get_by_label("path").fill("c/d.")
        page.get_by_role("button", name="Insert").click()
        page.wait_for_selector("#files >> text=42 tokens >> nth=1")
        visit.await_question("Sum up")
        page.press("#question", "Enter")
        page.wait_for_selector("text=I do not know.")
        mentioned = "@desk:memo://monday\n\n@desk:<docs://a%20b/c/d.>\n\nSum up"
        assert service.sent("/v1/execute").pop()["message"] == mentioned
        assert page.locator("#files > *").count() == 0
        page.click("#prompts")
        page.get_by_label("language").fill("rust")
        page.get_by_role("button", name="Ask", exact=True).click()
        page.wait_for_selector(".message.assistant .message-foot button >> nth=2")
        asked = {
            "prompt": {"name": "dev:review", "arguments": {"language": "rust"}},
            "approvals": "ask",
            "detached": True,
        }
        conversation = {"conversation": "c1"}
        assert service.sent("/v1/execute")[1:] == [{**asked, **conversation}]


def test_a_screen_reader_reads_sentences_once_and_events_around_them(browser: Browser) -> None:
    events = [
        text("It is **fi"),
        text("ne**. And "),
        call("1", "get_weather", {}),
        result("1", "get_weather", "x"),
        text("warm"),
    ]
    with running(PageService({"x": events})) as service, visiting(browser, service.url) as visit:
        visit.answered("x")
        said = visit.page.evaluate("[...document.querySelectorAll('#announcements p')].map((p) => p.textContent)")
        assert said == ["It is fine.", "Calling tool get_weather", "And warm", "End of the answer"]
        assert visit.page.get_attribute("#announcements", "aria-live") == "polite"
        assert visit.page.get_attribute(".message.assistant", "aria-busy") is None


def test_code_gets_colours_formulas_their_signs_and_a_table_goes_into_a_sheet(browser: Browser) -> None:
    code, table = "```py\ndef f():\n    return 'a'\n```\n\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"
    words = f"{code}It costs $5 or $6, and \\(x^2\\) is $y_1$.\n\n$$\n\\frac12\n$$\n\n{table}"
    for size in (1, 1000):
        said = [text(words[place : place + size]) for place in range(0, len(words), size)]
        with (
            running(PageService({"x": said})) as service,
            visiting(browser, service.url, permissions=["clipboard-read", "clipboard-write"]) as visit,
        ):
            page = visit.page
            visit.answered("x")
            page.wait_for_selector(".code-keyword >> text=def")
            assert page.inner_text(".code-string") == "'a'"
            assert page.inner_text(".code code") == "def f():\n    return 'a'\n"
            page.wait_for_selector(".math.display mfrac", state="attached")
            assert page.locator(".math").count() == 3
            assert "It costs $5 or $6" in page.inner_text(".prose")
            page.locator(".prose > div:has(table) .copy").click()
            page.wait_for_selector("text=Copied")
            assert page.evaluate("navigator.clipboard.readText()") == "a\tb\n1\t2"


def test_enter_during_an_answer_queues_the_next_question_and_says_so(browser: Browser) -> None:
    answers = {"x": [text("One"), HOLD, text(" two.")], "later": [text("Later.")], "now": [text("Now.")]}
    with running(PageService(answers)) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        visit.ask("x")
        page.wait_for_selector("text=One")
        page.fill("#question", "later")
        page.get_by_role("button", name="Send after this answer").click()
        visit.ask("drop me")
        assert "Sent after this answer" in page.inner_text("#queued")
        page.locator(".pending").nth(1).get_by_role("button", name="Leave out").click()
        assert page.locator(".pending").all_inner_texts() == ["later"]
        service.go_on()
        page.wait_for_selector("text=Later.")
        assert page.locator(".pending").count() == 0
        assert [body["message"] for body in service.sent("/v1/execute")] == ["x", "later"]
        visit.ask("x")
        page.wait_for_selector("text=One >> nth=1")
        visit.ask("after the reload")
        visit.reload()
        # The answer is over: what waited for it is asked.
        page.wait_for_selector("text=I do not know.")
        assert page.locator(".pending").count() == 0
        # Sent at once, it stops the answer first.
        visit.ask("x")
        page.wait_for_selector("text=One >> nth=1")
        visit.ask("now")
        page.locator(".pending").get_by_role("button", name="Stop the answer and send now").click()
        page.wait_for_selector("text=Now.")
        assert page.inner_text(".ending") == "Stopped. What was written is kept."


WIDE = f"""| name | {"column " * 12} |
|---|---|
| a, "b" | {"long cell " * 40} |
| {"x" * 300} | 2 |

```py
print("{"y" * 400}")
```

`{"z" * 200}` and https://example.com/{"w" * 200}
"""


def test_a_long_table_and_a_long_line_of_code_never_move_the_page_sideways(browser: Browser) -> None:
    service = PageService({"x": [text(WIDE)]})
    with running(service), visiting(browser, service.url, PHONE, has_touch=True) as visit:
        page = visit.page
        visit.answered("x")
        for pane in (".table", ".code pre"):
            assert page.eval_on_selector(pane, "(node) => node.scrollWidth > node.clientWidth"), pane
            # It is scrolled by itself, and what is behind its edge can be reached by keys.
            page.focus(pane)
            page.eval_on_selector(pane, "(node) => node.scrollBy(200, 0)")
            assert page.eval_on_selector(pane, "(node) => node.scrollLeft") == 200, pane
        for place in ("html", "body", "#messages", "#thread"):
            sideways = page.eval_on_selector(place, "(node) => [node.scrollWidth - node.clientWidth, node.scrollLeft]")
            assert sideways == [0, 0], place
        edges = "[...document.querySelectorAll('.message')].map((node) => node.getBoundingClientRect().right)"
        assert max(page.evaluate(edges)) <= PHONE[0]


@pytest.mark.parametrize("is_trusted", [True, False])
def test_an_answer_code_and_a_table_are_copied_also_where_the_browser_gives_no_clipboard(
    browser: Browser, is_trusted: bool
) -> None:
    code, table = "```py\nprint(1)\n```\n\n", "| a | b |\n|---|---|\n| 1, 2 | **say** `x` |\n"
    words = f"# Two\n\n{code}{table}"
    service = PageService({"x": [text(words)]})
    with (
        running(service),
        visiting(browser, service.url if is_trusted else service.url_from_elsewhere) as visit,
    ):
        page = visit.page
        if is_trusted:
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visit.answered("x")
        assert page.evaluate("Boolean(navigator.clipboard)") == is_trusted
        copies = {
            ".code": "print(1)\n",
            ".prose > div:has(table)": "a\tb\n1, 2\tsay x",
            ".message.assistant .message-foot": words,
        }
        for place, copied in copies.items():
            page.locator(f"{place} .copy").click()
            page.wait_for_selector(f"{place} >> text=Copied")
            assert page.evaluate("document.activeElement.className") == "copy", "the focus stays"
            page.fill("#question", "")
            page.focus("#question")
            page.keyboard.press("Control+V")
            # A field keeps lines apart by one sign.
            visit.await_question(copied)
