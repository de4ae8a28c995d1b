"""The cost of a streamed token over HTTP in function entries and loop iterations; bench/token_path.py has the times."""

from __future__ import annotations

from bench.token_path import ROUTES, measure, table

# A little more than was reached (54 and 1.1).
MOST_CALLS = 65
MOST_ITERATIONS = 2
# Of coroutines that wait, one in the other, and of functions between a token's arrival and its write.
MOST_WAITS = 10
MOST_FRAMES = 6


def test_a_token_costs_the_event_loop_no_more_than_it_did() -> None:
    rows = measure(("count",))
    assert [row.route for row in rows] == list(ROUTES)
    for row in rows:
        assert row.calls is not None
        assert row.iterations is not None
        assert (row.calls <= MOST_CALLS, row.iterations <= MOST_ITERATIONS) == (True, True), table(rows)
        assert row.waits is not None
        assert row.frames is not None
        assert (0 < row.waits <= MOST_WAITS, 0 < row.frames <= MOST_FRAMES, row.async_frames) == (True, True, 0)
