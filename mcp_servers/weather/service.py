"""Weather service: place and number of days -> answer, from the agency's documents.

An answer needs the area table (place and office), the office's forecast, and three small tables that connect the codes
of both. The tables rarely change and are cached for days.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeVar

from pydantic import BaseModel, PrivateAttr

from mcp_servers.program import close_in_time
from mcp_servers.weather.errors import AgencyUnreachableError, OldForecastError, WeatherError
from mcp_servers.weather.forecast import (
    JST,
    STATION_TABLE,
    WEEK_AREA_TABLE,
    WEEK_STATION_TABLE,
    CodeTables,
    OfficeForecast,
    rain_slots_left,
)
from mcp_servers.weather.gazetteer import Gazetteer, PlaceMatch
from mcp_servers.weather.jma_client import JmaClient, SampleDocuments
from mcp_servers.weather.settings import Clock, Settings
from mcp_servers.weather.wording import (
    ForecastSummary,
    ambiguity_message,
    in_english,
    in_japanese,
    place_labels,
    rain_percent,
    weather_text,
)
from rkllm_base.days import days_in
from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA

SOURCE = "気象庁ホームページ"
_JAPANESE = re.compile(f"[{HIRAGANA}{KATAKANA}{KANJI}]")


class DayAnswer(BaseModel):
    """One day of a forecast; temperatures in degrees Celsius, chances of rain in percent."""

    date: str
    weather: str
    high_c: int | None = None
    low_c: int | None = None
    rain_percent: int | None = None
    rain_by_hours: dict[str, int] | None = None
    wind: str | None = None
    waves: str | None = None
    reliability: str | None = None


class WeatherAnswer(BaseModel):
    """A forecast, or the candidate places for an ambiguous name.

    The sentence comes first, so that a small model can stop reading after it; unknown values are omitted. The agency
    requires the source, office and publication time to be named.
    """

    summary: str
    summary_en: str
    candidates: list[str] | None = None
    area: str | None = None
    temperatures_at: str | None = None
    days: list[DayAnswer] | None = None
    stale: bool | None = None
    sample: bool | None = None
    report_time: str | None = None
    publishing_office: str | None = None
    source: str = SOURCE
    _language: Literal["", "en", "ja"] = PrivateAttr("")

    def in_words_of(self, question: str) -> WeatherAnswer:
        """Return the answer, which is given as a sentence in the language of a question."""
        self._language = "ja" if _JAPANESE.search(question) else "en"
        return self

    def sentence(self) -> str:
        """Return the sentence; empty if the answer is not to a question in words."""
        return {"": "", "ja": self.summary, "en": self.summary_en}[self._language]


class FoundPlace(BaseModel):
    """One place that a name can mean."""

    name: str
    kana: str | None = None
    english: str
    forecast_area: str
    code: str


class PlacesAnswer(BaseModel):
    """The places that a name can mean, or similar names if none exist."""

    summary: str
    summary_en: str
    places: list[FoundPlace]
    suggestions: list[str] | None = None
    source: str = SOURCE


T = TypeVar("T")

AREA_TABLE = "/bosai/common/const/area.json"
STATIONS = "/bosai/forecast/const/forecast_area.json"
WEEK_STATIONS = "/bosai/forecast/const/week_area.json"
WEEK_AREAS = "/bosai/forecast/const/week_area05.json"

# The agency publishes three times a day, with corrections in between; a higher request rate has no benefit.
_FORECAST_AGE_S = 600.0
# Municipalities change a few times a year.
_TABLE_AGE_S = 7 * 86400.0
_MAX_PLACES = 10
# The longest name with prefecture and county is shorter; a similarity search for a whole page would take minutes.
_MAX_NAME_CHARS = 60
# Every edition covers at least this many days, today included.
MAX_DAYS = 7


@dataclass(frozen=True)
class WeatherService:
    """Current weather, forecasts and place search."""

    jma: JmaClient | SampleDocuments
    clock: Clock
    sample: WeatherService | None = None  # answers where the agency cannot be reached
    is_sample: bool = False  # its answers say so

    async def places(self, name: str) -> PlacesAnswer:
        """Return the places that a name can mean, also lower-ranked ones; raise WeatherError without the area table."""
        name = name.strip()[:_MAX_NAME_CHARS]
        gazetteer = (await self.jma.document(AREA_TABLE, Gazetteer, max_age_s=_TABLE_AGE_S)).value
        match = gazetteer.find(name, namesakes=True)
        listed_places = match.places[:_MAX_PLACES]
        if not listed_places:
            missing = _not_found(name, match)
            names = [location.full_name for location in match.suggestions] or None
            return PlacesAnswer(summary=missing.text("ja"), summary_en=missing.text("en"), places=[], suggestions=names)
        names = "、".join(location.full_name for location in listed_places)
        english = "; ".join(location.full_english for location in listed_places)
        return PlacesAnswer(
            summary=f"「{name}」に当たる場所は{len(match.places)}件: {names}。",
            summary_en=f"{len(match.places)} found for {name}: {english}.",
            places=[
                FoundPlace(
                    name=location.full_name,
                    kana=location.kana or None,
                    english=location.full_english,
                    forecast_area=location.area.name,
                    code=location.code,
                )
                for location in listed_places
            ],
        )

    async def forecast(self, location: str, days: int | None = None) -> WeatherAnswer:
        """Return the weather of ``days`` days from today.

        Without ``days`` it is today's, and tomorrow's in the evening, when no temperature is left for today. Raises
        WeatherError if no answer is available; the message contains the next step.
        """
        if days is not None and not 1 <= days <= MAX_DAYS:
            raise WeatherError("DaysOutOfRange", days=days, maximum=MAX_DAYS)
        location = location.strip()[:_MAX_NAME_CHARS]
        try:
            return await self._answer_from_documents(location, days)
        except OldForecastError as error:
            if self.sample is None or not error.is_stale:
                raise
            failure = error
        except AgencyUnreachableError as error:
            if self.sample is None:
                raise
            failure = WeatherError("SampleOfTokyoOnly", host=error.host, reason=error.reason)
        try:
            return await self.sample.forecast(location, days)
        except WeatherError:
            raise failure from None

    async def _answer_from_documents(self, location: str, days: int | None) -> WeatherAnswer:
        gazetteer = (await self.jma.document(AREA_TABLE, Gazetteer, max_age_s=_TABLE_AGE_S)).value
        match = gazetteer.find(location)
        in_words = not match.places
        if in_words:
            match = gazetteer.find_in(location)
        if not match.places:
            raise _not_found(location, gazetteer.find(location))
        if len(match.areas()) > 1:
            japanese, english = ambiguity_message(location, match.places)
            candidates = [place.full_name for place in match.places[:_MAX_PLACES]]
            return WeatherAnswer(summary=japanese, summary_en=english, candidates=candidates)
        place = match.places[0]
        reading = asyncio.gather(
            self._table(STATIONS, STATION_TABLE.validate_python),
            self._table(WEEK_STATIONS, WEEK_STATION_TABLE.validate_python),
            self._table(WEEK_AREAS, WEEK_AREA_TABLE.validate_python),
        )
        try:
            path = f"/bosai/forecast/data/forecast/{place.area.office}.json"
            fetched = await self.jma.document(path, OfficeForecast, max_age_s=_FORECAST_AGE_S)
        finally:
            tables = CodeTables(*await reading)
        office, stale = fetched.value, fetched.stale
        codes = tables.codes_of(place.area.code, near=place.bare, station_names=office.station_names)
        forecast = office.for_area(codes)
        if forecast is None:
            raise WeatherError("NoForecast", area=place.area.name)
        now = self.clock().astimezone(JST)
        # The clock of a board without a battery starts in 1970; the agency's publication time is right.
        today = max(now.date(), forecast.report_time.date())
        coming = [day for day in forecast.days if day.date >= today]
        days_wanted = _days_asked(location, [day.date for day in coming])
        if not coming or coming[0].date > today:
            raise OldForecastError(place.area.name, f"{forecast.report_time:%Y-%m-%d %H:%M}", stale)
        # In the evening the first day has no temperatures left.
        default_days = 2 if coming[0].high_c is None and coming[0].low_c is None else 1
        stale_since = forecast.report_time if stale else None
        sample_of = forecast.report_time if self.is_sample else None
        chosen = [day for day in coming if day.date in days_wanted] or coming[: days or default_days]
        summary = ForecastSummary(place, chosen, today, now, stale_since, sample_of)
        is_detailed = days is None and len(chosen) <= default_days
        day_answers: list[DayAnswer] = []
        for day in chosen:
            day_answer = DayAnswer(
                date=day.date.isoformat(),
                weather=weather_text(day) or "不明",
                high_c=day.high_c,
                low_c=day.low_c,
                rain_percent=rain_percent(day, now),
                reliability=day.reliability or None,
            )
            if is_detailed:
                slots = rain_slots_left(day, now)
                if len({percent for _, percent in slots}) > 1:
                    day_answer.rain_by_hours = {f"{at.hour:02d}-{at.hour + 6:02d}": percent for at, percent in slots}
                day_answer.wind, day_answer.waves = day.wind or None, day.waves or None
            day_answers.append(day_answer)
        answer = WeatherAnswer(
            summary=in_japanese(summary),
            summary_en=in_english(summary),
            area=place_labels(place)[0],
            temperatures_at=forecast.station or None,
            days=day_answers,
            stale=True if stale else None,
            sample=True if self.is_sample else None,
            report_time=forecast.report_time.isoformat(),
            publishing_office=forecast.office,
        )
        return answer.in_words_of(location) if in_words or days_wanted else answer

    async def _table(self, path: str, read: Callable[[object], dict[str, T]]) -> dict[str, T]:
        """Return a code table, empty if it is not available: only temperatures or later days are missing then."""
        try:
            return (await self.jma.document(path, read, max_age_s=_TABLE_AGE_S)).value
        except WeatherError:
            return {}


# Words for all days of a forecast: the week, several days.
_WEEK = re.compile(r"週間|今週|来週|\bweek(?!end)|\bnext (?:few )?days\b", re.IGNORECASE)
_SEVERAL = re.compile(r"(\d+) ?日間|\bnext (\d+) days\b", re.IGNORECASE)
_WEEKEND = re.compile(r"週末|土日|\bweekend\b", re.IGNORECASE)


def _days_asked(text: str, coming: Sequence[date]) -> Sequence[date]:
    """Return the days of a forecast that a question asks for; none if it names none."""
    if several := _SEVERAL.search(text):
        return coming[: int(several[1] or several[2])]
    if _WEEKEND.search(text):
        return [day for day in coming if day.weekday() >= _SATURDAY][:2]
    dates = days_in(text, coming[0]) if coming else []
    return coming if _WEEK.search(text) and not dates else [day for day in coming if day in dates]


_SATURDAY = 5


def _not_found(name: str, match: PlaceMatch) -> WeatherError:
    names = [location.full_name for location in match.suggestions]
    if not names:
        return WeatherError("PlaceNotFound", query=name)
    return WeatherError(
        "SimilarPlaces", query=name, japanese_names="、".join(names), names=", ".join(names), suggestions=names
    )


@asynccontextmanager
async def open_weather(settings: Settings, clock: Clock) -> AsyncGenerator[WeatherService, None]:
    """Open the service and its connections for the duration of the block."""
    sample = None
    if settings.has_sample:
        documents = SampleDocuments()
        sample = WeatherService(documents, lambda: documents.time, is_sample=True)
    jma = JmaClient(settings, clock)
    try:
        yield WeatherService(jma, clock, sample)
    finally:
        await close_in_time(jma.aclose)
