"""Stop strings end an answer at the same place however it is cut into tokens, and nothing else is lost or kept back."""

from __future__ import annotations

import random

import pytest

from rkllm_mcp.toolcalls.stop_strings import StopMatcher


def read(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    """Return the text that comes out and the stop string that was found, with the whole stream fed."""
    matcher, out = StopMatcher(stops), ""
    for piece in pieces:
        text, found = matcher.feed(piece)
        out += text
        if found is not None:
            return out, found
    return out + matcher.finish(), None


CASES = [
    ("Hello there", ["zzz"], "Hello there", None),
    ("Hello\nUser: hi", ["\nUser:"], "Hello", "\nUser:"),
    ("aaab", ["aab"], "a", "aab"),
    ("ababac", ["abac"], "ab", "abac"),
    ("abcd", ["abcd", "bc"], "a", "bc"),
    ("xabc", ["bc", "abc"], "x", "abc"),
    ("東京都です", ["都で"], "東京", "都で"),
    ("almost <en", ["<end>"], "almost <en", None),
    ("<end>", ["<end>"], "", "<end>"),
]


@pytest.mark.parametrize(("text", "stops", "said", "found"), CASES)
def test_the_text_ends_before_the_first_stop_string_wherever_tokens_end(
    text: str, stops: list[str], said: str, found: str | None
) -> None:
    cuts = [[text], [*text], *([text[:at], "", text[at:]] for at in range(len(text) + 1))]
    for pieces in cuts:
        assert read(pieces, stops) == (said, found), pieces


def test_text_is_withheld_only_while_it_may_begin_a_stop_string() -> None:
    matcher = StopMatcher(["<end>"])
    assert [matcher.feed(piece) for piece in ("a", "<e", "", "x<", "b")] == [
        ("a", None),
        ("", None),
        ("", None),
        ("<ex", None),
        ("<b", None),
    ]
    assert matcher.finish() == ""


def test_random_texts_end_where_a_search_in_the_whole_text_says() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        text = "".join(chance.choice("ab<") for _ in range(chance.randrange(12)))
        stops = ["".join(chance.choice("ab<") for _ in range(chance.randrange(1, 4))) for _ in range(2)]
        ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
        expected = text[: min(ends)[0] - len(min(ends)[2])] if ends else text
        cut = sorted(chance.randrange(len(text) + 1) for _ in range(3))
        pieces = [text[a:b] for a, b in zip([0, *cut], [*cut, len(text)], strict=True)]
        assert read(pieces, stops)[0] == expected, (text, stops, pieces)
