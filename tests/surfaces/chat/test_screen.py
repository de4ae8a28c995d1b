"""Answers on a screen: Markdown as it streams, words whole, one line for each call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import anyio
import pytest

from rkllm_mcp.catalogue import read_catalogue, status_line
from rkllm_mcp.events import (
    Approval,
    End,
    Event,
    Status,
    Text,
    Thinking,
    ToolCallDetected,
    ToolFinished,
    ToolProgress,
)
from rkllm_mcp.surfaces.chat.render import TerminalRenderer
from rkllm_mcp.surfaces.chat.screen import ScreenRenderer, renderer_for
from rkllm_mcp.surfaces.terminal import Terminal
from tests.support.cuts import splits
from tests.support.virtual_screen import VirtualScreen

ANSWER = """\
## 手順 of *today*

Read `a` and **b
c**, then <b>go</b> to [the page](http://x.test).
これは四十桁の画面でも、単語や句読点の位置が正しく折り返される長い文です。

- one
  - two
- three

3. third
3. again

```python
if a:
    b("*")
```

| name | 値 |
|---|---:|
| x | 12 |

> quoted

* * *
# The end
#end
"""
SHOWN = """\
◆ 手順 of today

  Read a and b
  c, then <b>go</b> to the page
  (http://x.test).
  これは四十桁の画面でも、単語や句読点の
  位置が正しく折り返される長い文です。

  • one
    • two
  • three

  3. third
  3. again

    if a:
        b("*")

   name  値
   ────────
   x     12

  ▌ quoted

  --------------------------------------

  The end

  #end
"""


class Clock:
    """A clock that is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def after(events: Sequence[Event], columns: int = 41, rows: int = 24) -> VirtualScreen:
    """The screen after events that came a second apart."""
    screen, clock = VirtualScreen(columns, rows), Clock()
    renderer = ScreenRenderer(Terminal(out=lambda: screen, err=lambda: screen, env={}), read_catalogue("en"), clock)
    for event in events:
        clock.now_s += 1
        renderer.show(event)
    return screen


@pytest.mark.parametrize("rows", [6, 60])
def test_an_answer_looks_the_same_however_it_was_cut_and_however_high_the_screen_is(rows: int) -> None:
    for pieces in splits(ANSWER):
        with after([*map(Text, pieces), End("answered")], rows=rows) as screen:
            assert "\n".join(screen.lines) == SHOWN


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("これは**「重要」**な点です", "これは「重要」な点です"),
        ("**「A」**なので**「B」**", "「A」なので「B」"),
        ("**重要：**次の行、**該当。**これは", "重要：次の行、該当。これは"),
        ("*斜体（括弧）。*この~~消した（括弧）。~~この", "斜体（括弧）。この消した（括弧）。この"),
        ("これは**`code`**です", "これはcodeです"),
        ("🔥**「強」**🔥", "🔥「強」🔥"),
        ("東京** 大阪** と a * b", "東京** 大阪** と a * b"),
        ("2*3*4 = 24", "2*3*4 = 24"),
        ("one<br>two<br />three", "one\n  two\n  three"),
        ("a &lt;b&gt; &#13;c &#27;[2Jd", "a <b> c �[2Jd"),
    ],
)
def test_marks_in_text_without_blanks_are_obeyed(written: str, shown: str) -> None:
    with after([Text(written), End("answered")], columns=80) as screen:
        assert "\n".join(screen.lines) == f"◆ {shown}\n"


def test_a_line_break_in_a_cell_is_one() -> None:
    with after([Text("| a | b |\n|---|---|\n| x<br>y | z |\n"), End("answered")]) as screen:
        assert [line.split() for line in screen.lines if line.strip()][-2:] == [["x", "z"], ["y"]]


def test_escape_sequences_of_a_model_are_nothing_on_the_screen_however_they_are_cut() -> None:
    text = "one \x1b[31mred\x1b[0m\n\n- \x1b]52;c;cm0=\x07two\x1b]0;open"
    for pieces in splits(text):
        with after([*map(Text, pieces), End("answered")]) as screen:
            assert "\n".join(screen.lines) == "◆ one red\n\n  • two]0;open\n"


def test_what_has_come_is_on_the_screen_at_once() -> None:
    for length in range(1, len(ANSWER)):
        with after([Text(ANSWER[:length])]) as screen:
            written = [char for char in ANSWER[:length] if char.isalpha() and char not in "python"]
            missing = list("".join(screen.lines))
            for char in written:
                assert char in missing, (length, char)
                missing.remove(char)


def test_a_fast_answer_is_painted_twenty_times_a_second() -> None:
    async def streamed() -> int:
        with VirtualScreen(80) as screen:
            renderer = renderer_for(Terminal(out=lambda: screen, err=lambda: screen, env={}), read_catalogue("en"))
            for _ in range(1000):
                renderer.show(Text("word "))
            assert screen.writes == 1
            with anyio.fail_after(10):
                while "".join(screen.lines).count("word") < 1000:
                    await anyio.lowlevel.checkpoint()
            return screen.writes

    assert anyio.run(streamed) == 2


CALLS: Sequence[Event] = (
    ToolCallDetected("get_weather", {"location": "東京"}, id="1"),
    ToolCallDetected("delete", {}, id="2"),
    status_line("detected", count=2),
    status_line("calling", name="get_weather", call="1"),
    status_line("calling", name="delete", call="2"),
    ToolProgress("1", 1, 4, "quarter"),
    Status("[MCP: Connecting to desk server...]"),
    status_line("failed", name="delete", call="2", reason="there is no file of that name in the folder"),
    ToolFinished("2", "delete", is_error=True, text="there is no file of that name in the folder", seconds=0.04),
    status_line("found_nothing", name="get_weather", call="1"),
    ToolFinished("1", "get_weather", is_error=False, text="晴れ\n18 度", seconds=0.25),
    Text("Sunny."),
    End("answered"),
)


def test_a_call_is_one_line_that_changes() -> None:
    stages: dict[int, list[str]] = {}
    for count in (3, 7, len(CALLS)):
        with after(CALLS[:count], columns=50) as screen:
            stages[count] = screen.lines
    assert stages == {
        3: ['  → get_weather(location="東京")', "  → delete()"],
        7: [
            "[MCP: Connecting to desk server...]",
            "  [MCP: Calling tool 'get_weather']  location=\"…",
            "  [MCP: Calling tool 'delete']",
        ],
        13: [
            "[MCP: Connecting to desk server...]",
            '  ✓ get_weather(location="東…  0.2 s  晴れ 18 度',
            "  ✗ delete()  0.0 s  there is no file of that",
            "    name in the folder",
            "◆ Sunny.",
            "",
        ],
    }


def test_a_question_appears_below_its_call_which_goes_on_after_it() -> None:
    events = (
        Thinking("\nLet me see whether it is there, before anything is done.\n\nYes."),
        *CALLS[1:2],
        Approval("2", "delete", {}, "it deletes"),
        CALLS[4],
        ToolFinished("2", "delete", is_error=False, text="done", seconds=1),
    )
    with after(events) as screen:
        assert screen.lines == [
            "Let me see whether it is there, before",
            "anything is done.",
            "",
            "Yes.",
            "  → delete()",
            "[MCP: Waiting for approval of 'delete':",
            "it deletes]",
            "  ✓ delete()  1.0 s  done",
        ]


def test_a_note_during_an_answer_appears_above_it() -> None:
    with VirtualScreen(41) as screen:
        terminal = Terminal(out=lambda: screen, err=lambda: screen, env={})
        clock = Clock()
        renderer = ScreenRenderer(terminal, read_catalogue("en"), clock)
        for text in ("A **b", "old** word\n\n- and", " more"):
            clock.now_s += 1
            renderer.show(Text(text))
            terminal.note("[MCP: Server 'a' is ready]")
        renderer.show(End("answered"))
        note = "[MCP: Server 'a' is ready]"
        assert screen.lines == [note, note, note, "◆ A bold word", "", "  • and more", ""]


def test_markdown_is_for_screens_whose_owner_wants_it() -> None:
    def kind(plain: bool = False, **env: str) -> type[ScreenRenderer | TerminalRenderer]:
        with VirtualScreen(80) as screen:
            return type(
                renderer_for(
                    Terminal(plain=plain, out=lambda: screen, err=lambda: screen, env=env), read_catalogue("en")
                )
            )

    assert [kind(), kind(TERM="xterm"), kind(True), kind(NO_COLOR="1"), kind(TERM="dumb")] == [
        ScreenRenderer,
        ScreenRenderer,
        TerminalRenderer,
        TerminalRenderer,
        TerminalRenderer,
    ]


def test_a_text_without_markup_is_shown_without_loading_rich() -> None:
    program = """
import io, sys
from rkllm_mcp.events import End, Text
from rkllm_mcp.catalogue import read_catalogue, status_line
from rkllm_mcp.surfaces.chat.screen import ScreenRenderer
from rkllm_mcp.surfaces.terminal import Terminal
class Screen(io.StringIO):
    def isatty(self): return True
renderer = ScreenRenderer(Terminal(out=Screen, err=Screen, env={}), read_catalogue("en"))
renderer.show(Text("Just words.\\n\\nAnd more of them: 1, 2."))
renderer.show(End("answered"))
print("rich" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
