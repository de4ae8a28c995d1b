"""Answers are read aloud, and questions are spoken: voices that a test answers for, and a microphone that is a file."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import DESKTOP, HEARING_RATE, Visit, hearing_chromium, visiting
from tests.support.page_service import HOLD, PageService, running, text
from tests.support.served import Served, scripted_model, served
from tests.support.speech_programs import WyomingProgram, tone

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NARROW = (390, 844)
READING = ".aloud[aria-pressed=true]"
SPEAKING = "#microphone[aria-pressed=true]"
LOUD = "() => document.getElementById('listening-level').value > 0.5"
WRITTEN = "() => /^heard \\d+ ms $/.test(document.getElementById('question').value)"
# What the browser's voices are asked to say; each sentence ends when the test says so, or at once.
VOICES = """(isPatient) => {
    const voices = [
        { lang: "en-US", name: "far", localService: false },
        { lang: "en-GB", name: "near", localService: true },
        { lang: "ja-JP", name: "haru", localService: true },
    ];
    window.said = [];
    window.SpeechSynthesisUtterance = class extends EventTarget {
        constructor(text) { super(); this.text = text; }
    };
    const end = (utterance) => utterance.dispatchEvent(new Event("end"));
    const value = {
        getVoices: () => voices,
        speak: (utterance) => {
            window.said.push(`${utterance.voice.name}: ${utterance.text}`);
            window.endSentence = () => end(utterance);
            if (!isPatient) setTimeout(() => end(utterance));
        },
        cancel: () => window.said.push("-"),
    };
    Object.defineProperty(window, "speechSynthesis", { value, configurable: true });
}"""


def said(visit: Visit, count: int) -> list[str]:
    """What the voices were asked to say, once there are so many of them; a stop is left out."""
    visit.page.wait_for_function("(count) => said.filter((each) => each !== '-').length >= count", arg=count)
    return [each for each in visit.page.evaluate("said") if each != "-"]


# --- reading aloud ----------------------------------------------------------------------------------------------------


def test_an_answer_is_read_by_a_voice_of_this_device_without_its_code_tables_and_addresses(browser: Browser) -> None:
    answer = "Run **this** now:\n\n```sh\nrm x\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nSee [the page](https://a.example/?x).\n"
    with running(PageService({"x": [text(answer)], "天気": [text("明日は晴れです。傘は要りません。")]})) as service:
        with visiting(browser, service.url) as visit:
            visit.page.evaluate(VOICES, False)
            visit.answered("x")
            visit.page.get_by_role("button", name="Read aloud").click()
            assert said(visit, 2) == ["near: Run this now:", "near: See the page."]
            visit.page.wait_for_selector(READING, state="detached")
        with visiting(browser, service.url, NARROW, locale="ja-JP") as visit:
            visit.page.evaluate(VOICES, False)
            visit.answered("天気")
            visit.page.get_by_role("button", name="読み上げる").click()
            assert said(visit, 1) == ["haru: 明日は晴れです。傘は要りません。"]


def test_reading_stops_at_a_second_press_at_escape_and_at_a_new_question(browser: Browser) -> None:
    answer = [text("It will rain all of tomorrow. Take an umbrella with you.")]
    with running(PageService({"x": answer, "y": answer})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.evaluate(VOICES, True)
        visit.answered("x")
        aloud = page.get_by_role("button", name="Read aloud")
        for count, stop in enumerate(
            (aloud.click, lambda: page.keyboard.press("Escape"), lambda: visit.answered("y")), 1
        ):
            aloud.click()
            page.wait_for_selector(READING)
            assert len(said(visit, count)) == count
            stop()
            page.wait_for_selector(READING, state="detached")
            assert page.evaluate("said.at(-1)") == "-"
            page.evaluate("endSentence()")
        page.locator(".message.assistant").last.focus()
        page.keyboard.press("s")
        assert said(visit, 4) == ["near: It will rain all of tomorrow."] * 4


def test_answers_are_read_sentence_by_sentence_as_they_come_if_that_is_chosen(browser: Browser) -> None:
    answer = [text("It will rain all of tomorrow. Take"), HOLD, text(" an umbrella with you.")]
    with running(PageService({"x": answer})) as service, visiting(browser, service.url, NARROW) as visit:
        page = visit.page
        page.evaluate(VOICES, False)
        visit.open_panel("settings")
        page.get_by_role("switch", name="Read answers aloud as they come").click()
        assert page.get_by_role("radio", name="The board’s").count() == 0, "no program that speaks is configured"
        page.keyboard.press("Escape")
        visit.ask("x")
        assert said(visit, 1) == ["near: It will rain all of tomorrow."]
        page.wait_for_selector(READING)
        service.go_on()
        assert said(visit, 2)[1:] == ["near: Take an umbrella with you."]
        page.wait_for_selector(READING, state="detached")


def test_a_browser_without_a_voice_says_so(browser: Browser) -> None:
    with running(PageService({"x": [text("Yes.")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.evaluate("Object.defineProperty(window, 'speechSynthesis', {value: {getVoices: () => [], cancel() {}}})")
        visit.answered("x")
        page.get_by_role("button", name="Read aloud").click()
        page.wait_for_selector("#toast >> text=This browser has no voice.")
        page.wait_for_selector(READING, state="detached")


# --- with the board ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program() -> Generator[WyomingProgram]:
    with WyomingProgram() as it:
        yield it


@pytest.fixture(scope="module")
def board(program: WyomingProgram, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("voice")
    speech = f'[speech]\nstt = "{program.address}"\ntts = "{program.address}"\nvoice = "haru"\n'
    rules = "rule\n  say It will rain tomorrow. Take an umbrella with you.\n"
    with served(folder / "home", scripted_model(folder / "chat", rules), extra=speech) as it:
        yield it


@pytest.fixture
def asked(program: WyomingProgram) -> list[dict[str, Any]]:
    program.behaviour = "answers"
    program.asked.clear()
    return program.asked


def spoken(spoken_ms: int, silent_ms: int, times: int = 1) -> bytes:
    """A tone and then nothing, so many times."""
    return times * (tone(spoken_ms, HEARING_RATE) + bytes(2 * silent_ms * HEARING_RATE // 1000))


def test_the_board_reads_where_its_voice_is_chosen(
    browser: Browser, board: Served, asked: list[dict[str, Any]]
) -> None:
    with visiting(browser, board.url) as visit:
        page = visit.page
        visit.answered("x")
        visit.open_panel("settings")
        page.get_by_role("radio", name="The board’s").check()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Read aloud").click()
        page.wait_for_selector(READING)
        page.wait_for_selector(READING, state="detached")
        texts = [each["text"] for each in asked if each["type"] == "synthesize"]
        assert texts == ["It will rain tomorrow.", "Take an umbrella with you."]
        assert page.is_hidden("#toast")


def test_a_program_that_fails_is_named_when_the_board_should_read(
    browser: Browser, board: Served, program: WyomingProgram
) -> None:
    with visiting(browser, board.url) as visit:
        page = visit.page
        program.behaviour = "fails"
        page.evaluate("localStorage.setItem('rkllm-mcp.voice', 'board')")
        visit.answered("x")
        page.get_by_role("button", name="Read aloud").click()
        page.wait_for_selector("#toast >> text=no model is loaded")
        page.wait_for_selector(READING, state="detached")


@pytest.mark.parametrize(
    ("size", "locale", "name"),
    [
        (DESKTOP, "en-US", "Speak the question"),
        (NARROW, "en-US", "Speak the question"),
        (NARROW, "ja-JP", "声で質問する"),
    ],
)
def test_a_spoken_question_becomes_text_that_can_be_changed(
    browser: Browser,
    board: Served,
    asked: list[dict[str, Any]],
    tmp_path: Path,
    size: tuple[int, int],
    locale: str,
    name: str,
) -> None:
    with (
        hearing_chromium(browser, tmp_path, spoken(1_500, 30_000)) as ears,
        visiting(ears, board.url, size, locale=locale) as visit,
    ):
        page = visit.page
        page.get_by_role("button", name=name).click()
        page.wait_for_selector(SPEAKING)
        page.wait_for_selector("#listening-level >> visible=true")
        # The level and the buttons leave room for words.
        assert page.evaluate("document.getElementById('listening-line').clientWidth") >= 150
        page.wait_for_function(LOUD)
        page.wait_for_function(WRITTEN)
        assert page.is_hidden("#listening")
        assert page.locator(SPEAKING).count() == 0
        # The tone, the silence after it, and at most what passes before the browser hears.
        heard_ms = int(re.findall(r"\d+", page.input_value("#question"))[0])
        assert 2_000 < heard_ms < 6_000
        assert [each["type"] for each in asked if each["type"] == "transcribe"] == ["transcribe"]
        page.keyboard.type("of rain")
        assert "of rain" in page.input_value("#question")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_escape_leaves_a_recording_out_and_a_second_press_ends_it(
    browser: Browser, board: Served, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    with hearing_chromium(browser, tmp_path, spoken(50_000, 1_000)) as ears, visiting(ears, board.url) as visit:
        page = visit.page
        for end in (lambda: page.keyboard.press("Escape"), lambda: page.click("#listening-close")):
            page.click("#microphone")
            page.wait_for_function(LOUD)
            end()
            page.wait_for_selector(SPEAKING, state="detached")
            assert page.is_hidden("#listening")
        assert (asked, page.input_value("#question")) == ([], "")
        page.click("#microphone")
        page.wait_for_function(LOUD)
        page.click("#microphone")
        page.wait_for_function(WRITTEN)


def test_a_program_that_fails_is_named_where_the_question_should_be(
    browser: Browser, board: Served, program: WyomingProgram, tmp_path: Path
) -> None:
    program.behaviour = "fails"
    with hearing_chromium(browser, tmp_path, spoken(1_000, 30_000)) as ears, visiting(ears, board.url) as visit:
        visit.page.click("#microphone")
        visit.page.wait_for_selector("#listening >> text=no model is loaded")
        visit.page.wait_for_selector(SPEAKING, state="detached")


def test_a_long_question_is_written_part_by_part_while_it_is_spoken_and_taken_back_as_a_whole(
    browser: Browser, board: Served, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    with hearing_chromium(browser, tmp_path, spoken(3_000, 1_000, times=9)) as ears, visiting(ears, board.url) as visit:
        page = visit.page
        page.fill("#question", "I ask:")
        page.click("#microphone")
        page.wait_for_function(
            "() => /^I ask: heard \\d+ ms heard \\d+ ms $/.test(document.getElementById('question').value)"
        )
        assert page.locator(SPEAKING).count() == 1, "it goes on listening"
        page.keyboard.press("Escape")
        page.wait_for_selector(SPEAKING, state="detached")
        assert page.input_value("#question").strip() == "I ask:"
        assert {each["type"] for each in asked} >= {"transcribe"}


@pytest.mark.parametrize(
    ("size", "locale", "speak", "converse", "states"),
    [
        (DESKTOP, "en-US", "Speak the question", "Spoken conversation", ("Answering", "Reading aloud")),
        (NARROW, "ja-JP", "声で質問する", "声で会話", ("回答しています", "読み上げています")),
    ],
)
def test_a_spoken_conversation_asks_reads_and_listens_again_until_it_is_ended(
    browser: Browser,
    board: Served,
    asked: list[dict[str, Any]],
    tmp_path: Path,
    size: tuple[int, int],
    locale: str,
    speak: str,
    converse: str,
    states: tuple[str, str],
) -> None:
    phone: dict[str, Any] = {"has_touch": True, "is_mobile": True} if size == NARROW else {}
    with (
        hearing_chromium(browser, tmp_path, spoken(1_000, 4_000)) as ears,
        visiting(ears, board.url, size, locale=locale, **phone) as visit,
    ):
        page = visit.page
        page.evaluate(VOICES, True)
        page.evaluate(
            """() => {
                window.lines = [];
                const line = document.getElementById('listening-line');
                const note = () => window.lines.push(line.textContent);
                new MutationObserver(note).observe(line, { childList: true, subtree: true });
            }"""
        )
        page.get_by_role("button", name=speak).click()
        page.get_by_role("button", name=converse).click()
        for turn in (1, 2):
            page.wait_for_selector(READING)
            page.wait_for_function(
                "([count, state]) => lines.filter((each) => each.startsWith(state)).length >= count",
                arg=[turn, states[1]],
            )
            assert page.locator(".message.user").count() == turn
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            # The voice of the first turn comes to its end; that of the second is cut off by the button.
            if turn == 1:
                page.evaluate("endSentence()")
                page.wait_for_function("said.filter((each) => each !== '-').length === 2")
                page.evaluate("endSentence()")
            else:
                page.get_by_role("button", name=speak).click()
            page.wait_for_function(LOUD)
        lines: list[str] = page.evaluate("lines")
        assert any(each.startswith(states[0]) for each in lines)
        # A phone has no such key.
        assert any("Esc" in each for each in lines) == (size == DESKTOP)
        page.keyboard.press("Escape")
        page.wait_for_selector(SPEAKING, state="detached")
        assert page.is_hidden("#listening")
        assert page.locator(".message.user").count() == 2


def test_a_spoken_conversation_ends_where_an_answer_is_stopped(
    browser: Browser, board: Served, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    with hearing_chromium(browser, tmp_path, spoken(1_000, 4_000)) as ears, visiting(ears, board.url) as visit:
        page = visit.page
        page.evaluate(VOICES, True)
        page.evaluate("localStorage.setItem('rkllm-mcp.converse', 'on')")
        page.reload()
        page.evaluate(VOICES, True)
        page.click("#microphone")
        page.wait_for_selector(READING)
        page.keyboard.press("Escape")
        page.wait_for_selector(READING, state="detached")
        assert page.evaluate("said.at(-1)") == "-"
        page.wait_for_selector(SPEAKING, state="detached")
        assert page.is_hidden("#listening")


REFUSING = "(name) => { navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('busy', name)); }"


def test_a_page_that_may_not_listen_says_why_in_both_languages(browser: Browser) -> None:
    for locale, plain, missing, refused in (
        ("en-US", "keyboard on your phone", 'stt = "wyoming://127.0.0.1:10300"', "may not use the microphone"),
        ("ja-JP", "キーボードのマイクキー", 'stt = "wyoming://127.0.0.1:10300"', "マイクを使えません"),
    ):
        with running(PageService({})) as service:
            with visiting(browser, service.url_from_elsewhere, NARROW, locale=locale) as visit:
                visit.page.click("#microphone")
                assert plain in visit.page.inner_text("#listening-line")
            with visiting(browser, service.url, NARROW, locale=locale) as visit:
                visit.page.click("#microphone")
                assert missing in visit.page.inner_text("#listening-line")
                visit.page.click("#listening-close")
                assert visit.page.is_hidden("#listening")
        with (
            running(PageService({}, several={"listens": True})) as service,
            visiting(browser, service.url, NARROW, locale=locale) as visit,
        ):
            visit.page.evaluate(REFUSING, "NotAllowedError")
            visit.page.click("#microphone")
            visit.page.wait_for_selector(f"#listening-line >> text={refused}")
            assert visit.page.locator(SPEAKING).count() == 0
