from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from mcp_servers.weather.errors import AgencyUnreachableError, AgencyUnreadableError
from mcp_servers.weather.jma_client import DocumentStore, JmaClient, StoredDocument
from mcp_servers.weather.settings import AGENCY_URL, Settings, clock_from, settings_from
from tests.support.fake_jma import FakeAgency
from tests.support.outside import WITHOUT_END, hostile_server

pytestmark = pytest.mark.anyio

DOCUMENT = "/bosai/forecast/const/week_area05.json"
TEN_MINUTES_S = 600.0


class SetClock:
    """A clock that shows what it is set to."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.time

    def pass_minutes(self, minutes: float) -> None:
        self.time += timedelta(minutes=minutes)


@pytest.fixture
def fake() -> Iterator[FakeAgency]:
    with FakeAgency() as agency:
        yield agency


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def settings(fake: FakeAgency, folder: Path | None = None) -> Settings:
    return Settings(base_url=fake.base_url, cache_folder=folder, read_timeout_s=60, total_timeout_s=60, pause_s=0)


def as_it_is(document: object) -> object:
    return document


def a_list(document: object) -> list[Any]:
    if isinstance(document, list):
        return cast("list[Any]", document)
    message = "not a list\nsecond line"
    raise TypeError(message)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def ask(jma: JmaClient) -> tuple[object, bool]:
    with anyio.fail_after(60):
        fetched = await jma.document(DOCUMENT, as_it_is, max_age_s=TEN_MINUTES_S)
    return fetched.value, fetched.stale


async def test_questions_at_the_same_time_are_one_request(fake: FakeAgency, clock: SetClock) -> None:
    async with aclosing(JmaClient(settings(fake), clock)) as jma, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask, jma)
    assert fake.count() == 1


async def test_an_old_document_is_asked_for_on_condition_that_it_changed(fake: FakeAgency, clock: SetClock) -> None:
    fake.serve(DOCUMENT, {"a": 1})
    async with aclosing(JmaClient(settings(fake), clock)) as jma:
        await ask(jma)
        clock.pass_minutes(11)
        assert await ask(jma) == ({"a": 1}, False)
        clock.pass_minutes(9)
        assert await ask(jma) == ({"a": 1}, False)
        fake.serve(DOCUMENT, {"a": 2})
        clock.pass_minutes(11)
        assert await ask(jma) == ({"a": 2}, False)
    assert fake.count() == 3
    first, second, _ = fake.asked
    assert "If-None-Match" not in first.headers
    assert first.headers["User-Agent"].startswith("rkllm-mcp-weather/")
    assert second.headers["If-None-Match"].startswith('"')
    assert second.headers["If-Modified-Since"] == "Sat, 21 Nov 2026 08:00:00 GMT"


async def test_a_clock_set_back_makes_a_document_old(fake: FakeAgency, clock: SetClock) -> None:
    async with aclosing(JmaClient(settings(fake), clock)) as jma:
        await ask(jma)
        clock.pass_minutes(-60)
        await ask(jma)
    assert fake.count() == 2


async def test_documents_outlive_the_process(fake: FakeAgency, clock: SetClock, tmp_path: Path) -> None:
    for _ in range(2):
        async with aclosing(JmaClient(settings(fake, tmp_path), clock)) as jma:
            value, _ = await ask(jma)
            assert value
    assert fake.count() == 1
    assert [name.startswith("week_area05.json.") for name in names_in(tmp_path)] == [True]


@pytest.mark.parametrize("status", [500, 503])
async def test_a_failing_server_is_tried_three_times_and_then_the_old_document_serves(
    fake: FakeAgency, clock: SetClock, status: int
) -> None:
    fake.serve(DOCUMENT, {"a": 1})
    async with aclosing(JmaClient(settings(fake), clock)) as jma:
        await ask(jma)
        fake.fail(status)
        clock.pass_minutes(11)
        assert await ask(jma) == ({"a": 1}, True)
        assert fake.count() == 4
        fake.recover()
        assert await ask(jma) == ({"a": 1}, False)


async def test_a_passing_failure_is_not_noticed(fake: FakeAgency, clock: SetClock) -> None:
    fake.fail_next(2)
    async with aclosing(JmaClient(settings(fake), clock)) as jma:
        _, stale = await ask(jma)
    assert not stale
    assert fake.count() == 3


async def test_an_agency_that_does_not_answer_is_given_up(fake: FakeAgency, clock: SetClock) -> None:
    fake.hang()
    async with aclosing(JmaClient(replace(settings(fake), read_timeout_s=0.05), clock)) as jma:
        with pytest.raises(AgencyUnreachableError, match="ReadTimeout"):
            await ask(jma)
    fake.wait_for(3)
    assert fake.count() == 3


async def test_all_tries_together_are_bounded(fake: FakeAgency, clock: SetClock) -> None:
    fake.hang()
    slow = Settings(base_url=fake.base_url, read_timeout_s=30, total_timeout_s=0.05)
    async with aclosing(JmaClient(slow, clock)) as jma:
        with pytest.raises(AgencyUnreachableError, match=r"no answer in 0\.05 s"):
            await ask(jma)


@pytest.mark.parametrize("way", [*WITHOUT_END, "many", "deep", "compressed"])
async def test_a_document_without_end_is_given_up_and_the_old_one_serves(
    fake: FakeAgency, clock: SetClock, tmp_path: Path, way: str
) -> None:
    fake.serve(DOCUMENT, {"a": 1})
    with hostile_server() as outside:
        outside.way = way
        hostile = replace(settings(fake, tmp_path), base_url=outside.url, total_timeout_s=1)
        async with aclosing(JmaClient(hostile, clock)) as jma:
            with pytest.raises((AgencyUnreadableError, AgencyUnreachableError)):
                await ask(jma)
            stored = StoredDocument(outside.url + DOCUMENT, clock().timestamp(), "", "", b'{"a": 1}')
            DocumentStore(tmp_path).save(stored)
            clock.pass_minutes(11)
            assert await ask(jma) == ({"a": 1}, True)
        # Each try reads 8 MiB at most, and the buffers of the network hold some more.
        assert outside.sent < 100_000_000


async def test_a_missing_document_is_not_a_missing_network(fake: FakeAgency, clock: SetClock) -> None:
    fake.serve(DOCUMENT, {}, status=404)
    async with aclosing(JmaClient(settings(fake), clock)) as jma:
        with pytest.raises(AgencyUnreadableError, match="HTTP 404"):
            await ask(jma)
    assert fake.count() == 1


@pytest.mark.parametrize("body", [b"", b"<html>maintenance</html>", b"\xff\xfe", b'{"a":'])
async def test_an_answer_that_is_not_a_json_is_an_error_and_not_stored(
    fake: FakeAgency, clock: SetClock, tmp_path: Path, body: bytes
) -> None:
    fake.serve(DOCUMENT, body)
    async with aclosing(JmaClient(settings(fake, tmp_path), clock)) as jma:
        with pytest.raises(AgencyUnreadableError, match=r"week_area05\.json"):
            await ask(jma)
    assert names_in(tmp_path) == []


async def test_an_unreadable_answer_does_not_replace_a_good_one(fake: FakeAgency, clock: SetClock) -> None:
    fake.serve(DOCUMENT, [1])
    async with aclosing(JmaClient(settings(fake), clock)) as jma:
        await jma.document(DOCUMENT, a_list, max_age_s=1)
        clock.pass_minutes(1)
        fake.serve(DOCUMENT, {"now": "different"})
        fetched = await jma.document(DOCUMENT, a_list, max_age_s=1)
    assert (fetched.value, fetched.stale) == ([1], True)


async def test_the_reason_of_an_unreadable_answer_is_one_line(fake: FakeAgency, clock: SetClock) -> None:
    fake.serve(DOCUMENT, {})
    async with aclosing(JmaClient(settings(fake), clock)) as jma:
        with pytest.raises(AgencyUnreadableError) as caught:
            await jma.document(DOCUMENT, a_list, max_age_s=1)
    assert caught.value.reason == "not a list"


async def test_a_cache_folder_that_cannot_be_made_only_costs_requests(
    fake: FakeAgency, clock: SetClock, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for _ in range(2):
        async with aclosing(JmaClient(settings(fake, blocked / "weather"), clock)) as jma:
            await ask(jma)
    assert fake.count() == 2


@pytest.mark.parametrize("damage", [b"", b"\n", b"{}\n{}", b"[]\n[]", b"\xff\n", b"not json\n{}"])
async def test_a_damaged_file_in_the_cache_is_passed_over(
    fake: FakeAgency, clock: SetClock, tmp_path: Path, damage: bytes
) -> None:
    for _ in range(2):
        async with aclosing(JmaClient(settings(fake, tmp_path), clock)) as jma:
            await ask(jma)
        (kept,) = names_in(tmp_path)
        (tmp_path / kept).write_bytes(damage)
    assert fake.count() == 2


async def test_a_stored_document_that_can_no_longer_be_read_is_requested_again(
    fake: FakeAgency, clock: SetClock, tmp_path: Path
) -> None:
    fake.serve(DOCUMENT, {"old": "form"})
    async with aclosing(JmaClient(settings(fake, tmp_path), clock)) as jma:
        await ask(jma)
    fake.serve(DOCUMENT, ["new form"])
    async with aclosing(JmaClient(settings(fake, tmp_path), clock)) as jma:
        fetched = await jma.document(DOCUMENT, a_list, max_age_s=TEN_MINUTES_S)
    assert fetched.value == ["new form"]


def test_a_document_is_stored_whole_under_its_address(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "down"
    store = DocumentStore(folder)
    document = StoredDocument("https://a/b.json", 12.5, '"tag"', "", b'{"x":\n1}')
    store.save(document)
    assert store.load("https://a/b.json") == document
    assert store.load("https://c/b.json") is None
    assert [stat.filemode(path.stat().st_mode) for path in folder.iterdir()] == ["-rw-------"]


def test_the_environment_says_where_the_agency_is_and_where_to_keep_documents() -> None:
    assert settings_from({}) == Settings(base_url=AGENCY_URL, cache_folder=None)
    assert settings_from({"HOME": "/h"}).cache_folder == Path("/h/.cache/rkllm-mcp/weather")
    assert settings_from({"HOME": "/h", "XDG_CACHE_HOME": "/x"}).cache_folder == Path("/x/rkllm-mcp/weather")
    assert settings_from({"HOME": "/h", "XDG_CACHE_HOME": "no"}).cache_folder == Path("/h/.cache/rkllm-mcp/weather")
    assert settings_from({"JMA_BASE_URL": "http://127.0.0.1:8080/"}).base_url == "http://127.0.0.1:8080"


@pytest.mark.parametrize("address", ["ftp://jma", "www.jma.go.jp", "http://"])
def test_an_address_that_is_not_one_is_refused_with_advice(address: str) -> None:
    with pytest.raises(ValueError, match=r"give an address like https://www\.jma\.go\.jp"):
        settings_from({"JMA_BASE_URL": address})


def test_the_clock_is_real_unless_it_is_set() -> None:
    assert clock_from({})().tzinfo is timezone.utc
    noon = datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(hours=9)))
    assert clock_from({"WEATHER_NOW": "2026-11-21T12:00:00+09:00"})() == noon
    assert clock_from({"WEATHER_NOW": "2026-11-21T03:00:00Z"})() == noon
    for wrong in ("noon", "2026-11-21T12:00:00"):
        with pytest.raises(ValueError, match="WEATHER_NOW"):
            clock_from({"WEATHER_NOW": wrong})
