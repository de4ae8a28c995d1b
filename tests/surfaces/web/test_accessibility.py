"""Whether everybody can use the page: every view of it, looked at by two checkers, with keys only, without colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.axe import axe_source, need_axe, violations
from tests.support.browser import DESKTOP, PHONE, visiting
from tests.support.page_service import HOLD, Json, PageService, running, text
from tests.support.page_views import busy_service, views

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Everything that shows text, and everything that can be reached, without a name or without contrast.
CHECK = (Path(__file__).parent / "accessibility.js").read_text("utf-8")
# 1280 pixels at 200 %, and at 400 %.
ZOOMED = (640, 400)
LARGE = (320, 256)


# The window, the language and the colours of a walk. axe-core looks at the first four as well, which takes its time.
WALKS: Sequence[tuple[tuple[int, int], str, str]] = (
    (PHONE, "ja-JP", "dark"),
    (PHONE, "en-US", "light"),
    (DESKTOP, "ja-JP", "light"),
    (DESKTOP, "en-US", "dark"),
    (ZOOMED, "en-US", "dark"),
    (LARGE, "ja-JP", "light"),
)
WITH_AXE = WALKS[:4]


@dataclass
class Walk:
    """What is wrong with each view, by its name.

    Args:
        own: what the check of this folder finds.
        axe: what axe-core finds, where it looks.
    """

    own: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    axe: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])


@pytest.fixture(scope="module")
def walk(request: pytest.FixtureRequest, browser: Browser) -> Walk:
    """Every view of the page, looked at by the checkers."""
    size, locale, scheme = request.param
    source = axe_source() if request.param in WITH_AXE else ""
    profile: dict[str, Any] = {"locale": locale, "color_scheme": scheme, "reduced_motion": "reduce"}
    seen = Walk()
    with running(busy_service()) as service, visiting(browser, service.url, size, **profile) as visit:
        for name in views(visit, service):
            seen.own[name] = visit.page.evaluate(CHECK)
            if source:
                seen.axe[name] = violations(visit.page, source)
    assert {"answer", "approval over", "board", "manage, further", "key"} <= set(seen.own)
    return seen


@pytest.mark.parametrize("walk", WALKS, indirect=True)
def test_nothing_is_cut_off_unnamed_or_too_pale(walk: Walk) -> None:
    assert {name: problems for name, problems in walk.own.items() if problems} == {}


@pytest.mark.parametrize("walk", WITH_AXE, indirect=True)
def test_axe_finds_nothing_wrong(walk: Walk) -> None:
    need_axe()
    assert walk.axe.keys() == walk.own.keys()
    assert {name: problems for name, problems in walk.axe.items() if problems} == {}


def test_a_screen_reader_finds_the_page_in_order_and_each_control_by_its_name(browser: Browser) -> None:
    from playwright.sync_api import expect

    with running(busy_service()) as service, visiting(browser, service.url) as visit:
        visit.answered("answer")
        expect(visit.page.locator("#main")).to_match_aria_snapshot(
            """
            - main:
              - heading "answer" [level=1]
              - button "This conversation"
              - region "Conversation":
                - article:
                  - heading "You" [level=2]
                  - paragraph: answer
                  - button "Copy"
                  - button "Edit"
                - article:
                  - heading "Answer" [level=2]
                  - group: Thoughts
                  - heading "題" [level=3]
                  - group "Table":
                    - table
                  - button "Copy"
                  - button "Copy"
                  - blockquote
                  - list:
                    - listitem:
                      - checkbox "done" [checked] [disabled]
                  - heading "Below" [level=3]
                  - button "Copy"
                  - button "Ask again"
              - textbox "Your question"
              - button "Add"
              - button "Prompt templates"
              - button "Options for the next question"
              - button "Send"
            """
        )


def test_everything_is_reached_by_keys_and_covered_controls_are_not(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        active = "document.activeElement.id || document.activeElement.dataset.panel || document.activeElement.tagName"
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Tab")
        assert page.evaluate(active) == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate(active) == "question"
        reached: list[str] = []
        for _ in range(4):
            page.keyboard.press("Tab")
            reached.append(page.evaluate(active))
        assert reached == ["attach", "prompts", "options", "send"]
        page.click("#menu")
        assert page.evaluate("[document.getElementById('main').inert, document.activeElement.id]") == [True, "new"]
        assert page.evaluate("document.getElementById('skip').inert"), "it would lead to what is covered"
        page.keyboard.press("Escape")
        assert page.evaluate("[document.getElementById('main').inert, document.activeElement.id]") == [False, "menu"]
        visit.open_panel("servers")
        page.keyboard.press("ArrowRight")
        assert page.evaluate(active) == "tab-documents"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(active) == "tab-settings"
        page.keyboard.press("Escape")
        assert page.is_hidden("#panel")


def test_a_call_is_allowed_with_keys_only_and_the_focus_stays_with_it(browser: Browser) -> None:
    asked: Json = {"kind": "approval", "id": "q1", "name": "delete_file", "arguments": {}, "reason": "It deletes."}
    with running(PageService({"x": [asked, HOLD, text("ok")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        visit.ask("x")
        card = page.get_by_role("group", name="Allow “delete_file” to run?")
        card.wait_for()
        focused = "document.activeElement.textContent.trim()"
        passed: list[str] = []
        while not passed or (passed[-1] != "Allow once" and len(passed) < 6):
            page.keyboard.press("Shift+Tab")
            passed.append(page.evaluate(focused))
        assert passed == ["More choices", "Don’t allow", "Allow once"]
        page.keyboard.press("Enter")
        page.wait_for_selector(".question[data-state=over]:focus")
        assert "Allowed this once." in card.inner_text()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_headings_leave_no_level_out_from_any_first_level_of_a_model(browser: Browser, size: int) -> None:
    words = "#### Four\n\n###### Six\n\n## Two\n\n# One\n\n### Three\n"
    said = [text(words[place : place + size]) for place in range(0, len(words), size)]
    with running(PageService({"x": said})) as service, visiting(browser, service.url) as visit:
        visit.answered("x")
        levels = "[...document.querySelectorAll('#messages :is(h2, h3, h4, h5, h6)')].map((node) => node.tagName)"
        assert visit.page.evaluate(levels)[-6:] == ["H2", "H3", "H4", "H3", "H3", "H4"]


def test_words_from_right_to_left_are_set_so_wherever_they_stand(browser: Browser) -> None:
    arabic = "مرحبا بالعالم."
    said = text(f"{arabic}\n\n# {arabic}\n\n- {arabic}\n\n| {arabic} |\n|---|\n| {arabic} |\n\nplain\n")
    with running(PageService({arabic: [said]})) as service, visiting(browser, service.url) as visit:
        visit.answered(arabic)
        directions = "(nodes) => nodes.map((node) => getComputedStyle(node).direction)"
        parts = ".bubble p, .prose p:first-child, .prose h3, .prose li, .prose th, .prose td"
        assert visit.page.locator(parts).evaluate_all(directions) == ["rtl"] * 6
        assert visit.page.locator(".prose > p:last-child").evaluate_all(directions) == ["ltr"]


def test_somebodys_own_colours_leave_every_state_to_be_seen(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url, forced_colors="active") as visit:
        page = visit.page
        visit.open_panel("servers")
        switch = page.get_by_role("switch", name="Server weather")
        grounds = "(node) => [null, '::before'].map((part) => getComputedStyle(node, part).backgroundColor)"
        for state in ("true", "false"):
            page.wait_for_selector(f"[aria-label='Server weather'][aria-checked={state}]")
            ground, knob = switch.evaluate(grounds)
            assert ground != knob, state
            switch.click()
        visit.ask("failed")
        page.wait_for_selector(".error-notice")
        edges = "(nodes) => nodes.map((node) => getComputedStyle(node).borderTopStyle)"
        assert page.locator(".bubble, .error-notice").evaluate_all(edges) == ["solid", "solid"]


def test_nothing_moves_for_whom_that_is_too_much(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url, PHONE, reduced_motion="reduce") as visit:
        visit.ask("calls")
        visit.page.wait_for_selector(".waiting-line .icon")
        moving = "[...document.querySelectorAll('*')].filter((node) => node.getAnimations().length > 0).length"
        visit.page.click("#menu")
        assert visit.page.evaluate(moving) == 0


def test_a_screen_reader_does_not_repeat_the_board_at_each_measurement(browser: Browser) -> None:
    with running(busy_service()) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.clock.install()
        visit.open_panel("board")
        page.wait_for_selector("#panel [role=status] >> text=The NPU is emulated")
        page.evaluate(
            "new MutationObserver((changes) => { window.changes = changes.length })"
            ".observe(document.querySelector('#panel [role=status]'), {childList: true, subtree: true})"
        )
        service.board["npu_load"] = [7, 7, 7]
        page.clock.run_for(2000)
        page.wait_for_selector("text=7 % · 7 % · 7 %")
        assert page.evaluate("window.changes ?? 0") == 0
