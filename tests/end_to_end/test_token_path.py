"""The cost of a streamed token over HTTP in function entries and loop iterations; bench/token_path.py has the times."""

from __future__ import annotations

from bench.token_path import ROUTES, measure, table

# A little more than was reached (55 and 1.1).
MOST_CALLS = 65
MOST_ITERATIONS = 2


def test_a_token_costs_the_event_loop_no_more_than_it_did() -> None:
    rows = measure(("count",))
    assert [row.route for row in rows] == list(ROUTES)
    for row in rows:
        assert row.calls is not None
        assert row.iterations is not None
        assert (row.calls <= MOST_CALLS, row.iterations <= MOST_ITERATIONS) == (True, True), table(rows)
