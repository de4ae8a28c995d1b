"""Stop strings end an answer at the same place however it is cut into tokens, and nothing else is lost or kept back."""

from __future__ import annotations

import random

import pytest

from rkllm_mcp.generation import Token
from rkllm_mcp.toolcalls.stop_strings import StopStrings


def texts(pieces: list[str], stops: list[str]) -> tuple[str, str | None, list[int]]:
    """The text that comes out, the stop string that was found, and the ids, the whole stream fed."""
    watched, out = StopStrings(stops), list[Token]()
    for token_id, piece in enumerate(pieces):
        out.extend(watched.feed(Token(token_id, piece)))
        if watched.found is not None:
            break
    out.extend(watched.finish())
    return "".join(token.text for token in out), watched.found, [token.id for token in out]


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
    whole = texts([text], stops)
    assert whole[:2] == (said, found)
    cuts = [[*text], *([text[:at], "", text[at:]] for at in range(len(text) + 1))]
    for pieces in cuts:
        assert texts(pieces, stops)[:2] == (said, found), pieces


def test_every_id_comes_out_also_of_the_tokens_that_spell_the_stop_string() -> None:
    said, found, ids = texts(["Hi", " <", "en", "d> no"], ["<end>"])
    assert (said, found, ids) == ("Hi ", "<end>", [0, 1, 2, 3])


def test_a_token_is_withheld_only_while_it_may_begin_a_stop_string() -> None:
    watched = StopStrings(["<end>"])
    assert watched.feed(Token(1, "a")) == [Token(1, "a")]
    assert watched.feed(Token(2, "<e")) == []
    assert watched.feed(Token(3, "")) == []
    assert watched.feed(Token(4, "x<")) == [Token(2, "<e"), Token(3, "")]
    assert watched.feed(Token(5, "b")) == [Token(4, "x<"), Token(5, "b")]
    assert watched.finish() == []


def test_random_texts_end_where_a_search_in_the_whole_text_says() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        text = "".join(chance.choice("ab<") for _ in range(chance.randrange(12)))
        stops = ["".join(chance.choice("ab<") for _ in range(chance.randrange(1, 4))) for _ in range(2)]
        ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
        expected = text[: min(ends)[0] - len(min(ends)[2])] if ends else text
        cut = sorted(chance.randrange(len(text) + 1) for _ in range(3))
        pieces = [text[a:b] for a, b in zip([0, *cut], [*cut, len(text)], strict=True)]
        assert texts(pieces, stops)[0] == expected, (text, stops, pieces)
