"""native/README.md: its example is a model, and its tables name what exists."""

from __future__ import annotations

import re
from pathlib import Path

from native import build
from tests.native.hosts import play


def test_the_example_answers_as_the_readme_says(libraries: dict[str, Path], readme_script: Path) -> None:
    played = play(libraries["1.3.0"], readme_script, "Hello\nthe weather in Paris?\nwhat else?\n")
    assert [answer["text"] for answer in played.answers] == [
        "Hello! I am a script.\nAsk me about the weather.",
        'One moment.\n<tool_call>\n{"name": "get_weather", "arguments": {"location": "Paris"}}\n</tool_call>',
        "I only know how to say hello.",
    ]


def words_of_table(source: str, table: str) -> set[str]:
    """The first string of every row of a table in a C source of the emulator."""
    text = (build.NATIVE / "emulator" / source).read_text("utf-8")
    rows = text[text.index(table) :]
    return set(re.findall(r'\{"([a-z_-]+)",', rows[: rows.index("};")]))


def test_every_word_of_a_script_and_every_fault_is_explained() -> None:
    readme = (build.NATIVE / "README.md").read_text("utf-8")
    words = words_of_table("script.c", "} directives[]") | words_of_table("script_rules.c", "} directives[]")
    words |= words_of_table("faults.c", "} table[]")
    assert len(words) > 30
    assert sorted(word for word in words if f"`{word}" not in readme) == []
