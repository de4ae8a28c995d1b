"""What holds for any text, looked for by hypothesis: no input raises, nothing is lost, chunks do not matter."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rkllm_mcp.events import DetectorEvent, ToolCallDetected, ToolCallFailed
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
from rkllm_mcp.toolcalls.explain import explain
from rkllm_mcp.toolcalls.formats import SYNTAXES, Syntax
from rkllm_mcp.toolcalls.syntax import THINKING
from tests.toolcalls.samples import SAMPLES, SAVE
from tests.toolcalls.streams import TOOLS, merged, pieces_of

# Nothing is kept between runs: a failure names the text that shows it.
PROOF = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
DECLARED = (*TOOLS, SAVE)
_FORMS = [form for syntax in SYNTAXES.values() for form in syntax.formats]
MARKERS = sorted(
    {
        *(
            text.replace("{name}", "get_time")
            for form in _FORMS
            for text in (*form.openers, *form.closers, form.begins)
        ),
        *(mark for tags in THINKING.values() for mark in (tags.opener, tags.closer)),
        *("<parameter=zone>", "</parameter>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<invoke"),
        *(
            '<argument name="zone">',
            "</argument>",
            '<param name="zone">',
            "</param>",
            "</function>",
            "<![CDATA[",
            "]]>",
        ),
        *('<|"|>', "<escape>", "[ARGS]", "[CALL_ID]", "<｜tool▁sep｜>", "<|tool▁sep|>", "<|plugin|>", "```python\n"),
        *("get_time", "get_weather", "save_note", "nobody", '"name": "get_time"', '"arguments": {', "zone", "call:"),
        *(
            "[",
            "]",
            "{",
            "}",
            "(",
            ")",
            '"',
            "'",
            "\\",
            ",",
            ":",
            ";",
            "=",
            "\n",
            " ",
            "`",
            "```",
            "~~~",
            "<",
            ">",
            "/",
        ),
        *("null", "True", "3", "1e999", "\x00", "\ufeff", "\ud800", "東京", "😀", "text", "zone='x'", "'''", '"""'),
    }
    - {""}
)

SOUP = st.lists(st.sampled_from(MARKERS), max_size=24).map("".join)


def _written(name: str, body: str) -> str:
    return SAMPLES[name][1](body)


SAMPLE = st.builds(_written, st.sampled_from(sorted(SAMPLES)), st.text(max_size=12) | SOUP)


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """A call, somewhere damaged, between other text."""
    text = draw(SAMPLE)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from(["", *MARKERS])) + text[place + draw(st.integers(0, 4)) :]
    return draw(SOUP) + text + draw(SOUP)


TEXTS = st.text(max_size=60) | SOUP | _damaged()
CHOICES: st.SearchStrategy[Sequence[str | Syntax] | None] = (
    st.none() | st.just(tuple(SYNTAXES)) | st.lists(st.sampled_from(sorted(SYNTAXES)), min_size=1, max_size=3)
)
MODES: st.SearchStrategy[ThinkingMode] = st.sampled_from(("off", "auto", "open"))


@st.composite
def _chunked(draw: st.DrawFn) -> list[str]:
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(PROOF, max_examples=400)
@given(chunks=_chunked(), syntaxes=CHOICES, mode=MODES)
def test_no_input_raises_the_raw_slices_joined_are_the_input_and_chunks_do_not_matter(
    chunks: list[str], syntaxes: Sequence[str | Syntax] | None, mode: ThinkingMode
) -> None:
    text = "".join(chunks)
    outcomes: list[list[DetectorEvent]] = []
    for each in (chunks, [text], list(text)):
        pieces = pieces_of(each, DECLARED, syntaxes, mode)
        assert "".join(piece.raw for piece in pieces) == text
        outcomes.append(merged(event for piece in pieces for event in piece.events))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    for event in outcomes[0]:
        if isinstance(event, ToolCallFailed):
            assert "\n" not in event.reason
        elif isinstance(event, ToolCallDetected):
            assert event.name in {tool.name for tool in DECLARED}
            str(dict(event.arguments)).encode()


@settings(PROOF, max_examples=200)
@given(chunks=_chunked(), syntaxes=CHOICES, mode=MODES)
def test_a_listener_for_reasons_changes_nothing(
    chunks: list[str], syntaxes: Sequence[str | Syntax] | None, mode: ThinkingMode
) -> None:
    notes: list[str] = []
    detector = Detector(DECLARED, syntaxes, mode, on_note=lambda text, why: notes.append(f"{text}{why}"))
    events = [event for chunk in chunks for event in detector.feed(chunk)] + detector.finish()
    silent = [event for piece in pieces_of(chunks, DECLARED, syntaxes, mode) for event in piece.events]
    assert merged(events) == merged(silent)
    explain("".join(chunks), DECLARED, syntaxes, mode)


@settings(PROOF, max_examples=200)
@given(name=st.sampled_from(sorted(SAMPLES)), body=st.text(st.characters(blacklist_categories=("Cs",)), max_size=40))
def test_any_value_comes_out_as_it_went_in_or_the_call_is_not_made(name: str, body: str) -> None:
    syntax, write = SAMPLES[name]
    calls = [
        event
        for piece in pieces_of([write(body)], DECLARED, [syntax])
        for event in piece.events
        if isinstance(event, ToolCallDetected)
    ]
    # Text in tags loses a line break on each side, its frame, and "null" is null.
    assert all(str(call.arguments["body"]).strip("\r\n") in {body.strip("\r\n"), "None"} for call in calls)
