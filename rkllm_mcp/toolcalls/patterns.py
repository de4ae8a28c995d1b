"""An upper bound of the steps that a regular expression of a schema can take, from its text alone."""

from __future__ import annotations

import re

# Compiling takes up to 5 µs for each character.
MOST_PATTERN_CHARS = 1000
# Ways in which a text can be tried, the first place and every repetition and choice multiplied.
_MOST_WAYS = 50_000
_WITHOUT_END = 1 << 20
_ESCAPED_OR_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
# Groups that only look around have ways of their own; flags in a pattern make sets slow to compile.
_FLAGS = re.compile(r"\(\?[a-zA-Z]*-?[a-zA-Z]+[:)]")
_TOKEN = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})[?+]?|\(\?(?:[:=!>]|<[=!]|P?<\w+>)|.", re.DOTALL)


def is_slow_to_compile(pattern: str) -> bool:
    """Whether a pattern is too long, or has flags, so that compiling it may take long."""
    return len(pattern) > MOST_PATTERN_CHARS or _FLAGS.search(_ESCAPED_OR_SET.sub("x", pattern)) is not None


def may_run_long(pattern: str, length: int) -> bool:
    """Whether searching a text of so many characters is not certain to end within a few milliseconds.

    Never false for one that backtracks without end; true also for some that would be fast.
    """
    if is_slow_to_compile(pattern):
        return True
    plain = _ESCAPED_OR_SET.sub("x", pattern)
    places = 1 if plain.startswith("^") and "|" not in plain else length + 1
    return places * _ways(plain, length) > _MOST_WAYS


def _ways(plain: str, length: int) -> int:
    """In how many ways a pattern without escapes and sets can be tried at one place; the limit and one when more."""
    # For each open group the ways of its finished choices, and of the present one up to the last item and with it.
    groups: list[list[int]] = [[0, 1, 1]]
    for found in _TOKEN.finditer(plain):
        item, group = found.group(), groups[-1]
        if item.startswith("("):
            groups.append([0, 1, 1])
        elif item == ")" and len(groups) > 1:
            done, before, last = groups.pop()
            groups[-1][1] = _capped(groups[-1][1] * groups[-1][2])
            groups[-1][2] = _capped(done + before * last)
        elif item == "|":
            groups[-1] = [_capped(group[0] + group[1] * group[2]), 1, 1]
        elif found.group(1):
            group[2] = _repeated(group[2], *_times(found), length)
        else:
            group[1], group[2] = _capped(group[1] * group[2]), 1
    done, before, last = groups[0]
    return _capped(done + before * last) if len(groups) == 1 else _MOST_WAYS + 1


def _times(found: re.Match[str]) -> tuple[int, int]:
    """How often at least and at most something is repeated."""
    mark, least, comma, most = found.group(1, 2, 3, 4)
    if mark == "?":
        return 0, 1
    if mark in {"*", "+"}:
        return 0, _WITHOUT_END
    if not (least or comma):
        return 1, 1  # Braces with nothing in them are text.
    if (comma and not most) or len(least) > 6 or len(most) > 6:
        return 0, _WITHOUT_END
    return (int(least or 0), int(most)) if comma else (int(least or 0), int(least or 0))


def _repeated(ways: int, least: int, most: int, length: int) -> int:
    most = min(most, length)
    choices = 1 if least >= most else most - least + 1
    return choices if ways == 1 else _capped(choices * ways ** min(most, 32))


def _capped(ways: int) -> int:
    return min(ways, _MOST_WAYS + 1)
