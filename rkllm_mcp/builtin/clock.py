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
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path

from rkllm_base.days import day_spans, days_in
from rkllm_base.numbers import with_digits
from rkllm_base.ranges import KATAKANA
from rkllm_mcp.builtin.function import LocalToolError
from rkllm_mcp.builtin.sentences import language_of, sentences_for

Now = Callable[[], datetime]

_WEEKDAYS = ("月", "火", "水", "木", "金", "土", "日")
_ANY_DAY = date(2026, 1, 1)
# The first year of an era is 元年. Dates before the first era in the table are not converted.
_ERAS = ((2019, 5, 1, "令和"), (1989, 1, 8, "平成"), (1926, 12, 25, "昭和"))
_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
# What models write for the present instead of leaving it out.
_PRESENT = {"now", "now()", "current", "current time", "present", "今", "いま", "現在", "現在時刻", "今の時刻"}
_TIME_ONLY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def system_now() -> datetime:
    """Return the current time in this machine's time zone."""
    return datetime.now().astimezone()


# The parameter names are part of the tool's interface; no module of these names is needed here.
def clock(now: Now, /, timezone: str = "", time: str = "", from_timezone: str = "") -> str:  # noqa: A002, RUF100
    """Return a moment in a time zone, by default the present here; ``now`` returns it in this machine's zone."""
    here = now()
    spelled = unicodedata.normalize("NFKC", time).strip().lower()
    moment = here
    if spelled and spelled not in _PRESENT:
        zone_given = _zone(from_timezone, here)
        written = unicodedata.normalize("NFKC", time).strip()
        try:
            if match := _TIME_ONLY.fullmatch(written):
                hour, minute, second = (int(part or 0) for part in match.groups())
                moment = here.astimezone(zone_given).replace(hour=hour, minute=minute, second=second, microsecond=0)
            else:
                moment = datetime.fromisoformat(written.replace("Z", "+00:00").replace("/", "-"))
                moment = moment if moment.tzinfo else moment.replace(tzinfo=zone_given)
        except ValueError:
            # No example: a small model takes its value for the answer.
            raise LocalToolError(
                f"'{time[:40]}' is not a time; write hours and minutes, with the date before them if it is another day,"
                " or leave it out for the present time."
            ) from None
    moment = moment.astimezone(_zone(timezone, here))
    zone = getattr(moment.tzinfo, "key", "") or timezone.strip()
    offset = moment.strftime("%z")
    offset = f"UTC{offset[:3]}:{offset[3:5]}"
    name = moment.tzname() or ""
    where = ", ".join(dict.fromkeys(part for part in (zone, name, offset) if part))
    japanese = (
        f"{moment.year}年{_era(moment)}{moment.month}月{moment.day}日({_WEEKDAYS[moment.weekday()]}曜日) "
        f"{moment.hour}時{moment.minute:02d}分{moment.second:02d}秒"
    )
    return f"{moment:%Y-%m-%d %H:%M:%S} {_ENGLISH_WEEKDAYS[moment.weekday()]} ({where}) / {japanese}"


def clock_question(now: Now, question: str) -> str:
    """Answer a question about times and days in a sentence of its language."""
    here = now()
    zones = [zone for zone, _, _ in places_in(question)]
    said = _said_time(question)
    if said is not None:
        hour, minute, source, target = said
        if source == target:
            # Of which place it is, or in which one it is wanted, is in words that were not read.
            raise LocalToolError(sentences_for(question)["no_place"], "unclear", question)
        moment = here.astimezone(_zone(source, here)).replace(hour=hour, minute=minute, second=0)
        wanted = _values(question, moment.astimezone(_zone(target, here)))
        texts = sentences_for(question)
        names = [_place_name(question, zone) if zone else texts["here"] for zone in (source, target)]
        return texts["converted"].format(
            source=names[0],
            time=_values(question, moment)["time"],
            target=names[1],
            other_time=wanted["time"],
            date=wanted["date"],
        )
    zone = zones[-1] if zones else ""
    there = here.astimezone(_zone(zone, here))
    if not zones and _OF_A_PLACE.search(with_digits(question)):
        # The time of another place would be wrong.
        raise LocalToolError(sentences_for(question)["no_place"], "unclear", question)
    days = days_in(question, there.date())
    other = next((day for day in days if day != there.date()), None)
    if not days and counts_days(question):
        # Until which day is in words that were not read.
        raise LocalToolError(sentences_for(question)["no_day"], "unclear", question)
    if other is not None and not zones:
        count, texts = (other - there.date()).days, sentences_for(question)
        values = {
            name: _values(question, datetime.combine(each, there.timetz()))["date"]
            for name, each in (("date", other), ("today", there.date()))
        }
        return texts["day_ahead" if count > 0 else "day_before"].format(count=abs(count), **values)
    key, era = "now_there" if zone else "now_here", _era(there).strip("()")
    text = sentences_for(question)[key].format(place=_place_name(question, zone), **_values(question, there))
    # The year of the Japanese calendar, in English if that is asked for.
    return f"{text} ({era})" if era and re.search(r"japanese|\bera\b|reiwa", question, re.IGNORECASE) else text


def counts_days(question: str) -> bool:
    """Return True if a question asks for a number of days until a day, or after one."""
    return _COUNTS_DAYS.search(with_digits(question)) is not None


_CLOCK_TIME = re.compile(
    r"(?P<half>午前|午後|朝|昼|夕方|夜|深夜)?の?(?P<ja>\d{1,2})時(?!間|差)(?:(?P<ja_minute>\d{1,2})分|(?P<ja_half>半))?"
    r"|\b(?P<hour>\d{1,2}):(?P<minute>\d{2}) ?(?P<colon_half>[ap]\.?m\b)?"
    r"|\b(?P<en>\d{1,2}) ?(?:(?P<en_half>[ap])\.?m\b|o'clock|(?:in the|at) (?P<part>morning|afternoon|evening|night))"
    r"|\b(?P<name>noon|midnight)\b|(?P<ja_name>正午)",
    re.IGNORECASE,
)
_AFTERNOON = ("午後", "夕方", "夜")
# Between a time and the place whose time it is: 3pm Berlin time, 9:30 in London; ロンドンの9時.
_BELONGS_BEHIND = re.compile(r"(?:\s+(?:in|at))?\s*", re.IGNORECASE)
# A place that is not known.
_OF_A_PLACE = re.compile(
    r"\btime (?:is it |now )?in (?!the\b|my\b|this\b|\d|here\b|an?\b|japanese\b)[a-z]", re.IGNORECASE
)
# A number of days, until a day or after one.
_COUNTS_DAYS = re.compile(
    r"\bhow (?:many (?:more )?(?:days|weeks|sleeps|nights)|long) (?:un)?till?\b|あと何(?:日|週)|何日(?:後|前|間|した)"
)
# The place that was named: 10am their time, 現地時間の9時.
_THEIR_TIME = re.compile(r"\b(?:their|local) time\b|\bover there\b|現地|向こう|あちら", re.IGNORECASE)
_BELONGS_BEFORE = re.compile(r"(?:時間)?の?\s*(?:午前|午後|朝|昼|夕方|夜|深夜)?の?")


def _said_time(question: str) -> tuple[int, int, str, str] | None:
    """Return hour and minute of a time in a question, its zone, and the one in which it is wanted; empty for here."""
    text = with_digits(question)
    match = _CLOCK_TIME.search(text)
    if match is None:
        return None
    if match["name"] or match["ja_name"]:
        hour, minute = 0 if match["name"] and match["name"].lower() == "midnight" else 12, 0
    else:
        hour, minute = int(match["ja"] or match["hour"] or match["en"]), int(match["ja_minute"] or match["minute"] or 0)
        letter = "" if not match["part"] else "a" if match["part"].lower() == "morning" else "p"
        letter = (letter or match["en_half"] or match["colon_half"] or "")[:1].lower()
        is_late = letter == "p" or match["half"] in _AFTERNOON
        if hour < 12 and is_late:
            hour += 12
        elif hour == 12 and (letter == "a" or match["half"] == "午前"):
            hour = 0
        minute = 30 if match["ja_half"] else minute
    if hour > 24 or minute >= 60:
        return None
    places_named = places_in(question)
    owners = [
        zone
        for zone, start, end in places_named
        if (start >= match.end() and _BELONGS_BEHIND.fullmatch(text[match.end() : start]))
        or (end <= match.start() and _BELONGS_BEFORE.fullmatch(text[end : match.start()]))
    ]
    if not owners and _THEIR_TIME.search(text):
        owners = [zone for zone, _, _ in places_named]
    source = owners[0] if owners else ""
    target = next((zone for zone, _, _ in reversed(places_named) if zone != source), "")
    return hour % 24, minute, source, target


def places_in(question: str) -> list[tuple[str, int, int]]:
    """Return the places that a text with its numbers in digits names, in its order: zone, beginning and end."""
    text = with_digits(question)
    zones, pattern, zones_by_initials = _known_places()
    # Christmas is an island too.
    days = [(start, end) for start, end, _ in day_spans(text, _ANY_DAY)]
    spans = [
        (zones[match[0].lower()], *match.span())
        for match in pattern.finditer(text)
        if not any(match.start() < end and start < match.end() for start, end in days)
    ]
    spans += [
        (zone, *match.span())
        for match in _INITIALS.finditer(text)
        if (zone := zones_by_initials.get(match[0].upper()))
        and not any(start <= match.start() < end for _, start, end in spans)
    ]
    return sorted(spans, key=lambda place: place[1])


# Shorter names of zones are words: "est", "gb".
_CODE_LETTERS = 3
# Letters that may be those of a place of several words: LA, NYC, nyc; not those of a time.
_INITIALS = re.compile(r"(?<![A-Za-z0-9.-])(?:(?!AM|PM)[A-Z]{2,3}|[a-z]{3})(?![A-Za-z0-9.-])")


@cache
def _known_places() -> tuple[dict[str, str], re.Pattern[str], dict[str, str]]:
    """Return the zones by the names of their cities, and of places that the database lacks; a pattern of these names.

    The third are zones by the initials of their places, of the known ones that share them with no other.
    """
    cities = {
        zone.rpartition("/")[2].replace("_", " ").lower(): zone
        for zone in sorted(zoneinfo.available_timezones())
        if "/" in zone and not zone.startswith(("Etc/", "US/", "SystemV/", "posix/", "right/"))
    }
    lacking = {name: zone for zone, names in places() for name in names}
    zones = {
        name: zone for name, zone in {**cities, **lacking}.items() if len(name) > _CODE_LETTERS or not name.isascii()
    }
    longest_first = sorted(zones, key=len, reverse=True)
    latin = "|".join(re.escape(name) for name in longest_first if name.isascii())
    japanese = "|".join(re.escape(name) for name in longest_first if not name.isascii())
    # Kana follow a Latin name without a space, LAの時間; a name in katakana is no part of a longer word: タイヤ.
    pattern = re.compile(
        rf"(?<![A-Za-z0-9])(?:{latin})(?![A-Za-z0-9])|(?<![{KATAKANA}])(?:{japanese})(?![{KATAKANA}])", re.IGNORECASE
    )
    zones_of_initials: dict[str, set[str]] = {}
    known = {zone for zone, _ in places()}
    for name, zone in zones.items():
        if name.isascii() and " " in name and zone in known:
            zones_of_initials.setdefault("".join(word[0] for word in name.upper().split()), set()).add(zone)
    unshared = {initials: next(iter(found)) for initials, found in zones_of_initials.items() if len(found) == 1}
    return zones, pattern, unshared


@cache
def places() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the places that the time zone database lacks, by zone, each with its names in both languages."""
    rows = Path(__file__).with_name("places.tsv").read_text("utf-8").splitlines()
    zones = (row.split("\t") for row in rows)
    return tuple((zone, tuple(names.split(","))) for zone, names in zones)


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
    spelled, keys = text.lower().replace(" ", "_"), sorted(zoneinfo.available_timezones())
    of_city = next((key for key in keys if spelled in (key.lower(), key.lower().rpartition("/")[2])), None)
    city = text.lower().removesuffix("時間")
    lacking = next((zone for zone, names in places() if city in names), None)
    for key in filter(None, (lacking, text, of_city)):
        with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return zoneinfo.ZoneInfo(key)
        if key == "Asia/Tokyo":
            # Works without a time zone database: Japan has had no daylight saving time since 1951.
            return timezone(timedelta(hours=9), "JST")
    raise LocalToolError(
        f"The time zone '{name[:40]}' is not known; write the IANA name of the zone, a city, or the offset from UTC."
    )


def _values(question: str, moment: datetime) -> dict[str, object]:
    """Return what the sentences say about a moment."""
    hour, minute = moment.hour, f"{moment.minute:02d}"
    if language_of(question) == "ja":
        day = f"{moment.year}年{_era(moment)}{moment.month}月{moment.day}日({_WEEKDAYS[moment.weekday()]}曜日)"
        return {"date": day, "time": f"{'午前' if hour < 12 else '午後'}{hour % 12}時{minute}分({moment:%H:%M})"}
    weekday, month = _ENGLISH_WEEKDAYS[moment.weekday()], _ENGLISH_MONTHS[moment.month - 1]
    return {
        "date": f"{weekday}, {moment.day} {month} {moment.year}",
        "time": f"{moment:%H:%M} ({hour % 12 or 12}:{minute} {'am' if hour < 12 else 'pm'})",
    }


def _place_name(question: str, zone: str) -> str:
    """Return a place in the words of the question."""
    spans = [(start, end) for zone_named, start, end in places_in(question) if zone_named == zone]
    return with_digits(question)[slice(*spans[-1])].strip() if spans else zone


# strftime would use the locale of the process.
_ENGLISH_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_ENGLISH_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _era(moment: datetime) -> str:
    for year, month, day, name in _ERAS:
        if (moment.year, moment.month, moment.day) >= (year, month, day):
            count = moment.year - year + 1
            return f"({name}{'元' if count == 1 else count}年)"
    return ""
