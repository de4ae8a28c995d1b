"""Errors of the weather tools.

    WeatherError
    ├── PlaceNotFoundError       no place of that name is in the agency's table
    ├── AgencyUnreachableError   the agency does not answer and no older document is cached
    ├── AgencyUnreadableError    the agency's document is not in the expected format
    ├── DaysOutOfRangeError      the number of days is outside the forecast range
    └── NoForecastError          the forecast does not cover the place or today

A small model reads these messages and passes them on, so each one is in Japanese and English and ends with the next
step for the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mcp_servers.errors import BilingualError


class WeatherError(BilingualError):
    """Base of the errors that a tool returns instead of the weather."""


@dataclass(eq=False)
class PlaceNotFoundError(WeatherError):
    """No place of that name."""

    query: str  # the name in the request
    suggestions: tuple[str, ...] = ()  # full names of similar places, 東京都新宿区

    @property
    def japanese(self) -> str:
        """The message in Japanese."""
        near = f"もしかして: {'、'.join(self.suggestions)}" if self.suggestions else ""
        advice = near or "日本の都道府県名か市区町村名を指定してください。"
        return f"「{self.query}」という場所は見つかりません。{advice}"

    @property
    def english(self) -> str:
        """The message in English."""
        near = f"Did you mean {', '.join(self.suggestions)}?" if self.suggestions else ""
        return f"No such place in Japan. {near or 'Name a Japanese prefecture or municipality.'}"


@dataclass(eq=False)
class AgencyUnreachableError(WeatherError):
    """The agency's site does not answer."""

    host: str  # contacted host
    reason: str  # technical cause
    has_sample: bool = False  # the sample of Tokyo was in use and does not answer the request either

    @property
    def japanese(self) -> str:
        """The message in Japanese."""
        return (
            f"気象庁のサーバー({self.host})に接続できないため、天気を取得できません。"
            f"{'付属の見本にあるのは東京都の予報だけです。' if self.has_sample else ''}"
            "ネットワーク接続を確認して、もう一度試してください。"
        )

    @property
    def english(self) -> str:
        """The message in English."""
        return (
            f"The Japan Meteorological Agency cannot be reached ({self.reason})."
            f"{' The sample that ships with the server has Tokyo only.' if self.has_sample else ''}"
            " Check the network connection and try again."
        )


@dataclass(eq=False)
class AgencyUnreadableError(WeatherError):
    """The agency's document is not in the expected format."""

    document: str  # file name
    reason: str  # defect of the document
    _JAPANESE: ClassVar[str] = "気象庁のデータを読み取れませんでした。しばらくしてからもう一度試してください。"
    _ENGLISH: ClassVar[str] = "The agency's data could not be read ({e.document}: {e.reason}). Try again later."


@dataclass(eq=False)
class DaysOutOfRangeError(WeatherError):
    """A number of days outside the forecast range."""

    days: int  # requested
    maximum: int  # available
    _JAPANESE: ClassVar[str] = "daysは1から{e.maximum}までで指定してください({e.days}は指定できません)。"
    _ENGLISH: ClassVar[str] = "days must be from 1 to {e.maximum}, not {e.days}."


@dataclass(eq=False)
class NoForecastError(WeatherError):
    """The forecast does not cover the place, or not today."""

    area: str  # forecast area
    report_time: str = ""  # publication time of the available forecast; empty if none covers the area
    is_stale: bool = False  # the agency could not be reached for a newer one

    @property
    def japanese(self) -> str:
        """The message in Japanese."""
        if self.report_time:
            return (
                f"{self.area}の予報は{self.report_time}発表のものしかなく、今日の天気は分かりません。"
                "ネットワーク接続と時計を確認してください。"
            )
        return f"{self.area}の予報は現在発表されていません。しばらくしてからもう一度試してください。"

    @property
    def english(self) -> str:
        """The message in English."""
        if self.report_time:
            return (
                f"The only available forecast was published {self.report_time} and does not cover today."
                " Check the network connection and the clock."
            )
        return "No forecast is published for this area now. Try again later."
