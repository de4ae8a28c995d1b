"""What can go wrong when somebody asks for the weather.

    WeatherError
    ├── PlaceNotFoundError       no place of that name is in the agency's table
    ├── AgencyUnreachableError   the agency does not answer and nothing older is at hand
    ├── AgencyUnreadableError    the agency answered with something that is not its forecast
    ├── DaysOutOfRangeError      more days than the agency forecasts, or fewer than one
    └── NoForecastError          the forecast at hand says nothing about that place or day

A small model reads these sentences and passes them on, so each is said in Japanese and in English and ends with what
can be done.
"""

from __future__ import annotations

from dataclasses import dataclass


class WeatherError(Exception):
    """Anything that a tool of this server answers instead of the weather."""

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return ""

    @property
    def english(self) -> str:
        """The sentence in English."""
        return ""

    def __str__(self) -> str:
        """Both sentences, for a reader whose language is not known."""
        return f"{self.japanese} / {self.english}"


@dataclass(eq=False)
class PlaceNotFoundError(WeatherError):
    """No place of that name.

    Args:
        question: what was asked for.
        suggestions: full names of places that look or sound alike, 東京都新宿区.
    """

    question: str
    suggestions: tuple[str, ...] = ()

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        near = f"もしかして: {'、'.join(self.suggestions)}" if self.suggestions else ""
        advice = near or "日本の都道府県名か市区町村名を指定してください。"
        return f"「{self.question}」という場所は見つかりません。{advice}"

    @property
    def english(self) -> str:
        """The sentence in English."""
        near = f"Did you mean {', '.join(self.suggestions)}?" if self.suggestions else ""
        return f"No such place in Japan. {near or 'Name a Japanese prefecture or municipality.'}"


@dataclass(eq=False)
class AgencyUnreachableError(WeatherError):
    """The agency's site does not answer.

    Args:
        host: where it was looked for.
        reason: what happened, for the person who mends it.
    """

    host: str
    reason: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return (
            f"気象庁のサーバー({self.host})に接続できないため、天気を取得できません。"
            "ネットワーク接続を確認して、もう一度試してください。"
        )

    @property
    def english(self) -> str:
        """The sentence in English."""
        return (
            f"The Japan Meteorological Agency cannot be reached ({self.reason})."
            " Check the network connection and try again."
        )


@dataclass(eq=False)
class AgencyUnreadableError(WeatherError):
    """The agency answered with something else than expected.

    Args:
        document: the file asked for.
        reason: what is wrong with it.
    """

    document: str
    reason: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return "気象庁のデータを読み取れませんでした。しばらくしてからもう一度試してください。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        return f"The agency's data could not be read ({self.document}: {self.reason}). Try again later."


@dataclass(eq=False)
class DaysOutOfRangeError(WeatherError):
    """A number of days that no forecast has.

    Args:
        days: what was asked for.
        most: how many there are.
    """

    days: int
    most: int

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return f"daysは1から{self.most}までで指定してください({self.days}は指定できません)。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        return f"days must be from 1 to {self.most}, not {self.days}."


@dataclass(eq=False)
class NoForecastError(WeatherError):
    """The forecast at hand says nothing about the place, or nothing about today.

    Args:
        area: the forecast area.
        report_time: when the forecast at hand was published; empty when there is none for the area.
    """

    area: str
    report_time: str = ""

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        if self.report_time:
            return (
                f"{self.area}の予報は{self.report_time}発表のものしかなく、今日の天気は分かりません。"
                "ネットワーク接続と時計を確認してください。"
            )
        return f"{self.area}の予報は現在発表されていません。しばらくしてからもう一度試してください。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        if self.report_time:
            return (
                f"The only forecast at hand was published {self.report_time} and does not cover today."
                " Check the network connection and the clock."
            )
        return "No forecast is published for this area now. Try again later."
