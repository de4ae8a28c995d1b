"""The commands that the documentation prints, as a reader would type them.

```sh            commands without output, one shell for the whole block
```console       lines that begin with "$ ", each followed by what it prints; "…" stands for anything
```python        a program
```sh board      needs a board or installs something: not run, and the tests keep the list of these short
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.shared import REPOSITORY

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """What is typed, what is printed (None when the page does not say), and where it stands."""

    typed: str
    printed: str | None
    where: str

    def is_printed_as(self, output: str) -> bool:
        """Whether ``output`` is what the page says; spaces at the ends do not matter."""
        if self.printed is None:
            return True
        # A line that is only "…" stands for any number of lines, none included.
        pattern = re.escape(self.printed.strip()).replace("…\\\n", "(?:.*\\\n)?").replace("…", ".*")
        return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


def blocks(page: str) -> Iterator[tuple[str, frozenset[str], str, str]]:
    """Every fenced block of a page: its language, its further words, its text, and where it stands."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield match.group(1), frozenset(match.group(2).split()), match.group(3), f"{page}:{line}"


def commands(page: str) -> list[Command]:
    """What a reader of the page can type without a board, in order."""
    return [command for language, words, text, where in blocks(page) if "board" not in words
            for command in _commands(language, text, where)]  # fmt: skip


def _commands(language: str, text: str, where: str) -> Iterator[Command]:
    if language == "sh":
        yield Command(text.strip(), None, where)
    elif language == "console":
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            typed, _, printed = part.partition("\n")
            yield Command(typed, printed, where)


_LISTED = re.compile(
    r"^    (?:\$ )?((?:sudo|rkllm-mcp[\w-]*|docker|kubectl|scripts/\w+|curl|\./install\.sh|python|\.venv/bin/\w+)\b.*)",
    re.MULTILINE,
)


def listed(page: str) -> list[str]:
    """The commands of a page in indented lists, without what is said about them."""
    text = _FENCE.sub("", (REPOSITORY / page).read_text(encoding="utf-8"))
    return [re.split(r"\s{2,}", match[1])[0] for match in _LISTED.finditer(text)]


def left_to_the_reader(page: str) -> list[str]:
    """The lines that tests do not run, because they need a board or install something."""
    return [line for _, words, text, _ in blocks(page) if "board" in words for line in text.strip().splitlines()]


def programs(page: str) -> list[tuple[str, str]]:
    """The Python programs of a page, with where they stand."""
    return [(text, where) for language, _, text, where in blocks(page) if language == "python"]


def links(page: str) -> Iterator[Path]:
    """The files that a page links to."""
    for target, _ in anchored_links(page):
        if target != (REPOSITORY / page):
            yield target


def anchored_links(page: str) -> Iterator[tuple[Path, str]]:
    """The files that a page links to, itself included, with the anchor in each; empty for the whole file."""
    path = REPOSITORY / page
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", path.read_text(encoding="utf-8")):
        if "://" not in target and (target or anchor):
            yield path.parent / target if target else path, anchor


def sections(page: str) -> dict[str, str]:
    """The text below each heading of a page, by the anchor that GitHub and the site give it."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    plain = _FENCE.sub(lambda match: re.sub(r"[^\n]", "x", match[0]), text)
    heads = [(match.start(), len(match[1]), match[2]) for match in re.finditer(r"^(#+) (.+)$", plain, re.MULTILINE)]
    found: dict[str, str] = {}
    for number, (start, level, title) in enumerate(heads):
        end = next((begin for begin, other, _ in heads[number + 1 :] if other <= level), len(text))
        anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        assert anchor not in found, f"{page} has two headings {title!r}"
        found[anchor] = text[start:end]
    return found
