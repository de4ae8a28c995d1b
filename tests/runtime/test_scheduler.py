"""The queue before the NPU: admission (order, fairness, positions, limits, requests that leave), and the next run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rkllm_mcp.errors import QueueFullError, SchedulerClosedError, UsageError
from rkllm_mcp.generation import common_prefix
from rkllm_mcp.runtime.scheduler import (
    EVALUATIONS_PER_ANSWER,
    MAX_PASSED,
    MAX_SKIPS,
    MEASURED,
    WORTHWHILE_TOKENS,
    Kind,
    RunQueue,
    Scheduler,
    Slot,
)

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
    return [None if place.admitted_at is not None else place.position for place in places]


async def test_between_keys_it_goes_round_however_many_one_has_waiting() -> None:
    scheduler = Scheduler()
    running = scheduler.admit("a")
    greedy = [scheduler.admit("a") for _ in range(3)]
    modest = scheduler.admit("b")
    assert stand([*greedy, modest]) == [1, 3, 4, 2]
    scheduler.leave(running)
    third = scheduler.admit("c")
    assert stand([*greedy, modest, third]) == [None, 2, 4, 1, 3]


async def test_a_waiting_request_is_notified_of_every_change_of_its_position() -> None:
    scheduler = Scheduler()
    first, second, third = (scheduler.admit("a") for _ in range(3))
    told: list[int] = []
    with anyio.fail_after(60):
        while (position := await third.wait_for_change()) is not None:
            told.append(position)
            scheduler.leave(first if position == 2 else second)
    assert told == [2, 1]
    assert await third.wait_for_change() is None


async def test_an_unchanged_position_is_reported_once() -> None:
    scheduler = Scheduler()
    scheduler.admit("a")
    waiting = scheduler.admit("a")
    assert await waiting.wait_for_change() == 1
    scheduler.admit("a")
    with anyio.move_on_after(0.01) as silence:
        await waiting.wait_for_change()
    assert silence.cancelled_caught


@pytest.mark.parametrize("who", [0, 1, 2])
async def test_leaving_the_queue_frees_the_place_and_a_second_time_does_nothing(who: int) -> None:
    scheduler = Scheduler()
    places = [scheduler.admit("a") for _ in range(3)]
    with places[who]:
        pass
    scheduler.leave(places[who])
    rest = [place for place in places if place is not places[who]]
    assert stand(rest) == [None, 1]
    assert (scheduler.running(), scheduler.waiting()) == (1, 1)


async def test_a_waiter_that_is_cancelled_leaves_the_queue() -> None:
    scheduler = Scheduler()
    scheduler.admit("a")
    with anyio.move_on_after(0.01):
        with scheduler.admit("a") as place:
            await place.wait_until_admitted()
    assert (scheduler.running(), scheduler.waiting()) == (1, 0)


async def test_without_a_queue_the_first_request_is_still_admitted() -> None:
    scheduler = Scheduler(parallel=1, queue=0)
    first = scheduler.admit("a")
    with pytest.raises(QueueFullError):
        scheduler.admit("b")
    scheduler.leave(first)
    assert scheduler.admit("b").admitted_at is not None


async def test_when_to_ask_again_comes_from_what_answers_took() -> None:
    clock = Clock()
    scheduler = Scheduler(parallel=1, queue=1, clock=clock)
    for seconds in (10, 20):
        with scheduler.admit("a"):
            clock.now += seconds
    running = scheduler.admit("a")
    scheduler.admit("a")
    with pytest.raises(QueueFullError, match="1 requests wait already; ask again in 30 seconds"):
        scheduler.admit("a")
    clock.now += 15
    # It has taken as long as the others on average: it ends now, and the one that waits is like them.
    assert scheduler.expected_wait_s("a") == 15
    clock.now += 25
    # 25 s longer than the others: it is expected to go on for that long again.
    assert scheduler.expected_wait_s("a") == 25 + 15
    assert scheduler.expected_wait_s("b") == 25 + 15
    scheduler.leave(running)
    assert scheduler.expected_wait_s("a") == pytest.approx((10 + 20 + 40) / 3)


async def test_before_the_first_answer_has_ended_its_age_is_the_measure() -> None:
    clock = Clock()
    scheduler = Scheduler(parallel=1, queue=2, clock=clock)
    for _ in range(3):
        scheduler.admit("a")
    clock.now += 7
    assert scheduler.expected_wait_s("a") == 2 * 7


async def test_when_to_ask_again_is_never_at_once_and_the_distant_past_does_not_count() -> None:
    clock = Clock()
    scheduler = Scheduler(clock=clock)
    assert scheduler.expected_wait_s("a") == 1
    for seconds in (10_000, *[2] * MEASURED):
        with scheduler.admit("a"):
            clock.now += seconds
    scheduler.admit("a")
    assert scheduler.expected_wait_s("a") == 2
    scheduler.admit("a")
    assert scheduler.expected_wait_s("a") == 2 * 2


async def test_an_answer_that_waits_for_a_person_does_not_count_as_a_free_place() -> None:
    clock = Clock()
    scheduler = Scheduler(parallel=2, clock=clock)
    with scheduler.admit("a"):
        clock.now += 4
    scheduler.admit("a")
    clock.now += 600
    for _ in range(6):
        scheduler.admit("a")
    assert scheduler.expected_wait_s("a") == 6 * 4


async def test_the_expected_wait_contains_the_time_of_the_last_load_while_a_model_is_loaded() -> None:
    clock, loads = Clock(), list[str]()
    scheduler = Scheduler(clock=clock)
    scheduler.use_models("a", loads.append)
    slot = scheduler.admit(model="b")
    clock.now += 9
    scheduler.on_load(loads.pop())
    scheduler.leave(slot)
    assert scheduler.expected_wait_s("k") == 1
    scheduler.admit(model="a")
    assert loads == ["a"]
    assert scheduler.expected_wait_s("k") == 9


async def test_sixty_four_clients_with_one_key_learn_when_all_who_wait_have_had_their_turn() -> None:
    clock = Clock()
    scheduler = Scheduler(parallel=2, clock=clock)
    with scheduler.admit("a"):
        clock.now += 3
    for _ in range(2 + 32):
        scheduler.admit("a")
    for _ in range(64 - 2 - 32):
        with pytest.raises(QueueFullError) as refused:
            scheduler.admit("a")
        assert refused.value.retry_after_s == (32 / 2 + 1) * 3
    # A key without requests comes after one of them.
    assert scheduler.expected_wait_s("b") == 3


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_the_expected_wait_comes_true_when_answers_take_their_usual_time(parallel: int) -> None:
    for keys in product("abc", repeat=5):
        for key in "abcd":
            clock = Clock()
            scheduler = Scheduler(parallel, clock=clock)
            with scheduler.admit("a"):
                clock.now += PACE_S
            places: list[Slot] = []
            for each in keys:
                places.append(scheduler.admit(each))
                clock.now += 1
            expected, since = scheduler.expected_wait_s(key), clock.now
            mine = scheduler.admit(key)
            places.append(mine)
            while mine.admitted_at is None:
                first = min(
                    (place for place in places if place.admitted_at is not None),
                    key=lambda place: place.admitted_at or 0,
                )
                clock.now = (first.admitted_at or 0) + PACE_S
                scheduler.leave(first)
                places.remove(first)
            assert expected == mine.admitted_at - since, (keys, key)


async def test_more_places_admit_the_next_ones_and_fewer_send_no_request_away() -> None:
    scheduler = Scheduler(parallel=1, queue=4)
    places = [scheduler.admit("a") for _ in range(4)]
    scheduler.resize(3, 0)
    assert stand(places) == [None, None, None, 1]
    scheduler.resize(1, 0)
    assert stand(places) == [None, None, None, 1]
    for place in places[:3]:
        assert stand(places[3:]) == [1]
        scheduler.leave(place)
    assert stand(places[3:]) == [None]


async def test_once_closed_no_request_is_admitted_and_a_running_one_continues() -> None:
    scheduler = Scheduler()
    running, waiting = scheduler.admit("a"), scheduler.admit("a")
    scheduler.close()
    for late in (waiting.wait_until_admitted, waiting.wait_for_change):
        with pytest.raises(SchedulerClosedError):
            await late()
    with pytest.raises(SchedulerClosedError):
        scheduler.admit("a")
    assert await running.wait_for_change() is None
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            tasks.start_soon(scheduler.idle)
            await anyio.lowlevel.checkpoint()
            scheduler.leave(waiting)
            scheduler.leave(running)
    assert (scheduler.running(), scheduler.waiting()) == (0, 0)


def drained(scheduler: Scheduler, places: list[Slot]) -> list[Slot]:
    """The waiting requests in the order of their turns, if no other request arrives."""
    order: list[Slot] = []
    while running := [place for place in places if place.admitted_at is not None]:
        scheduler.leave(running[0])
        places = [place for place in places if place is not running[0]]
        order += [place for place in places if place.admitted_at is not None and place not in order]
    return order


@pytest.mark.parametrize("parallel", [1, 2])
def test_in_any_order_of_events_no_request_is_lost_and_every_position_comes_true(parallel: int) -> None:
    actions = ("enter a", "enter b", "enter c", "end first", "leave last", "leave first")
    for sequence in product(actions, repeat=4):
        scheduler = Scheduler(parallel=parallel, queue=2)
        inside: list[Slot] = []
        for action in ("enter a", "enter a", *sequence):
            running = [place for place in inside if place.admitted_at is not None]
            waiting = [place for place in inside if place.admitted_at is None]
            if action.startswith("enter"):
                key = action[-1]
                may = len(running) < parallel or sum(place.key == key for place in waiting) < 2
                try:
                    inside.append(scheduler.admit(key))
                except QueueFullError:
                    assert not may
                else:
                    assert may
            else:
                group = {"end first": running[:1], "leave last": waiting[-1:], "leave first": waiting[:1]}[action]
                for place in group:
                    scheduler.leave(place)
                    inside.remove(place)
            begun = [place for place in inside if place.admitted_at is not None]
            queue = sorted((place for place in inside if place.admitted_at is None), key=lambda place: place.position)
            assert (scheduler.running(), scheduler.waiting()) == (len(begun), len(queue)), sequence
            assert len(begun) == min(parallel, len(inside)), sequence
            assert [place.position for place in queue] == list(range(1, len(queue) + 1)), sequence
        waiting = sorted((place for place in inside if place.admitted_at is None), key=lambda place: place.position)
        running = [place for place in inside if place.admitted_at is not None]
        assert [place for place in drained(scheduler, inside) if place not in running] == waiting, sequence
        assert (scheduler.running(), scheduler.waiting()) == (0, 0), sequence


async def test_an_evaluation_waits_for_evaluations_alone_and_more_of_them_may_wait() -> None:
    scheduler = Scheduler(parallel=1, queue=1)
    answer, waiting = scheduler.admit("a"), scheduler.admit("a")
    kind: Kind = "evaluation"
    places = [scheduler.admit("a", kind) for _ in range(1 + EVALUATIONS_PER_ANSWER)]
    assert stand([answer, waiting, *places[:3]]) == [None, 1, None, 1, 2]
    with pytest.raises(QueueFullError):
        scheduler.admit("a", kind)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.idle)
            for slot in (waiting, answer, *places):
                await anyio.lowlevel.checkpoint()
                scheduler.leave(slot)
    assert (scheduler.running(kind), scheduler.waiting(kind)) == (0, 0)


HEAD = list(range(100))
LONG = WORTHWHILE_TOKENS


@dataclass(eq=False)
class Run:
    name: str
    tokens: Sequence[int] = field(default_factory=list[int])
    skipped: int = 0


def waiting(*runs: Run) -> RunQueue[Run]:
    queue = RunQueue[Run]()
    queue.runs.extend(runs)
    return queue


def next_name(queue: RunQueue[Run], cached: Sequence[int]) -> str:
    run = queue.next(cached)
    assert run is not None
    return run.name


def test_what_reuses_no_more_keeps_its_place() -> None:
    queue = waiting(Run("a", [*HEAD, 1]), Run("b", [*HEAD, 2]), Run("c", HEAD))
    assert [next_name(queue, HEAD) for _ in range(3)] == ["a", "b", "c"]


def test_the_conversation_in_the_cache_goes_first() -> None:
    mine = [*HEAD, *range(200, 200 + LONG)]
    queue = waiting(Run("new", [*HEAD, 1]), Run("mine", [*mine, 5]))
    assert next_name(queue, mine) == "mine"
    assert next_name(queue, mine) == "new"


def test_a_few_tokens_are_not_worth_breaking_the_order() -> None:
    mine = [*HEAD, *range(200, 200 + LONG - 1)]
    assert next_name(waiting(Run("new", HEAD), Run("mine", mine)), mine) == "new"


def test_no_request_is_overtaken_for_ever() -> None:
    mine = [*HEAD, *range(200, 300)]
    queue = waiting(Run("other", HEAD))
    order: list[str] = []
    for _ in range(MAX_SKIPS + 2):
        queue.runs.append(Run("mine", mine))
        order.append(next_name(queue, mine))
    assert order == ["mine"] * MAX_SKIPS + ["other", "mine"]


def test_none_is_taken_where_none_waits() -> None:
    assert waiting().next(HEAD) is None


@given(st.lists(st.lists(st.integers(0, 2), max_size=80), min_size=1, max_size=12), st.lists(st.integers(0, 2)))
def test_every_run_is_taken_once_and_in_bounded_time(prompts: list[list[int]], cached: list[int]) -> None:
    runs = [Run(str(index), prompt) for index, prompt in enumerate(prompts)]
    queue = waiting(*runs)
    taken = [int(next_name(queue, cached)) for _ in runs]
    assert sorted(taken) == list(range(len(runs)))
    for place, index in enumerate(taken):
        overtakers = [later for later in taken[:place] if later > index]
        # Each of those before it may have let that many go first.
        assert len(overtakers) <= MAX_SKIPS


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_a_common_prefix_is_common_and_ends_where_it_must(left: list[int], right: list[int]) -> None:
    length = common_prefix(left, right)
    assert left[:length] == right[:length]
    assert length == min(len(left), len(right)) or left[length] != right[length]


class Models:
    """A scheduler with two models, and the loads that it started."""

    def __init__(self, parallel: int = 1) -> None:
        self.clock = Clock()
        self.loads: list[str] = []
        self.scheduler = Scheduler(parallel, 100, self.clock)
        self.scheduler.use_models("a", self.loads.append)

    def order(self, *wanted: str) -> list[str]:
        """Admit requests, and return the models that answer one after the other, with ``+`` for each load."""
        waiting = [self.scheduler.admit(model=model) for model in wanted]
        served: list[str] = []
        while waiting:
            if self.loads:
                served.append("+")
                self.scheduler.on_load(self.loads.pop())
            current = next(slot for slot in waiting if slot.admitted_at is not None)
            served.append(str(current.model))
            waiting.remove(current)
            self.scheduler.leave(current)
        return served


async def test_another_model_is_loaded_when_no_answer_uses_the_loaded_one() -> None:
    models = Models(parallel=2)
    scheduler = models.scheduler
    running = [scheduler.admit(), scheduler.admit(model="a")]
    other = scheduler.admit(model="b")
    embedding = scheduler.admit(kind="evaluation", model=None)
    scheduler.leave(running[0])
    assert (models.loads, stand([other, embedding])) == ([], [1, None])
    scheduler.leave(running[1])
    assert (models.loads, other.loading, await other.wait_for_change()) == (["b"], "b", 1)
    late = scheduler.admit(model="")
    scheduler.on_load("b")
    assert stand([other, late]) == [None, None]


@pytest.mark.parametrize(
    ("wanted", "served"),
    [
        ("abababab", "aaaa+bbbb"),
        ("b" + "a" * 12, "+b+" + "a" * 12),
        ("ab" + "a" * (MAX_PASSED + 3), "a" + "a" * MAX_PASSED + "+b+aaa"),
    ],
)
async def test_requests_for_one_model_are_grouped_and_none_is_passed_too_often(wanted: str, served: str) -> None:
    assert "".join(Models().order(*wanted)) == served


async def test_a_request_that_waits_long_is_not_passed_any_more() -> None:
    models = Models()
    scheduler = models.scheduler
    running, other = scheduler.admit(model="a"), scheduler.admit(model="b")
    for _ in range(3):
        following = scheduler.admit(model="a")
        scheduler.leave(running)
        running = following
        models.clock.now += 20
    last = scheduler.admit(model="a")
    scheduler.leave(running)
    assert (models.loads, stand([other, last])) == (["b"], [1, 2])


async def test_a_model_that_cannot_be_loaded_is_an_error_of_those_who_asked_for_it() -> None:
    models = Models()
    scheduler = models.scheduler
    running, broken, other = (scheduler.admit(model=model) for model in ("a", "b", "a"))
    scheduler.leave(other)
    scheduler.leave(running)
    late = scheduler.admit(model="b")
    last = scheduler.admit(model="a")
    scheduler.on_load("a", UsageError("it is broken"))
    for slot in (broken, late):
        with pytest.raises(UsageError, match="it is broken"):
            await slot.wait_for_change()
    assert (stand([last]), scheduler.waiting()) == ([None], 0)


async def test_an_unloaded_model_is_loaded_for_the_next_request_and_only_an_idle_queue_lets_it_go() -> None:
    models = Models()
    scheduler = models.scheduler
    with scheduler.admit():
        assert not scheduler.hold()
    assert scheduler.hold()
    waiting = scheduler.admit()
    assert (models.loads, stand([waiting])) == ([], [1])
    scheduler.on_load("")
    assert (models.loads, waiting.loading) == (["a"], "a")
    scheduler.on_load("a")
    assert stand([waiting]) == [None]
