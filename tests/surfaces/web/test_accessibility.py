"""Whether everybody can use the page: every view of it, looked at by two checkers, with keys only, without colours.

The same views with markup in every name and text, which is shown as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.support.axe import axe_source, need_axe, violations
from tests.support.browser import DESKTOP, PHONE, visiting
from tests.support.page_service import HOLD, Json, PageService, running, text
from tests.support.page_views import busy_service, views

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Everything that shows text, and everything that can be reached, without a name or without contrast.
CHECK = (Path(__file__).parent / "accessibility.js").read_text("utf-8")
# 1280 pixels at 200 %, and at 400 %.
ZOOMED = (640, 400)
LARGE = (320, 256)
COLOURS: Sequence[Literal["light", "dark"]] = ("light", "dark")


# The window and the language of a walk, whose every view is looked at in both colours.
WALKS: Sequence[tuple[tuple[int, int], str]] = (
    (PHONE, "ja-JP"),
    (DESKTOP, "en-US"),
    (ZOOMED, "en-US"),
    (LARGE, "ja-JP"),
)
# axe-core takes its time, and finds the same in windows between those two.
WITH_AXE = WALKS[:2]


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
    size, locale = request.param
    source = axe_source() if request.param in WITH_AXE else ""
    seen = Walk()
    with (
        running(busy_service()) as service,
        visiting(browser, service.url, size, locale=locale, reduced_motion="reduce") as visit,
    ):
        for view in views(visit, service):
            for scheme in COLOURS:
                name = f"{view}, {scheme}"
                visit.page.emulate_media(color_scheme=scheme)
                seen.own[name] = visit.page.evaluate(CHECK)
                if source:
                    seen.axe[name] = violations(visit.page, source)
    assert {"answer, dark", "approval over, light", "board, dark", "manage, further, light", "key, dark"} <= set(
        seen.own
    )
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
                  - button "Read aloud"
                  - button "Ask again"
              - textbox "Your question"
              - button "Add"
              - button "Prompt templates"
              - button "Options for the next question"
              - button "Speak the question"
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
        for _ in range(5):
            page.keyboard.press("Tab")
            reached.append(page.evaluate(active))
        assert reached == ["attach", "prompts", "options", "microphone", "send"]
        page.keyboard.press("/")
        assert page.evaluate(active) == "question"
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


def test_headings_leave_no_level_out_from_any_first_level_of_a_model(browser: Browser) -> None:
    words = "#### Four\n\n###### Six\n\n## Two\n\n# One\n\n### Three\n"
    service = PageService(
        {
            str(size): [text(words[place : place + size]) for place in range(0, len(words), size)]
            for size in (1, 3, 1000)
        }
    )
    with running(service), visiting(browser, service.url) as visit:
        for question in service.answers:
            visit.answered(question)
            levels = "[...document.querySelectorAll('#messages :is(h2, h3, h4, h5, h6)')].map((node) => node.tagName)"
            assert visit.page.evaluate(levels)[-6:] == ["H2", "H3", "H4", "H3", "H3", "H4"]


def test_words_from_right_to_left_are_set_so_wherever_they_are(browser: Browser) -> None:
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


# --- markup -----------------------------------------------------------------------------------------------------------


# Ends an attribute, a selector and an address as well.
MARKUP = "\"'><img src=x onerror=hurt=1><svg onload=hurt=2>`${hurt=3}#?&%41"
FOUND = """(markup) => {
    const all = [...document.querySelectorAll("*")];
    const texts = all.flatMap((node) => [...node.childNodes]).filter((node) => node.nodeType === Node.TEXT_NODE);
    const bad = "img, iframe, object, embed, base, a[href^='javascript:' i]";
    return {
        hurt: typeof globalThis.hurt,
        elements: all.filter((node) => node.matches(bad)).length,
        handlers: all.flatMap((node) => node.getAttributeNames()).filter((name) => /^(on|srcdoc)/i.test(name)),
        shown: texts.filter((node) => node.textContent.includes(markup)).length,
    };
}"""


def harmless(page: Page, place: str) -> int:
    """Return how many texts of a page have the markup, none of which may have become anything else."""
    found = page.evaluate(FOUND, MARKUP)
    shown = found.pop("shown")
    assert found == {"hurt": "undefined", "elements": 0, "handlers": []}, place
    return shown


def test_markup_in_any_name_or_text_is_text_in_every_view(browser: Browser) -> None:
    service = busy_service()
    service.markup = MARKUP
    service.models = [{"id": name, "loaded": name == "small"} for name in ("small", "large")]
    service.storage = "the disk is full"
    with running(service), visiting(browser, service.url, PHONE) as visit:
        shown = {name: harmless(visit.page, name) for name in views(visit, service)}
        outside = {address for address in visit.addresses if not address.startswith(service.url)}
    assert (outside, [name for name, count in shown.items() if not count]) == (set(), [])
    assert len(shown) >= 26


def test_markup_in_errors_files_menus_and_addresses_is_text(browser: Browser) -> None:
    asked: Json = {"kind": "approval", "id": "q7", "name": "send_mail", "arguments": {"to": "x"}, "reason": "It sends."}
    addresses = {
        "script": "javascript:hurt=4",
        "data": "data:text/html,<script>hurt=5</script>",
        "page": f"https://a.example/{MARKUP}",
    }
    login: Json = {"kind": "elicitation", "server": "crm", "message": "Log in.", "schema": {}}
    service = PageService(
        {name: [{**login, "id": name, "url": address}, HOLD] for name, address in addresses.items()},
        questions=[asked],
        refusals=[(400, "not like this", {})],
        models=[{"id": name, "loaded": name == "small"} for name in ("small", "large")],
        markup=MARKUP,
    )
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        page.wait_for_selector(".question >> text=send_mail")
        assert harmless(page, "question from elsewhere") >= 3
        visit.ask("x")
        page.wait_for_selector("text=not like this")
        assert harmless(page, "error") >= 4
        page.get_by_role("button", name="small").click()
        page.get_by_role("menuitemradio", name="large").wait_for()
        assert harmless(page, "models") >= 6
        page.keyboard.press("Escape")
        for name in addresses:
            visit.begin_anew()
            visit.ask(name)
            page.wait_for_selector(".question >> text=Log in.")
            assert harmless(page, name) >= 1
            links = page.eval_on_selector_all(
                ".question a", "(links) => links.map((link) => new URL(link.href).origin)"
            )
            assert links == (["https://a.example"] if name == "page" else [])
            service.go_on()
            page.wait_for_selector("#stop", state="hidden")
        page.click("#attach")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("menuitem", name="Choose files").click()
        chooser.value.set_files([{"name": f"{MARKUP}.txt", "mimeType": "text/plain", "buffer": b"milk"}])
        page.wait_for_selector("#files >> text=.txt")
        assert harmless(page, "file") >= 5
        outside = {address for address in visit.addresses if not address.startswith(service.url)}
    assert outside == set()
