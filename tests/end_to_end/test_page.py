"""The page as a person meets it: ``rkllm-mcp serve`` on the emulated NPU, real MCP servers, a real Chromium."""

from __future__ import annotations

import socket
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.models.test_suggestions import SETS
from tests.support.browser import OFFLINE, PHONE, visiting
from tests.support.cut_line import CutLine
from tests.support.demo_app import Demo, make_demo
from tests.support.feature_demo import make_features
from tests.support.served import scripted_model
from tests.support.tour_board import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_person_asks_allows_fills_in_reloads_and_looks_around(browser: Browser, tmp_path: Path) -> None:
    demo = make_features(tmp_path)
    victim = tmp_path / "one.txt"
    victim.write_text("x", "utf-8")
    with serving(demo) as (address, _), visiting(browser, address, PHONE) as visit:
        page = visit.page
        assert "secretary runs on the emulated NPU" in page.inner_text("#welcome")
        assert "Paris." in visit.answered("What is the capital of France?")

        visit.ask("Delete one.txt")
        page.get_by_role("button", name="Allow once").click()
        page.wait_for_selector("#stop", state="hidden")
        assert not victim.exists()
        assert page.get_attribute(".thread > :last-child .card.tool", "data-state") == "done"

        visit.ask("Who am I")
        page.get_by_label("Name").fill("Taro")
        page.get_by_label("Large").check()
        page.get_by_label("count").fill("3")
        page.locator(".question form [type=submit]").click()
        page.wait_for_selector("#stop", state="hidden")
        assert '"name":"Taro","size":"l","count":3' in page.inner_text(".thread > :last-child .prose")

        visit.ask("Let me log in")
        assert page.locator(".host").inner_text() == "example.com"
        page.keyboard.press("Escape")
        page.wait_for_selector("#stop", state="hidden")
        assert "Stopped." in page.inner_text(".thread > :last-child")

        page.click("#prompts")
        page.get_by_role("button", name="code_review").click()
        page.get_by_label("language").fill("rust")
        page.get_by_role("button", name="Ask", exact=True).click()
        page.wait_for_selector("text=The rust code is fine.")
        page.click("#attach")
        page.get_by_role("menuitem", name="Resource of a server").click()
        page.get_by_role("button", name="memo://monday").click()
        page.wait_for_selector("#files >> text=tokens")

        visit.reload()
        page.wait_for_selector("text=Paris.")
        assert page.locator(".card.tool").count() >= 2
        assert page.inner_text("#title") == "What is the capital of France?"

        visit.open_panel("servers")
        page.get_by_role("switch", name="Server desk").click()
        page.wait_for_selector("[role=switch][aria-label='Server desk'][aria-checked=false]")
        page.get_by_text("Activity").click()
        page.wait_for_selector(".timeline")
        assert "delete_file" in page.inner_text(".panel-body table")
        page.click("#tab-board")
        page.wait_for_selector(".measure")
        assert "secretary" in page.inner_text(".facts")
        page.click("#panel-close")

        page.click("#manage")
        with page.expect_download() as download:
            page.get_by_role("menuitem", name="Save as Markdown").click()
        assert "Paris." in Path(download.value.path()).read_text("utf-8")
        page.click("#manage")
        page.get_by_role("menuitem", name="Delete").click()
        page.wait_for_selector("#welcome")
        assert {found for found in visit.addresses if not found.startswith((address, "blob:"))} == set()


WORDS = " ".join(f"w{number}" for number in range(75))
LAST = "w74"
RULES = f"""
rule
  user at length
  say {WORDS}
"""


def slow_demo(folder: Path) -> Demo:
    """A model that needs several seconds for its answer to 'at length'."""
    model = scripted_model(folder / "model", RULES)
    script = model / "model.rkllm"
    script.write_text(script.read_text("utf-8").replace("speed flat", "speed prefill 5000 decode 30"), "utf-8")
    demo = make_demo(folder / "home", (), speed="")
    demo.config.write_text(demo.config.read_text("utf-8").replace('name = "demo"', f'path = "{model}"'), "utf-8")
    return demo


@pytest.fixture(scope="module")
def slow_board(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a board with the slow model."""
    with serving(slow_demo(tmp_path_factory.mktemp("slow"))) as (address, _):
        yield address


@pytest.fixture
def line(slow_board: str) -> Generator[CutLine]:
    """A line to it that can be cut."""
    with CutLine(int(slow_board.rpartition(":")[2])) as between:
        yield between


def test_an_answer_goes_on_while_the_phone_sleeps_and_is_whole_when_it_wakes(browser: Browser, line: CutLine) -> None:
    with visiting(browser, line.url, PHONE) as visit:
        page = visit.page
        visit.ask("at length")
        page.wait_for_selector(".message.assistant .prose >> text=w1")
        line.cut()
        page.wait_for_selector("text=the board goes on with the answer")
        line.mend()
        page.wait_for_selector("#stop", state="hidden")
        assert page.inner_text(".message.assistant .prose") == WORDS
        # A reload in the middle of an answer goes on with it as well.
        visit.ask("at length again")
        page.wait_for_selector(".message.assistant:last-child .prose >> text=w1")
        visit.reload()
        page.wait_for_selector("#stop", state="visible")
        page.wait_for_selector("#stop", state="hidden")
        assert page.locator(".message.assistant .prose").all_inner_texts() == [WORDS, WORDS]
        assert page.locator(".message.user").count() == 2


def test_a_second_tab_that_lost_the_answer_reads_on_and_takes_the_question_for_no_draft(
    browser: Browser, slow_board: str, line: CutLine
) -> None:
    with visiting(browser, slow_board, PHONE) as first:
        first.ask("at length")
        first.page.wait_for_selector(".message.assistant .prose >> text=w1")
        hash_of_conversation = first.page.url.partition("#")[2]
        with visiting(browser, f"{line.url}/#{hash_of_conversation}", PHONE) as second:
            second.page.wait_for_selector(".message.assistant .prose >> text=w1")
            line.cut()
            second.page.wait_for_selector("text=the board goes on with the answer")
            # What the page does when the phone shows another tab.
            second.page.evaluate("dispatchEvent(new Event('pagehide'))")
            line.mend()
            second.reload()
            assert second.page.input_value("#question") == ""
            second.page.wait_for_selector("#stop", state="hidden")
            assert second.page.locator(".message.user").count() == 1
            assert second.page.inner_text(".message.assistant .prose") == WORDS


def test_an_answer_goes_on_with_the_connection_while_another_request_hangs(browser: Browser, line: CutLine) -> None:
    with visiting(browser, line.url) as visit:
        page = visit.page
        visit.ask("at length")
        page.wait_for_selector(".message.assistant .prose >> text=w1")
        page.route("**/v1/conversations?**", lambda _: None)
        with page.expect_request("**/v1/conversations?**"):
            page.evaluate("dispatchEvent(new Event('focus'))")
        line.cut()
        page.wait_for_selector("text=the board goes on with the answer")
        line.mend()
        page.wait_for_selector("#stop", state="hidden")
        assert page.inner_text(".message.assistant .prose") == WORDS


def test_an_answer_that_was_broken_off_with_the_board_is_shown_as_such_and_asked_again(
    browser: Browser, tmp_path: Path
) -> None:
    demo = slow_demo(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(demo, port) as (address, process), visiting(browser, address) as visit:
        page = visit.page
        visit.ask("at length")
        page.wait_for_selector(".message.assistant .prose >> text=w1")
        process.kill()
        process.wait()
        page.wait_for_selector(OFFLINE)
        with serving(demo, port):
            page.wait_for_selector("text=This answer was broken off")
            page.wait_for_selector("#stop", state="hidden")
            page.locator(".notice").get_by_role("button", name="Ask again").click()
            page.wait_for_selector(f"text={LAST}")
            page.wait_for_selector("#stop", state="hidden")
            assert page.locator(".message.assistant .prose").all_inner_texts() == [WORDS]
            visit.reload()
            page.wait_for_selector(f"text={LAST}")
            assert page.locator(".message").count() == 2
            assert not page.locator(".notice >> text=Ask again").count()


# Together they have every server of ``SETS``.
@pytest.mark.parametrize("servers", ["demo", "setup"])
def test_every_suggestion_is_answered_when_it_is_clicked(browser: Browser, tmp_path: Path, servers: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("tea\n", "utf-8")
    demo = make_demo(tmp_path, (), extra=SETS[servers])
    with serving(demo) as (address, _), visiting(browser, address, PHONE) as visit:
        page = visit.page
        page.wait_for_selector(".suggestion")
        for number in range(page.locator(".suggestion").count()):
            question = page.locator(".suggestion").nth(number).inner_text()
            page.locator(".suggestion").nth(number).click()
            allow = page.get_by_role("button", name="Allow once")
            if question.startswith("Save"):
                allow.click()
            page.wait_for_selector(".thread > :last-child .prose")
            page.wait_for_selector("#stop", state="hidden")
            if (page.locator(".card.tool").count()) == 0:
                # Any model can answer it, and the script says that it is none.
                assert "emulated model" in page.inner_text(".thread > :last-child")
            else:
                assert page.get_attribute(".thread > :last-child .card.tool", "data-state") == "done", question
                assert "emulated model" not in page.inner_text(".thread > :last-child"), question
            page.goto(address)
            page.wait_for_selector(".suggestion")
