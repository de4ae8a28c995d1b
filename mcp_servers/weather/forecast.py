"""An office's forecast file -> what it says about one forecast area, day by day.

The file is an array of two reports, the next days and the week, each a list of series that pair times with arrays of
strings. The rules that hold here, found in 17,000 real files:

* Values are matched by date, never by index: how many days, six-hour slots and temperatures there are depends on
  the hour of the report, and yesterday's evening report stays until 05:00.
* Areas and stations are matched by code, never by position.
* Of the temperatures, 09:00 is the day's maximum; 00:00 is its minimum, but only on a day after the report's own:
  on the report's day it repeats the maximum. Today's minimum is never given, and from 17:00 on neither is its
  maximum.
* The week's first day has empty strings; waves are absent inland. Both are simply not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter

from mcp_servers.weather.phrases import phrase

JST = timezone(timedelta(hours=9), "JST")
# The evening report's first column says 今夜, tonight; from this hour on the agency calls it so.
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
        """The row of the first of these codes that is here."""
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
    """What is forecast for one area on one day; None or empty where the agency says nothing.

    Args:
        date: the day, in Japan.
        tonight: only the evening and night of this day are meant.
        code: the weather code.
        weather: the agency's text, readable; empty beyond the third day.
        wind: as the agency writes it.
        waves: as the agency writes it; empty inland.
        high_c: maximum temperature, degrees Celsius.
        low_c: minimum temperature, degrees Celsius.
        rain_slots: chance of rain by six-hour slot: start and percent, in order.
        rain_day_percent: chance of rain of the whole day, where there are no slots.
        reliability: A, B or C, of the week's forecast.
    """

    date: date
    tonight: bool = False
    code: str = ""
    weather: str = ""
    wind: str = ""
    waves: str = ""
    high_c: int | None = None
    low_c: int | None = None
    rain_slots: list[tuple[datetime, int]] = field(default_factory=list[tuple[datetime, int]])
    rain_day_percent: int | None = None
    reliability: str = ""


@dataclass(frozen=True)
class AreaCodes:
    """Under which codes one forecast area is found in its office's file; of several, the first that is there.

    Args:
        area: the class10 code.
        stations: temperature stations of the area.
        week_areas: areas of the week's forecast that contain it.
        week_stations: by week area, its temperature station.
    """

    area: str
    stations: tuple[str, ...]
    week_areas: tuple[str, ...]
    week_stations: dict[str, str]


@dataclass(frozen=True)
class AreaForecast:
    """One area's forecast.

    Args:
        office: who published it.
        report_time: when.
        station: name of the place whose temperatures are given; empty when there are none.
        days: in order of date, from the first the file speaks of.
    """

    office: str
    report_time: datetime
    station: str
    days: tuple[Day, ...]


class OfficeForecast:
    """One office's forecast file, of which areas are read one at a time."""

    def __init__(self, reports: list[_Report]) -> None:
        self._short = reports[0]
        self._week = reports[1] if len(reports) > 1 else None

    @classmethod
    def read(cls, document: object) -> OfficeForecast:
        """The forecast in a parsed file; raises ValueError when it is not one."""
        return cls(_FILE.validate_python(document))

    def station_names(self) -> dict[str, str]:
        """Name of every temperature station of the next days, by code."""
        return {row.area.code: row.area.name for series in self._short.series for row in series.areas if row.temps}

    def of_area(self, codes: AreaCodes) -> AreaForecast | None:
        """What the file says about one area; None when it does not speak of it."""
        days = _Days()
        known = [_read_series(series, codes, self._short, days) for series in self._short.series]
        if not any(known):
            return None
        if self._week:
            _read_week(self._week, codes, days)
        names = self.station_names()
        station = next((names[code] for code in codes.stations if code in names), "")
        return AreaForecast(self._short.office, self._short.time.astimezone(JST), station, days.in_order())


class _Days:
    """The days being read, made as dates come up."""

    def __init__(self) -> None:
        self._days: dict[date, Day] = {}

    def __getitem__(self, day: date) -> Day:
        return self._days.setdefault(day, Day(day))

    def in_order(self) -> tuple[Day, ...]:
        return tuple(self._days[day] for day in sorted(self._days))


def _read_series(series: _Series, codes: AreaCodes, report: _Report, days: _Days) -> bool:
    """Reads one series of the next days; whether it told the weather of the area."""
    times = series.local_times()
    station = series.row(codes.stations)
    if station:
        _read_temperatures(times, station.temps, report.time.astimezone(JST).date(), days)
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
                phrase(texts[at]) if at < len(texts) else "" for texts in (row.weathers, row.winds, row.waves)
            )
    return bool(row.weather_codes)


def _read_temperatures(times: list[datetime], temps: list[str], report_date: date, days: _Days) -> None:
    for time, celsius in _numbers(times, temps):
        if time.hour == 0:
            if time.date() > report_date:
                days[time.date()].low_c = celsius
        else:
            days[time.date()].high_c = celsius


def _read_week(report: _Report, codes: AreaCodes, days: _Days) -> None:
    """Adds the week's forecast where the next days left a gap."""
    found = ""
    for series in report.series:
        row = series.row(codes.week_areas) or _only_row(series)
        if row and row.weather_codes:
            found = row.area.code
            _read_week_weather(series.local_times(), row, days)
    stations = [code for code in (codes.week_stations.get(found), *codes.stations) if code]
    for series in report.series:
        row = series.row(stations)
        if row:
            _read_week_temperatures(series.local_times(), row, days)


def _read_week_weather(times: list[datetime], row: _Row, days: _Days) -> None:
    for time, code in zip(times, row.weather_codes, strict=False):
        day = days[time.date()]
        day.code = day.code or code
    for time, letter in zip(times, row.reliabilities, strict=False):
        days[time.date()].reliability = letter
    for time, percent in _numbers(times, row.pops):
        days[time.date()].rain_day_percent = percent


def _read_week_temperatures(times: list[datetime], row: _Row, days: _Days) -> None:
    for time, celsius in _numbers(times, row.temps_min):
        day = days[time.date()]
        day.low_c = celsius if day.low_c is None else day.low_c
    for time, celsius in _numbers(times, row.temps_max):
        day = days[time.date()]
        day.high_c = celsius if day.high_c is None else day.high_c


def _only_row(series: _Series) -> _Row | None:
    """The row of an office that has one week's forecast for all its areas; it needs no table to be found."""
    return series.areas[0] if len(series.areas) == 1 else None


def _numbers(times: list[datetime], texts: list[str]) -> Iterator[tuple[datetime, int]]:
    """Times and whole numbers; what is empty or no number is passed over."""
    for time, text in zip(times, texts, strict=False):
        number = _number(text)
        if number is not None:
            yield time, number


def _number(text: str) -> int | None:
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return None


def rain_slots_left(day: Day, now: datetime) -> list[tuple[datetime, int]]:
    """The six-hour slots of a day that are not over yet."""
    return [(start, percent) for start, percent in day.rain_slots if start + _SLOT > now]
