"""A real Chromium for tests of the page: the system's own, driven by Playwright; skipped by name where one is missing.

Every visit is a fresh profile that notes what a person would not see: errors of scripts, what the page's policy
refused, and each address that was asked for.
"""

from __future__ import annotations

import os
import shutil
import wave
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installed import refuse_in_default_tier

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserType, ConsoleMessage, Page

# The document shows its own words before its scripts have run; this they write when they are done.
READY = "#page[data-ready]"
# What says that there is no connection, and that the page will not soon look for one by itself.
OFFLINE = "#offline >> visible=true"
LONG_PAUSE = "#offline >> text=/again in ([6-9]|[1-9][0-9]) s/"
PHONE = (360, 740)
DESKTOP = (1280, 900)
# Chromium without the window that is never seen: the tests of the page take two thirds of the time. It cannot notify.
_WINDOWLESS = "chromium-headless-shell"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A status that is not a success is written to the console by the browser itself; tests ask for those on purpose.
_EXPECTED = ("Failed to load resource", "An unknown error occurred when fetching the script.")
# The page waits for the machine, never the other way round: a slow one is not a failure.
PATIENCE_MS = 20_000
# This machine under a name that the browser does not trust as it trusts 127.0.0.1.
ELSEWHERE = "board.test"
# Of the recording that a microphone hears, samples a second.
HEARING_RATE = 48_000


@dataclass
class Visit:
    """A page that somebody looks at.

    Args:
        page: Playwright's page.
        url: where it was opened.
        errors: what went wrong in it, as the browser says it.
        addresses: every address that it asked for.
    """

    page: Page
    url: str
    errors: list[str] = field(default_factory=list[str])
    addresses: list[str] = field(default_factory=list[str])

    def ask(self, question: str) -> None:
        """Type a question and send it."""
        self.page.fill("#question", question)
        self.page.press("#question", "Control+Enter")

    def answered(self, question: str) -> str:
        """Ask, wait for the end, and return what is shown of the answer."""
        self.ask(question)
        self.page.wait_for_selector("#stop", state="hidden")
        return self.page.inner_text(".thread > :last-child")

    def await_question(self, text: str) -> None:
        """Wait until what is typed is this: a dialog hands it over when it has closed."""
        from playwright.sync_api import expect

        expect(self.page.locator("#question")).to_have_value(text)

    def look_again(self) -> None:
        """Come back to the page from another window."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def begin_anew(self) -> None:
        """Leave the conversation for a new one."""
        self.page.locator("[data-new]").locator("visible=true").first.click()
        # The address changes at once, the page a moment later, also where a new conversation is shown already.
        self.page.evaluate("() => new Promise((done) => setTimeout(() => requestAnimationFrame(done)))")
        self.page.wait_for_selector("#welcome")

    def reload(self) -> None:
        """Load the page again, as a person does."""
        self.page.reload()
        self.page.wait_for_selector(READY, state="attached")

    def load_release(self, name: str) -> None:
        """Accept the new release of the page, and wait until it can be used."""
        self.page.wait_for_selector("text=There is a new release of this page.")
        self.page.get_by_role("button", name="Load it").click()
        self.page.wait_for_selector(f"script[src*='/{name}/']", state="attached")
        self.page.wait_for_selector(READY, state="attached")

    def open_panel(self, name: str) -> None:
        """Open the drawer at one of its tabs, through the list on a narrow screen."""
        if self.page.is_visible("#menu"):
            self.page.click("#menu")
        self.page.click(f"[data-panel={name}]")
        self.page.wait_for_selector(f"#tab-{name}[aria-selected=true]")
        self.page.wait_for_selector("#panel-content .panel-body")


@contextmanager
def chromium() -> Generator[Browser]:
    """The browser, until the block ends; skips the calling test, by name, when it or its driver is not here."""
    refuse_in_default_tier("a browser")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with driver.sync_playwright() as playwright, _launched(playwright.chromium, (_WINDOWLESS, *_NAMES)) as browser:
        yield browser


@contextmanager
def whole_chromium(browser: Browser) -> Generator[Browser]:
    """A browser that can notify, next to one of the same driver, until the block ends; skips as `chromium` does."""
    with _launched(browser.browser_type, _NAMES) as whole:
        yield whole


@contextmanager
def hearing_chromium(browser: Browser, folder: Path, samples: bytes) -> Generator[Browser]:
    """A browser whose microphone hears samples once, and which lets every page listen, until the block ends.

    Args:
        folder: gets the recording.
        samples: 16 bits, ``HEARING_RATE`` of them a second.
    """
    recording = folder / "question.wav"
    with wave.open(str(recording), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(HEARING_RATE)
        file.writeframes(samples)
    heard = (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording}%noloop",
    )
    with _launched(browser.browser_type, (_WINDOWLESS, *_NAMES), heard) as hearing:
        yield hearing


@contextmanager
def _launched(kind: BrowserType, names: tuple[str, ...], more: tuple[str, ...] = ()) -> Generator[Browser]:
    """The first of these programs that is installed."""
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(names)} is on the PATH")
    # A sandbox inside the sandbox of a CI machine cannot be had; the pages are our own.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"] if os.geteuid() == 0 or Path("/.dockerenv").exists() else []
    browser = kind.launch(
        executable_path=program, args=[*arguments, *more, f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"]
    )
    try:
        yield browser
    finally:
        browser.close()


# Not for the session: Playwright's loop runs in this thread as long as the browser does, and no other may then.
@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """One browser for a file's tests of the page; each visits with its own profile."""
    with chromium() as opened:
        yield opened


@contextmanager
def visiting(
    browser: Browser, url: str, size: tuple[int, int] = DESKTOP, *, ready: str = READY, **profile: Any
) -> Generator[Visit]:
    """A fresh profile that has opened the page; at the end nothing may have gone wrong in it.

    Args:
        browser: the browser.
        url: the page.
        size: of the window, CSS pixels.
        ready: the selector of what is there when the page has opened.
        profile: what Playwright calls the options of a context: ``locale``, ``color_scheme``, …
    """
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, locale=profile.pop("locale", "en-US"), **profile
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    visit = Visit(page, url)

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(_EXPECTED):
            visit.errors.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("request", lambda request: visit.addresses.append(request.url))
    try:
        page.goto(url)
        page.wait_for_selector(ready, state="attached")
        yield visit
    except BaseException:
        from playwright.sync_api import Error

        # For the reader of the failure.
        print(f"{page.url}\nrequests: {visit.addresses}\nerrors: {visit.errors}")
        try:
            print(page.locator("body").aria_snapshot())
        except Error as error:
            print(f"the page does not answer: {error}")
        raise
    finally:
        context.close()
    assert visit.errors == [], visit.errors
