"""The table of tiers names tests that exist, and a run leaves out and prints what the table says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.shared import REPOSITORY
from tests.tiers import KEPT, LONGEST, MARKERS, TABLE, cuts_its_inputs, tier_of, unmatched

ENTRIES = [*KEPT, *(entry for entries in TABLE.values() for entry in entries)]
FILES = sorted((REPOSITORY / "tests").glob("**/test_*.py"))
SOAK = "tests/runtime/test_soak.py"
CUTTERS = ("tests.support.cuts", "tests.toolcalls.streams")
LEFT_OUT = "Left out: long 6. All of it: scripts/test --all; one file of it: scripts/test PATH"


def run(*arguments: str) -> tuple[int, list[str]]:
    """The exit code and the lines of a run of pytest in this repository."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=REPOSITORY, env=own, timeout=300)
    return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]


@pytest.mark.parametrize("entry", [LONGEST, *ENTRIES])
def test_an_entry_of_the_table_names_a_test_that_exists(entry: str) -> None:
    path, _, name = entry.partition("::")
    place = REPOSITORY / path
    assert path.endswith(("/", ".py")), "the beginning of a file's name would also fit files to come"
    assert place.is_file() or list(place.glob("**/test_*.py"))
    if name:
        assert f"def {name.partition('[')[0]}" in place.read_text("utf-8")


def test_every_marker_has_a_meaning_and_no_entry_stands_twice() -> None:
    assert TABLE.keys() == MARKERS.keys()
    assert len(set(ENTRIES)) == len(ENTRIES)


def test_an_entry_that_fits_no_test_is_found() -> None:
    tests = [f"{entry}test_x" for entry in ENTRIES]
    assert unmatched(tests) == []
    assert unmatched(tests[1:]) == [ENTRIES[0]]


def test_the_tier_is_the_tests_own() -> None:
    assert tier_of(f"{SOAK}::test_anything") == "long"
    assert tier_of("tests/test_tiers.py::test_the_tier_is_the_tests_own") == ""
    assert [tier_of(f"{entry}…") for entry in KEPT] == [""] * len(KEPT)


def test_two_workers_leave_tiers_out_and_the_last_line_says_so() -> None:
    code, lines = run(SOAK, "tests/runtime/test_frames.py", "--default-tier", "--numprocesses", "2")
    assert (code, lines[-1]) == (0, LEFT_OUT)


def test_the_other_tiers_run_with_the_tests_that_cut_their_inputs() -> None:
    cutting = "tests/toolcalls/test_resolve.py"
    code, lines = run(SOAK, "tests/runtime/test_frames.py", cutting, "--other-tiers", "--collect-only")
    assert (code, {line.partition("::")[0] for line in lines if "::" in line}) == (0, {SOAK, cutting})


def test_every_test_that_cuts_its_inputs_is_known_as_one() -> None:
    cutting = {
        str(path.relative_to(REPOSITORY))
        for path in FILES
        if any(f"from {module} import" in path.read_text("utf-8") for module in CUTTERS)
    }
    assert cutting
    # What tests the cuts itself sets how many there are.
    assert [path for path in sorted(cutting - {"tests/test_cuts.py"}) if not cuts_its_inputs(path)] == []


def test_every_file_that_opens_a_browser_is_in_its_tier() -> None:
    opening = [path for path in FILES if "\nfrom tests.support.browser import" in path.read_text("utf-8")]
    assert opening
    assert [path for path in opening if not str(path.relative_to(REPOSITORY)).startswith(tuple(TABLE["browser"]))] == []


def test_a_test_that_is_named_runs_whatever_its_tier() -> None:
    code, lines = run(SOAK, "--collect-only")
    assert (code, sum(line.startswith(SOAK) for line in lines)) == (0, 6)


def test_a_run_ends_with_its_slowest_tests_the_sum_of_each_folder_and_what_was_left_out() -> None:
    code, lines = run("tests/toolcalls/test_resolve.py", "tests/agent/test_instructions.py", SOAK, "--default-tier")
    assert (code, lines[-1]) == (0, LEFT_OUT)
    heading = next(at for at, line in enumerate(lines) if "slowest tests and the sum of each folder" in line)
    names = [line.split(maxsplit=1)[1] for line in lines[heading + 1 :][:13]]
    assert ["::" in name for name in names[:10]] == [True] * 10
    assert (sorted(names[10:12]), names[12]) == (["tests/agent", "tests/toolcalls"], "all")
