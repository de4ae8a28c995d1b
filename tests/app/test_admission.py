"""The queue before the NPU: order, fairness, positions, limits, and what happens to whoever leaves."""

from __future__ import annotations

from itertools import product

import anyio
import pytest

from rkllm_mcp.app.admission import MEASURED, AdmissionClosedError, AdmissionQueue, QueueFullError, Slot
from rkllm_mcp.config.sections import ServiceSection

pytestmark = pytest.mark.anyio

# The duration of each answer in the simulation; longer than the questions take to come, seconds.
PACE_S = 10.0


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
    admission = AdmissionQueue(parallel=2)
    places = [admission.enter("a") for _ in range(5)]
    assert stand(places) == [None, None, 1, 2, 3]
    assert (admission.running, admission.waiting) == (2, 3)
    admission.leave(places[1])
    assert stand(places[2:]) == [None, 1, 2]
    admission.leave(places[0])
    assert stand(places[2:]) == [None, None, 1]


async def test_between_keys_it_goes_round_however_many_one_has_waiting() -> None:
    admission = AdmissionQueue()
    running = admission.enter("a")
    greedy = [admission.enter("a") for _ in range(3)]
    modest = admission.enter("b")
    assert stand([*greedy, modest]) == [1, 3, 4, 2]
    admission.leave(running)
    third = admission.enter("c")
    assert stand([*greedy, modest, third]) == [None, 2, 4, 1, 3]


async def test_whoever_waits_is_told_every_time_that_its_position_changes() -> None:
    admission = AdmissionQueue()
    first, second, third = (admission.enter("a") for _ in range(3))
    told: list[int] = []
    with anyio.fail_after(60):
        while (position := await third.changed()) is not None:
            told.append(position)
            admission.leave(first if position == 2 else second)
    assert told == [2, 1]
    assert await third.changed() is None


async def test_a_position_that_did_not_change_is_told_once() -> None:
    admission = AdmissionQueue()
    admission.enter("a")
    waiting = admission.enter("a")
    assert await waiting.changed() == 1
    admission.enter("a")
    with anyio.move_on_after(0.01) as silence:
        await waiting.changed()
    assert silence.cancelled_caught


@pytest.mark.parametrize("who", [0, 1, 2])
async def test_whoever_leaves_frees_its_place_and_a_second_time_does_nothing(who: int) -> None:
    admission = AdmissionQueue()
    places = [admission.enter("a") for _ in range(3)]
    with places[who]:
        pass
    admission.leave(places[who])
    rest = [place for place in places if place is not places[who]]
    assert stand(rest) == [None, 1]
    assert (admission.running, admission.waiting) == (1, 1)


async def test_a_waiter_that_is_cancelled_leaves_the_queue() -> None:
    admission = AdmissionQueue()
    admission.enter("a")
    with anyio.move_on_after(0.01):
        with admission.enter("a") as place:
            await place.turn()
    assert (admission.running, admission.waiting) == (1, 0)


async def test_over_the_limit_a_key_is_refused_and_another_is_not() -> None:
    admission = AdmissionQueue(parallel=1, queue=2)
    for _ in range(3):
        admission.enter("a")
    with pytest.raises(QueueFullError) as refused:
        admission.enter("a")
    assert refused.value.waiting == 2
    assert admission.enter("b").position == 2


async def test_where_nobody_may_wait_the_first_still_comes_in() -> None:
    admission = AdmissionQueue(parallel=1, queue=0)
    first = admission.enter("a")
    with pytest.raises(QueueFullError):
        admission.enter("b")
    admission.leave(first)
    assert admission.enter("b").begun is not None


async def test_when_to_ask_again_comes_from_what_answers_took() -> None:
    clock = Clock()
    admission = AdmissionQueue(parallel=1, queue=1, clock=clock)
    for seconds in (10, 20):
        with admission.enter("a"):
            clock.now += seconds
    running = admission.enter("a")
    admission.enter("a")
    with pytest.raises(QueueFullError, match="1 requests wait already; ask again in 30 seconds"):
        admission.enter("a")
    clock.now += 15
    # It has taken as long as the others on average: it ends now, and the one that waits is like them.
    assert admission.expected_wait_s("a") == 15
    clock.now += 25
    # 25 s longer than the others: it is expected to go on for so long again.
    assert admission.expected_wait_s("a") == 25 + 15
    assert admission.expected_wait_s("b") == 25 + 15
    admission.leave(running)
    assert admission.expected_wait_s("a") == pytest.approx((10 + 20 + 40) / 3)


async def test_before_the_first_answer_has_ended_its_age_is_the_measure() -> None:
    clock = Clock()
    admission = AdmissionQueue(parallel=1, queue=2, clock=clock)
    for _ in range(3):
        admission.enter("a")
    clock.now += 7
    assert admission.expected_wait_s("a") == 2 * 7


async def test_when_to_ask_again_is_never_at_once_and_the_distant_past_does_not_count() -> None:
    clock = Clock()
    admission = AdmissionQueue(clock=clock)
    assert admission.expected_wait_s("a") == 1
    for seconds in (10_000, *[2] * MEASURED):
        with admission.enter("a"):
            clock.now += seconds
    admission.enter("a")
    assert admission.expected_wait_s("a") == 2
    admission.enter("a")
    assert admission.expected_wait_s("a") == 2 * 2


async def test_an_answer_that_waits_for_a_person_does_not_count_as_a_free_place() -> None:
    clock = Clock()
    admission = AdmissionQueue(parallel=2, clock=clock)
    with admission.enter("a"):
        clock.now += 4
    admission.enter("a")
    clock.now += 600
    for _ in range(6):
        admission.enter("a")
    assert admission.expected_wait_s("a") == 6 * 4


async def test_sixty_four_clients_with_one_key_learn_when_all_who_wait_have_had_their_turn() -> None:
    clock = Clock()
    admission = AdmissionQueue(parallel=2, clock=clock)
    with admission.enter("a"):
        clock.now += 3
    for _ in range(2 + 32):
        admission.enter("a")
    for _ in range(64 - 2 - 32):
        with pytest.raises(QueueFullError) as refused:
            admission.enter("a")
        assert refused.value.retry_after_s == (32 / 2 + 1) * 3
    # A key without requests comes after one of them.
    assert admission.expected_wait_s("b") == 3


async def test_eight_chats_of_four_questions_each_with_one_key_are_not_refused() -> None:
    admission = AdmissionQueue(ServiceSection().parallel, ServiceSection().queue)
    for _ in range(8 * 4):
        admission.enter("a")
    assert (admission.running, admission.waiting) == (2, 30)


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_the_expected_wait_comes_true_when_answers_take_what_they_took(parallel: int) -> None:
    for keys in product("abc", repeat=5):
        for key in "abcd":
            clock = Clock()
            admission = AdmissionQueue(parallel, clock=clock)
            with admission.enter("a"):
                clock.now += PACE_S
            places: list[Slot] = []
            for each in keys:
                places.append(admission.enter(each))
                clock.now += 1
            expected, since = admission.expected_wait_s(key), clock.now
            mine = admission.enter(key)
            places.append(mine)
            while mine.begun is None:
                first = min((place for place in places if place.begun is not None), key=lambda place: place.begun or 0)
                clock.now = (first.begun or 0) + PACE_S
                admission.leave(first)
                places.remove(first)
            assert expected == mine.begun - since, (keys, key)


async def test_more_places_let_the_next_ones_in_and_fewer_send_nobody_away() -> None:
    admission = AdmissionQueue(parallel=1, queue=4)
    places = [admission.enter("a") for _ in range(4)]
    admission.resize(3, 0)
    assert stand(places) == [None, None, None, 1]
    admission.resize(1, 0)
    assert stand(places) == [None, None, None, 1]
    for place in places[:3]:
        assert stand(places[3:]) == [1]
        admission.leave(place)
    assert stand(places[3:]) == [None]


async def test_once_closed_nobody_is_let_in_and_whoever_has_a_turn_keeps_it() -> None:
    admission = AdmissionQueue()
    running, waiting = admission.enter("a"), admission.enter("a")
    admission.close()
    for late in (waiting.turn, waiting.changed):
        with pytest.raises(AdmissionClosedError):
            await late()
    with pytest.raises(AdmissionClosedError):
        admission.enter("a")
    assert await running.changed() is None
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            tasks.start_soon(admission.idle)
            await anyio.lowlevel.checkpoint()
            admission.leave(waiting)
            admission.leave(running)
    assert (admission.running, admission.waiting) == (0, 0)


def drained(admission: AdmissionQueue, places: list[Slot]) -> list[Slot]:
    """Those who wait, in the order in which they have their turn when nobody else comes."""
    order: list[Slot] = []
    while running := [place for place in places if place.begun is not None]:
        admission.leave(running[0])
        places = [place for place in places if place is not running[0]]
        order += [place for place in places if place.begun is not None and place not in order]
    return order


@pytest.mark.parametrize("parallel", [1, 2])
def test_whatever_happens_in_whatever_order_nobody_is_lost_and_every_position_comes_true(parallel: int) -> None:
    actions = ("enter a", "enter b", "enter c", "end first", "leave last", "leave first")
    for sequence in product(actions, repeat=4):
        admission = AdmissionQueue(parallel=parallel, queue=2)
        inside: list[Slot] = []
        for action in ("enter a", "enter a", *sequence):
            running = [place for place in inside if place.begun is not None]
            waiting = [place for place in inside if place.begun is None]
            if action.startswith("enter"):
                key = action[-1]
                may = len(running) < parallel or sum(place.key == key for place in waiting) < 2
                try:
                    inside.append(admission.enter(key))
                except QueueFullError:
                    assert not may
                else:
                    assert may
            else:
                group = {"end first": running[:1], "leave last": waiting[-1:], "leave first": waiting[:1]}[action]
                for place in group:
                    admission.leave(place)
                    inside.remove(place)
            begun = [place for place in inside if place.begun is not None]
            queue = sorted((place for place in inside if place.begun is None), key=lambda place: place.position)
            assert (admission.running, admission.waiting) == (len(begun), len(queue)), sequence
            assert len(begun) == min(parallel, len(inside)), sequence
            assert [place.position for place in queue] == list(range(1, len(queue) + 1)), sequence
        waiting = sorted((place for place in inside if place.begun is None), key=lambda place: place.position)
        running = [place for place in inside if place.begun is not None]
        assert [place for place in drained(admission, inside) if place not in running] == waiting, sequence
        assert (admission.running, admission.waiting) == (0, 0), sequence
