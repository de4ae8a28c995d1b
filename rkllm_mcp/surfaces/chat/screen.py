"""Events of an answer on a terminal that can move its cursor.

    Text, Thinking ─▶ StreamedText ─▶ finished blocks, and one open block that is painted again as it grows
    calls          ─▶ one line each, updated in place: → name(arguments), running, ✓ or ✗ with the result

Everything else is shown as ``render.TerminalRenderer`` shows it in a pipe.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from threading import Thread

from rkllm_mcp.catalogue import Catalogue
from rkllm_mcp.events import Event, Status, Text, Thinking, ToolCallDetected, ToolFinished, ToolProgress, Usage
from rkllm_mcp.surfaces.chat.render import (
    ANSWER_MARK,
    RESULT_CHARS,
    TerminalRenderer,
    arguments_text,
    progress_text,
)
from rkllm_mcp.surfaces.terminal import (
    DIM,
    GREEN,
    RED,
    TAB_COLUMNS,
    LiveRegion,
    PrintableStream,
    Terminal,
    apply_style,
    clip,
    printable,
    width,
    wrap,
)
from rkllm_mcp.text import collapse_whitespace, shorten

# Twenty times a second is fluent; more is work for the terminal and for what draws it over a network.
_INTERVAL_S = 0.05
# Painting may take this share of the time: a long table is painted less often.
_LOAD = 0.05

# Status lines that the line of a call takes in.
_OF_A_CALL = frozenset({"calling", "completed", "found_nothing", "failed", "failed_context"})

# What may be markup, anywhere in a line or at its start; a text without any is shown without rich.
_MARKUP = re.compile(r"[*_`~\[\\&<|]|^[ \t]*(?:[-+#>=]|\d+[.)])|^(?: {4}| *\t)", re.MULTILINE)
# What may be markup, or end it, after a word.
_INLINE = re.compile(r"[*_`~\[\\&<|)>;\n\t]")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[ \t]*\S[^\n]*)*")


@dataclass
class StreamedText:
    """A text that arrives in pieces: painted at once, then at most every 50 ms."""

    region: LiveRegion  # a fresh one; ``finish`` is called before it is settled
    is_markdown: bool  # render markup; otherwise break lines only
    mark: str  # is before the first line; the others are indented as far
    style: str  # of lines without their own style
    clock: Callable[[], float]  # monotonic, seconds
    _printable: PrintableStream = field(default_factory=PrintableStream)
    _source: str = ""
    _above: str | None = None  # the list sign of the unit above the source, if there is a unit
    _solid_chars: int = 0  # of the source, on the screen
    _room: int | None = None  # columns left after the last line, if plain text only continues it
    _timer: asyncio.TimerHandle | None = None
    _due_s: float = 0.0
    _failure: OSError | None = None

    def feed(self, text: str) -> None:
        """Take a piece of text; an OSError if the terminal has gone."""
        self._source += self._printable.feed(text)
        if self._failure is None and self._timer is None:
            wait_s = self._due_s - self.clock()
            if wait_s <= 0:
                self._paint()
            else:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._paint)
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Paint what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._source += self._printable.feed("", is_last=True)
        self._render()

    def _paint(self) -> None:
        begun_s, self._timer = self.clock(), None
        # Most pieces of an answer are a word that fits after the last line.
        more = self._source[self._solid_chars :].rstrip()
        fits = self._room is not None and not _INLINE.search(more) and width(more) <= self._room
        try:
            if fits and self._room is not None and self.region.append(apply_style(more, self.style)):
                self._room -= width(more)
                self._solid_chars += len(more)
            else:
                self._render()
        except OSError as error:
            self._failure = error  # raised by this piece or the next, where it ends the answer
        now_s = self.clock()
        self._due_s = now_s + max(_INTERVAL_S, (now_s - begun_s) / _LOAD)

    def _render(self) -> None:
        indent = " " * width(self.mark)
        columns = max(self.region.columns - len(indent), 1)
        # Another unit begins on a whole line, so those before the last of the whole lines cannot change.
        whole = self._source[: self._source.rfind("\n") + 1]
        units: list[tuple[int, Sequence[str], str]] = []
        if self.is_markdown and _MARKUP.search(self._source):
            from rkllm_mcp.surfaces.chat.markdown import markdown_units, token_groups

            units += markdown_units(self._source, columns)
            starts = [offset for offset, _ in token_groups(whole)] if len(units) > 1 else []
        else:
            for match in _PARAGRAPH.finditer(self._source):
                wrapped = [wrap(line.expandtabs(TAB_COLUMNS), columns) for line in match[0].split("\n")]
                units.append((match.start(), [part for parts in wrapped for part in parts], ""))
            starts = [match.start() for match in _PARAGRAPH.finditer(whole)]
        settled = starts[-1] if len(starts) > 1 else 0
        lines: list[str] = []
        is_first, above, final = self._above is None, self._above, 0
        for start, unit_lines, sign in units:
            lines += [] if above is None or (sign and sign == above) else [""]
            lines += [f"{indent}{apply_style(line, self.style)}" if line else "" for line in unit_lines]
            above = sign
            if start < settled:
                final, self._above = len(lines), sign
        if lines and is_first:
            lines[0] = f"{self.mark}{lines[0][len(indent) :]}"
        self.region.paint(lines, final)
        self._source = self._source[settled:]
        self._solid_chars = len(self._source.rstrip())
        self._room = None
        if units and units[-1][1]:
            # Text may only be added to a last line that ends as the source does.
            line, source = units[-1][1][-1], self._source.rpartition("\n")[2]
            visible, words = _STYLE.sub("", line), source.split()
            ends_alike = words and visible.endswith(words[-1][-4:]) and not line.endswith("\x1b[0m")
            if ends_alike and any(map(str.isalpha, source)):
                self._room = columns - width(visible)


@dataclass
class _Call:
    name: str
    arguments: str = ""
    status: str = ""  # the last status line; empty before the first
    progress: str = ""
    mark: str = ""  # how it ended; empty while it runs
    style: str = ""
    result: str = ""

    def lines(self, columns: int) -> list[str]:
        """Return its line; several if it failed, as the reason must be read whole."""
        call = f"{self.name}({self.arguments})"
        if not self.mark:
            text = f"  {self.status}  {self.arguments}" if self.status else f"  → {call}"
            return [apply_style(clip(printable(f"{text.rstrip()}{self.progress}"), columns), DIM)]
        room = max(columns - 4, 1)
        # Long arguments leave room for the result.
        text = printable(f"{clip(call, max(room // 2, room - width(self.result) - 2))}  {self.result}".rstrip())
        texts = wrap(text, room) if self.style == RED else [clip(text, room)]
        first, *more_lines = [apply_style(line, DIM) for line in texts]
        return [f"  {apply_style(self.mark, self.style)} {first}", *(f"    {line}" for line in more_lines)]


class ScreenRenderer:
    """Events on a screen: Markdown as it streams, and a line for each call that is updated in place."""

    def __init__(self, terminal: Terminal, phrases: Catalogue, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal = terminal
        self._phrases = phrases
        self._clock = clock
        self._lines = TerminalRenderer(terminal, phrases)
        self._text: StreamedText | None = None
        self._is_thought = False
        self._calls: dict[str, _Call] = {}  # running ones by id
        self._painted: list[_Call] = []
        self._region: LiveRegion | None = None

    def show(self, event: Event) -> None:
        """Show one event; see ``render.TerminalRenderer.show``."""
        match event:
            case Text() if self._terminal.draws_answers:
                self._stream(event.text, is_thought=False)
            case Thinking() if self._terminal.draws_notes:
                self._stream(event.text, is_thought=True)
            case Usage():
                self._lines.show(event)
            case _ if self._terminal.draws_notes and self._show_call(event):
                self._text = None
            case Status() if self._calls:
                self._terminal.note(event.text)
            case _:
                self._text = None
                self._lines.show(event)

    def _stream(self, text: str, *, is_thought: bool) -> None:
        if self._text is None or self._is_thought != is_thought or self._terminal.region is not self._text.region:
            # Models leave blank lines between their thinking, their calls and their words.
            text = text.lstrip()
            if not text:
                return
            self._is_thought = is_thought
            region = self._terminal.open_region(is_answer=not is_thought)
            mark, style = ("", DIM) if is_thought else (ANSWER_MARK, "")
            self._text = StreamedText(region, not is_thought, mark, style, self._clock)
            region.before_settle = self._text.finish
        self._text.feed(text)

    def _show_call(self, event: Event) -> bool:
        """Show an event of a call; return False if it is something else."""
        match event:
            case ToolCallDetected():
                repaired = self._phrases.sentence("answer.repaired") if event.repaired else ""
                self._calls[event.id] = call = _Call(event.name, f"{arguments_text(event.arguments)}{repaired}")
            case ToolProgress() if event.id in self._calls:
                call = self._calls[event.id]
                call.progress = f"  {progress_text(event)}"
            case ToolFinished():
                call = self._calls.pop(event.id, None) or _Call(event.name)
                result = shorten(collapse_whitespace(event.text), RESULT_CHARS)
                call.mark, call.style = ("✗", RED) if event.is_error else ("✓", GREEN)
                call.result = f"{event.seconds:.1f} s  {result}"
            case Status() if event.about in _OF_A_CALL:
                key = event.values["call"] or event.values["name"]
                call = self._calls.setdefault(key, _Call(event.values["name"]))
                call.status = event.text
                # A call that the model did not make has no result of its own.
                if event.about != "calling" and not event.values["call"]:
                    reason = event.values.get("reason", "")
                    call.mark, call.style, call.result = ("✗", RED, reason) if reason else ("✓", GREEN, "")
                    del self._calls[key]
            case Status():
                return event.about in {"detected", "detected_one"}
            case _:
                return False
        is_over = all(painted.mark for painted in self._painted)
        if self._region is None or self._terminal.region is not self._region or (is_over and call not in self._painted):
            self._region = self._terminal.open_region(is_answer=False)
            self._painted = []
        if not any(painted is call for painted in self._painted):
            self._painted.append(call)
        columns = self._region.columns
        self._region.paint([line for painted in self._painted for line in painted.lines(columns)])
        return True


def renderer_for(terminal: Terminal, phrases: Catalogue) -> ScreenRenderer | TerminalRenderer:
    """Return the renderer for a terminal, or for a pipe."""
    if terminal.draws_answers or terminal.draws_notes:
        return ScreenRenderer(terminal, phrases)
    return TerminalRenderer(terminal, phrases)


def load_markdown(terminal: Terminal) -> None:
    """Import what Markdown needs next to the event loop, while the model reads the prompt or the person types."""
    if terminal.draws_answers:
        Thread(target=import_module, args=["rkllm_mcp.surfaces.chat.markdown"], daemon=True).start()
