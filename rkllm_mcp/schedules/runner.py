"""Schedules of one tenant at their times: which are due, what becomes of a run, and what is said about it.

    clock ─▶ look: claim what is due ─▶ reminders: a notice at once
                                     └▶ work: one run after the other ─▶ perform ─▶ finish ─▶ webhook

* The wall clock is read again at least every ``LOOK_S``. After downtime a schedule runs once, if it is at most
  ``MOST_LATE_S`` late, and says so; else it is reported as missed.
* When the clock was set back, repeated schedules get their next moment again.
* ``MOST_FAILURES`` failures in a row pause a schedule.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import anyio

from rkllm_mcp.catalogue import translate
from rkllm_mcp.errors import RkllmMcpError, SchedulerClosedError, StoreError, UsageError
from rkllm_mcp.records import RunOutcome, Schedule, ScheduleRun
from rkllm_mcp.schedules.rules import describe_moment, describe_rule, moments, read_rule, read_zone
from rkllm_mcp.schedules.sentences import read_sentence
from rkllm_mcp.schedules.webhooks import Notice, post_webhook
from rkllm_mcp.store.schedules import RUNS_KEPT, TOPIC, Schedules
from rkllm_mcp.tasks import open_task_group
from rkllm_mcp.text import Language, collapse_whitespace, language_of_text, shorten

logger = logging.getLogger(__name__)

LOOK_S = 30.0
# A run that begins later than this says so; one that would begin later than that is missed.
LATE_S = 300.0
MOST_LATE_S = 12 * 3600.0
MOST_FAILURES = 3
# A difference between the wall clock and the steady one that no drift explains.
_JUMP_S = 60.0
# A run by a clock that was ahead by more than this does not count for the moment that it was due at.
_AHEAD_S = 3600.0
# A run that is cancelled is noted within this time.
_GIVE_UP_S = 5.0
_DONE_KEPT_S = 30 * 86400.0
_SHOWN_TIMES = 3
_TITLE_CHARS = 60
_LOCALTIME = Path("/etc/localtime")
# An answer that says that there is nothing to report, as a quiet schedule asks for it.
_NOTHING = re.compile(
    r"\W*(?:nothing(?: (?:new|special))?(?: to report)?|no(?:ne)?"
    r"|(?:特に)?(?:なし|ありません|ない)|報告(?:すること)?は?(?:なし|ありません))\W*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RunResult:
    """What a run has come to."""

    outcome: RunOutcome
    text: str
    conversation: str = ""


Perform = Callable[[Schedule, ScheduleRun], Awaitable[RunResult]]


@dataclass(eq=False)
class ScheduleRunner:
    """Runs the schedules of one tenant.

    Args:
        schedules: the store.
        tenant: the tenant's name; empty for the owner.
        perform: asks the model, in its turn.
        deliver: sends a notice to a schedule's webhook and returns what became of it.
        steady: a clock that is never set, seconds.
    """

    schedules: Schedules
    tenant: str
    perform: Perform
    deliver: Callable[[Schedule, ScheduleRun, Notice], Awaitable[str]] = post_webhook
    steady: Callable[[], float] = time.monotonic
    # Wall and steady clock at the last look.
    _clocks: tuple[float, float] | None = field(default=None, init=False)
    _news: anyio.Event = field(default_factory=anyio.Event, init=False)

    async def run(self) -> None:
        """Run schedules at their times until it is cancelled."""
        async with open_task_group() as tasks:
            tasks.start_soon(self._work_on)
            while True:
                with suppress(StoreError):  # the database reports it
                    await self.look()
                pause_s = LOOK_S
                with suppress(StoreError):
                    due = await self.schedules.next_at(self.tenant)
                    if due is not None:
                        pause_s = min(LOOK_S, max(0.0, due - await self.schedules.now()))
                await self.schedules.database.wait_for_change(TOPIC, pause_s)

    async def look(self) -> None:
        """Claim what is due now, and say reminders."""
        if self._clocks is None:
            await self.schedules.end_abandoned(self.tenant)
            await self.schedules.tidy(self.tenant, await self.schedules.now() - _DONE_KEPT_S)
        now = await self.schedules.now()
        wall, steady = self._clocks or (now, self.steady())
        if self._clocks is None or (now - wall) - (self.steady() - steady) < -_JUMP_S:
            # The clock was ahead when moments were set: schedules that wait for too late a moment get their next one.
            for waiting in await self.schedules.all(self.tenant):
                if waiting.state != "active" or waiting.next_at is None:
                    continue
                expected = moment_after(waiting, now)
                if expected is None or expected >= waiting.next_at:
                    continue
                # Unless that moment was claimed by a clock that was not ahead.
                runs = await self.schedules.runs(self.tenant, waiting.id, limit=RUNS_KEPT)
                if not any(run.due == expected and run.claimed <= now + _AHEAD_S for run in runs):
                    await self.schedules.change(self.tenant, waiting.id, next_at=expected)
        self._clocks = now, self.steady()
        # A look, which most often finds nothing due, does not lock the database.
        if (first := await self.schedules.next_at(self.tenant)) is not None and first <= await self.schedules.now():
            await self.schedules.claim(self.tenant, lambda schedule: moment_after(schedule, now), MOST_LATE_S)
        for run in await self.schedules.waiting(self.tenant):
            schedule = await self.schedules.get(self.tenant, run.schedule)
            if schedule is not None and schedule.is_reminder and await self.schedules.take(self.tenant, run.id):
                await self._finish(schedule, run, RunResult("reminded", schedule.prompt))
        self._news.set()

    async def _work_on(self) -> None:
        while True:
            self._news = anyio.Event()
            with suppress(StoreError):
                await self.work()
            await self._news.wait()

    async def work(self) -> None:
        """Perform the runs that wait, in turn."""
        for run in await self.schedules.waiting(self.tenant):
            schedule = await self.schedules.get(self.tenant, run.schedule)
            if schedule is None or schedule.is_reminder:
                continue
            if await self.schedules.now() - run.due > MOST_LATE_S:
                if await self.schedules.take(self.tenant, run.id):
                    await self._finish(schedule, run, RunResult("missed", ""))
                continue
            if not await self.schedules.take(self.tenant, run.id):
                continue
            try:
                result = await self.perform(schedule, run)
            except SchedulerClosedError:
                # The service ends; the next start takes it.
                await self.schedules.give_back(self.tenant, run.id)
                continue
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True), anyio.move_on_after(_GIVE_UP_S), suppress(StoreError):
                    await self.schedules.finish(self.tenant, run, "interrupted", "")
                raise
            except RkllmMcpError as error:
                result = RunResult("failed", str(error))
            except Exception as error:
                # A defect costs this run, not the runs of others.
                logger.exception("a run of a schedule failed")
                result = RunResult("failed", f"internal error: {error!r}; please report it with the output of --debug")
            if schedule.is_quiet and result.outcome == "answered" and _NOTHING.fullmatch(result.text):
                result = replace(result, outcome="quiet")
            await self._finish(schedule, run, result)

    async def _finish(self, schedule: Schedule, run: ScheduleRun, result: RunResult) -> None:
        failures = schedule.failures + 1 if result.outcome == "failed" else 0
        await self.schedules.finish(
            self.tenant, run, result.outcome, result.text, result.conversation, failures=failures
        )
        if failures >= MOST_FAILURES:
            await self.schedules.change(self.tenant, schedule.id, state="paused", next_at=None)
            await self.schedules.add_notice(self.tenant, schedule.id, "paused", result.text)
        if schedule.webhook and result.outcome != "quiet":
            finished_run = replace(run, outcome=result.outcome, text=result.text, conversation=result.conversation)
            delivery = await self.deliver(schedule, finished_run, notice_of(schedule, finished_run, schedule.language))
            await self.schedules.note_delivery(self.tenant, run.id, delivery)


def moment_after(schedule: Schedule, now: float) -> float | None:
    """Return the first moment of a schedule after ``now``; None without one, or if its rule or zone is unknown here."""
    try:
        previous = schedule.next_at if schedule.next_at is not None and schedule.next_at <= now else None
        return next(moments(read_rule(schedule.rule), read_zone(schedule.zone), now, previous=previous), None)
    except UsageError:
        return None


def notice_of(schedule: Schedule, run: ScheduleRun, language: Language) -> Notice:
    """Return what is said about a run that is over."""
    title = shorten(collapse_whitespace(schedule.prompt), _TITLE_CHARS)
    text = run.text.strip()
    due = describe_moment(run.due, read_zone(schedule.zone), language)
    match run.outcome:
        case "missed":
            text = translate("schedules.missed", language, due=due)
        case "interrupted":
            text = translate("schedules.interrupted", language)
        case "failed":
            text = translate("schedules.failed", language, reason=text)
        case "needs_yes":
            text = translate("schedules.needs_yes", language, tools=text)
        case "paused":
            text = translate("schedules.paused", language, count=MOST_FAILURES, reason=text)
        case _ if run.claimed - run.due > LATE_S:
            text = f"{translate('schedules.late', language, due=due)}\n{text}"
        case _:
            pass
    return Notice(title, text)


def zone_here(configured: str | None) -> str:
    """Return the zone of this board's person: the configured one, else the system's.

    Raises:
        UsageError: there is neither; UTC is never assumed.
    """
    if configured:
        return configured
    with suppress(OSError, UsageError):
        path = str(_LOCALTIME.resolve())
        name = path.partition("zoneinfo/")[2]
        if name and name not in ("UTC", "Etc/UTC", "Universal", "Zulu", "Etc/UCT", "UCT"):
            return read_zone(name).key
    advice = "write timezone = 'Europe/Berlin' below [service], or give 'schedules add' a --zone"
    raise UsageError(f"this board has no time zone but UTC; {advice}")


def new_secret() -> str:
    """Return a secret that signs what a webhook gets."""
    return secrets.token_urlsafe(24)


def new_schedule(
    prompt: str,
    rule: str,
    zone: str,
    now: float,
    *,
    language: Language | None = None,
    is_reminder: bool = False,
    is_quiet: bool = False,
    tools: tuple[str, ...] = (),
    webhook: str = "",
    webhook_form: str = "json",
) -> Schedule:
    """Return a schedule with its first moment, not stored yet; a UsageError if it cannot run."""
    words = prompt.strip()
    if not words:
        raise UsageError("a schedule needs words: what is to be asked or said at its times")
    parsed_rule, where = read_rule(rule), read_zone(zone)
    if parsed_rule.every_days and parsed_rule.day is None:
        parsed_rule = replace(parsed_rule, day=datetime.fromtimestamp(now, where).date())
    first = next(moments(parsed_rule, where, now), None)
    if first is None:
        raise UsageError(f"{describe_rule(parsed_rule, 'en')} is over already; choose a later time")
    if webhook and not re.match(r"https?://[^\s/]", webhook):
        raise UsageError(f"{webhook!r} is no address of a webhook; it begins with http:// or https://")
    if webhook_form not in ("json", "text"):
        raise UsageError(f"a webhook gets json or text, not {webhook_form!r}")
    return Schedule(
        id="",
        prompt=words,
        rule=str(parsed_rule),
        zone=where.key,
        language=language or language_of_text(words) or "en",
        is_reminder=is_reminder,
        is_quiet=is_quiet,
        tools=tools,
        webhook=webhook,
        webhook_form="text" if webhook_form == "text" else "json",
        secret=new_secret() if webhook else "",
        next_at=first,
    )


def schedule_of_sentence(sentence: str, zone: str, now: float) -> Schedule | None:
    """Return the schedule in a sentence, not stored yet; None if none exists."""
    sentence_read = read_sentence(sentence, datetime.fromtimestamp(now, read_zone(zone)))
    if sentence_read is None:
        return None
    return new_schedule(sentence_read.prompt, str(sentence_read.rule), zone, now, is_reminder=sentence_read.is_reminder)


def upcoming(schedule: Schedule, now: float, language: Language, count: int = _SHOWN_TIMES) -> list[str]:
    """Return the next times of a schedule on its own clocks."""
    if schedule.next_at is None:
        return []
    rule, zone = read_rule(schedule.rule), read_zone(schedule.zone)
    later = moments(rule, zone, max(now, schedule.next_at), previous=schedule.next_at)
    return [describe_moment(moment, zone, language) for moment in (schedule.next_at, *islice(later, count - 1))]


async def find_schedule(schedules: Schedules, tenant: str, prefix: str) -> Schedule:
    """Return the schedule whose id begins with ``prefix``; a UsageError for none or several."""
    stored = await schedules.all(tenant) if prefix else []
    matches = [schedule for schedule in stored if schedule.id.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = "\n".join(f"  {schedule.id}  {schedule.prompt}" for schedule in matches)
        raise UsageError(f"several schedules begin with {prefix!r}; type more of the id:\n{several}")
    raise UsageError(f"there is no schedule {prefix!r}; 'rkllm-mcp schedules list' shows them")


async def resume(schedules: Schedules, tenant: str, schedule: Schedule) -> float:
    """Let a schedule run again and return its next moment; a UsageError if it has none."""
    moment = moment_after(replace(schedule, next_at=None), await schedules.now())
    if moment is None:
        raise UsageError(f"the time of schedule {schedule.id} is over; make a new one")
    await schedules.change(tenant, schedule.id, state="active", next_at=moment, failures=0)
    return moment


def export_schedule(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as it is written into an export; its secret stays."""
    return {
        "prompt": schedule.prompt,
        "rule": schedule.rule,
        "zone": schedule.zone,
        "language": schedule.language,
        "reminder": schedule.is_reminder,
        "quiet": schedule.is_quiet,
        "tools": list(schedule.tools),
        "webhook": schedule.webhook,
        "webhook_form": schedule.webhook_form,
        "state": schedule.state,
    }


def import_schedules(text: str | bytes, now: float) -> list[Schedule]:
    """Return the schedules of an export that can still run, with new secrets; a UsageError if it is none.

    Args:
        text: a list of schedules, or the file of ``GET /v1/me/data``.
        now: Unix time.
    """
    try:
        rows: Any = json.loads(text)
        if "schedules" in rows:
            rows = rows["schedules"]
        schedules: list[Schedule] = []
        for row in rows:
            if row["state"] == "done":
                continue
            schedule = new_schedule(
                row["prompt"],
                row["rule"],
                row["zone"],
                now,
                language="ja" if row.get("language") == "ja" else "en",
                is_reminder=bool(row.get("reminder")),
                is_quiet=bool(row.get("quiet")),
                tools=tuple(map(str, row.get("tools", ()))),
                webhook=row.get("webhook", ""),
                webhook_form=row.get("webhook_form", "json"),
            )
            is_paused = row["state"] == "paused"
            schedules.append(replace(schedule, state="paused", next_at=None) if is_paused else schedule)
        return schedules
    except (ValueError, KeyError, TypeError):
        advice = "'rkllm-mcp schedules list --json' writes one"
        raise UsageError(f"this is no export of schedules; {advice}") from None
