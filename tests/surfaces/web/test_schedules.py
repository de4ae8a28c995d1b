"""Schedules on the page, in a real Chromium: made of a sentence, listed, and their results as notices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import DESKTOP, PHONE, visiting, whole_chromium
from tests.support.served import scripted_model, served
from tests.surfaces.http.test_schedules import receiving
from tests.surfaces.web.test_interruptions import HIDDEN, notifications

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

RULES = """
rule
  user weather|天気
  say 晴れ, 12 degrees.

rule
  say Hello.
"""


@pytest.mark.parametrize(
    ("locale", "size", "sentence", "words", "labels"),
    [
        (
            *("en-GB", DESKTOP, "every weekday at 7:30 tell me the weather"),
            "every weekday (Monday to Friday) at 7:30 (Asia/Tokyo)",
            ("Read the sentence", "Save the schedule", "Run now", "Open"),
        ),
        (
            *("ja-JP", PHONE, "平日の7時半に天気を教えて"),
            "平日(月〜金)の7:30（Asia/Tokyo）",
            ("文を読み取る", "予定を保存", "今すぐ実行", "開く"),
        ),
    ],
)
def test_a_sentence_becomes_a_schedule_whose_result_is_a_notice_and_a_post(
    locale: str,
    size: tuple[int, int],
    sentence: str,
    words: str,
    labels: tuple[str, ...],
    browser: Browser,
    tmp_path: Path,
) -> None:
    read, save, run, open_result = labels
    model = scripted_model(tmp_path / "model", RULES)
    with served(tmp_path / "home", model) as service, receiving() as receiver:
        with visiting(browser, service.url, size, locale=locale, timezone_id="Asia/Tokyo") as visit:
            page = visit.page
            visit.open_panel("settings")
            page.fill("#schedule-sentence", sentence)
            page.get_by_role("button", name=read).click()
            page.locator(".schedule-form [role=status]").get_by_text(words).wait_for()
            page.fill("#schedule-webhook", receiver.url)
            page.get_by_role("button", name=save).click()
            page.get_by_role("button", name=run).click()
            page.click("#panel-close")
            notice = page.locator(".schedule-notice")
            notice.wait_for()
            assert "晴れ, 12 degrees." in notice.inner_text()
            notice.get_by_role("link", name=open_result).click()
            page.get_by_text("晴れ, 12 degrees.", exact=True).wait_for()
        assert [json.loads(body)["text"] for _, body in receiver.requests] == ["晴れ, 12 degrees."]


@pytest.mark.parametrize(
    ("locale", "sentence", "title", "labels"),
    [
        (
            *("en-GB", "every weekday at 7:30 tell me the weather", "tell me the weather"),
            ("Notice when an answer is ready", "Read the sentence", "Save the schedule", "Run now"),
        ),
        (
            *("ja-JP", "平日の7時半に天気を教えて", "天気を教えて"),
            ("回答ができたら通知", "文を読み取る", "予定を保存", "今すぐ実行"),
        ),
    ],
)
def test_a_result_is_a_notification_of_the_browser_while_the_page_is_hidden(
    locale: str, sentence: str, title: str, labels: tuple[str, ...], browser: Browser, tmp_path: Path
) -> None:
    wanted, read, save, run = labels
    model = scripted_model(tmp_path / "model", RULES)
    with (
        served(tmp_path / "home", model) as service,
        whole_chromium(browser) as whole,
        visiting(whole, service.url, locale=locale, timezone_id="Asia/Tokyo", permissions=["notifications"]) as visit,
    ):
        page = visit.page
        visit.open_panel("settings")
        page.get_by_role("switch", name=wanted).click()
        page.wait_for_selector("#notices [role=switch][aria-checked=true]")
        page.fill("#schedule-sentence", sentence)
        page.get_by_role("button", name=read).click()
        page.get_by_role("button", name=save).click()
        run_now = page.get_by_role("button", name=run)
        run_now.wait_for()
        page.evaluate(HIDDEN)
        run_now.click()
        (notification,) = notifications(visit, is_awaited=True)
        assert (notification["title"], notification["body"]) == (title, "晴れ, 12 degrees.")
        assert f"{service.url}/#/c/" in notification["data"]
