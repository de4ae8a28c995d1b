"""What is remembered, on the page: said, recalled with a chip, removed; the settings; a temporary conversation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rkllm_mcp.app import idle_requests
from rkllm_mcp.app.environment import ModelHost
from tests.support.browser import DESKTOP, visiting
from tests.support.served import scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NARROW = (390, 844)
LANGUAGES = {
    "en": (
        "Remember that my dog is called Hachi.",
        "What is the name of my dog?",
        "Remembered: my dog is called Hachi",
    ),
    "ja": ("私の犬の名前はハチ。覚えて", "うちの犬の名前は？", "覚えていること: 私の犬の名前はハチ"),
}


def picture(page: Page, name: str) -> None:
    """Keep a picture of the page where the person who runs this names a folder for it."""
    if folder := os.environ.get("RKLLM_MCP_PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png")


@pytest.mark.parametrize("size", [DESKTOP, NARROW], ids=["desktop", "phone"])
@pytest.mark.parametrize("language", ["en", "ja"])
def test_a_person_says_it_asks_elsewhere_and_removes_it(
    browser: Browser, tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    said, question, chip = LANGUAGES[language]
    model = scripted_model(tmp_path / "model", "rule\n  say Hachi, I think.\n")
    locale = {"en": "en-US", "ja": "ja-JP"}[language]
    with served(tmp_path, model) as service, visiting(browser, service.url, size, locale=locale) as visit:
        page = visit.page
        visit.answered(said)
        assert page.locator(".memory-chip").count() == 1
        picture(page, f"said-{language}-{size[0]}")
        visit.begin_anew()
        visit.answered(question)
        assert page.inner_text(".memory-chip span") == chip
        # Below the words of the answer.
        assert page.locator(".parts > :last-child").get_attribute("class") == "memory-chips"
        picture(page, f"recalled-{language}-{size[0]}")
        visit.reload()
        page.wait_for_selector(".memory-chip")

        visit.open_panel("settings")
        page.wait_for_selector(".memory-row")
        page.fill("#memory-new", "I live in Kobe" if language == "en" else "神戸に住んでいる")
        page.press("#memory-new", "Enter")
        page.wait_for_selector(".memory-row >> nth=1")
        page.locator(".memory-row input[type=checkbox]").last.check()
        page.wait_for_selector(".memory-row:last-child input:checked")
        page.locator("#memory").scroll_into_view_if_needed()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, f"settings-{language}-{size[0]}")
        page.click("#panel-close")

        page.locator(".memory-chip button").click()
        page.wait_for_selector(".memory-chip", state="detached")
        visit.begin_anew()
        visit.answered(question)
        assert page.locator(".memory-chip").count() == 0


def test_a_message_is_remembered_by_its_button_and_a_temporary_conversation_leaves_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    model = scripted_model(tmp_path / "model", "rule\n  say I see.\n")
    with served(tmp_path, model) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.answered("My locker has the number 214.")
        page.locator(".message.user .remember").click()
        assert page.input_value("#written") == "My locker has the number 214."
        page.press("#written", "Enter")
        page.wait_for_selector("#toast >> text=Remembered")
        visit.begin_anew()
        page.get_by_label("Temporary: not saved, without memory").check()
        visit.answered("Remember that my cat is called Mike.")
        visit.answered("What is the number of my locker?")
        assert page.locator(".memory-chip").count() == 0
        visit.begin_anew()
        visit.answered("What is the number of my locker?")
        assert "214" in page.inner_text(".memory-chip")
        visit.open_panel("settings")
        page.wait_for_selector(".memory-row")
        assert page.locator(".memory-row").count() == 1
        page.get_by_role("button", name="Remove everything…").click()
        page.get_by_role("button", name="Remove everything", exact=True).click()
        page.wait_for_selector(".memory-row", state="detached")


@pytest.mark.parametrize("language", ["en", "ja"])
def test_a_person_lets_the_model_propose_and_keeps_what_it_found(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    monkeypatch.setattr(ModelHost, "has_weights", True)
    monkeypatch.setattr(idle_requests, "IDLE_S", 0.05)
    said, fact = {
        "en": ("My dog is called Hachi. What does he eat?", "My dog is called Hachi"),
        "ja": ("犬の名前はハチです。何を食べる？", "犬の名前はハチです"),
    }[language]
    model = scripted_model(
        tmp_path / "model", f"rule\n  user {fact}.*this sentence about\n  say pet\n\nrule\n  say Meat.\n"
    )
    locale = {"en": "en-US", "ja": "ja-JP"}[language]
    with served(tmp_path, model) as service, visiting(browser, service.url, NARROW, locale=locale) as visit:
        page = visit.page
        visit.open_panel("settings")
        switch = page.locator("[aria-describedby=memory-propose-help]")
        with page.expect_response("**/v1/memory"):
            switch.check()
        page.click("#panel-close")
        visit.answered(said)
        for _ in range(100):
            page.wait_for_timeout(50)
            if page.request.get(f"{service.url}/v1/memory").json()["count"]:
                break
        visit.open_panel("settings")
        page.wait_for_selector(".memory-row button.primary")
        assert page.inner_text(".memory-row p") == fact
        assert switch.is_checked()
        page.locator("#memory").scroll_into_view_if_needed()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, f"proposed-{language}")
        page.click(".memory-row button.primary")
        page.wait_for_selector(".memory-row input[type=checkbox]")
