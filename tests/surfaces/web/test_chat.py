"""The conversation on the page, in a real Chromium: streaming, tools, questions, files, and all that can go wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.support.browser import DESKTOP, PHONE, visiting
from tests.support.page_service import END, HOLD, USAGE, Json, PageService, call, result, running, text
from tests.support.page_views import server, tool
from tests.support.pictures import RED_ABOVE_BLUE, saved

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

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
        assert page.inner_text(".costs").splitlines()[:2] == [
            "9.2 tokens/s · 84 % cached",
            "read 96 of 612 tokens in 0.4 s",
        ]


def test_an_answer_without_the_tools_of_a_late_server_says_so_after_its_end(browser: Browser) -> None:
    late = {"kind": "status", "text": "[MCP: Still starting: 'trains']", "about": "join_later"}
    late |= {"values": {"names": "'trains'"}}
    service = PageService({"x": [late, text("Yes."), USAGE], "y": [text("No."), USAGE]})
    with running(service) as board, visiting(browser, board.url) as visit:
        visit.answered("x")
        visit.answered("y")
        endings = visit.page.locator(".ending").all_inner_texts()
        assert endings == ["Answered without the tools of trains, which had not started yet."]


@pytest.mark.parametrize(("corrections", "shown"), [({"corrections": 3}, ["wrong tokens corrected: 3"]), ({}, [])])
def test_the_corrected_tokens_are_among_the_figures_of_an_answer_that_had_some(
    browser: Browser, corrections: Json, shown: list[str]
) -> None:
    service = PageService({"x": [text("A."), {**USAGE, **corrections}]})
    with running(service), visiting(browser, service.url) as visit:
        visit.ask("x")
        visit.page.wait_for_selector("#stop", state="hidden")
        visit.page.get_by_label("Figures of this answer").click()
        figures = visit.page.inner_text(".costs").splitlines()
        assert [line for line in figures if "corrected" in line] == shown


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


def test_calls_of_tools_are_cards_with_their_titles_that_fold_long_results(browser: Browser) -> None:
    events = [
        {"kind": "thinking", "text": "I need the weather."},
        call("1", "get_weather", {"place": "東京"}),
        result("1", "get_weather", "x" * 5000),
        call("2", "get_weather", {}),
        result("2", "get_weather", "no such place", is_error=True),
        text("Done."),
    ]
    service = PageService({"x": events}, tools=[{**tool("get_weather", "weather"), "title": "Weather"}])
    with running(service), visiting(browser, service.url) as visit:
        shown = visit.answered("x")
        name = visit.page.locator(".card strong").first
        assert (name.inner_text(), name.get_attribute("title")) == ("Weather", "weather / get_weather")
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


def test_an_address_is_shown_with_its_host_and_opened_only_when_it_is_a_page(browser: Browser) -> None:
    addresses = {"page": "https://login.example.com:8443/a?b=c", "script": "javascript:alert(1)"}
    answers = {name: [elicitation(name, {}, url), HOLD, text("ok")] for name, url in addresses.items()}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        for number, name in enumerate(addresses):
            visit.ask(name)
            card = visit.page.locator(".card.question").nth(number)
            card.get_by_text("Who?").wait_for()
            link = card.locator("a")
            if name == "page":
                assert card.locator(".host").inner_text() == "login.example.com:8443"
                assert link.inner_text() == "Open the page"
                assert link.get_attribute("rel") == "noopener noreferrer nofollow"
                card.get_by_role("button", name="Decline").click()
                visit.page.wait_for_selector("#stop", state="hidden")
                assert service.sent("/v1/elicitations/page") == [{"action": "decline"}]
            else:
                assert link.count() == 0
                assert "is not offered" in card.inner_text()


def test_how_much_of_a_long_prompt_is_read_is_estimated_until_the_first_word(browser: Browser) -> None:
    estimates: Sequence[tuple[float, float | None, str]] = (
        (100, 38, "Reading: about 6[2-9] %"),
        (100, 1, "Reading: about 95 %"),
        (0.1, 0, "Working…"),
        (100, None, "Working…"),
    )
    service = PageService()
    with running(service), visiting(browser, service.url) as visit:
        for number, (seconds, left, shown) in enumerate(estimates):
            prefill: Json = {"kind": "prefill", "tokens": 3400, "seconds": seconds, "seconds_left": left}
            service.answers["x"] = [*([] if left is None else [prefill]), HOLD, text("Here.")]
            visit.ask("x")
            bar = ":has(progress)" if "Reading" in shown else ":not(:has(progress))"
            visit.page.wait_for_selector(f".waiting-line{bar} >> text=/{shown}/")
            service.go_on()
            visit.page.wait_for_selector(f"text=Here. >> nth={number}")
            visit.page.wait_for_selector("#stop", state="hidden")


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


def test_an_answer_goes_on_after_another_conversation(browser: Browser) -> None:
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
        page.wait_for_selector(".message.assistant >> nth=1 >> text=I do not know.")
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


def test_code_gets_colours_and_formulas_their_signs_however_they_arrive(browser: Browser) -> None:
    code = "```py\ndef f():\n    return 'a'\n```\n\n"
    words = f"{code}It costs $5 or $6, and \\(x^2\\) is $y_1$.\n\n$$\n\\frac12\n$$\n"
    pieces = [text(sign) for sign in words]
    with running(PageService({"x": pieces, "y": [text(words)]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        for question in ("x", "y"):
            visit.answered(question)
            page.wait_for_selector(".code-keyword >> text=def")
            assert page.inner_text(".code-string") == "'a'"
            assert page.inner_text(".code code") == "def f():\n    return 'a'\n"
            page.wait_for_selector(".math.display mfrac", state="attached")
            assert page.locator(".math").count() == 3
            assert "It costs $5 or $6" in page.inner_text(".prose")
            visit.begin_anew()


def test_the_button_that_sends_stays_in_view_below_a_long_draft_and_questions_that_wait(browser: Browser) -> None:
    with (
        running(PageService({"x": [text("One"), HOLD]})) as service,
        visiting(browser, service.url, PHONE) as visit,
    ):
        page = visit.page
        visit.ask("x")
        page.wait_for_selector("text=One")
        for number in range(3):
            visit.ask(f"later {number}")
        page.wait_for_selector(".pending >> nth=2")
        page.fill("#question", "word " * 400)
        # The height that a keyboard leaves.
        page.set_viewport_size({"width": 390, "height": 420})
        send = page.get_by_role("button", name="Send after this answer").bounding_box()
        assert send is not None
        assert send["y"] + send["height"] <= 420
        service.go_on()


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


def test_an_answer_code_and_a_table_are_copied_where_the_browser_gives_no_clipboard(browser: Browser) -> None:
    code, table = "```py\nprint(1)\n```\n\n", "| a | b |\n|---|---|\n| 1, 2 | **say** `x` |\n"
    words = f"# Two\n\n{code}{table}"
    service = PageService({"x": [text(words)]})
    with running(service), visiting(browser, service.url_from_elsewhere) as visit:
        page = visit.page
        visit.answered("x")
        assert not page.evaluate("Boolean(navigator.clipboard)")
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


# Events as a browser makes them of files that are dropped, and of a text from Word, which adds a picture of it.
DROPPED = """(selector) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(['eggs'], 'notes.txt', { type: 'text/plain' }));
    const event = new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true });
    document.querySelector(selector).dispatchEvent(event);
    return event.defaultPrevented;
}"""
PASTED = """(field) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', 'a\\tb');
    clipboardData.items.add(new File(['PNG'], 'image.png', { type: 'image/png' }));
    const event = new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true });
    field.dispatchEvent(event);
    return event.defaultPrevented;
}"""


@pytest.mark.parametrize("place", ["#messages", "#sidebar", ".top"])
def test_a_file_may_be_dropped_anywhere_and_pasted_text_brings_no_picture(browser: Browser, place: str) -> None:
    with running(PageService()) as service, visiting(browser, service.url, DESKTOP) as visit:
        page = visit.page
        assert page.eval_on_selector("#question", PASTED) is False, "the browser pastes the text"
        assert page.locator("#files > *").count() == 0
        assert page.evaluate(DROPPED, place) is True, "the page stays"
        page.wait_for_selector("#files >> text=notes.txt")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_whole_conversation_is_printed_and_nothing_to_press(browser: Browser, scheme: str) -> None:
    with running(PageService()) as service, visiting(browser, service.url, DESKTOP) as visit:
        for number in range(8):
            visit.answered(f"Question {number} " + "line\n" * 12)
        page = visit.page
        page.emulate_media(media="print", color_scheme="dark" if scheme == "dark" else "light")
        shown = "parts => parts.filter(part => part.checkVisibility()).length"
        assert page.eval_on_selector_all("button, textarea, nav, .skip, .panel", shown) == 0
        assert page.eval_on_selector_all("#title, .message", shown) == 17
        messages = "part => part.scrollHeight > 1500 && part.clientHeight === part.scrollHeight"
        assert page.eval_on_selector("#messages", messages)
        assert page.eval_on_selector("#messages", "part => getComputedStyle(part).color") == "rgb(0, 0, 0)"


def test_an_answer_that_nothing_goes_on_from_offers_no_more(browser: Browser) -> None:
    stopped: Json = {"kind": "end", "reason": "cancelled", "error": None}
    answers = {"Think": [{"kind": "thinking", "text": "Hm"}, stopped], "Say": [text("So"), stopped]}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        page = visit.page
        assert "Stopped." in visit.answered("Think")
        assert page.locator(".go-on").count() == 0
        visit.answered("Say")
        page.wait_for_selector(".go-on")
        visit.answered("More")
        assert page.locator(".go-on").count() == 0, "the last answer alone can be continued"
        visit.answered("Say")
        service.refusals.append((409, "the last answer was not cut off; send a message", {}))
        page.click(".go-on")
        page.wait_for_selector("text=the last answer was not cut off")
        assert page.inner_text(".message:last-of-type .prose").strip() == "So"


def test_the_line_of_an_answer_says_what_happens_now_in_the_readers_language(browser: Browser) -> None:
    def line(about: str, text: str, name: str) -> Json:
        return {"kind": "status", "text": text, "about": about, "values": {"name": name}}

    begun = line("calling", "[MCP: Calling tool 'get_weather']", "get_weather")
    over = line("completed", "[MCP: Tool 'get_weather' completed]", "get_weather")
    calling = [call("1", "get_weather", {}), begun, HOLD, over, result("1", "get_weather", "12 degrees"), HOLD]
    answers = {
        "queue": [{"kind": "queued", "position": 3}, HOLD, text("Here.")],
        "load": [line("loading", "[NPU: Loading model 'owl']", "owl"), HOLD, text("Hoo.")],
        "call": [*calling, text("Mild.")],
    }
    service = PageService(answers, refusals=[(429, "the queue is full; ask again in 7 s", {"Retry-After": "7"})])
    with running(service), visiting(browser, service.url, PHONE, locale="ja-JP") as visit:
        page = visit.page
        visit.ask("queue")
        page.wait_for_selector(".error-notice")
        assert "7 秒後に" in page.inner_text(".error-notice")
        page.click("text=もう一度尋ねる")
        page.wait_for_selector("text=順番待ち：前に 3 件")
        service.go_on()
        page.wait_for_selector("#stop", state="hidden")
        assert page.locator(".message").count() == 2, "the question stands there once, and the failure is gone"
        visit.ask("load")
        page.wait_for_selector("text=owl を読み込んでいます…")
        service.go_on()
        page.wait_for_selector("text=Hoo.")
        visit.ask("call")
        page.wait_for_selector(".waiting-line >> text=/^get_weather を使っています…/")
        service.go_on()
        page.wait_for_selector(".waiting-line >> text=/^書いています…/")
        assert "completed" not in page.inner_text("#thread")
        service.go_on()
        page.wait_for_selector("text=Mild.")


def test_nothing_moves_the_field_and_send_looks_inactive_as_long_as_there_is_nothing_to_send(browser: Browser) -> None:
    service = PageService(tools=[tool("get_weather", "weather")])
    with running(service), visiting(browser, service.url, PHONE, has_touch=True, is_mobile=True) as visit:
        visit.page.add_init_script("""
            window.tops = [];
            requestAnimationFrame(function look() {
              const top = document.querySelector("#page[data-ready] #question")?.getBoundingClientRect().top;
              if (top !== undefined && tops.at(-1) !== top) tops.push(top);
              requestAnimationFrame(look);
            });
        """)
        visit.reload()
        visit.page.wait_for_selector("#suggestions li")
        visit.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert len(visit.page.evaluate("tops")) == 1
        states: list[str | None] = []
        for draft in ("", "x", " "):
            visit.page.fill("#question", draft)
            states.append(visit.page.get_attribute("#send", "aria-disabled"))
        assert states == ["true", "false", "true"]


def test_the_window_is_shown_before_a_question_goes_with_few_requests(browser: Browser) -> None:
    with running(PageService({"x": [text("Yes."), USAGE]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        service.board["context_tokens"] = 4096
        page.locator("#question").press_sequentially("a" * 40, delay=5)
        visit.answered("x")
        assert len(service.sent("/v1/tokens")) <= 2
        page.fill("#question", "b" * 2000)
        page.wait_for_function("document.activeElement.value.length === 2000")
        assert page.inner_text("#context") == "", "there is room"
        visit.reload()
        page.fill("#question", "b" * 2300)
        page.wait_for_selector("text=context 2,960 / 4,096")
        page.wait_for_selector("#context >> text=the last answer read 96 of 612 tokens")
        page.fill("#question", "b" * 3000)
        page.wait_for_selector("#context.caution >> text=Context is 89 % full.")
        page.fill("#question", "b" * 4100)
        page.wait_for_selector("#context >> text=4 tokens too many for this model")


# --- what goes with a question besides its words: a tool to begin with, tokens for servers, files --------------------


def test_a_tool_goes_with_one_question_and_a_token_with_all_and_neither_is_stored(browser: Browser) -> None:
    service = PageService(
        {"x": [text("Mild.")], "y": [text("Warm.")]},
        servers=[server("weather"), server("desk")],
        tools=[tool("get_weather", "weather"), tool("delete_file", "desk", enabled=False)],
    )
    with running(service), visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        open_options = page.get_by_role("button", name="Options for the next question")
        open_options.click()
        page.wait_for_selector("#force-tool optgroup", state="attached")
        assert page.locator("#force-tool option").all_inner_texts() == ["The model chooses", "get_weather"]
        page.get_by_label("Begin with this tool").select_option("get_weather")
        page.get_by_role("button", name="Add a token").click()
        page.get_by_label("Token", exact=True).fill("s3cret")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector("text=This token has no name.")
        page.get_by_label("Name").fill("desk")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector(".chosen-option")
        assert page.locator(".chosen-option").all_inner_texts() == ["begins with get_weather", "token for desk"]

        visit.answered("x")
        assert page.locator(".chosen-option").all_inner_texts() == ["token for desk"]
        visit.answered("y")
        page.get_by_role("button", name="Leave out: desk").click()
        visit.answered("x")
        token = {"tokens": {"desk": "s3cret"}}
        asked = {"conversation": "c1", "approvals": "ask", "detached": True}
        assert service.sent("/v1/execute") == [
            {"message": "x", "force_tool": "mcp__weather__get_weather", **token, "approvals": "ask", "detached": True},
            {"message": "y", **token, **asked},
            {"message": "x", **asked},
        ]
        kept = "JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href + document.cookie"
        assert page.evaluate(kept).count("s3cret") == 0


def test_a_question_that_is_asked_again_takes_its_options_along(browser: Browser) -> None:
    service = PageService({"x": [text("Mild.")]}, tools=[tool("get_weather", "")], refusals=[(503, "not yet", {})])
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        page.click("#options")
        page.wait_for_selector("#force-tool optgroup", state="attached")
        page.get_by_label("Begin with this tool").select_option("get_weather")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector(".chosen-option")
        visit.ask("x")
        page.click("text=Ask again")
        page.wait_for_selector("text=Mild.")
        assert [body["force_tool"] for body in service.sent("/v1/execute")] == ["mcp____get_weather"] * 2


def test_tokens_are_forgotten_with_the_key_because_the_next_may_belong_to_another_person(browser: Browser) -> None:
    with running(PageService({"x": [text("Mild.")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.click("#options")
        page.get_by_role("button", name="Add a token").click()
        page.get_by_label("Name").fill("desk")
        page.get_by_label("Token", exact=True).fill("s3cret")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector(".chosen-option")
        visit.open_panel("settings")
        page.get_by_role("button", name="Enter a key").click()
        page.get_by_role("textbox", name="Key").fill("sk-other")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chosen-option", state="detached")
        visit.answered("x")
        assert service.sent("/v1/execute") == [{"message": "x", "approvals": "ask", "detached": True}]


def test_files_become_part_of_the_question_with_their_tokens_shown(browser: Browser) -> None:
    blind = PageService(models=[{"id": "demo", "loaded": True}])
    with running(blind) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        page.click("#attach")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("menuitem", name="Choose files").click()
        chooser.value.set_files(
            [
                {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"buy milk"},
                {"name": "rules.pdf", "mimeType": "application/pdf", "buffer": b"two days"},
                {"name": "photo.png", "mimeType": "image/png", "buffer": RED_ABOVE_BLUE},
            ]
        )
        page.wait_for_selector("#files >> text=8 tokens >> nth=1")
        page.wait_for_selector("#files img[src]")
        page.wait_for_selector("#files >> text=This model cannot read images.")
        # The question may be about the picture, so it is kept until that is left out.
        visit.ask("Summarise")
        page.wait_for_selector("#files [role=alert] >> text=Not sent: photo.png cannot go with the question.")
        visit.await_question("Summarise")
        assert service.sent("/v1/execute") == []
        page.get_by_role("button", name="Leave the file out").last.click()
        page.wait_for_selector("#files [role=alert]", state="detached")
        page.press("#question", "Control+Enter")
        page.wait_for_selector("text=I do not know.")
        (sent,) = service.sent("/v1/execute")
        read = "notes.txt:\n````\nbuy milk\n````\n\nrules.pdf:\n````\ntwo days\n````\n\nSummarise"
        assert sent["message"] == read
        assert page.locator("#files > *").count() == 0


def test_a_text_in_another_encoding_or_with_markup_is_read_by_the_board_and_one_without_text_is_not_sent(
    browser: Browser,
) -> None:
    said = "今日は晴れです。明日は雨です。"
    with running(PageService(documents={})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        read: list[str] = []

        def add(name: str, data: bytes) -> None:
            page.click("#attach")
            with page.expect_file_chooser() as chooser:
                page.get_by_role("menuitem", name="Choose files").click()
            chooser.value.set_files([{"name": name, "mimeType": "", "buffer": data}])

        def see(route: Route) -> None:
            read.append(route.request.post_data_buffer.decode("latin-1"))  # type: ignore[union-attr]
            route.continue_()

        page.route("**/v1/attachments", see)
        add("sjis.txt", said.encode("cp932"))
        add("mail.txt", said.encode("iso2022_jp"))
        add("utf16.csv", said.encode("utf-16"))
        add("page.html", "<p>雨</p>".encode())
        add("plain.txt", said.encode())
        page.wait_for_selector("#files >> text=15 tokens >> nth=3")
        add("empty.txt", b" \n")
        page.wait_for_selector("#files >> text=This file has no text.")
        visit.ask("x")
        page.wait_for_selector("#files [role=alert] >> text=Not sent: empty.txt cannot go with the question.")
        page.get_by_role("button", name="Leave the file out").last.click()
        page.press("#question", "Control+Enter")
        page.wait_for_selector("text=I do not know.")
        names = ("sjis.txt", "mail.txt", "utf16.csv")
        parts = [*(f"{name}:\n````\n{said}\n````" for name in names), "page.html:\n````\n<p>雨</p>\n````"]
        (sent,) = service.sent("/v1/execute")
        assert sent["message"] == "\n\n".join([*parts, f"plain.txt:\n````\n{said}\n````", "x"])
        assert sorted(name for name in (*names, "page.html", "plain.txt") if any(name in body for body in read)) == [
            "mail.txt",
            "page.html",
            "sjis.txt",
            "utf16.csv",
        ]


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0\0\0\x14ispe\0\0\0\0" + struct.pack(">II", 7296, 5472) + bytes(99)


@pytest.mark.parametrize(
    ("language", "damaged", "large", "kept"),
    [
        (
            "en-US",
            "This browser cannot read the picture. Save it as JPEG or PNG.",
            "7,296 × 5,472 pixels are more than 20 megapixels, the most for HEIC",
            "Not sent: cut.png cannot go with the question.",
        ),
        (
            "ja-JP",
            "読めない画像です。JPEG か PNG で保存し直してください。",
            "7,296 × 5,472 ピクセルは HEIC の上限の 20 メガピクセルを超えています",
            "送っていません。cut.png を質問に付けられません。",
        ),
    ],
)
def test_a_question_is_not_sent_without_its_picture_and_a_photo_is_one_whatever_its_name_says(
    browser: Browser, language: str, damaged: str, large: str, kept: str
) -> None:
    seeing = PageService(models=[{"id": "eyes", "loaded": True, "capabilities": ["chat", "vision"]}])
    photos = Image.new("RGB", (64, 48), "red"), Image.new("RGB", (64, 48), "blue")
    stereo = saved(photos[0], "MPO", save_all=True, append_images=[photos[1]])
    with running(seeing) as service, visiting(browser, service.url, PHONE, locale=language) as visit:
        page = visit.page

        def add(name: str, data: bytes, kind: str = "") -> None:
            page.click("#attach")
            with page.expect_file_chooser() as chooser:
                page.get_by_role("menuitem").first.click()
            chooser.value.set_files([{"name": name, "mimeType": kind, "buffer": data}])

        add("cut.png", RED_ABOVE_BLUE[:60], "image/png")
        page.wait_for_selector(f"#files >> text={damaged}")
        visit.ask("x")
        page.wait_for_selector(f"#files [role=alert] >> text={kept}")
        visit.await_question("x")
        page.locator("#files .file button").click()
        add("large.heic", HEIC)
        page.wait_for_selector(f"#files >> text={large}")
        page.locator("#files .file button").click()
        # A phone's photo in depth, and a text that begins as BMP does.
        add("photo.mpo", stereo)
        page.wait_for_selector("#files img[src]")
        add("notes", b"BMW and other makers, as a text without an ending")
        page.wait_for_selector("#files .file >> nth=1")
        page.wait_for_selector("#files .refused", state="detached")
        page.press("#question", "Control+Enter")
        page.wait_for_selector("text=I do not know.")
        (sent,) = service.sent("/v1/execute")
        assert len(sent["pictures"]) == 1
        assert "BMW and other makers" in sent["message"]


def test_a_question_sent_while_a_file_is_read_goes_when_it_is_read_unless_it_is_written_on(browser: Browser) -> None:
    with (
        running(PageService(documents={})) as service,
        visiting(browser, service.url, PHONE) as visit,
    ):
        page = visit.page
        waiting: list[Route] = []
        page.route("**/v1/tokens", lambda route: waiting.append(route))  # noqa: PLW0108  # it is given an attribute

        def add(name: str) -> None:
            page.click("#attach")
            with page.expect_file_chooser() as chooser:
                page.get_by_role("menuitem", name="Choose files").click()
            chooser.value.set_files([{"name": name, "mimeType": "", "buffer": b"the key is under the mat"}])

        with page.expect_request("**/v1/tokens"):
            add("note.txt")
        visit.ask("Where is the key?")
        page.wait_for_selector("#files [role=status] >> text=when its files are read")
        page.type("#question", "?")
        page.wait_for_selector("#files [role=status]", state="detached")
        page.press("#question", "Control+Enter")
        page.wait_for_selector("#files [role=status]")
        assert service.sent("/v1/execute") == []
        for request in waiting:
            request.continue_()
        page.wait_for_selector("text=I do not know.")
        (sent,) = service.sent("/v1/execute")
        assert sent["message"].endswith("Where is the key??")
        assert "under the mat" in sent["message"]
        # One that is left out is not waited for.
        add("other.txt")
        visit.ask("And the car?")
        page.wait_for_selector("#files [role=status]")
        page.locator("#files .file button").click()
        page.wait_for_selector("text=I do not know. >> nth=1")
        assert service.sent("/v1/execute")[1]["message"] == "And the car?"
        # Nor is a question sent to a conversation that was opened meanwhile.
        add("last.txt")
        visit.ask("And the bicycle?")
        page.wait_for_selector("#files [role=status]")
        page.evaluate("location.hash = '#'")
        page.wait_for_selector("#files [role=status]", state="detached")
        waiting[-1].continue_()
        page.wait_for_selector("#files .file >> text=tokens")
        assert len(service.sent("/v1/execute")) == 2
        assert page.input_value("#question") == "And the bicycle?"


def test_content_that_does_not_fit_has_choices_with_the_cost_of_each(browser: Browser) -> None:
    book = "\f".join(f"{number} " + "x" * 1500 for number in range(1, 5))
    tools: list[Json] = [tool("search_documents", "knowledge")]
    with (
        running(PageService(tools=tools, documents={})) as service,
        visiting(browser, service.url, PHONE) as visit,
    ):
        page = visit.page

        def add(name: str, words: str) -> None:
            page.click("#attach")
            with page.expect_file_chooser() as chooser:
                page.get_by_role("menuitem", name="Choose files").click()
            chooser.value.set_files([{"name": name, "mimeType": "", "buffer": words.encode()}])

        # The window has 4,096 tokens, of which the tools take 120.
        add("book.pdf", book)
        page.wait_for_selector("text=book.pdf has 4 pages; about 2 fit into the model")
        page.get_by_role("button", name="Use only up to page 2").click()
        page.wait_for_selector("#files >> text=book.pdf, up to page 2")
        page.wait_for_selector("#files >> text=3,005 tokens")
        add("more.txt", "more\n" * 400)
        page.wait_for_selector("text=book.pdf, up to page 2 has 2 pages; about 1 fit")
        # The largest is offered first, and its first page alone would fit.
        page.get_by_role("button", name="Use only up to page 1").click()
        page.wait_for_selector("#files [role=alert]", state="detached")
        page.get_by_role("button", name="Leave the file out").first.click()
        page.get_by_role("button", name="Leave the file out").click()
        add("long.txt", "line\n" * 1000)
        page.get_by_role("button", name="Use only the beginning").click()
        page.wait_for_selector("#files >> text=long.txt, beginning")
        page.wait_for_selector("#files [role=alert]", state="detached")
        page.get_by_role("button", name="Leave the file out").click()
        add("long.txt", "line\n" * 1000)
        page.get_by_role("button", name="Leave out long.txt").click()
        assert page.locator("#files > *").count() == 0
        # The passages that fit: it goes into the documents, and the answer begins with a search.
        add("book.pdf", book)
        page.get_by_role("button", name="Put it into the documents and use the passages that fit").click()
        page.wait_for_selector("#files >> text=the answer begins with a search")
        assert service.documents == {"book.pdf": book}
        visit.ask("What is x?")
        page.wait_for_selector("text=I do not know.")
        (sent,) = service.sent("/v1/execute")
        assert sent["message"] == "book.pdf is in the documents.\n\nWhat is x?"
        assert sent["force_tool"] == "mcp__knowledge__search_documents"
