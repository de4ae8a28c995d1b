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

from rkllm_mcp.builtin.function import LocalToolError

Now = Callable[[], datetime]

_WEEKDAYS = ("月", "火", "水", "木", "金", "土", "日")
# The first year of an era is 元年. Dates before the first era in the table are not converted.
_ERAS = ((2019, 5, 1, "令和"), (1989, 1, 8, "平成"), (1926, 12, 25, "昭和"))
_PLACES = {
    "日本": "Asia/Tokyo", "東京": "Asia/Tokyo", "大阪": "Asia/Tokyo", "京都": "Asia/Tokyo", "名古屋": "Asia/Tokyo",
    "札幌": "Asia/Tokyo", "仙台": "Asia/Tokyo", "横浜": "Asia/Tokyo", "神戸": "Asia/Tokyo", "広島": "Asia/Tokyo",
    "福岡": "Asia/Tokyo", "那覇": "Asia/Tokyo", "沖縄": "Asia/Tokyo", "jst": "Asia/Tokyo", "osaka": "Asia/Tokyo",
    "japan": "Asia/Tokyo", "韓国": "Asia/Seoul", "ソウル": "Asia/Seoul", "中国": "Asia/Shanghai",
    "北京": "Asia/Shanghai", "beijing": "Asia/Shanghai", "上海": "Asia/Shanghai", "台湾": "Asia/Taipei",
    "台北": "Asia/Taipei", "香港": "Asia/Hong_Kong", "シンガポール": "Asia/Singapore", "バンコク": "Asia/Bangkok",
    "タイ": "Asia/Bangkok", "ハノイ": "Asia/Bangkok", "ベトナム": "Asia/Ho_Chi_Minh", "ジャカルタ": "Asia/Jakarta",
    "マニラ": "Asia/Manila", "インド": "Asia/Kolkata", "デリー": "Asia/Kolkata", "delhi": "Asia/Kolkata",
    "ムンバイ": "Asia/Kolkata", "mumbai": "Asia/Kolkata", "ドバイ": "Asia/Dubai", "イスタンブール": "Europe/Istanbul",
    "モスクワ": "Europe/Moscow", "カイロ": "Africa/Cairo", "ナイロビ": "Africa/Nairobi",
    "ヨハネスブルグ": "Africa/Johannesburg", "ロンドン": "Europe/London", "英国": "Europe/London",
    "イギリス": "Europe/London", "パリ": "Europe/Paris", "フランス": "Europe/Paris", "ベルリン": "Europe/Berlin",
    "ドイツ": "Europe/Berlin", "ミュンヘン": "Europe/Berlin", "munich": "Europe/Berlin", "ローマ": "Europe/Rome",
    "イタリア": "Europe/Rome", "マドリード": "Europe/Madrid", "スペイン": "Europe/Madrid",
    "アムステルダム": "Europe/Amsterdam", "チューリッヒ": "Europe/Zurich", "ストックホルム": "Europe/Stockholm",
    "ニューヨーク": "America/New_York", "ワシントン": "America/New_York", "washington": "America/New_York",
    "ボストン": "America/New_York", "boston": "America/New_York", "シカゴ": "America/Chicago",
    "デンバー": "America/Denver", "ロサンゼルス": "America/Los_Angeles", "シアトル": "America/Los_Angeles",
    "seattle": "America/Los_Angeles", "サンフランシスコ": "America/Los_Angeles",
    "san francisco": "America/Los_Angeles", "トロント": "America/Toronto", "バンクーバー": "America/Vancouver",
    "メキシコシティ": "America/Mexico_City", "サンパウロ": "America/Sao_Paulo", "ハワイ": "Pacific/Honolulu",
    "ホノルル": "Pacific/Honolulu", "hawaii": "Pacific/Honolulu", "シドニー": "Australia/Sydney",
    "メルボルン": "Australia/Melbourne", "オークランド": "Pacific/Auckland",
}  # fmt: skip
_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_TIME_ONLY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def _system_now() -> datetime:
    return datetime.now().astimezone()


def clock_of(now: Now = _system_now) -> Callable[..., str]:
    """Return the tool function; ``now`` returns the current time in this machine's time zone."""

    # The parameter names are part of the tool's interface; no module of these names is needed here.
    def clock(timezone: str = "", time: str = "", from_timezone: str = "") -> str:  # noqa: A002, RUF100
        here = now()
        moment = _moment(time, _zone(from_timezone, here), here) if time.strip() else here
        return _told(moment.astimezone(_zone(timezone, here)), timezone)

    return clock


def _zone(name: str, here: datetime) -> tzinfo:
    wanted = unicodedata.normalize("NFKC", name).strip()
    if not wanted:
        return here.tzinfo or timezone.utc
    if wanted.upper() in {"UTC", "GMT", "Z", "協定世界時", "世界標準時"}:
        return timezone.utc
    if offset := _OFFSET.fullmatch(wanted):
        sign, hours, minutes = offset.groups()
        minutes_east = (int(hours) * 60 + int(minutes or 0)) * (-1 if sign == "-" else 1)
        if abs(minutes_east) < 24 * 60:
            return timezone(timedelta(minutes=minutes_east))
    for key in (_PLACES.get(wanted.lower().removesuffix("時間")), wanted, _zone_of_city(wanted)):
        if key and (zone := _loaded(key)) is not None:
            return zone
    raise LocalToolError(
        f"The time zone '{name[:40]}' is not known; write an IANA name such as Asia/Tokyo, or an offset such as +09:00."
    )


def _loaded(key: str) -> tzinfo | None:
    try:
        return zoneinfo.ZoneInfo(key)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # Works without a time zone database: Japan has had no daylight saving time since 1951.
        return timezone(timedelta(hours=9), "JST") if key == "Asia/Tokyo" else None


def _zone_of_city(city: str) -> str | None:
    wanted = city.lower().replace(" ", "_")
    keys = sorted(zoneinfo.available_timezones())
    return next((key for key in keys if wanted in (key.lower(), key.lower().rpartition("/")[2])), None)


def _moment(text: str, zone: tzinfo, here: datetime) -> datetime:
    spelled = unicodedata.normalize("NFKC", text).strip()
    try:
        if match := _TIME_ONLY.fullmatch(spelled):
            hour, minute, second = (int(part or 0) for part in match.groups())
            return here.astimezone(zone).replace(hour=hour, minute=minute, second=second, microsecond=0)
        moment = datetime.fromisoformat(spelled.replace("Z", "+00:00").replace("/", "-"))
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)
    except ValueError:
        raise LocalToolError(f"'{text[:40]}' is not a time; write 09:30 or 2026-11-21T09:30.") from None


def _told(moment: datetime, place: str) -> str:
    zone = getattr(moment.tzinfo, "key", "") or place.strip()
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
