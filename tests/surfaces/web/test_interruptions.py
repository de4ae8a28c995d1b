"""Nothing is lost: the network goes away, the service starts again, releases come, other windows go on, it reloads."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rkllm_mcp.surfaces.http.page import page_version
from tests.support.browser import LONG_PAUSE, OFFLINE, PATIENCE_MS, PHONE, READY, Visit, visiting, whole_chromium
from tests.support.page_service import BREAK, END, HOLD, Json, PageService, call, result, running, text
from tests.support.pictures import RED_ABOVE_BLUE
from tests.support.served import scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route


def shown(page: Page) -> list[str]:
    """What is in the conversation, part by part, without what only screen readers are told."""
    parts = "[...document.querySelectorAll('.thread > *')].map((part) => part.innerText)"
    return [" ".join(part.split()) for part in page.evaluate(parts)]


def test_after_a_lost_connection_the_page_shows_what_the_board_has_stored(browser: Browser) -> None:
    answers = {"x": [text("It begins "), HOLD, BREAK], "y": [text("Whole."), HOLD, END]}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.ask("x")
        page.wait_for_selector("text=It begins")
        service.go_on()
        page.wait_for_selector("text=The connection was lost before this was answered.")
        page.wait_for_selector("text=This has not been answered.")
        assert page.locator(".message").count() == 1
        assert page.is_hidden("#offline")
        service.answers["x"] = [text("Now it is whole.")]
        page.click("text=Ask again")
        page.wait_for_selector("text=Now it is whole.")


def test_a_question_is_sent_when_the_board_is_back_if_that_is_wanted_and_the_loss_is_said_once(
    browser: Browser,
) -> None:
    answers = {"x": [text("Here.")], "y": [text("There.")]}
    with running(PageService(answers, storage="the disk is full")) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        page.wait_for_selector("#storage >> visible=true")
        page.context.set_offline(True)
        visit.ask("y")
        page.wait_for_selector(OFFLINE)
        assert page.is_hidden("#storage"), "one notice at a time"
        assert "Here." in page.inner_text("#thread")
        visit.look_again()
        page.wait_for_timeout(200)
        assert (page.inner_text("#conversations-note"), page.inner_text("#welcome-note")) == ("", "")
        assert page.locator(".conversations li > a").count() == 1, "what was listed stays"
        when = page.get_by_role("button", name="Send when the board is back")
        when.click()
        page.get_by_role("button", name="It is sent when the board is back").click()
        when.click()
        page.context.set_offline(False)
        page.wait_for_selector("text=There.")
        page.wait_for_selector("#storage >> visible=true")
        assert [body["message"] for body in service.sent("/v1/execute")] == ["x", "y"]
        assert page.locator(".message.user").count() == 2


def test_a_question_that_waits_for_the_board_is_sent_once_after_the_page_is_loaded_again(browser: Browser) -> None:
    answers = {"x": [text("Here.")], "y": [text("There.")], "z": [text("Where.")]}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        # The files of the page come; the board behind does not answer.
        page.route("**/v1/**", lambda route: route.abort())
        visit.ask("y")
        page.get_by_role("button", name="Send when the board is back").click()
        visit.begin_anew()
        visit.await_question("")
        visit.ask("z")
        page.get_by_role("button", name="Send when the board is back").click()
        visit.reload()
        page.wait_for_selector(".message.user >> text=z")
        page.get_by_role("button", name="It is sent when the board is back").wait_for()
        visit.await_question("")
        page.go_back()
        page.wait_for_selector(".message.user >> text=y")
        page.get_by_role("button", name="It is sent when the board is back").wait_for()
        page.unroute("**/v1/**")
        page.click("text=Try now")
        page.wait_for_selector("text=There.")
        assert [part.split()[1] for part in shown(page)] == ["x", "Here.", "y", "There."]
        page.wait_for_function("document.querySelectorAll('.conversations li > a').length === 2")
        asked = [(body["message"], body.get("conversation")) for body in service.sent("/v1/execute")]
        assert sorted(asked, key=str) == [("x", None), ("y", "c1"), ("z", None)]
        visit.reload()
        page.wait_for_selector("text=There.")
        assert service.count("/v1/execute") == 3


def test_a_question_that_waits_is_sent_with_its_pictures_by_a_page_that_finds_the_board_loading(
    browser: Browser,
) -> None:
    refusals = [(503, "the model is loading", {"Retry-After": "1"})]
    seeing: Json = {"id": "eyes", "loaded": True, "capabilities": ["chat", "vision"]}
    service = PageService({"x": [text("Seen.")]}, models=[seeing])
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        page.click("#attach")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("menuitem", name="Choose files").click()
        chooser.value.set_files([{"name": "a.png", "mimeType": "image/png", "buffer": RED_ABOVE_BLUE}])
        page.wait_for_selector("#files img[src]")
        page.route("**/v1/**", lambda route: route.abort())
        visit.ask("x")
        page.get_by_role("button", name="Send when the board is back").click()
        service.refusals = refusals
        page.unroute("**/v1/**")
        visit.reload()
        page.wait_for_selector("text=Seen.")
        first, second = service.sent("/v1/execute")
        assert first["pictures"] == second["pictures"]
        assert len(first["pictures"]) == 1


def test_a_question_that_got_through_before_the_page_was_loaded_again_is_not_sent_twice(browser: Browser) -> None:
    answers = {"x": [text("Here.")], "y": [text("There.")]}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")

        def lose(route: Route) -> None:
            route.fetch()
            route.abort()

        page.route("**/v1/execute", lose)
        page.route("**/v1/me", lambda route: route.abort())
        visit.ask("y")
        page.get_by_role("button", name="Send when the board is back").click()
        page.unroute("**/v1/me")
        page.unroute("**/v1/execute")
        visit.reload()
        page.wait_for_selector("text=There.")
        assert service.count("/v1/execute") == 2
        assert page.locator(".message.user").count() == 2


def test_a_board_that_starts_again_is_found_and_the_page_says_no_longer_that_it_is_gone(browser: Browser) -> None:
    with running(PageService({"x": [text("Here.")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.route("**/v1/**", lambda route: route.abort())
        page.fill("#conversation-search", "a")
        page.wait_for_selector(LONG_PAUSE)
        assert page.inner_text("#conversations-note") == "", "the line above the field says it"
        page.unroute("**/v1/**")
        page.click("text=Try now")
        page.wait_for_selector(OFFLINE, state="detached")
        page.wait_for_selector("#conversations-note >> text=No conversation contains this.")
        said = page.evaluate("[...document.querySelectorAll('#announcements p')].map((p) => p.textContent)")
        assert said == ["No connection to the board. The page keeps trying.", "The board is there again."]


@pytest.mark.parametrize(
    ("language", "broken", "again"),
    [
        ("en-US", "This answer was broken off: the board stopped in the middle of it.", "Ask again"),
        ("ja-JP", "ボードが途中で停止したため、この回答は途切れました。", "もう一度尋ねる"),
    ],
)
def test_an_answer_that_ends_with_its_board_is_broken_off_and_not_stopped_by_the_person(
    browser: Browser, language: str, broken: str, again: str
) -> None:
    end: Json = {"kind": "end", "reason": "interrupted", "error": None}
    service = PageService({"x": [text("Half of it"), end]})
    with running(service), visiting(browser, service.url, locale=language) as visit:
        said = visit.answered("x")
        assert broken in said
        assert visit.page.locator("text=/Stopped|中止/").count() == 0
        service.answers["x"] = [text("All of it.")]
        visit.page.locator(".thread > .notice button", has_text=again).click()
        visit.page.wait_for_selector("text=All of it.")
        assert [body.get("again", False) for body in service.sent("/v1/execute")] == [False, True]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en-US", ("None of the boards can answer now.", "The board was lost before it had answered.")),
        ("ja-JP", ("今、回答できるボードがありません。", "回答の前にボードとの接続が失われました。")),
    ],
)
def test_what_the_proxy_of_several_boards_says_is_a_sentence_in_the_persons_language(
    browser: Browser, language: str, sentences: tuple[str, str]
) -> None:
    no_headers: dict[str, str] = {}
    refusals = [(503, "no board can answer now", no_headers), (502, "the board was lost", no_headers)]
    service = PageService({"x": [text("Here.")]}, refusals=refusals, codes=["no_board", "board_lost"])
    with running(service), visiting(browser, service.url, locale=language) as visit:
        for sentence in sentences:
            visit.ask("x")
            visit.page.wait_for_selector(f".error-notice >> text={sentence}")
            assert visit.page.locator("text=/the model|モデルを読み込み/").count() == 0


def test_a_question_that_the_board_never_had_is_still_there_when_the_page_is_left_and_loaded_again(
    browser: Browser,
) -> None:
    service = PageService({"x": [text("Here.")]}, refusals=[(503, "the model is loading", {})] * 2)
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        visit.ask("What was it")
        page.wait_for_selector(".error-notice >> text=The model is loading")
        visit.reload()
        visit.await_question("What was it")
        page.press("#question", "Enter")
        page.wait_for_selector(".error-notice")
        visit.await_question("")
        visit.begin_anew()
        visit.await_question("What was it")
        visit.answered("x")
        visit.reload()
        visit.await_question("")


def test_a_conversation_in_two_windows_is_the_same_in_both_when_they_are_looked_at(browser: Browser) -> None:
    cards = [call("1", "get_weather", {}), result("1", "get_weather", "12 degrees"), text("Mild.")]
    answers = {"x": cards, "y": [text("Late."), HOLD, END]}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        visit.answered("x")
        before = shown(visit.page)
        with visiting(browser, visit.page.url) as other:
            other.page.wait_for_selector("text=Mild.")
            other.ask("y")
            other.page.wait_for_selector("text=Late.")
            service.go_on()
            other.page.wait_for_selector("#stop", state="hidden")
        visit.look_again()
        visit.page.wait_for_selector("text=Late.")
        assert shown(visit.page)[: len(before)] == before, "with the results, which are not stored"
        assert [part.removesuffix(" Copy") for part in shown(visit.page)[len(before) :]] == ["You y", "Answer Late."]
        visit.look_again()
        visit.page.evaluate("fetch('/v1/me')")
        assert visit.page.locator(".message").count() == 4, "what is known is not added again"


def test_a_conversation_that_the_board_has_forgotten_goes_on_with_the_messages_of_the_page(browser: Browser) -> None:
    with running(PageService({"x": [text("Mild.")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        service.conversations.clear()
        visit.ask("And now?")
        page.wait_for_selector("text=The board does not know this conversation any more.")
        page.click("text=Go on in a new conversation")
        page.wait_for_selector("text=I do not know.")
        history = [{"role": "user", "text": "x"}, {"role": "assistant", "text": "Mild."}]
        assert service.sent("/v1/execute")[-1] == {
            "message": "And now?",
            "history": history,
            "approvals": "ask",
            "detached": True,
        }
        assert page.locator(".message").count() == 4
        assert service.conversations.keys() == {page.url.rpartition("/")[2]}


def test_the_page_says_that_nothing_is_stored_while_that_is_so(browser: Browser) -> None:
    with running(PageService({"x": [text("Mild.")]})) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        assert page.is_hidden("#storage")
        service.storage = "database or disk is full; make room on that disk"
        assert "Mild." in visit.answered("x")
        page.wait_for_selector("#storage >> visible=true")
        assert page.inner_text("#storage") == f"Answers go on, but nothing is stored at the moment: {service.storage}"
        service.storage = ""
        visit.answered("x")
        page.wait_for_selector("#storage", state="hidden")


def test_a_half_filled_form_stays_while_its_reader_looks_at_another_panel(browser: Browser) -> None:
    schema: Json = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    form: Json = {"kind": "elicitation", "id": "q1", "server": "trains", "message": "Who?", "schema": schema, "url": ""}
    approval: Json = {"kind": "approval", "id": "q2", "name": "send_mail", "arguments": {}, "reason": "It sends."}
    with running(PageService(questions=[form])) as service, visiting(browser, service.url, PHONE) as visit:
        visit.page.get_by_label("name").fill("Taro")
        service.questions.append(approval)
        visit.look_again()
        visit.page.wait_for_selector("text=Allow “send_mail” to run?")
        assert visit.page.get_by_label("name").input_value() == "Taro"
        assert visit.page.evaluate("document.activeElement.name") == "name"
        service.questions.remove(form)
        visit.look_again()
        visit.page.wait_for_selector("form.form", state="detached")
        assert visit.page.locator(".card.question").count() == 1


def test_going_back_and_forward_shows_each_conversation_as_it_was(browser: Browser) -> None:
    answers = {"x": [text("One.")], "y": [text("Two.")]}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        visit.begin_anew()
        visit.answered("y")
        for move, answer, title in (
            (page.go_back, "One.", "x"),
            (page.go_forward, "Two.", "y"),
        ):
            move()
            page.wait_for_selector(f".message.assistant >> text={answer}")
            page.wait_for_selector(f"#title >> text={title}")
            assert page.locator(".message").count() == 2
        page.goto(f"{service.url}/#/c/nowhere")
        page.wait_for_selector("text=This conversation is not here")


def test_a_question_asked_while_a_conversation_is_loading_comes_after_it(browser: Browser) -> None:
    answers = {"x": [text("One.")], "y": [text("Two.")]}
    with running(PageService(answers)) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("x")
        visit.begin_anew()
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/v1/conversations/*", hold)
        page.go_back()
        page.wait_for_selector(".thread > [role=status]")
        visit.ask("y")
        page.wait_for_selector(".pending >> text=y")
        for route in held:
            route.continue_()
        page.unroute("**/v1/conversations/*")
        page.wait_for_selector(".message.assistant >> text=Two.")
        assert [part.split()[1] for part in page.locator(".message").all_inner_texts()] == ["x", "One.", "y", "Two."]


def with_turns(count: int, lines: int = 1) -> PageService:
    """A service with a conversation of this many questions, each with its answer."""
    service = PageService()
    turns: list[Json] = [
        {
            "role": role,
            "text": "\n\n".join([f"{role} {number}"] * lines),
            "thinking": "",
            "created": number,
            "ending": "",
        }
        for number in range(count)
        for role in ("user", "assistant")
    ]
    service.conversations["c1"] = {"id": "c1", "title": "Long", "created": 1.0, "updated": 1.0, "messages": turns}
    return service


def test_of_a_long_conversation_the_end_is_shown_and_the_rest_when_it_is_asked_for(browser: Browser) -> None:
    with running(with_turns(250)) as service, visiting(browser, f"{service.url}/#/c/c1", PHONE) as visit:
        page = visit.page
        counts: list[int] = []
        while True:
            counts.append(page.locator(".message").count())
            if not page.locator(".earlier button").count():
                break
            first = page.locator(".message").first
            # As far up as it goes, where the button is.
            page.evaluate("document.getElementById('messages').scrollTop = 0")
            top = "(node) => Math.round(node.getBoundingClientRect().top)"
            before, name = first.evaluate(top), first.locator("p").first.inner_text()
            page.get_by_role("button", name="Show what was said before").press("Enter")
            same = page.locator(".message").filter(has=page.get_by_text(name, exact=True)).first
            assert abs(same.evaluate(top) - before) <= 60, "what was read stays where it was"
        assert counts == [60, 120, 180, 240, 300, 360, 420, 500]
        texts = page.locator(".message p").all_text_contents()
        messages = service.conversations["c1"]["messages"]
        assert texts == [message["text"] for message in messages]


# An answer is replaced by a shorter one, which has grown beyond it before the browser tells of the place in between.
REPLACED = """() => new Promise((done) => {
    const last = document.querySelector('.thread').lastElementChild;
    const whole = last.cloneNode(true);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
        document.querySelector('.thread').append(whole, whole.cloneNode(true));
        setTimeout(done, 300);
    };
    requestAnimationFrame(() => { last.remove(); port2.postMessage(0); });
})"""


def test_the_view_follows_an_answer_that_is_replaced(browser: Browser) -> None:
    with running(with_turns(4, lines=20)) as service, visiting(browser, f"{service.url}/#/c/c1", PHONE) as visit:
        page = visit.page
        page.wait_for_selector("text=assistant 3")
        page.wait_for_function("document.getElementById('messages').classList.contains('at-end')")
        for _ in range(5):
            page.evaluate(REPLACED)
            gap = "(node) => node.scrollHeight - node.clientHeight - node.scrollTop"
            assert page.eval_on_selector("#messages", gap) < 2
            assert page.is_hidden("#to-end")


def test_the_end_stays_in_sight_when_a_phone_opens_its_keyboard_during_an_answer(browser: Browser) -> None:
    lines = "line\n\n" * 30
    answer = [text(lines), HOLD, text(lines), END]
    with running(PageService(answers={"go": answer})) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        # A function: the policy of the page lets no expression be evaluated again.
        at_end = """() => {
            const { scrollHeight, clientHeight, scrollTop } = document.getElementById('messages');
            return scrollHeight - clientHeight - scrollTop < 2;
        }"""
        visit.ask("go")
        page.wait_for_selector(".prose > :nth-child(29)")
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1] // 2})
        page.wait_for_function(at_end)
        service.go_on()
        page.wait_for_selector("#stop", state="hidden")
        page.wait_for_function(at_end)
        assert page.is_hidden("#to-end")


NO_STORAGE = """for (const name of ['localStorage', 'sessionStorage'])
    Object.defineProperty(window, name, { get() { throw new DOMException('no', 'SecurityError'); } });"""
FULL_STORAGE = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"
RUBBISH = "Storage.prototype.getItem = () => '{rubbish';"


@pytest.mark.parametrize("script", [NO_STORAGE, FULL_STORAGE, RUBBISH])
def test_a_question_is_answered_whatever_the_storage_of_the_browser_does(browser: Browser, script: str) -> None:
    with running(PageService()) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        page.add_init_script(script)
        page.reload()
        page.wait_for_selector(READY, state="attached")
        assert "I do not know." in visit.answered("hello")


# --- the page without its service, its releases and its notifications ------------------------------------------------


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
        assert (
            page.locator("#announcements p").all_inner_texts()[0]
            == "No connection to the board. The page keeps trying."
        )
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
def test_an_answer_that_is_ready_after_another_tab_is_notified_of_if_that_is_wanted(
    browser: Browser, is_wanted: bool
) -> None:
    from playwright.sync_api import expect

    service = PageService({"x": [text("One"), HOLD, text(" two.")], "y": [text("Other.")]})
    with (
        running(service),
        whole_chromium(browser) as whole,
        visiting(whole, service.url, permissions=["notifications"]) as visit,
    ):
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
        assert notifications(visit, is_wanted) == ([notification] if is_wanted else [])
        if is_wanted:
            (worker,) = page.context.service_workers
            worker.evaluate(CLICK)
            expect(page).to_have_url(f"{service.url}/#/c/c1")
            page.wait_for_selector("text=One two.")
            assert notifications(visit) == []


HIDDEN = """() => {
    Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
}"""
# As the browser does it; only the browser itself may bring a window to the front.
CLICK = """async () => {
    const [notification] = await registration.getNotifications();
    dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}"""


def notifications(visit: Visit, is_awaited: bool = False) -> list[dict[str, Any]]:
    """The notifications that are shown; one that is awaited may come a moment later."""
    script = """async (patience) => {
        const end = Date.now() + patience;
        const registration = await navigator.serviceWorker.ready;
        let shown = await registration.getNotifications();
        while (Date.now() < end && shown.length === 0) {
            await new Promise(requestAnimationFrame);
            shown = await registration.getNotifications();
        }
        return shown.map(({ title, body, data }) => ({ title, body, data }));
    }"""
    return visit.page.evaluate(script, PATIENCE_MS if is_awaited else 0)
