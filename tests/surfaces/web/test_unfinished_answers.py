"""Answers that stop, wait or do not fit, on the page: continued, decided too late, counted before they go."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import PHONE, visiting
from tests.support.demo_app import NO_VARIABLES, PythonServer
from tests.support.page_service import HOLD, USAGE, Json, PageService, call, result, running, text
from tests.support.page_views import tool
from tests.support.served import Served, scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DESK: PythonServer = ("desk", ("-m", "tests.support.mcp_servers.asking", "legacy"), NO_VARIABLES)
NOTES: PythonServer = ("notes", ("-m", "tests.support.mcp_servers.notebook"), NO_VARIABLES)
WORDS = "one two three four five six seven eight nine ten"
RULES = f"""
rule
  user Who am I
  results 0
  call ask_owner {{}}

rule
  user [Ww]rite
  results 0
  call write_file {{"path":"FOLDER/written.txt","content":"x"}}

rule
  results 1+
  say Done.

rule
  say {WORDS}
"""


def speaking(folder: Path, speed: str) -> Path:
    model = scripted_model(folder / "model", RULES.replace("FOLDER", str(folder)))
    script = model / "model.rkllm"
    script.write_text(script.read_text("utf-8").replace("speed flat", f"speed {speed}"), "utf-8")
    return model


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service whose model says ten tokens in a second and whose questions wait eight seconds."""
    folder = tmp_path_factory.mktemp("service")
    limits = '[security]\nquestion_timeout_s = 8\napprove = "dangerous"\n'
    with served(
        folder / "home", speaking(folder, "prefill 5000 decode 10"), (DESK, NOTES), extra=limits, speed=""
    ) as it:
        yield it


def test_a_stopped_answer_is_continued_also_after_a_reload(browser: Browser, service: Served) -> None:
    with visiting(browser, service.url) as visit:
        page = visit.page
        visit.ask("Count")
        page.wait_for_selector("text=one two")
        page.click("#stop")
        page.wait_for_selector("text=Stopped. What was written is kept.")
        kept = page.inner_text(".prose").strip()
        assert WORDS.startswith(kept)
        assert kept != WORDS
        page.get_by_role("button", name="Continue").click()
        page.wait_for_selector("text=six")
        page.keyboard.press("Escape")
        page.wait_for_selector(".go-on")
        visit.reload()
        page.wait_for_selector(".go-on")
        assert page.locator(".message.assistant").count() == 1
        page.get_by_role("button", name="Continue").click()
        page.wait_for_selector(".prose >> text=ten")
        page.wait_for_selector("#stop", state="hidden")
        assert page.inner_text(".prose").strip() == WORDS
        assert page.locator(".go-on").count() == 0
        for _ in range(2):
            assert page.locator(".message").count() == 2
            assert page.inner_text(".prose").strip() == WORDS
            visit.reload()
            page.wait_for_selector(".prose >> text=ten")


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


def test_a_decision_says_how_long_it_waits_and_that_none_came(browser: Browser, service: Served) -> None:
    with visiting(browser, service.url) as visit:
        page = visit.page
        visit.ask("Please write")
        page.wait_for_selector(".time-left")
        assert page.get_attribute(".time-left", "role") == "timer"
        page.wait_for_selector("text=0:06 left")
        visit.reload()
        page.wait_for_selector(".time-left")
        assert re.fullmatch(r"0:0[1-6] left", page.inner_text(".time-left")), "it does not begin anew"
        for _ in range(2):
            page.wait_for_selector("text=No answer in 8 seconds: not run.")
            assert page.get_attribute(".card.tool", "data-state") == "refused"
            assert "approved in time" not in page.inner_text(".card.tool")
            page.wait_for_selector("#stop", state="hidden")
            visit.reload()


def test_the_answer_to_a_form_is_shown_after_a_reload(browser: Browser, service: Served) -> None:
    with visiting(browser, service.url, PHONE, locale="ja-JP") as visit:
        page = visit.page
        visit.ask("Who am I?")
        page.get_by_text("今回だけ許可").or_(page.get_by_label("Name")).first.wait_for()
        if page.get_by_text("今回だけ許可").is_visible():
            page.get_by_text("今回だけ許可").click()
        page.get_by_label("Name").fill("花子")
        page.get_by_label("Large").check()
        page.locator(".question form [type=submit]").click()
        page.wait_for_selector("#stop", state="hidden")
        for _ in range(2):
            page.wait_for_selector(".card.question >> text=送りました。")
            assert "花子" in page.inner_text(".card.question dl")
            assert page.locator(".card.question form").count() == 0
            visit.reload()


def test_a_stop_while_the_prompt_is_read_says_when_the_npu_has_stopped(browser: Browser, tmp_path: Path) -> None:
    model = speaking(tmp_path, "prefill 40 decode 10")
    with served(tmp_path / "home", model, speed="") as service, visiting(browser, service.url) as visit:
        page = visit.page
        # The first answer shows how fast the model reads.
        visit.answered("a question " * 20)
        visit.ask("a long question " * 60)
        page.wait_for_selector(".waiting-line >> text=/Reading: about [0-9]+ %/")
        page.click("#stop")
        page.wait_for_selector("#stop", state="hidden")
        page.wait_for_selector(".ending >> text=/Stopping when reading ends, in about [0-9]+ s/")
        page.wait_for_selector(".ending >> text=Stopped.")
        assert page.locator(".go-on").count() == 0


def test_the_model_that_is_loaded_first_is_named_in_the_readers_language(browser: Browser) -> None:
    status: Json = {"kind": "status", "text": "[NPU: Loading model 'owl']"}
    with (
        running(PageService({"x": [status, HOLD, text("Hoo.")]})) as service,
        visiting(browser, service.url, locale="ja-JP") as visit,
    ):
        visit.ask("x")
        visit.page.wait_for_selector("text=owl を読み込んでいます…")
        service.go_on()
        visit.page.wait_for_selector("text=Hoo.")


def test_the_line_of_an_answer_says_what_happens_now_in_the_readers_language(browser: Browser) -> None:
    begun: Json = {"kind": "status", "text": "[MCP: Calling tool 'get_weather']"}
    over: Json = {"kind": "status", "text": "[MCP: Tool 'get_weather' completed]"}
    events = [call("1", "get_weather", {}), begun, HOLD, over, result("1", "get_weather", "12 degrees"), HOLD]
    with (
        running(PageService({"x": [*events, text("Mild.")]})) as service,
        visiting(browser, service.url, PHONE, locale="ja-JP") as visit,
    ):
        visit.ask("x")
        visit.page.wait_for_selector(".waiting-line >> text=/^get_weather を使っています…/")
        service.go_on()
        visit.page.wait_for_selector(".waiting-line >> text=/^書いています…/")
        assert "completed" not in visit.page.inner_text("#thread")
        service.go_on()
        visit.page.wait_for_selector("text=Mild.")


def test_nothing_moves_the_field_once_the_page_can_be_used(browser: Browser) -> None:
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
        page.fill("#question", "b" * 3000)
        page.wait_for_selector("#context.caution >> text=Context is 89 % full.")
        page.fill("#question", "b" * 4100)
        page.wait_for_selector("#context >> text=4 tokens too many for this model")
