"""A list at the terminal: arrow keys walk it, letters filter it, Enter chooses, Escape leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rkllm_mcp.catalogue import Catalogue
from rkllm_mcp.surfaces.terminal import clip, printable, width

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

_MOST_ROWS = 12


@dataclass(frozen=True)
class Choice:
    """One row: what is returned, its title, and what is after it in grey."""

    value: str
    title: str
    detail: str = ""


@dataclass(eq=False)
class _List:
    heading: str
    choices: Sequence[Choice]
    none: str  # shown where no row matches
    keys: str  # the line below the list that says which keys do what
    position: int
    filter: str = ""

    @property
    def shown(self) -> list[Choice]:
        """The rows that have every word of the filter, in any case."""
        words = self.filter.casefold().split()
        rows = [(f"{choice.title} {choice.detail}".casefold(), choice) for choice in self.choices]
        return [choice for row, choice in rows if all(word in row for word in words)]

    def text(self, columns: int) -> StyleAndTextTuples:
        heading = clip(printable(self.heading), max(columns - 1, 1))
        parts: StyleAndTextTuples = [("bold", f"{heading}\n"), ("", f"> {printable(self.filter)}\n")]
        choices = self.shown
        first = max(0, min(self.position - _MOST_ROWS // 2, len(choices) - _MOST_ROWS))
        rows = choices[first : first + _MOST_ROWS]
        room = max((width(printable(row.title)) for row in rows), default=0)
        for index, row in enumerate(rows, first):
            mark, style = ("❯ ", "reverse") if index == self.position else ("  ", "")
            title = clip(printable(row.title), max(columns - 4, 1))
            detail = " " * (min(room, columns) - width(title) + 2) + printable(row.detail) if row.detail else ""
            parts += [
                (style, f"{mark}{title}"),
                ("ansibrightblack", clip(detail, max(columns - width(title) - 3, 0))),
            ]
            parts.append(("", "\n"))
        if not rows:
            parts.append(("ansibrightblack", f"  {self.none}\n"))
        count = f"{self.position + 1}/{len(choices)}  " if len(choices) > len(rows) else ""
        parts.append(("ansibrightblack", clip(f"  {count}{self.keys}", max(columns - 1, 1))))
        return parts


async def pick(
    heading: str,
    choices: Sequence[Choice],
    selected: str,
    phrases: Catalogue,
    *,
    source: Input | None = None,
    target: Output | None = None,
) -> str | None:
    """Return the value of the chosen row; None if the person left the list.

    Args:
        heading: the line above the list.
        choices: the rows.
        selected: value of the row where the list opens.
        phrases: the texts of the list in the person's language.
        source: keys of a test instead of the terminal's.
        target: the screen of a test.
    """
    from prompt_toolkit.application import Application
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys
    from prompt_toolkit.layout import Layout
    from prompt_toolkit.layout.containers import Window
    from prompt_toolkit.layout.controls import FormattedTextControl

    values = [choice.value for choice in choices]
    none, keys = phrases.sentence("chat.no_match"), phrases.sentence("chat.list_keys")
    rows = _List(heading, choices, none, keys, values.index(selected) if selected in values else 0)
    application: Application[str | None]
    bindings = KeyBindings()
    steps = {"up": -1, "c-p": -1, "down": 1, "c-n": 1, "pageup": -_MOST_ROWS, "pagedown": _MOST_ROWS}

    def press(event: KeyPressEvent) -> None:
        key, typed = event.key_sequence[0].key, event.data
        if key in steps:
            rows.position = max(0, min(rows.position + steps[key], len(rows.shown) - 1))
        elif key in ("escape", "c-c", "c-d", "c-g"):
            event.app.exit(result=None)
        elif key == Keys.ControlZ:
            event.app.suspend_to_background()
        elif key == Keys.Enter:
            if choices := rows.shown:
                event.app.exit(result=choices[rows.position].value)
        elif key == Keys.Backspace:
            rows.filter, rows.position = rows.filter[:-1], 0
        elif (text := " ".join(typed.split()) if len(typed) > 1 else typed).isprintable():
            rows.filter, rows.position = rows.filter + text, 0

    pressed = (*steps, "escape", "c-c", "c-d", "c-g", "c-z", "enter", "backspace", Keys.Any, Keys.BracketedPaste)
    for key in pressed:
        bindings.add(key)(press)

    control = FormattedTextControl(
        lambda: rows.text(application.output.get_size().columns), focusable=True, show_cursor=False
    )
    application = Application(
        layout=Layout(Window(control, dont_extend_height=True)),
        key_bindings=bindings,
        erase_when_done=True,
        input=source,
        output=target,
    )
    # A lone Escape is told from the beginning of an arrow key by the pause after it.
    application.ttimeoutlen = application.timeoutlen = 0.1
    return await application.run_async(handle_sigint=False)
