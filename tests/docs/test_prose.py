"""Lines of prose end at sentences, so that a difference shows the sentence that changed."""

from __future__ import annotations

import re

import pytest

from tests.support.shared import REPOSITORY

# Japanese pages have a paragraph on a line: a browser shows a line break between two Japanese words as a space.
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]
    if not path.name.endswith(".ja.md")
)
# Shorter lines may have several sentences.
MOST = 150
# What is no prose: fenced blocks, and generated parts.
_OTHER = re.compile(r"^```.*?^```$|^<!-- (?!end of )(.+?) -->$.*?^<!-- end of \1 -->$", re.MULTILINE | re.DOTALL)
# In these a sentence may end without ending the line.
_INSIDE = re.compile(r"`[^`]+`|\]\([^)]*\)|\([^()]*\)|\"[^\"]*\"|“[^”]*”")
_ENDS = re.compile(r"[a-z0-9][.!?] [A-Z]")


@pytest.mark.parametrize("page", PAGES)
def test_a_long_line_of_prose_has_one_sentence(page: str) -> None:
    text = _OTHER.sub("", (REPOSITORY / page).read_text("utf-8"))
    lines = [line for line in text.splitlines() if len(line) > MOST and not line.startswith(("|", "#", "<", "    "))]
    plain = {line: re.sub(r"^ *(?:(?:[-*]|\d+\.) +)?(?:\*\*[^*]+\*\*)?", "", _INSIDE.sub("", line)) for line in lines}
    assert [line for line, words in plain.items() if _ENDS.search(words)] == []
