"""What is inside a code fence or behind a backtick is quoted; the longest literal is found, whole or at the end cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rkllm_mcp.toolcalls.markers import CodeFenceState, Markers

CASES = {
    "": False,
    "text": False,
    "a `": True,
    "a `b`": True,
    "a `b` ": False,
    "```": True,
    "```python": True,
    "```python\ncode": True,
    "```python\ncode\n```\n": False,
    "```python\ncode\n``` ": False,
    "text ``` in a line": False,
    "   ```\n": True,
    "    ```\n": False,
    "````\n```\n": True,
    "````\n```\n````\n": False,
    "``\n": False,
    "```\n\n\n": True,
    "```" + "`" * 40 + "\ncode\n": True,
    "long " * 100 + "\n```\n": True,
}


@pytest.mark.parametrize(("text", "quoted"), CASES.items())
def test_a_position_is_quoted_the_same_with_any_chunks(text: str, quoted: bool) -> None:
    whole, single = CodeFenceState(), CodeFenceState()
    whole.feed(text)
    for character in text:
        single.feed(character)
    single.feed("")
    assert (whole.is_quoted, single.is_quoted) == (quoted, quoted)


WORDS = st.text("ab<", min_size=1, max_size=8)


@given(literals=st.sets(WORDS, max_size=6), parts=st.lists(WORDS, max_size=4), start=st.integers(0, 6))
def test_the_longest_literal_counts_and_at_the_end_of_the_text_its_beginning(
    literals: set[str], parts: list[str], start: int
) -> None:
    text, markers = "".join(parts), Markers(literals)

    def at(position: int) -> tuple[str, bool] | None:
        rest = text[position:]
        if rest and any(literal != rest and literal.startswith(rest) for literal in literals):
            return rest, False
        whole = [literal for literal in literals if rest.startswith(literal)]
        return (max(whole, key=len), True) if whole else None

    matches = {position: match for position in range(start, len(text)) if (match := at(position)) is not None}
    expected = next(iter(matches), None)
    assert markers.search(text, start) == (None if expected is None else (expected, matches[expected][1]))
    assert all(markers.match(text, position) == at(position) for position in range(start, len(text)))
    # What the quick search calls free of literals is so.
    assert markers.first(text) is not None or markers.search(text, 0) is None
