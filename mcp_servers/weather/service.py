"""A place and a number of days -> an answer, from the agency's documents.

Documents needed for an answer: the area table (which place, which office), the office's forecast, and three small
tables that connect the codes of one with those of the other. The tables hardly ever change and are kept for days.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Generic, TypeVar

import anyio

from mcp_servers.weather.agency import Agency, Fetched, open_agency
from mcp_servers.weather.answers import DayAnswer, FoundPlace, PlacesAnswer, WeatherAnswer
from mcp_servers.weather.areas import Place
from mcp_servers.weather.errors import DaysOutOfRangeError, NoForecastError, PlaceNotFoundError, WeatherError
from mcp_servers.weather.forecast import JST, AreaForecast, Day, OfficeForecast, rain_slots_left
from mcp_servers.weather.gazetteer import Finding, Gazetteer
from mcp_servers.weather.sentences import (
    Told,
    ambiguous,
    in_english,
    in_japanese,
    rain_percent,
    sky,
    where,
)
from mcp_servers.weather.settings import Clock, Settings
from mcp_servers.weather.tables import Tables, read_stations, read_week_areas, read_week_stations

T = TypeVar("T")

AREA_TABLE = "/bosai/common/const/area.json"
STATIONS = "/bosai/forecast/const/forecast_area.json"
WEEK_STATIONS = "/bosai/forecast/const/week_area.json"
WEEK_AREAS = "/bosai/forecast/const/week_area05.json"

# The agency publishes three times a day and corrects in between; nobody needs it sooner than this.
_FORECAST_AGE_S = 600.0
# Municipalities change a few times a year.
_TABLE_AGE_S = 7 * 86400.0
_FOUND_AT_MOST = 8
# No place has a longer name with prefecture and county; looking for lookalikes of a whole page would take minutes.
_LONGEST_QUESTION = 60
# Every edition reaches at least this far, today included.
MOST_DAYS = 7


def forecast_path(office: str) -> str:
    """Where an office's forecast file is."""
    return f"/bosai/forecast/data/forecast/{office}.json"


class WeatherService:
    """The three questions this server answers."""

    def __init__(self, agency: Agency, clock: Clock) -> None:
        self._agency = agency
        self._clock = clock

    async def weather(self, location: str) -> WeatherAnswer:
        """Today's weather; in the evening, when no temperatures are left for today, tomorrow's as well.

        Raises:
            WeatherError: when there is no answer; the text says what to do.
        """
        return await self._answer(location, days=None)

    async def forecast(self, location: str, days: int) -> WeatherAnswer:
        """The weather of today and the days after.

        Raises:
            WeatherError: when there is no answer; the text says what to do.
        """
        if not 1 <= days <= MOST_DAYS:
            raise DaysOutOfRangeError(days, MOST_DAYS)
        return await self._answer(location, days=days)

    async def places(self, name: str) -> PlacesAnswer:
        """The places a name can mean, lesser namesakes included.

        Raises:
            WeatherError: when the area table is not to be had.
        """
        name = name.strip()[:_LONGEST_QUESTION]
        finding = (await self._gazetteer()).find(name, namesakes=True)
        found = finding.places[:_FOUND_AT_MOST]
        if not found:
            suggestions = tuple(place.full_name for place in finding.suggestions)
            missing = PlaceNotFoundError(name, suggestions)
            return PlacesAnswer(
                summary=missing.japanese,
                summary_en=missing.english,
                places=[],
                suggestions=list(suggestions) or None,
            )
        names = "、".join(place.full_name for place in found)
        english = "; ".join(place.full_english for place in found)
        return PlacesAnswer(
            summary=f"「{name}」に当たる場所は{len(finding.places)}件: {names}。",
            summary_en=f"{len(finding.places)} found for {name}: {english}.",
            places=[_found(place) for place in found],
        )

    async def _answer(self, location: str, days: int | None) -> WeatherAnswer:
        location = location.strip()[:_LONGEST_QUESTION]
        finding = (await self._gazetteer()).find(location)
        if not finding.places:
            raise PlaceNotFoundError(location, tuple(place.full_name for place in finding.suggestions))
        if len(finding.areas()) > 1:
            return _choice(location, finding)
        place = finding.places[0]
        forecast, stale = await self._forecast_of(place)
        now = self._clock().astimezone(JST)
        # A board without a battery starts in 1970; the agency's clock is right.
        today = max(now.date(), forecast.report_time.date())
        coming = [day for day in forecast.days if day.date >= today]
        if not coming or coming[0].date > today:
            raise NoForecastError(place.area.name, _hour(forecast.report_time))
        told = Told(
            place,
            coming[: days or _days_worth_telling(coming)],
            today,
            now,
            forecast.report_time if stale else None,
        )
        return _told(told, forecast, detailed=days is None)

    async def _gazetteer(self) -> Gazetteer:
        return (await self._agency.document(AREA_TABLE, Gazetteer.read, max_age_s=_TABLE_AGE_S)).value

    async def _forecast_of(self, place: Place) -> tuple[AreaForecast, bool]:
        """What the agency says about the area of a place, and whether that is stale."""
        office = _Pending(self._agency, forecast_path(place.area.office), OfficeForecast.read, _FORECAST_AGE_S)
        stations = _Pending(self._agency, STATIONS, read_stations, _TABLE_AGE_S)
        week_stations = _Pending(self._agency, WEEK_STATIONS, read_week_stations, _TABLE_AGE_S)
        week_areas = _Pending(self._agency, WEEK_AREAS, read_week_areas, _TABLE_AGE_S)
        async with anyio.create_task_group() as tasks:
            for pending in (office, stations, week_stations, week_areas):
                tasks.start_soon(pending.fetch)
        fetched = office.result()
        # Without a table the sky is still known, only temperatures or later days are missing.
        tables = Tables(stations.result_or({}), week_stations.result_or({}), week_areas.result_or({}))
        names = fetched.value.station_names()
        codes = tables.codes_of(place.area.code, near=place.bare, station_names=names)
        forecast = fetched.value.of_area(codes)
        if forecast is None:
            raise NoForecastError(place.area.name)
        return forecast, fetched.stale


class _Pending(Generic[T]):
    """A document fetched beside others; what went wrong is raised when the document is needed."""

    def __init__(self, agency: Agency, path: str, read: Callable[[object], T], max_age_s: float) -> None:
        self._agency = agency
        self._path = path
        self._read = read
        self._max_age_s = max_age_s
        self._outcome: Fetched[T] | WeatherError | None = None

    async def fetch(self) -> None:
        try:
            self._outcome = await self._agency.document(self._path, self._read, max_age_s=self._max_age_s)
        except WeatherError as error:
            self._outcome = error

    def result(self) -> Fetched[T]:
        if isinstance(self._outcome, Fetched):
            return self._outcome
        raise self._outcome or AssertionError(f"{self._path} was not fetched")

    def result_or(self, default: T) -> T:
        return self._outcome.value if isinstance(self._outcome, Fetched) else default


@asynccontextmanager
async def open_weather(settings: Settings, clock: Clock) -> AsyncGenerator[WeatherService, None]:
    """The service, with its connections, for as long as the block lasts."""
    async with open_agency(settings, clock) as agency:
        yield WeatherService(agency, clock)


def _days_worth_telling(days: list[Day]) -> int:
    """One day; two when no temperature is left to be told of the first, as in the evening."""
    return 2 if days[0].high_c is None and days[0].low_c is None else 1


def _told(told: Told, forecast: AreaForecast, *, detailed: bool) -> WeatherAnswer:
    return WeatherAnswer(
        summary=in_japanese(told),
        summary_en=in_english(told),
        area=where(told.place),
        temperatures_at=forecast.station or None,
        days=[_day(day, told.now, detailed=detailed) for day in told.days],
        stale=True if told.stale_since else None,
        report_time=forecast.report_time.isoformat(),
        publishing_office=forecast.office,
    )


def _day(day: Day, now: datetime, *, detailed: bool) -> DayAnswer:
    answer = DayAnswer(
        date=day.date.isoformat(),
        weather=sky(day) or "不明",
        high_c=day.high_c,
        low_c=day.low_c,
        rain_percent=rain_percent(day, now),
        reliability=day.reliability or None,
    )
    if not detailed:
        return answer
    slots = {f"{start.hour:02d}-{start.hour + 6:02d}": percent for start, percent in rain_slots_left(day, now)}
    changing = slots if len(set(slots.values())) > 1 else None
    return answer.model_copy(
        update={"rain_by_hours": changing, "wind": day.wind or None, "waves": day.waves or None},
    )


def _choice(question: str, finding: Finding) -> WeatherAnswer:
    japanese, english = ambiguous(question, finding.places)
    candidates = [place.full_name for place in finding.places[:_FOUND_AT_MOST]]
    return WeatherAnswer(summary=japanese, summary_en=english, candidates=candidates)


def _found(place: Place) -> FoundPlace:
    return FoundPlace(
        name=place.full_name,
        kana=place.kana or None,
        english=place.full_english,
        forecast_area=place.area.name,
        code=place.code,
    )


def _hour(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"
