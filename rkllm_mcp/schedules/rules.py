"""Rules of time: ``weekdays 07:30`` in a zone -> its next moments, as Unix time.

    once 2026-12-01 15:00     daily 07:30       weekly mon,thu 09:00      every 30m      every 2d 07:30 2026-12-01
                              weekdays 07:30    monthly 1 09:00           every 2h

A wall time belongs to an IANA zone. One that a clock change skips runs at the first real moment after the gap, and one
that occurs twice runs at its first occurrence only.
"""

from __future__ import annotations

import re
import zoneinfo
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Literal, TypeAlias

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.errors import UsageError
from rkllm_mcp.text import Language

Kind: TypeAlias = Literal["once", "daily", "weekdays", "weekly", "monthly", "every"]
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FRIDAY = 4
_UNITS_S = {"m": 60, "h": 3600}
_SHORTEST_S = 60
_LONGEST_DAYS = 366
_RULE = re.compile(
    r"once (?P<day>\d{4}-\d\d-\d\d) (?P<once_at>\d\d:\d\d)"
    r"|(?P<simple>daily|weekdays) (?P<simple_at>\d\d:\d\d)"
    r"|weekly (?P<days>[a-z]{3}(?:,[a-z]{3})*) (?P<weekly_at>\d\d:\d\d)"
    r"|monthly (?P<month_day>\d{1,2}) (?P<monthly_at>\d\d:\d\d)"
    r"|every (?P<count>\d{1,6})(?P<unit>[mh])"
    r"|every (?P<every_days>\d{1,3})d (?P<every_at>\d\d:\d\d)(?: (?P<since>\d{4}-\d\d-\d\d))?"
)
_FORMS = (
    "once 2026-12-01 15:00, daily 07:30, weekdays 07:30, weekly mon,thu 09:00, monthly 1 09:00, every 30m, every 2h "
    "or every 2d 07:30"
)


@dataclass(frozen=True)
class Rule:
    """When a schedule runs; ``str`` writes it as ``read_rule`` reads it."""

    kind: Kind
    at: time = time()
    days: tuple[int, ...] = ()  # weekdays from 0 for Monday, or the day of a month from 1
    day: date | None = None  # the only day, or the first one of every so many days
    every_s: int = 0  # of minutes and hours
    every_days: int = 0

    def __str__(self) -> str:
        if self.every_s:
            hours, seconds = divmod(self.every_s, _UNITS_S["h"])
            return f"every {hours}h" if not seconds else f"every {self.every_s // _UNITS_S['m']}m"
        at = self.at.strftime("%H:%M")
        match self.kind:
            case "once":
                return f"once {self.day} {at}"
            case "every":
                return f"every {self.every_days}d {at}{f' {self.day}' if self.day else ''}"
            case "weekly":
                return f"weekly {','.join(WEEKDAYS[day] for day in self.days)} {at}"
            case "monthly":
                return f"monthly {self.days[0]} {at}"
            case _:
                return f"{self.kind} {at}"


def read_rule(text: str) -> Rule:
    """Return the rule in a text; a UsageError if it is none, or if a value does not exist, such as a 13th month."""
    match = _RULE.fullmatch(" ".join(text.lower().split()))
    parts: dict[str, str | None] = {} if match is None else match.groupdict()
    rule: Rule | None = None
    with suppress(ValueError):
        ats = (parts.get(name) for name in ("once_at", "simple_at", "weekly_at", "monthly_at", "every_at"))
        at = time.fromisoformat(next(filter(None, ats), "00:00"))
        if once_day := parts.get("day"):
            rule = Rule("once", at, day=date.fromisoformat(once_day))
        elif simple := parts.get("simple"):
            rule = Rule("daily" if simple == "daily" else "weekdays", at)
        elif days := parts.get("days"):
            rule = Rule("weekly", at, tuple(sorted({WEEKDAYS.index(day) for day in days.split(",")})))
        elif month_day := parts.get("month_day"):
            rule = Rule("monthly", at, (int(month_day),)) if 1 <= int(month_day) <= monthrange(2000, 1)[1] else None
        elif unit := parts.get("unit"):
            seconds = int(parts["count"] or 0) * _UNITS_S[unit]
            rule = Rule("every", every_s=seconds) if _SHORTEST_S <= seconds <= _LONGEST_DAYS * 86400 else None
        elif every_days := parts.get("every_days"):
            first = date.fromisoformat(parts["since"]) if parts["since"] else None
            every = int(every_days)
            rule = Rule("every", at, day=first, every_days=every) if 1 <= every <= _LONGEST_DAYS else None
    if rule is None:
        raise UsageError(f"{text!r} is no rule of time; write one such as {_FORMS}")
    return rule


def read_zone(name: str) -> zoneinfo.ZoneInfo:
    """Return a zone by its IANA name; a UsageError without one."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"there is no time zone {name!r}; write a name such as Europe/Berlin or Asia/Tokyo") from None


def moments(rule: Rule, zone: tzinfo, after: float, *, previous: float | None = None) -> Iterator[float]:
    """Yield the moments of a rule later than ``after``.

    Args:
        rule: the rule.
        zone: the zone of its wall times.
        after: Unix time, seconds.
        previous: the moment before, from which minutes and hours are counted; ``after`` by default.
    """
    if rule.every_s:
        start = after if previous is None else min(previous, after)
        moment = start + ((after - start) // rule.every_s + 1) * rule.every_s
        while True:
            yield moment
            moment += rule.every_s
    last = after
    # A zone may skip or repeat a whole day.
    today = datetime.fromtimestamp(after, zone).date() - timedelta(days=2)
    for day in _days(rule, today):
        wall = datetime.combine(day, rule.at)
        first = wall.replace(tzinfo=zone, fold=0)
        try:
            before, later = first.utcoffset() or timedelta(), first.replace(fold=1).utcoffset() or timedelta()
            # Of a wall time that occurs twice the first, and of one in a gap the end of the gap.
            moment = first.timestamp()
            if before < later:
                # In a gap the clock jumps somewhere between these two moments; the offset tells on which side one is.
                begin = round((wall.replace(tzinfo=timezone.utc) - later).timestamp())
                end = round((wall.replace(tzinfo=timezone.utc) - before).timestamp())
                while begin + 1 < end:
                    middle = (begin + end) // 2
                    if datetime.fromtimestamp(middle, zone).utcoffset() == before:
                        begin = middle
                    else:
                        end = middle
                moment = float(end)
        except (OverflowError, ValueError):
            return
        if moment > last:
            yield moment
            last = moment


def _days(rule: Rule, today: date) -> Iterator[date]:
    """Yield the days of a rule from ``today`` on."""
    if rule.kind == "once":
        if rule.day is not None:
            yield rule.day
        return
    day = today
    step = timedelta(days=1)
    first = rule.day
    if rule.every_days and first is not None:
        periods = max(0, -(-(today - first).days // rule.every_days))
        day, step = first + timedelta(days=periods * rule.every_days), timedelta(days=rule.every_days)
    while day.year < date.max.year:
        if rule.kind == "monthly":
            length = monthrange(day.year, day.month)[1]
            # Of a shorter month the last day.
            if day.day == min(rule.days[0], length):
                yield day
        elif (rule.kind != "weekdays" or day.weekday() <= _FRIDAY) and (
            rule.kind != "weekly" or day.weekday() in rule.days
        ):
            yield day
        day += step


def describe_rule(rule: Rule, language: Language) -> str:
    """Return a rule in words, such as "every weekday at 7:30"."""
    words = read_catalogue(language).table("schedules.rules")
    at = f"{rule.at.hour}:{rule.at.minute:02}"
    if rule.every_s:
        hours, seconds = divmod(rule.every_s, _UNITS_S["h"])
        unit, count = ("minutes", rule.every_s // _UNITS_S["m"]) if seconds else ("hours", hours)
        return words[unit if count != 1 else unit[:-1]].format(count=count)
    if rule.kind == "every":
        return words["days"].format(count=rule.every_days, at=at)
    if rule.kind == "weekly":
        names = words["weekdays"]
        return words["weekly"].format(days=words["and"].join(names[WEEKDAYS[day]] for day in rule.days), at=at)
    if rule.kind == "monthly":
        last = monthrange(2000, 1)[1]
        return words["month_end" if rule.days[0] == last else "monthly"].format(day=rule.days[0], at=at)
    if rule.kind == "once" and rule.day is not None:
        return words["once"].format(day=describe_day(rule.day, language), at=at)
    return words["daily" if rule.kind == "daily" else "weekday"].format(at=at)


def describe_day(day: date, language: Language) -> str:
    """Return a day with its weekday, such as "Mon 2026-11-30"."""
    words = read_catalogue(language).table("schedules.rules")
    return words["day"].format(weekday=words["weekdays"][WEEKDAYS[day.weekday()]], day=day)


def describe_moment(moment: float, zone: tzinfo, language: Language) -> str:
    """Return a moment on the clocks of a zone, such as "Mon 2026-11-30 7:30"."""
    wall = datetime.fromtimestamp(moment, zone)
    return f"{describe_day(wall.date(), language)} {wall.hour}:{wall.minute:02}"
