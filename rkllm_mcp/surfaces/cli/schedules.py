"""``rkllm-mcp schedules``: what the owner has asked or said by a rule of time; the service runs them.

A tenant manages theirs over HTTP. No model is loaded.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from rkllm_mcp.app.stored import open_stored
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.schedules.rules import describe_moment, read_zone
from rkllm_mcp.schedules.runner import (
    export_schedule,
    find_schedule,
    import_schedules,
    new_schedule,
    notice_of,
    resume,
    schedule_of_sentence,
    zone_here,
)
from rkllm_mcp.surfaces.cli.files import read_export
from rkllm_mcp.surfaces.cli.options import AsJson, Yes, argument, command, flag, in_loop, may_proceed, option
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.running_service import service_for
from rkllm_mcp.surfaces.tables import schedule_lines, schedule_table
from rkllm_mcp.surfaces.terminal import printable
from rkllm_mcp.text import collapse_whitespace, stamp

OWNER = ""
_EXAMPLE = 'such as "every weekday at 7:30 tell me the weather" or 「毎朝7時半に東京の天気」'

app = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, argument("Id, or its first characters.", "ID")]


def _note_service(session: Session, config: Config) -> None:
    """Say that nothing runs while no service does."""
    if service_for(config) is None:
        session.status(session.phrases.sentence("schedules.needs_service"))


@command(app, "list")
async def list_command(session: Session, as_json: AsJson = False) -> None:
    """List schedules, those that are due next first."""
    config = session.config()
    async with open_stored(config) as store:
        schedules = await store.schedules.all(OWNER)
    rows = [
        {
            "id": schedule.id,
            **export_schedule(schedule),
            "next_at": stamp(schedule.next_at) if schedule.next_at is not None else None,
        }
        for schedule in schedules
    ]
    session.show(rows, schedule_table(schedules, session.terminal), as_json=as_json)
    if not schedules and not as_json:
        session.status("There are no schedules; 'rkllm-mcp schedules add' makes one.")
    elif not as_json:
        _note_service(session, config)


@command(app, "add")
async def add_command(
    session: Session,
    words: Annotated[str, argument("When and what, in one sentence; with --rule only what.", "SENTENCE")],
    rule: Annotated[
        str, option("When, in place of a time in the sentence: daily 07:30, weekly mon,thu 09:00, every 30m.", "RULE")
    ] = "",
    zone: Annotated[
        str, option("Time zone, such as Europe/Berlin. Default: service.timezone, or the system's.", "ZONE")
    ] = "",
    reminder: Annotated[bool, flag("Show the words at the time; ask no model.", "--reminder")] = False,
    quiet: Annotated[bool, flag("Show nothing when there is nothing to report.", "--quiet-runs")] = False,
    tools: Annotated[
        list[str] | None,
        option("Tool that may be called without asking, besides those that read.", "TOOL", "--allow-tool"),
    ] = None,
    webhook: Annotated[str, option("Address that gets each result as a signed POST.", "URL")] = "",
    webhook_form: Annotated[str, option("json, or text as ntfy reads it.", "json|text", "--webhook-form")] = "json",
    yes: Yes = False,
) -> int:
    """Make a schedule of a sentence, after its rule and its next three times were shown."""
    config = session.config()
    where = zone or zone_here(config.service.timezone)
    async with open_stored(config) as store:
        now = await store.schedules.now()
        extras: dict[str, Any] = {"is_quiet": quiet, "tools": tuple(tools or ())}
        extras |= {"webhook": webhook, "webhook_form": webhook_form}
        if rule:
            schedule = new_schedule(words, rule, where, now, is_reminder=reminder, **extras)
        elif (from_words := schedule_of_sentence(words, where, now)) is not None:
            made = new_schedule(
                from_words.prompt,
                from_words.rule,
                where,
                now,
                is_reminder=from_words.is_reminder or reminder,
                **extras,
            )
            schedule = replace(made, language=from_words.language)
        else:
            raise UsageError(f"there is no time in {words!r}; write a sentence {_EXAMPLE}, or give a --rule")
        for line in schedule_lines(schedule, now, session.phrases):
            session.terminal.note(line)
        if not may_proceed(session, session.phrases.sentence("schedules.save"), yes=yes):
            return EXIT_ANSWER_FAILED
        stored = await store.schedules.add(OWNER, schedule)
    session.terminal.note(session.phrases.sentence("schedules.saved", id=stored.id))
    if stored.secret:
        session.status(f"The webhook's secret: {stored.secret}")
    _note_service(session, config)
    return EXIT_DONE


@command(app, "remove")
async def remove_command(session: Session, name: _Name) -> None:
    """Remove a schedule and the list of its runs; the conversation with its results stays."""
    async with open_stored(session.config()) as store:
        schedule = await find_schedule(store.schedules, OWNER, name)
        await store.schedules.remove(OWNER, schedule.id)
    session.terminal.note(session.phrases.sentence("schedules.removed", id=schedule.id))


@command(app, "pause")
async def pause_command(session: Session, name: _Name) -> None:
    """Let a schedule rest until it is resumed."""
    async with open_stored(session.config()) as store:
        schedule = await find_schedule(store.schedules, OWNER, name)
        await store.schedules.change(OWNER, schedule.id, state="paused", next_at=None)
    session.terminal.note(session.phrases.sentence("schedules.is_paused", id=schedule.id))


@command(app, "resume")
async def resume_command(session: Session, name: _Name) -> None:
    """Let a paused schedule run again at its next time."""
    async with open_stored(session.config()) as store:
        schedule = await find_schedule(store.schedules, OWNER, name)
        moment = await resume(store.schedules, OWNER, schedule)
    time = describe_moment(moment, read_zone(schedule.zone), session.terminal.language)
    session.terminal.note(session.phrases.sentence("schedules.resumed", id=schedule.id, time=time))


@command(app, "run")
async def run_command(session: Session, name: _Name) -> None:
    """Run a schedule now, in the service and within half a minute; its times stay as they are."""
    config = session.config()
    async with open_stored(config) as store:
        schedule = await find_schedule(store.schedules, OWNER, name)
        await store.schedules.request_run(OWNER, schedule.id)
    session.terminal.note(session.phrases.sentence("schedules.runs", id=schedule.id))
    _note_service(session, config)


@command(app, "log")
async def log_command(
    session: Session,
    name: Annotated[str, argument("Id, or its first characters; all schedules without one.", "ID")] = "",
    limit: Annotated[int, option("Maximum number of runs.", "N", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what became of the latest runs."""
    language, rows = session.terminal.language, list[dict[str, str]]()
    async with open_stored(session.config()) as store:
        schedules = {schedule.id: schedule for schedule in await store.schedules.all(OWNER)}
        chosen = (await find_schedule(store.schedules, OWNER, name)).id if name else ""
        for run in await store.schedules.runs(OWNER, chosen, limit=limit):
            schedule = schedules[run.schedule]
            notice = notice_of(schedule, run, language)
            time = describe_moment(run.ended or run.claimed, read_zone(schedule.zone), language)
            values = {"schedule": schedule.id, "time": time, "outcome": session.terminal.word(run.outcome)}
            rows.append({**values, "title": notice.title, "text": notice.text, "delivery": run.delivery})
    cells = [
        (row["time"], row["outcome"], collapse_whitespace(f"{row['title']}: {row['text']}"), row["delivery"])
        for row in rows
    ]
    heading = ("TIME", "RESULT", "TEXT", "WEBHOOK")
    session.show(rows, session.terminal.table(heading, cells), as_json=as_json)
    if not rows and not as_json:
        session.status("No schedule has run yet.")


@command(app, "import")
def import_command(
    session: Session,
    source: Annotated[str, argument("List of schedules as JSON, or an export of a person's data; - reads it.", "FILE")],
) -> int:
    """Import schedules that 'schedules list --json' or the page's export has written."""
    text = read_export(source)

    async def import_all() -> None:
        async with open_stored(session.config()) as store:
            for schedule in import_schedules(text, await store.schedules.now()):
                stored = await store.schedules.add(OWNER, schedule)
                sys.stdout.write(printable(f"{stored.id} {stored.prompt}\n"))

    return in_loop(session, import_all)
