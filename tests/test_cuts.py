"""Cuts of the default run are the same in every run of one test, and all of them are made on demand."""

from __future__ import annotations

import pytest

from tests.support.cuts import EVERY_POINT, cut_points, splits


@pytest.fixture(autouse=True)
def default_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EVERY_POINT, raising=False)


def test_a_seed_draws_the_same_32_points_again() -> None:
    points = cut_points(1000, "a test")
    assert points == cut_points(1000, "a test") != cut_points(1000, "another test")
    assert (len(set(points)), points) == (32, sorted(points))
    assert (points[0] > 0, points[-1] < 1000) == (True, True)


def test_a_short_input_is_cut_at_every_point() -> None:
    assert cut_points(33, "a test") == [*range(1, 33)]
    assert cut_points(0, "a test") == cut_points(1, "a test") == []


def test_every_point_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERY_POINT, "1")
    assert cut_points(1000, "a test") == [*range(1, 1000)]


def test_an_input_comes_whole_in_single_characters_and_in_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*splits("東京都")] == [["東京都"], ["東", "京", "都"], ["東", "京都"], ["東京", "都"]]
    assert [*splits(b"ab")] == [[b"ab"], [b"a", b"b"], [b"a", b"b"]]
    mine = "tests/test_cuts.py::test_an_input_comes_whole_in_single_characters_and_in_two"
    assert capsys.readouterr().out.splitlines()[0] == f"cut at [1, 2], drawn from the seed {mine!r}"
