"""A person in front of the page who has a keyboard and no mouse, or a finger on a phone and nothing else.

Both read what is on the screen. ``Keyboard`` goes to a control with Tab and the arrows and has to see where the focus
is; ``Touch`` taps what lies under the finger and swipes until it does.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from tests.support.browser import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload, Locator, Page

Language = Literal["en", "ja"]
Role = Literal[
    "button",
    "checkbox",
    "combobox",
    "link",
    "menuitem",
    "menuitemradio",
    "radio",
    "searchbox",
    "switch",
    "tab",
    "textbox",
]
# Where a person looks; what only a screen reader is told stands elsewhere.
SCREEN = "#sidebar, #main, #panel, #toast, dialog"
_MOST_STEPS = 120
_MOST_SWIPES = 40
_PAUSE_MS = 40
_DRAWN_WITHIN_MS = 2000
_FINGER_PX = 44
# A finger that has rested this long before it is lifted leaves the page where it is: Chromium looks at the last 100 ms.
_REST_MS = 130
# What a control is when the focus is on it: seen, and not covered by anything.
_SHOWN = """(node) => {
  const box = node.getBoundingClientRect();
  const style = getComputedStyle(node);
  const ringed = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
  const x = Math.min(Math.max(box.left + box.width / 2, 0), innerWidth - 1);
  const y = Math.min(Math.max((Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2, 0), innerHeight - 1);
  const top = document.elementFromPoint(x, y);
  const label = top?.closest("label");
  return {
    ring: ringed || Boolean(node.closest(".composer")?.matches(":focus-within")),
    place: top !== null && (node.contains(top) || Boolean(label?.contains(node)) || top.contains(node)),
  };
}"""
# Where a finger would go for a control, and the part that scrolls if it is not there yet.
_UNDER_THE_FINGER = """(node) => {
  const target = node.matches("input[type=radio], input[type=checkbox]") ? node.closest("label") ?? node : node;
  const box = target.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const top = document.elementFromPoint(x, y);
  let pane = target.parentElement;
  while (pane && pane !== document.documentElement) {
    const flow = getComputedStyle(pane).overflowY;
    if ((flow === "auto" || flow === "scroll") && pane.scrollHeight > pane.clientHeight + 1) break;
    pane = pane.parentElement;
  }
  const seen = (pane ?? document.documentElement).getBoundingClientRect();
  return {
    x, y, width: box.width, height: box.height, free: top !== null && target.contains(top),
    paneX: seen.left + seen.width / 2, paneY: (Math.max(seen.top, 0) + Math.min(seen.bottom, innerHeight)) / 2,
    paneHeight: Math.min(seen.bottom, innerHeight) - Math.max(seen.top, 0),
  };
}"""


class Person(ABC):
    """Someone who does a task of the tour.

    Args:
        page: what is in front of them.
        language: what they read, which the page has taken from their browser.
    """

    def __init__(self, page: Page, language: Language) -> None:
        self.page = page
        self.language: Language = language

    def say(self, en: str, ja: str) -> str:
        """The words of this person's language."""
        return ja if self.language == "ja" else en

    def control(self, en: str, ja: str, role: Role = "button", within: str = "body") -> Locator:
        """The control of this name that is shown; the last one where there are several."""
        name = self.say(en, ja)
        found = self.page.locator(within).get_by_role(role, name=name, exact=True).locator("visible=true")
        return found.last

    def folded(self, en: str, ja: str, within: str = "body") -> Locator:
        """The line that unfolds something."""
        words = re.compile(re.escape(self.say(en, ja)))
        return self.page.locator(within).locator("summary", has_text=words).locator("visible=true").last

    def press(self, en: str, ja: str, role: Role = "button", within: str = "body") -> None:
        """Use a control."""
        self.use(self.control(en, ja, role, within))

    def unfold(self, en: str, ja: str, within: str = "body") -> None:
        """Open what is folded."""
        self.use(self.folded(en, ja, within))

    def show_actions(self, message: Locator) -> None:
        """Have a message show its actions; keys reach them anyway."""
        message.wait_for()

    def ask(self, en: str, ja: str) -> None:
        """Write a question and send it."""
        self.write("Your question", "質問", self.say(en, ja))
        self.send()

    def answered(self, en: str, ja: str) -> None:
        """Ask, and wait until the answer is over."""
        over = ".message.assistant:not([aria-busy])"
        before = self.page.locator(over).count()
        self.ask(en, ja)
        # A short answer may be over before anybody looks.
        self.page.wait_for_function(
            "([over, before]) => document.querySelectorAll(over).length > before", arg=[over, before]
        )
        self.is_over()

    def is_over(self) -> None:
        """Wait for the end of the answer."""
        self.page.wait_for_selector("#stop", state="hidden")

    def write(self, en: str, ja: str, text: str, within: str = "body") -> None:
        """Put text into a field, in place of what is there."""
        field = self.page.locator(within).get_by_label(self.say(en, ja), exact=True).locator("visible=true").last
        self.go_into(field)
        self.clear(field)
        self.type(text)

    def go_into(self, field: Locator) -> None:
        """Have the cursor in a field."""
        self.go_to(field)
        # A finger's tap takes its time, and nobody types before.
        self.page.wait_for_function("(node) => node === document.activeElement", arg=field.element_handle())

    def sees(self, en: str, ja: str, within: str = SCREEN) -> Locator:
        """Wait until these words are on the screen, without scrolling."""
        words = self.say(en, ja)
        found = self.page.locator(within).get_by_text(words).locator("visible=true")
        found.first.wait_for()
        return self._on_screen(found, words)

    def sees_no(self, en: str, ja: str, within: str = SCREEN) -> None:
        """Wait until these words are nowhere any more."""
        words = self.page.locator(within).get_by_text(self.say(en, ja)).locator("visible=true")
        words.first.wait_for(state="detached")

    def has_not_moved_sideways(self) -> None:
        """Check that the page is as wide as the screen and not pushed aside."""
        wide = "[...document.querySelectorAll('html, body, #messages, #panel-content, #sidebar, dialog')]"
        over = self.page.evaluate(
            f"{wide}.filter((node) => node.scrollWidth > node.clientWidth + 1 || node.scrollLeft)"
            ".map((node) => `${node.id || node.tagName} ${node.scrollWidth} > ${node.clientWidth}`)"
        )
        assert over == [], f"wider than the screen: {over}"

    def choose_files(self, open_dialog: Callable[[], None], *files: FilePayload) -> None:
        """Give files in the system's dialog, which ``open_dialog`` opens."""
        with self.page.expect_file_chooser() as chooser:
            open_dialog()
        chooser.value.set_files(list(files))

    def paste(self) -> None:
        """Paste what is in the clipboard where the cursor is: Ctrl+V, or the entry of the phone's own menu."""
        self.page.keyboard.press("Control+V")

    def shortcut(self, keys: str) -> bool:
        """Press the keys of a shortcut; whether there is a keyboard."""
        del keys
        return False

    @abstractmethod
    def go_to(self, control: Locator) -> None:
        """Have the focus on it."""

    @abstractmethod
    def use(self, control: Locator) -> None:
        """Press it."""

    @abstractmethod
    def type(self, text: str) -> None:
        """Write where the focus is."""

    @abstractmethod
    def clear(self, field: Locator) -> None:
        """Take out what the field holds."""

    @abstractmethod
    def new_line(self) -> None:
        """Begin a line of what is being written."""

    @abstractmethod
    def send(self) -> None:
        """Send the question that is written."""

    @abstractmethod
    def scroll(self, pane: Locator, pixels: int) -> None:
        """Look further down in a part that scrolls, or up if negative."""

    def _on_screen(self, found: Locator, what: str) -> Locator:
        for _ in range(PATIENCE_MS // _PAUSE_MS):
            for each in found.all():
                if each.evaluate(
                    "(node) => { const box = node.getBoundingClientRect();"
                    "return box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth }"
                ):
                    return each
            self.page.wait_for_timeout(_PAUSE_MS)
        raise AssertionError(f"{what!r} is on the page, but not on the screen")


class Keyboard(Person):
    """Tab, arrows, Enter, Space, Escape and shortcuts; no mouse."""

    # The most steps to a control, for a reader of the figures.
    steps = 0

    def go_to(self, control: Locator) -> None:
        control.wait_for()
        target = control.element_handle()
        for step in range(_MOST_STEPS):
            key = cast("str | None", target.evaluate(_NEXT_KEY))
            if key is None:
                # It was drawn anew. To look for it by its name at each step would take most of a test's time.
                target = control.element_handle()
            elif key == "":
                self.steps = max(self.steps, step)
                self._sees_focus(control)
                return
            else:
                self.page.keyboard.press(key)
        raise AssertionError(f"the keys do not reach {control}")

    def _sees_focus(self, control: Locator) -> None:
        # What was drawn above it a moment ago may still move it.
        for _ in range(_DRAWN_WITHIN_MS // _PAUSE_MS):
            shown = cast("dict[str, bool]", control.evaluate(_SHOWN))
            if all(shown.values()):
                return
            self.page.wait_for_timeout(_PAUSE_MS)
        raise AssertionError(f"the focus on {control} is not seen: {control.evaluate(_SHOWN)}")

    def use(self, control: Locator) -> None:
        self.go_to(control)
        key = "Space" if control.evaluate("(node) => node.matches('[role=switch], input')") else "Enter"
        is_chosen = control.evaluate("(node) => node.matches('input[type=radio]:checked')")
        if not is_chosen:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def clear(self, field: Locator) -> None:
        if field.input_value():
            self.page.keyboard.press("Control+A")
            self.page.keyboard.press("Delete")

    def new_line(self) -> None:
        self.page.keyboard.press("Shift+Enter")

    def send(self) -> None:
        self.page.keyboard.press("Enter")

    def shortcut(self, keys: str) -> bool:
        self.page.keyboard.press(keys)
        return True

    def scroll(self, pane: Locator, pixels: int) -> None:
        self.go_to(pane)
        for _ in range(max(1, abs(pixels) // 400)):
            self.page.keyboard.press("PageDown" if pixels > 0 else "PageUp")


# The key of a person who sees where the focus is and where the control is: none there, null when it is gone.
_NEXT_KEY = """(node) => {
  const now = document.activeElement ?? document.body;
  if (!node.isConnected || now === node) return node.isConnected ? "" : null;
  const isBefore = Boolean(now.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_PRECEDING);
  const role = (one) => one.getAttribute("role") ?? (one.matches("input[type=radio]") ? `radio ${one.name}` : "");
  const group = node.closest("[role=menu], [role=tablist], fieldset");
  if (role(node) && role(now) === role(node) && group?.contains(now)) {
    const isRow = group.matches("[role=tablist]");
    return isBefore ? (isRow ? "ArrowLeft" : "ArrowUp") : isRow ? "ArrowRight" : "ArrowDown";
  }
  return isBefore && now !== document.body ? "Shift+Tab" : "Tab";
}"""


class Touch(Person):
    """A finger on a phone, and the keyboard on its screen."""

    def __init__(self, page: Page, language: Language) -> None:
        super().__init__(page, language)
        self._session = cast("Any", page.context.new_cdp_session(page))

    def go_to(self, control: Locator) -> None:
        place = self._under_the_finger(control)
        self.page.touchscreen.tap(place["x"], place["y"])

    def show_actions(self, message: Locator) -> None:
        place = self._under_the_finger(message)
        at = {"x": place["x"], "y": place["y"]}
        self._session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at]})
        message.and_(self.page.locator(".is-pressed")).wait_for()
        self._session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def _under_the_finger(self, control: Locator) -> dict[str, Any]:
        """Bring a control under the finger and return where it is."""
        control.wait_for()
        place: dict[str, Any] = {}
        for _ in range(_MOST_SWIPES):
            before, place = place, control.evaluate(_UNDER_THE_FINGER)
            if place["free"] and (place["x"], place["y"]) == (before.get("x"), before.get("y")):
                assert max(place["width"], place["height"]) >= _FINGER_PX, (
                    f"{control} is too small for a finger: {place}"
                )
                return place
            if not place["free"] and before:
                down, most = place["paneY"] - place["y"], 0.7 * place["paneHeight"]
                self._swipe(place["paneX"], place["paneY"], down=max(-most, min(most, down)))
            self.page.wait_for_timeout(_PAUSE_MS)
        raise AssertionError(f"no finger reaches {control}: {place}")

    def use(self, control: Locator) -> None:
        self.go_to(control)

    def type(self, text: str) -> None:
        self.page.keyboard.insert_text(text)

    def clear(self, field: Locator) -> None:
        # As Backspace does that is held.
        field.evaluate("(node) => { node.select(); document.execCommand('delete'); }")

    def new_line(self) -> None:
        # Its keyboard has no Shift+Enter.
        self.page.keyboard.press("Enter")

    def send(self) -> None:
        self.use(self.page.locator("#send"))

    def scroll(self, pane: Locator, pixels: int) -> None:
        x, y = _middle(pane)
        self._swipe(x, y, down=max(-0.7 * y, min(0.7 * y, -pixels)))

    def swipe_left(self, place: Locator, pixels: int) -> None:
        """Move what is under the finger to the left."""
        x, y = _middle(place)
        self._swipe(x, y, right=-min(0.8 * x, pixels))

    def _swipe(self, x: float, y: float, *, right: float = 0, down: float = 0) -> None:
        x, y = x - right / 2, y - down / 2
        for part, pause in ((0, 16), (0.1, 16), (0.4, 16), (0.7, 16), (1, _REST_MS), (1, 0)):
            point = {"x": x + right * part, "y": y + down * part}
            kind = "touchMove" if part else "touchStart"
            self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
            self.page.wait_for_timeout(pause)
        self._session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def _middle(place: Locator) -> tuple[float, float]:
    box = place.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
