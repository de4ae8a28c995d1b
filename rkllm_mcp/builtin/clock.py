"""Date and time in any time zone, and conversion between zones.

Zones are named by an IANA name, a city in English or Japanese, or an offset. The answer has the same moment in English
and in Japanese format, because small models copy more reliably than they calculate.

Source: the IANA time zone database of the system, or of the ``tzdata`` package if the system has none.
"""

from __future__ import annotations

import re
import unicodedata
import zoneinfo
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path

from rkllm_mcp.builtin.function import LocalToolError

Now = Callable[[], datetime]

_WEEKDAYS = ("月", "火", "水", "木", "金", "土", "日")
# The first year of an era is 元年. Dates before the first era in the table are not converted.
_ERAS = ((2019, 5, 1, "令和"), (1989, 1, 8, "平成"), (1926, 12, 25, "昭和"))
_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
# What models write for the present instead of leaving it out.
_PRESENT = {"now", "now()", "current", "current time", "present", "今", "いま", "現在", "現在時刻", "今の時刻"}
_TIME_ONLY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def _system_now() -> datetime:
    return datetime.now().astimezone()


def clock_of(now: Now = _system_now) -> Callable[..., str]:
    """Return the tool function; ``now`` returns the current time in this machine's time zone."""

    # The parameter names are part of the tool's interface; no module of these names is needed here.
    def clock(timezone: str = "", time: str = "", from_timezone: str = "") -> str:  # noqa: A002, RUF100
        here = now()
        moment = here if _is_present(time) else _moment(time, _zone(from_timezone, here), here)
        return _describe_moment(moment.astimezone(_zone(timezone, here)), timezone)

    return clock


@cache
def places() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the places that the time zone database lacks, by zone, each with its names in both languages."""
    rows = Path(__file__).with_name("places.tsv").read_text("utf-8").splitlines()
    zones = (row.split("\t") for row in rows)
    return tuple((zone, tuple(names.split(","))) for zone, names in zones)


@cache
def _zones_by_city() -> dict[str, str]:
    return {name: zone for zone, names in places() for name in names}


def _zone(name: str, here: datetime) -> tzinfo:
    text = unicodedata.normalize("NFKC", name).strip()
    if not text:
        return here.tzinfo or timezone.utc
    if text.upper() in {"UTC", "GMT", "Z", "協定世界時", "世界標準時"}:
        return timezone.utc
    if offset := _OFFSET.fullmatch(text):
        sign, hours, minutes = offset.groups()
        minutes_east = (int(hours) * 60 + int(minutes or 0)) * (-1 if sign == "-" else 1)
        if abs(minutes_east) < 24 * 60:
            return timezone(timedelta(minutes=minutes_east))
    for key in (_zones_by_city().get(text.lower().removesuffix("時間")), text, _zone_of_city(text)):
        if key and (zone := _loaded(key)) is not None:
            return zone
    raise LocalToolError(
        f"The time zone '{name[:40]}' is not known; write the IANA name of the zone, a city, or the offset from UTC."
    )


def _loaded(key: str) -> tzinfo | None:
    try:
        return zoneinfo.ZoneInfo(key)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # Works without a time zone database: Japan has had no daylight saving time since 1951.
        return timezone(timedelta(hours=9), "JST") if key == "Asia/Tokyo" else None


def _zone_of_city(city: str) -> str | None:
    spelled = city.lower().replace(" ", "_")
    keys = sorted(zoneinfo.available_timezones())
    return next((key for key in keys if spelled in (key.lower(), key.lower().rpartition("/")[2])), None)


def _is_present(text: str) -> bool:
    spelled = unicodedata.normalize("NFKC", text).strip().lower()
    return not spelled or spelled in _PRESENT


def _moment(text: str, zone: tzinfo, here: datetime) -> datetime:
    spelled = unicodedata.normalize("NFKC", text).strip()
    try:
        if match := _TIME_ONLY.fullmatch(spelled):
            hour, minute, second = (int(part or 0) for part in match.groups())
            return here.astimezone(zone).replace(hour=hour, minute=minute, second=second, microsecond=0)
        moment = datetime.fromisoformat(spelled.replace("Z", "+00:00").replace("/", "-"))
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)
    except ValueError:
        # No example: a small model takes its value for the answer.
        raise LocalToolError(
            f"'{text[:40]}' is not a time; write hours and minutes, with the date before them if it is another day, or "
            "leave it out for the present time."
        ) from None


def _describe_moment(moment: datetime, requested: str) -> str:
    zone = getattr(moment.tzinfo, "key", "") or requested.strip()
    offset = moment.strftime("%z")
    offset = f"UTC{offset[:3]}:{offset[3:5]}"
    name = moment.tzname() or ""
    where = ", ".join(dict.fromkeys(part for part in (zone, name, offset) if part))
    japanese = (
        f"{moment.year}年{_era(moment)}{moment.month}月{moment.day}日({_WEEKDAYS[moment.weekday()]}曜日) "
        f"{moment.hour}時{moment.minute:02d}分{moment.second:02d}秒"
    )
    return f"{moment:%Y-%m-%d %H:%M:%S} {_ENGLISH_WEEKDAYS[moment.weekday()]} ({where}) / {japanese}"


# strftime would use the locale of the process.
_ENGLISH_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _era(moment: datetime) -> str:
    for year, month, day, name in _ERAS:
        if (moment.year, moment.month, moment.day) >= (year, month, day):
            count = moment.year - year + 1
            return f"({name}{'元' if count == 1 else count}年)"
    return ""
