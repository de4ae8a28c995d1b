"""The queue before the NPU: order, fairness, positions, limits, and what happens to whoever leaves."""

from __future__ import annotations

from itertools import product

import anyio
import pytest

from rkllm_mcp.surfaces.http.turnstile import MEASURED, QueueFullError, Slot, Turnstile, TurnstileClosedError

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stand(places: list[Slot]) -> list[int | None]:
    """Where each stands; None for a turn."""
    return [None if place.begun is not None else place.position for place in places]


async def test_as_many_as_may_run_at_once_and_the_others_in_the_order_in_which_they_came() -> None:
    turnstile = Turnstile(parallel=2)
    places = [turnstile.enter("a") for _ in range(5)]
    assert stand(places) == [None, None, 1, 2, 3]
    assert (turnstile.running, turnstile.waiting) == (2, 3)
    turnstile.leave(places[1])
    assert stand(places[2:]) == [None, 1, 2]
    turnstile.leave(places[0])
    assert stand(places[2:]) == [None, None, 1]


async def test_between_keys_it_goes_round_however_many_one_has_waiting() -> None:
    turnstile = Turnstile()
    running = turnstile.enter("a")
    greedy = [turnstile.enter("a") for _ in range(3)]
    modest = turnstile.enter("b")
    assert stand([*greedy, modest]) == [1, 3, 4, 2]
    turnstile.leave(running)
    third = turnstile.enter("c")
    assert stand([*greedy, modest, third]) == [None, 2, 4, 1, 3]


async def test_whoever_waits_is_told_every_time_that_its_position_changes() -> None:
    turnstile = Turnstile()
    first, second, third = (turnstile.enter("a") for _ in range(3))
    told: list[int] = []
    with anyio.fail_after(60):
        while (position := await third.changed()) is not None:
            told.append(position)
            turnstile.leave(first if position == 2 else second)
    assert told == [2, 1]
    assert await third.changed() is None


async def test_a_position_that_did_not_change_is_told_once() -> None:
    turnstile = Turnstile()
    turnstile.enter("a")
    waiting = turnstile.enter("a")
    assert await waiting.changed() == 1
    turnstile.enter("a")
    with anyio.move_on_after(0.01) as silence:
        await waiting.changed()
    assert silence.cancelled_caught


@pytest.mark.parametrize("who", [0, 1, 2])
async def test_whoever_leaves_frees_its_place_and_a_second_time_does_nothing(who: int) -> None:
    turnstile = Turnstile()
    places = [turnstile.enter("a") for _ in range(3)]
    with places[who]:
        pass
    turnstile.leave(places[who])
    rest = [place for place in places if place is not places[who]]
    assert stand(rest) == [None, 1]
    assert (turnstile.running, turnstile.waiting) == (1, 1)


async def test_a_waiter_that_is_cancelled_leaves_the_queue() -> None:
    turnstile = Turnstile()
    turnstile.enter("a")
    with anyio.move_on_after(0.01):
        with turnstile.enter("a") as place:
            await place.turn()
    assert (turnstile.running, turnstile.waiting) == (1, 0)


async def test_over_the_limit_a_key_is_refused_and_another_is_not() -> None:
    turnstile = Turnstile(parallel=1, queue=2)
    for _ in range(3):
        turnstile.enter("a")
    with pytest.raises(QueueFullError) as refused:
        turnstile.enter("a")
    assert refused.value.waiting == 2
    assert turnstile.enter("b").position == 2


async def test_where_nobody_may_wait_the_first_still_comes_in() -> None:
    turnstile = Turnstile(parallel=1, queue=0)
    first = turnstile.enter("a")
    with pytest.raises(QueueFullError):
        turnstile.enter("b")
    turnstile.leave(first)
    assert turnstile.enter("b").begun is not None


async def test_when_to_ask_again_comes_from_what_answers_took() -> None:
    clock = Clock()
    turnstile = Turnstile(parallel=1, queue=1, clock=clock)
    for seconds in (10, 20):
        with turnstile.enter("a"):
            clock.now += seconds
    running = turnstile.enter("a")
    turnstile.enter("a")
    with pytest.raises(QueueFullError, match="1 requests wait already; ask again in 15 seconds"):
        turnstile.enter("a")
    clock.now += 15
    # It has taken as long as the others on average; any moment it is over.
    assert turnstile.expected_wait_s("a") == 1
    clock.now += 25
    # Longer than any before: the next one may be like it.
    assert turnstile.expected_wait_s("a") == 1
    assert turnstile.expected_wait_s("b") == 2 * 40 - 40
    turnstile.leave(running)
    assert turnstile.expected_wait_s("a") == pytest.approx((10 + 20 + 40) / 3)


async def test_when_to_ask_again_is_never_at_once_and_the_distant_past_does_not_count() -> None:
    clock = Clock()
    turnstile = Turnstile(clock=clock)
    assert turnstile.expected_wait_s("a") == 1
    for seconds in (10_000, *[2] * MEASURED):
        with turnstile.enter("a"):
            clock.now += seconds
    turnstile.enter("a")
    turnstile.enter("a")
    assert turnstile.expected_wait_s("a") == 2


async def test_more_places_let_the_next_ones_in_and_fewer_send_nobody_away() -> None:
    turnstile = Turnstile(parallel=1, queue=4)
    places = [turnstile.enter("a") for _ in range(4)]
    turnstile.resize(3, 0)
    assert stand(places) == [None, None, None, 1]
    turnstile.resize(1, 0)
    assert stand(places) == [None, None, None, 1]
    for place in places[:3]:
        assert stand(places[3:]) == [1]
        turnstile.leave(place)
    assert stand(places[3:]) == [None]


async def test_once_closed_nobody_is_let_in_and_whoever_has_a_turn_keeps_it() -> None:
    turnstile = Turnstile()
    running, waiting = turnstile.enter("a"), turnstile.enter("a")
    turnstile.close()
    for late in (waiting.turn, waiting.changed):
        with pytest.raises(TurnstileClosedError):
            await late()
    with pytest.raises(TurnstileClosedError):
        turnstile.enter("a")
    assert await running.changed() is None
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            tasks.start_soon(turnstile.idle)
            await anyio.lowlevel.checkpoint()
            turnstile.leave(waiting)
            turnstile.leave(running)
    assert (turnstile.running, turnstile.waiting) == (0, 0)


def drained(turnstile: Turnstile, places: list[Slot]) -> list[Slot]:
    """Those who wait, in the order in which they have their turn when nobody else comes."""
    order: list[Slot] = []
    while running := [place for place in places if place.begun is not None]:
        turnstile.leave(running[0])
        places = [place for place in places if place is not running[0]]
        order += [place for place in places if place.begun is not None and place not in order]
    return order


@pytest.mark.parametrize("parallel", [1, 2])
def test_whatever_happens_in_whatever_order_nobody_is_lost_and_every_position_comes_true(parallel: int) -> None:
    actions = ("enter a", "enter b", "enter c", "end first", "leave last", "leave first")
    for sequence in product(actions, repeat=4):
        turnstile = Turnstile(parallel=parallel, queue=2)
        inside: list[Slot] = []
        for action in ("enter a", "enter a", *sequence):
            running = [place for place in inside if place.begun is not None]
            waiting = [place for place in inside if place.begun is None]
            if action.startswith("enter"):
                key = action[-1]
                may = len(running) < parallel or sum(place.key == key for place in waiting) < 2
                try:
                    inside.append(turnstile.enter(key))
                except QueueFullError:
                    assert not may
                else:
                    assert may
            else:
                group = {"end first": running[:1], "leave last": waiting[-1:], "leave first": waiting[:1]}[action]
                for place in group:
                    turnstile.leave(place)
                    inside.remove(place)
            begun = [place for place in inside if place.begun is not None]
            queue = sorted((place for place in inside if place.begun is None), key=lambda place: place.position)
            assert (turnstile.running, turnstile.waiting) == (len(begun), len(queue)), sequence
            assert len(begun) == min(parallel, len(inside)), sequence
            assert [place.position for place in queue] == list(range(1, len(queue) + 1)), sequence
        waiting = sorted((place for place in inside if place.begun is None), key=lambda place: place.position)
        running = [place for place in inside if place.begun is not None]
        assert [place for place in drained(turnstile, inside) if place not in running] == waiting, sequence
        assert (turnstile.running, turnstile.waiting) == (0, 0), sequence
