"""The cost of a streamed token over HTTP in function entries and loop iterations; bench/token_path.py has the times."""

from __future__ import annotations

from bench.token_path import ROUTES, measure, table

# A little more than today; the redesign is to reach 150 and 3.
MOST_CALLS = 500
MOST_ITERATIONS = 8


def test_a_token_costs_the_event_loop_no_more_than_it_did() -> None:
    rows = measure(("count",))
    assert [row.route for row in rows] == list(ROUTES)
    for row in rows:
        assert row.calls is not None
        assert row.iterations is not None
        assert (row.calls <= MOST_CALLS, row.iterations <= MOST_ITERATIONS) == (True, True), table(rows)
