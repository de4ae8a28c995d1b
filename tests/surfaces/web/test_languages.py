"""The page of a real board, walked in both languages: no sentence of the other one is on it."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import DESKTOP, visiting
from tests.support.demo_app import make_demo
from tests.support.started import started

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WEATHER = ("weather", ("-m", "mcp_servers.weather"), {"JMA_BASE_URL": "http://127.0.0.1:9"})
KNOWLEDGE = ("knowledge", ("-m", "mcp_servers.knowledge"), {"KNOWLEDGE_DIR": "knowledge"})
KANA = re.compile("[ぁ-ゖァ-ヶ]")
# Four words in a row are a sentence.
WORDS = re.compile(r"(?:\b[A-Za-z][a-z]+\b[ ,;:]+){3,}\b[a-z]+\b")
# Code, the names of languages in themselves, and the letters by which the page loads its fonts are not its prose.
_TEXT = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const lines = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    const other = parent.closest("code, pre, option, [lang]:not(html), .visually-hidden[aria-hidden]");
    if (parent.checkVisibility() && !other)
      lines.push(walker.currentNode.textContent);
  }
  return lines.join("\\n");
}"""
PANELS = {
    "en": ("Servers", "Documents", "Models", "Board", "Settings"),
    "ja": ("サーバー", "文書", "モデル", "ボード", "設定"),
}
QUESTIONS = {"en": "What is the weather in Tokyo?", "ja": "東京の天気を教えて"}


@pytest.fixture
def address(tmp_path: Path) -> Generator[str]:
    demo = make_demo(tmp_path, (WEATHER, KNOWLEDGE))
    with started(demo) as service:
        yield service.url


@pytest.mark.parametrize("language", ["en", "ja"])
def test_no_sentence_of_the_other_language_is_on_the_page(browser: Browser, address: str, language: str) -> None:
    told: dict[str, str] = {}
    with visiting(browser, address, DESKTOP, locale={"en": "en-US", "ja": "ja-JP"}[language]) as visit:
        page = visit.page
        told["welcome"] = page.evaluate(_TEXT)
        page.locator("textarea").first.fill(QUESTIONS[language])
        page.keyboard.press("Enter")
        page.wait_for_selector(
            "[data-say='chat.again'], [aria-label='Ask again'], [aria-label='もう一度尋ねる']", state="attached"
        )
        told["answer"] = page.evaluate(_TEXT)
        for name in PANELS[language]:
            page.get_by_role("button", name=name, exact=True).or_(
                page.get_by_role("link", name=name, exact=True)
            ).first.click()
            page.wait_for_timeout(1500)
            told[name] = page.evaluate(_TEXT)
            page.keyboard.press("Escape")
    assert min(map(len, told.values())) > 50
    wrong = WORDS if language == "ja" else KANA
    assert {place: wrong.findall(text) for place, text in told.items() if wrong.search(text)} == {}
