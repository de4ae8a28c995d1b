from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stdout

import pytest

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.events import (
    EVENT_TYPES,
    Approval,
    Elicitation,
    End,
    Event,
    MemoriesUsed,
    Prefill,
    QuestionAnswered,
    Queued,
    ResourceRead,
    Sources,
    Status,
    Text,
    Thinking,
    ToolCallDetected,
    ToolCallFailed,
    ToolFinished,
    ToolProgress,
    Usage,
    event_to_json,
)
from rkllm_mcp.surfaces.chat.render import TerminalRenderer
from rkllm_mcp.surfaces.chat.screen import renderer_for
from rkllm_mcp.surfaces.cli.run import show_json
from rkllm_mcp.surfaces.terminal import Terminal

EVERY_KIND: Sequence[Event] = (
    Text("a"),
    Thinking("b"),
    ToolCallDetected("get_weather", {"location": "東京"}, id="call_1", server="weather"),
    ToolCallFailed("<tool_call>{", "the call was cut off"),
    Approval("call_2", "delete", {}, "it destroys"),
    Elicitation("question_1", "desk", "Your name?", {"type": "object"}),
    QuestionAnswered("question_1", "", "decline", {}, 4.0),
    ToolProgress("call_1", 1, 2, "half"),
    ToolFinished("call_1", "get_weather", is_error=False, text="晴れ", seconds=0.25),
    Sources([{"document": "就業規則", "page": 2, "passage": "手当は月額5,000円。", "score": 0.8}]),
    ResourceRead("file:///a"),
    MemoriesUsed([{"id": "a1", "text": "犬はハチ", "source": ""}]),
    Queued(2),
    Prefill(500, 4.0),
    Status("[MCP: Calling tool 'get_weather']"),
    Usage(1, 1, 0, 1, 1.0, 1.0, 1.0),
    End("answered"),
)


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, f"No space left on device for {len(text)} characters")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def shown(
    events: Sequence[Event],
    *,
    tty: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    env: dict[str, str] | None = None,
) -> tuple[str, str]:
    """What a person finds on standard output and standard error."""
    out, err = (Screen(), Screen()) if tty else (io.StringIO(), io.StringIO())
    terminal = Terminal(quiet=quiet, verbose=verbose, out=lambda: out, err=lambda: err, env=env or {})
    renderer = renderer_for(terminal, read_catalogue("en")) if verbose else TerminalRenderer(terminal)
    for event in events:
        renderer.show(event)
    return out.getvalue(), err.getvalue()


def on_screen(events: Sequence[Event]) -> str:
    """What a person sees who has both on one terminal, without colours."""
    screen = io.StringIO()
    renderer = TerminalRenderer(Terminal(out=lambda: screen, err=lambda: screen, env={}))
    for event in events:
        renderer.show(event)
    return screen.getvalue()


ANSWER: Sequence[Event] = (
    Thinking("\nLet me "),
    Thinking("see."),
    Text("\n\n"),
    ToolCallDetected("get_weather", {"location": "東京"}, id="call_1"),
    Usage(1, 1, 0, 1, 1.0, 1.0, 1.0),
    Status("[MCP: Detected 1 tool call]"),
    Status("[MCP: Calling tool 'get_weather']"),
    Status("[MCP: Tool 'get_weather' completed]"),
    ToolFinished("call_1", "get_weather", is_error=False, text="晴れ\n18 度", seconds=0.25),
    Text("\n東京は"),
    Text("晴れです。"),
    End("answered"),
)


def test_an_answer_goes_to_standard_output_and_the_rest_to_standard_error() -> None:
    assert shown(ANSWER) == (
        "◆ 東京は晴れです。\n",
        (
            "Let me see.\n"
            '  → get_weather(location="東京")\n'
            "[MCP: Detected 1 tool call]\n"
            "[MCP: Calling tool 'get_weather']\n"
            "[MCP: Tool 'get_weather' completed]\n"
            "  ← 0.2 s  晴れ 18 度\n"
        ),
    )


def test_on_one_terminal_nothing_lands_in_the_middle_of_a_line() -> None:
    events = (
        Text("I look."),
        Status("[MCP: Calling tool 'a']"),
        Text("Done."),
        Thinking("hm"),
        Text("!"),
        End("answered"),
    )
    assert on_screen(events) == "◆ I look.\n[MCP: Calling tool 'a']\n◆ Done.\nhm\n◆ !\n"


def test_quiet_leaves_the_answer_and_errors() -> None:
    assert shown(ANSWER, quiet=True) == ("◆ 東京は晴れです。\n", "")
    assert shown([Text("a"), End("failed", "it broke; try again")], quiet=True) == (
        "◆ a\n",
        "Error: it broke; try again\n",
    )


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (End("round_limit"), "[The limit of tool rounds was reached]\n"),
        (End("token_limit"), "[The answer was cut at the token limit]\n"),
        (End("cancelled"), "[Stopped]\n"),
        (End("failed"), "Error: the answer failed\n"),
        (End("answered"), ""),
    ],
)
def test_every_ending_is_shown(end: End, line: str) -> None:
    assert shown([Text("a"), end]) == ("◆ a\n", line)


def test_colours_are_for_terminals_whose_owner_wants_them() -> None:
    events = (Status("[s]"), Text("a"), End("failed", "e"))
    assert shown(events, tty=True) == ("◆ a\n", "\x1b[2m[s]\x1b[0m\n\x1b[31mError: e\x1b[0m\n")
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert shown(events, tty=True, env=env) == ("◆ a\n", "[s]\nError: e\n")


def test_escape_sequences_of_models_and_tools_never_reach_the_screen() -> None:
    evil = "a\x1b]0;title\x07b\x9b2Jc\td\re"
    events = (Text(evil), Status(evil), ToolFinished("c", "t", is_error=False, text=evil, seconds=0), End("answered"))
    out, err = shown(events)
    assert (out, err) == ("◆ abc\tde\n", "abc\tde\n  ← 0.0 s  abc d e\n")


def test_long_results_and_arguments_are_shortened() -> None:
    _, err = shown(
        [
            ToolCallDetected("t", {"text": "x" * 500}, repaired=True),
            ToolFinished("c", "t", is_error=False, text="word " * 100, seconds=1.26),
        ]
    )
    call, result = err.splitlines()
    assert call == f'  → t(text="{"x" * 153}…) (repaired)'
    assert (result.startswith("  ← 1.3 s  word word"), len(result), result[-1]) == (True, 171, "…")


def test_progress_is_for_people_who_watch() -> None:
    event = ToolProgress("c", 1, 4, "quarter")
    assert shown([event])[1] == ""
    assert shown([event], tty=True, env={"NO_COLOR": "1"})[1] == "  … 25 % quarter\n"


def test_both_renderers_know_every_kind_of_event() -> None:
    assert {type(event) for event in EVERY_KIND} == set(EVENT_TYPES)
    shown(EVERY_KIND)
    out = io.StringIO()
    with redirect_stdout(out):
        for event in EVERY_KIND:
            show_json(event)
    assert out.getvalue().splitlines() == [event_to_json(event) for event in EVERY_KIND]


def test_json_lines_are_flushed_one_by_one() -> None:
    class Pipe(io.StringIO):
        def __init__(self) -> None:
            super().__init__()
            self.flushed: list[str] = []

        def flush(self) -> None:
            self.flushed.append(self.getvalue())

    pipe = Pipe()
    with redirect_stdout(pipe):
        show_json(Text("一"))
        show_json(End("answered"))
    assert pipe.flushed == [
        '{"kind":"text","text":"一"}\n',
        '{"kind":"text","text":"一"}\n{"kind":"end","reason":"answered","error":null}\n',
    ]


def test_a_status_line_that_cannot_be_written_does_not_cost_the_answer() -> None:
    out = io.StringIO()
    renderer = TerminalRenderer(Terminal(out=lambda: out, err=Full, env={}))
    for event in (Status("[MCP: Calling tool 'get_weather']"), Text("Sunny."), End("answered")):
        renderer.show(event)
    assert out.getvalue() == "◆ Sunny.\n"


def test_an_answer_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        TerminalRenderer(Terminal(out=Full, env={})).show(Text("Sunny."))


def test_nothing_of_an_escape_sequence_reaches_the_screen() -> None:
    text = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link \x1b]open\n\x1b [1m"
    assert shown([Text(text)])[0] == "◆ red link ]open\n [1m"


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_an_escape_sequence_that_comes_in_pieces_is_shown_as_little(size: int, tty: bool) -> None:
    text = (
        "a \x1b[31mred\x1b(B\x1b[m \x1b]0;title\x07\x1b]8;;http://x.test\x1b\\link\x1b]8;;\x1b\\ \x1bPq\x1b\\b \x9b2Jc"
    )
    pieces = [Text(text[start : start + size]) for start in range(0, len(text), size)]
    assert shown([*pieces, End("answered")], tty=tty)[0] == "◆ a red link b c\n"
    # One that does not end is text, and hides nothing.
    pieces = [Text("see \x1b]open"), Text(" and"), End("answered")]
    assert shown(pieces, tty=tty)[0] == "◆ see ]open and\n"


def test_a_line_that_comes_while_a_question_waits_begins_below_it() -> None:
    screen = io.StringIO()
    terminal = Terminal(err=lambda: screen, env={})
    terminal.prompt("Run it? ")
    terminal.note("[MCP: Server 'time' is gone]")
    terminal.prompt("Run it? ")
    # What a person types is shown by the terminal itself, their Enter too.
    terminal.on_enter()
    terminal.note("Done.")
    assert screen.getvalue() == "Run it? \n[MCP: Server 'time' is gone]\nRun it? Done.\n"


@pytest.mark.parametrize("tty", [False, True])
def test_what_the_model_read_is_a_line_after_each_answer_with_verbose(tty: bool) -> None:
    first, second = Usage(4_881, 4_881, 0, 9, 7_600.0, 1.0, 1.0), Usage(4_895, 15, 4_880, 9, 40.0, 1.0, 1.0)
    rounds = [first, second, Text("One."), End("answered"), second, Text("Two."), End("answered")]
    silent, spoken = shown(rounds, tty=tty), shown(rounds, tty=tty, verbose=True)
    assert "Read" not in silent[1]
    lines = re.findall(r"\[Read .*?\]", spoken[1])
    assert lines == ["[Read 4,896 of 9,776 tokens in 7.6 s]", "[Read 15 of 4,895 tokens in 0.0 s]"]
