"""What the tools answer: small values with the sentence first, so that a small model finds it and may stop reading.

What is not known is left out, not null. Every forecast names who published it and when, and the source the agency
asks for.
"""

from __future__ import annotations

from pydantic import BaseModel

SOURCE = "気象庁ホームページ"


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
    """A forecast; or, when a name is ambiguous, only the places to choose from."""

    summary: str
    summary_en: str
    candidates: list[str] | None = None
    area: str | None = None
    temperatures_at: str | None = None
    days: list[DayAnswer] | None = None
    stale: bool | None = None
    report_time: str | None = None
    publishing_office: str | None = None
    source: str = SOURCE


class FoundPlace(BaseModel):
    """One place a name can mean."""

    name: str
    kana: str | None = None
    english: str
    forecast_area: str
    code: str


class PlacesAnswer(BaseModel):
    """The places a name can mean; or, when there is none, names that are close to it."""

    summary: str
    summary_en: str
    places: list[FoundPlace]
    suggestions: list[str] | None = None
    source: str = SOURCE
