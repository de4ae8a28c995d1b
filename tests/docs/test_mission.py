"""docs/mission.md names files, tests, commands and keys; each of them is there."""

from __future__ import annotations

import re

import pytest

from tests.support.shared import REPOSITORY, shared_path

PAGE = (REPOSITORY / "docs" / "mission.md").read_text("utf-8")
CODE = re.findall(r"`([^`\n]+)`", PAGE)
TESTS = sorted({code for code in CODE if "::" in code})
FILES = sorted({code for code in CODE if re.fullmatch(r"[\w./-]+\.py", code)})
SCRIPTS = sorted({code.split(" ")[0] for code in CODE if re.match(r"scripts/\w+( |$)", code)})
COMMANDS = sorted({code for code in CODE if code.startswith("rkllm-mcp ")})
KEYS = sorted(set(re.findall(r"\bkey `([\w.]+)`", PAGE)))


def defined(path: str) -> set[str]:
    """The tests of a file below ``tests``."""
    file = REPOSITORY / "tests" / path
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE))


def test_the_page_names_a_good_part_of_the_suite() -> None:
    assert len(TESTS) > 80
    assert len(FILES) > 40


@pytest.mark.parametrize("path", sorted({test.partition("::")[0] for test in TESTS}))
def test_every_test_that_is_named_exists(path: str) -> None:
    named = {test.partition("::")[2] for test in TESTS if test.startswith(f"{path}::")}
    assert named - defined(path) == set()


def test_every_file_that_is_named_exists() -> None:
    known = (REPOSITORY / "rkllm_mcp", REPOSITORY / "tests", REPOSITORY)
    missing = [name for name in FILES if not any((folder / name).is_file() for folder in known)]
    assert missing == []
    assert [name for name in SCRIPTS if not (REPOSITORY / name).is_file()] == []


def test_every_command_that_is_named_exists() -> None:
    # A test compares that page with the program.
    reference = (REPOSITORY / "docs" / "cli.md").read_text("utf-8")
    known = re.findall(r"^### `(rkllm-mcp [^`]+)`$", reference, re.MULTILINE)
    groups = {other.rpartition(" ")[0] for other in known}
    whole = [name for name in known if name not in groups]
    words = [command.replace(" --model NAME", "") for command in COMMANDS]
    assert [word for word in words if not any(f"{word} ".startswith(f"{name} ") for name in whole)] == []


def test_every_key_that_is_named_exists() -> None:
    reference = (REPOSITORY / "docs" / "configuration.md").read_text("utf-8")
    assert [key for key in KEYS if key.rpartition(".")[2] not in reference] == []


def test_every_edge_case_of_the_mission_has_its_row_and_its_test() -> None:
    (document,) = shared_path("mission").glob("000_*.txt")
    table = document.read_text("utf-8").partition("## エッジケース")[2].partition("\n## ")[0]
    cases = re.findall(r"^\| ([^|-][^|]*) \| [^|]+ \|$", table, re.MULTILINE)[1:]
    assert len(cases) == 6
    rows = dict(re.findall(r"^\| (\S[^|]*) \| `[\w/.]+::(test_\w+)` \|$", PAGE, re.MULTILINE))
    assert {case: rows.get(case) for case in cases if case not in rows} == {}
    source = (REPOSITORY / "tests" / "end_to_end" / "test_mission_edge_cases.py").read_text("utf-8")
    for case in cases:
        assert re.search(rf'def {rows[case]}\([^)]*\) -> None:\n    """{re.escape(case)}:', source), case
