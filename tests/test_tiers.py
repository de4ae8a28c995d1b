"""The table of tiers names tests that exist, and knows every file that opens a browser or cuts its inputs."""

from __future__ import annotations

from tests.support.sampled import sampled
from tests.support.shared import REPOSITORY
from tests.tiers import CUTTING, LONGEST, MARKERS, TABLE, cuts_its_inputs

ENTRIES = [entry for entries in TABLE.values() for entry in entries]
FILES = sorted((REPOSITORY / "tests").glob("**/test_*.py"))
CUTTERS = ("tests.support.cuts", "tests.toolcalls.streams")


def test_an_entry_of_the_table_names_a_test_that_exists() -> None:
    for entry in (*LONGEST, *ENTRIES, *CUTTING):
        path, _, name = entry.partition("::")
        named = REPOSITORY / path
        assert path.endswith(("/", ".py")), f"{entry}: the beginning of a file's name would also fit files to come"
        assert named.is_file() or list(named.glob("**/test_*.py")), entry
        assert not name or f"def {name.partition('[')[0]}" in named.read_text("utf-8"), entry


def test_every_marker_has_a_meaning_and_every_entry_is_unique() -> None:
    assert TABLE.keys() == MARKERS.keys()
    assert len(set(ENTRIES)) == len(ENTRIES)


def test_every_test_that_cuts_its_inputs_is_known_as_one() -> None:
    cutting = [
        path.relative_to(REPOSITORY).as_posix()
        for path in FILES
        if any(f"from {module} import" in path.read_text("utf-8") for module in CUTTERS)
    ]
    assert cutting
    assert [path for path in cutting if not cuts_its_inputs(path)] == []


def test_every_file_that_opens_a_browser_is_in_its_tier() -> None:
    opening = [path for path in FILES if "\nfrom tests.support.browser import" in path.read_text("utf-8")]
    assert opening
    assert [path for path in opening if not str(path.relative_to(REPOSITORY)).startswith(tuple(TABLE["browser"]))] == []


def test_a_sample_is_spread_has_each_kind_and_leaves_the_rest_to_the_matrix() -> None:
    mark = sampled(
        "name, kind",
        [(number, "odd" if number == 3 else "") for number in range(10)],
        every=4,
        kind=lambda case: case[1],
    ).mark
    names, parameters = mark.args
    assert names == "name, kind"
    assert [parameter.values[0] for parameter in parameters] == list(range(10))
    assert [parameter.values[0] for parameter in parameters if not parameter.marks] == [0, 3, 4, 8, 9]
    assert {each.name for parameter in parameters for each in parameter.marks} == {"matrix"}
