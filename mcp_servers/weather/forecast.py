"""An office's forecast file -> the forecast of one area, day by day.

The file is an array of two reports, the next days and the week, each a list of series that pair times with arrays of
strings. Rules, derived from 17,000 real files:

* Match values by date, never by index: the number of days, six-hour slots and temperatures depends on the hour of the
  report, and yesterday's evening report stays in place until 05:00.
* Match areas and stations by code, never by position.
* A temperature at 09:00 is the day's maximum; at 00:00 it is the minimum, but only on days after the report's own: on
  the report's day it repeats the maximum. Today's minimum is never given; from 17:00 on neither is its maximum.
* The week's first day has empty strings, and inland areas have no waves. Both are read as unknown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter

JST = timezone(timedelta(hours=9), "JST")
# From this hour on the first column of the evening report is 今夜 (tonight).
_TONIGHT_FROM_HOUR = 17
_SLOT = timedelta(hours=6)


class _Named(BaseModel):
    name: str
    code: str


class _Row(BaseModel):
    area: _Named
    weather_codes: list[str] = Field(default=[], alias="weatherCodes")
    weathers: list[str] = []
    winds: list[str] = []
    waves: list[str] = []
    pops: list[str] = []
    reliabilities: list[str] = []
    temps: list[str] = []
    temps_min: list[str] = Field(default=[], alias="tempsMin")
    temps_max: list[str] = Field(default=[], alias="tempsMax")


class _Series(BaseModel):
    times: list[AwareDatetime] = Field(alias="timeDefines")
    areas: list[_Row]

    def row(self, codes: Sequence[str]) -> _Row | None:
        """Return the row of the first of these codes that the series contains."""
        rows = {row.area.code: row for row in self.areas}
        return next((rows[code] for code in codes if code in rows), None)

    def local_times(self) -> list[datetime]:
        return [time.astimezone(JST) for time in self.times]


class _Report(BaseModel):
    office: str = Field(alias="publishingOffice")
    time: AwareDatetime = Field(alias="reportDatetime")
    series: list[_Series] = Field(alias="timeSeries")


_FILE: TypeAdapter[list[_Report]] = TypeAdapter(Annotated[list[_Report], Field(min_length=1)])


@dataclass
class Day:
    """Forecast for one area on one day; None or empty for values that the agency does not give."""

    date: date  # in Japan
    tonight: bool = False  # only the evening and night of this day
    code: str = ""  # weather code
    weather: str = ""  # the agency's text, readable; empty beyond the third day
    wind: str = ""  # the agency's text
    waves: str = ""  # the agency's text; empty inland
    high_c: int | None = None  # maximum temperature, degrees Celsius
    low_c: int | None = None  # minimum temperature, degrees Celsius
    # start of each six-hour slot and its chance of rain in percent, in order
    rain_slots: list[tuple[datetime, int]] = field(default_factory=list[tuple[datetime, int]])
    rain_day_percent: int | None = None  # chance of rain for the whole day, without slots
    reliability: str = ""  # A, B or C, of the week's forecast


@dataclass(frozen=True)
class AreaCodes:
    """Codes under which a forecast area appears in its office's file; the first match is used."""

    area: str  # class10 code
    stations: tuple[str, ...]  # temperature stations of the area
    week_areas: tuple[str, ...]  # areas of the week's forecast that contain it
    week_stations: dict[str, str]  # temperature station by week area


@dataclass(frozen=True)
class AreaForecast:
    """Forecast of one area."""

    office: str  # publishing office
    report_time: datetime  # publication time
    station: str  # place of the temperatures; empty without temperatures
    days: tuple[Day, ...]  # by date, from the first day in the file


class OfficeForecast:
    """One office's forecast file; areas are read one at a time."""

    def __init__(self, document: object) -> None:
        """Parse a decoded file; raise ValueError if it is not a forecast."""
        reports = _FILE.validate_python(document)
        self._short = reports[0]
        self._week = reports[1] if len(reports) > 1 else None
        # The name of every temperature station of the next days, by code.
        self.station_names = {
            row.area.code: row.area.name for series in self._short.series for row in series.areas if row.temps
        }

    def for_area(self, codes: AreaCodes) -> AreaForecast | None:
        """Return the forecast of one area; None if the file does not contain it."""
        days = _Days()
        series_of_areas = [_read_series(series, codes, self._short, days) for series in self._short.series]
        if not any(series_of_areas):
            return None
        if self._week:
            _read_week(self._week, codes, days)
        station = next((self.station_names[code] for code in codes.stations if code in self.station_names), "")
        in_order = tuple(days[day] for day in sorted(days))
        return AreaForecast(self._short.office, self._short.time.astimezone(JST), station, in_order)


class _Days(dict[date, Day]):
    """Days by date, created on first access."""

    def __missing__(self, day: date) -> Day:
        return self.setdefault(day, Day(day))


def _read_series(series: _Series, codes: AreaCodes, report: _Report, days: _Days) -> bool:
    """Read one series of the next days; return True if it contains the weather of the area."""
    times = series.local_times()
    station = series.row(codes.stations)
    report_date = report.time.astimezone(JST).date()
    for time, celsius in _numbers(times, station.temps) if station else ():
        if time.hour != 0:
            days[time.date()].high_c = celsius
        elif time.date() > report_date:
            days[time.date()].low_c = celsius
    row = series.row((codes.area,))
    if row is None:
        return False
    for time, percent in _numbers(times, row.pops):
        days[time.date()].rain_slots.append((time, percent))
    for at, time in enumerate(times):
        if at < len(row.weather_codes):
            day = days[time.date()]
            day.tonight = time.hour >= _TONIGHT_FROM_HOUR
            day.code = row.weather_codes[at]
            day.weather, day.wind, day.waves = (
                readable_text(texts[at]) if at < len(texts) else "" for texts in (row.weathers, row.winds, row.waves)
            )
    return bool(row.weather_codes)


def _read_week(report: _Report, codes: AreaCodes, days: _Days) -> None:
    """Add the week's forecast where the next days have no value."""
    area_code = ""
    for series in report.series:
        # An office with a single week forecast for all its areas needs no code table.
        row = series.row(codes.week_areas) or (series.areas[0] if len(series.areas) == 1 else None)
        if row and row.weather_codes:
            area_code, times = row.area.code, series.local_times()
            for time, code in zip(times, row.weather_codes, strict=False):
                day = days[time.date()]
                day.code = day.code or code
            for time, letter in zip(times, row.reliabilities, strict=False):
                days[time.date()].reliability = letter
            for time, percent in _numbers(times, row.pops):
                days[time.date()].rain_day_percent = percent
    stations = [code for code in (codes.week_stations.get(area_code), *codes.stations) if code]
    for series in report.series:
        row = series.row(stations)
        if row:
            times = series.local_times()
            for time, celsius in _numbers(times, row.temps_min):
                day = days[time.date()]
                day.low_c = celsius if day.low_c is None else day.low_c
            for time, celsius in _numbers(times, row.temps_max):
                day = days[time.date()]
                day.high_c = celsius if day.high_c is None else day.high_c


def _numbers(times: list[datetime], texts: list[str]) -> Iterator[tuple[datetime, int]]:
    """Yield times with whole numbers; skip values that are empty or not numbers."""
    for time, text in zip(times, texts, strict=False):
        try:
            number = round(float(text))
        except (ValueError, OverflowError):
            continue
        yield time, number


def rain_slots_left(day: Day, now: datetime) -> list[tuple[datetime, int]]:
    """Return the six-hour slots of a day that end after ``now``."""
    return [(start, percent) for start, percent in day.rain_slots if start + _SLOT > now]


class StationsOfArea(BaseModel):
    """The temperature stations of one area, the main one first."""

    class10: str
    amedas: list[str]


class WeekStation(BaseModel):
    """The temperature station of one area of the week's forecast."""

    week: str
    amedas: str


# forecast_area.json and week_area.json, by office; week_area05.json: areas of the week's forecast that contain each
# class10, the largest first. The area used in a file changes with the season, so all are tried.
STATION_TABLE = TypeAdapter(dict[str, list[StationsOfArea]])
WEEK_STATION_TABLE = TypeAdapter(dict[str, list[WeekStation]])
WEEK_AREA_TABLE = TypeAdapter(dict[str, list[str]])


@dataclass(frozen=True)
class CodeTables:
    """The agency's three code tables; an empty table only removes the values that depend on it."""

    stations: dict[str, list[StationsOfArea]] = field(default_factory=dict[str, list[StationsOfArea]])
    week_stations: dict[str, list[WeekStation]] = field(default_factory=dict[str, list[WeekStation]])
    week_areas: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def codes_of(self, class10: str, *, near: str, station_names: dict[str, str]) -> AreaCodes:
        """Return the codes of one forecast area.

        ``near`` is the bare name of the requested municipality: a station of that name comes first (郡山 has its own).
        """
        by_area = {row.class10: row.amedas for rows in self.stations.values() for row in rows}
        stations = sorted(by_area.get(class10, ()), key=lambda code: station_names.get(code) != near)
        week_stations = {row.week: row.amedas for rows in self.week_stations.values() for row in rows}
        return AreaCodes(class10, tuple(stations), tuple(self.week_areas.get(class10, ())[::-1]), week_stations)


# A statement can end with one of these words...
_COMPLETE = re.compile(r"(?:晴れ|くもり|雨|雪|みぞれ|霧|風|強く|メートル|伴う|ふぶく|降る)$")
# ...unless the next word continues it.
_CONTINUES = re.compile(
    r"^(?:時々|一時|後|のち|やや|強|非常に|激しく|うねり|ふぶく|降る|を伴|(?:で|か|や|と|から|まで|は|では|を|に|が|の)$)"
)


def readable_text(text: str) -> str:
    """Return one of the agency's texts as readable Japanese.

    The agency separates words by full-width spaces. ``くもり 昼過ぎ から 時々 晴れ 所により 夜 雨`` becomes
    ``くもり、昼過ぎから時々晴れ、所により夜雨``: half-width digits and punctuation, and a comma between statements.
    """
    joined = ""
    for word in unicodedata.normalize("NFKC", text).split():
        stop = word.startswith(("所により", "ただし")) or (_COMPLETE.search(joined) and not _CONTINUES.match(word))
        joined += "、" + word if joined and stop else word
    return joined
