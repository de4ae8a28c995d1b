"""The tables of docs/security.md: each limit has its number and its test, and each attack what repeats it."""

from __future__ import annotations

import re

import pytest

from tests.support.shared import REPOSITORY

PAGE = (REPOSITORY / "docs" / "security.md").read_text("utf-8")
BENCH = "python -m bench.load abuse"


def rows(heading: str) -> list[list[str]]:
    """The cells of the rows of the first table after a heading."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n|")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


LIMITS, ATTACKS = rows("Limits"), rows("Attacks that the tests repeat")


def paths_of(text: str) -> list[str]:
    return [word for word in re.findall(r"`([^`]+)`", text) if "/" in word and " " not in word]


@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row[0])
def test_a_limit_has_a_number_and_tests_that_exist(row: list[str]) -> None:
    _, limit, tests = row
    assert re.search(r"\d", limit)
    paths = paths_of(tests)
    assert paths
    for path in paths:
        assert path.startswith("tests/")
        assert (REPOSITORY / path).exists(), path


@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row[0][:40])
def test_an_attack_is_repeated_by_what_exists_or_says_that_no_test_does(row: list[str]) -> None:
    _, repeated = row
    paths = [path for path in paths_of(repeated) if path.startswith(("tests/", "scripts/"))]
    assert paths or BENCH in repeated or "no test" in repeated or "by hand" in repeated
    for path in paths:
        # A name alone is in the folder of the one before it.
        assert (REPOSITORY / path).exists(), path
