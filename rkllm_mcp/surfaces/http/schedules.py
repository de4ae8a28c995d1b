"""Schedules over HTTP, and the runs of the service: each is an ordinary answer in the one queue, after people's.

    run ─▶ the queue is empty ─▶ a slot ─▶ a conversation that begins anew ─▶ its turns at the end of the stored one

The model reads a run's question alone, so a hundred runs cost what one costs; people find the answers one after the
other in the schedule's own conversation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import End, Text, ToolFinished
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.records import Schedule, ScheduleRun, StoredConversation
from rkllm_mcp.schedules.rules import describe_moment, describe_rule, read_rule, read_zone
from rkllm_mcp.schedules.runner import (
    RunResult,
    ScheduleRunner,
    new_schedule,
    new_secret,
    notice_of,
    schedule_of_sentence,
    upcoming,
    zone_here,
)
from rkllm_mcp.schedules.webhooks import post_webhook
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.running_answers import RunningAnswer
from rkllm_mcp.surfaces.http.state import ServiceState, tenant_of
from rkllm_mcp.surfaces.http.streaming import EventList, meter_answer
from rkllm_mcp.tasks import open_task_group
from rkllm_mcp.text import Language, language_of_header, stamp

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App
    from rkllm_mcp.app.tenants import Tenant

# A run waits at most so long for a moment without a question; then it takes its place in the queue.
_YIELDS_S = 900.0
_MOST_TOOLS = 60
_PROMPT_CHARS = 4000
_RUNS = 500


# --- runs -------------------------------------------------------------------------------------------------------------


async def run_schedules(service: ServiceState) -> None:
    """Run the schedules of all tenants at their times, until it is cancelled."""
    async with open_task_group() as tasks:
        running: dict[str, tuple[App, anyio.CancelScope]] = {}
        while True:
            change = service.tenants.next_change
            tenants: Mapping[str, Tenant] = service.tenants.by_name
            for name, (app, scope) in list(running.items()):
                if name not in tenants or tenants[name].app is not app:
                    scope.cancel()
                    del running[name]
            for name, tenant in tenants.items():
                if name not in running:
                    scope = anyio.CancelScope()
                    running[name] = tenant.app, scope
                    tasks.start_soon(_run_of, service, name, tenant.app, scope)
            await change.wait()


async def _run_of(service: ServiceState, name: str, app: App, scope: anyio.CancelScope) -> None:
    with scope:
        deliver = partial(post_webhook, is_public_only=bool(name))
        await ScheduleRunner(app.store.schedules, name, partial(perform, service, name), deliver).run()


async def perform(service: ServiceState, name: str, schedule: Schedule, run: ScheduleRun) -> RunResult:
    """Ask a schedule's question and return what became of it.

    Raises:
        RkllmMcpError: the assistant cannot answer; a SchedulerClosedError if the service ends before the answer begins.
    """
    scheduler = service.tenants.scheduler
    with anyio.move_on_after(_YIELDS_S):
        await scheduler.idle()
    app = service.tenants.tenant(name).app
    # With nothing in it for the model; its turns are stored after those of the schedule's.
    conversation, conversations = app.new_conversation(), app.store.conversations
    if app.config.service.history:
        stored = await conversations.get(app.tenant, schedule.conversation) if schedule.conversation else None
        if stored is None:
            head = StoredConversation("", schedule.prompt, time.time(), time.time(), ())
            conversation.id = await conversations.add(app.tenant, head)
        else:
            conversation.id, conversation.kept_turns = stored.id, len(stored.turns)
            conversation.kept_until = stored.turns[-1].at if stored.turns else 0.0
            conversation.calls_made = stored.calls_made
    running = RunningAnswer(conversation.id, name, "")
    events = EventList()
    try:
        await service.quota.check(service.tenants.tenant(name))
        with service.answers.running(running), scheduler.admit(f"schedules of {name}") as slot:
            await slot.wait_until_admitted()
            # Its tokens are those of another prompt than the stored conversation's.
            service.open_conversations.drop(app, conversation.id)
            with service.tenants.using():
                async with meter_answer(service, name) as meter:
                    app = running.assistant = meter.tenant.app
                    language: Language = schedule.language
                    now = describe_moment(time.time(), read_zone(schedule.zone), language)
                    context = translate("model.scheduled", language, now=now)
                    if schedule.is_quiet:
                        context = f"{context} {translate('model.scheduled_quiet', language)}"
                    options = AnswerOptions(
                        unattended_tools=schedule.tools,
                        save=app.config.service.history,
                        resources=False,
                        is_single=True,
                        language=language,
                        context=context,
                    )
                    await app.answer(conversation, schedule.prompt, events, options, [meter])
    except HTTPError as refusal:
        return RunResult("failed", refusal.message)
    finally:
        app.model_host.chat_model.forget(conversation.id)
    del run
    conversation_id = conversation.id if conversation.kept_turns else ""
    finished = (event for event in events.events if isinstance(event, ToolFinished))
    if refused := dict.fromkeys(event.name for event in finished if event.ruling in ("refused", "never")):
        return RunResult("needs_yes", ", ".join(refused), conversation_id)
    end = next((event for event in reversed(events.events) if isinstance(event, End)), End("failed"))
    if end.reason == "interrupted":
        return RunResult("interrupted", "", conversation_id)
    if end.reason in ("failed", "cancelled"):
        return RunResult("failed", end.error or end.reason, conversation_id)
    text = "".join(event.text for event in events.events if isinstance(event, Text)).strip()
    return RunResult("answered", text, conversation_id)


# --- routes -----------------------------------------------------------------------------------------------------------

_Zone = Annotated[str, Field(min_length=1, max_length=64)]
_Tool = Annotated[str, Field(min_length=1, max_length=256)]
_Webhook = Annotated[str, Field(max_length=2000, pattern=r"^(https?://[^\s/].*)?$")]


class ScheduleBody(bodies.RequestBody):
    """A schedule to be made."""

    prompt: str = Field(min_length=1, max_length=_PROMPT_CHARS)
    """What is asked of the model at its times, or the text of a reminder."""
    rule: str = Field(max_length=100)
    """When: `once 2026-12-01 15:00`, `daily 07:30`, `weekdays 07:30`, `weekly mon,thu 09:00`, `monthly 1 09:00` (in a
    shorter month its last day), `every 30m`, `every 2h` or `every 2d 07:30`."""
    zone: _Zone | None = None
    """The IANA name of the zone of its times, such as Europe/Berlin; the service's when not given."""
    reminder: bool = False
    """Its text is said at its times, and no model is asked."""
    quiet: bool = False
    """The model is told to say so when there is nothing to report, and nothing is shown then."""
    tools: tuple[_Tool, ...] = Field((), strict=False, max_length=_MOST_TOOLS)
    """Tools that its runs may call without asking, besides those that only read."""
    webhook: _Webhook = ""
    """An address that gets each result as a POST, signed."""
    webhook_form: Literal["json", "text"] = "json"
    """json: an object; text: the text alone with the title as a header, as ntfy reads it."""


class ScheduleChange(bodies.RequestBody):
    """What is to be changed; the rest stays."""

    state: Literal["active", "paused"] | None = None
    """paused: it does not run until it is active again."""
    prompt: str | None = Field(None, min_length=1, max_length=_PROMPT_CHARS)
    """What is asked or said."""
    rule: str | None = Field(None, max_length=100)
    """When, as for a new one."""
    zone: _Zone | None = None
    """The zone of its times."""
    quiet: bool | None = None
    """Nothing is shown when there is nothing to report."""
    tools: tuple[_Tool, ...] | None = Field(None, strict=False, max_length=_MOST_TOOLS)
    """Tools that its runs may call without asking."""
    webhook: _Webhook | None = None
    """The address that gets each result; another one gets a new secret, an empty one ends it."""
    webhook_form: Literal["json", "text"] | None = None
    """json or text."""


class SentenceBody(bodies.RequestBody):
    """Words that may hold a schedule, or a rule to look at."""

    sentence: str = Field("", max_length=2000)
    """Such as "every weekday at 7:30 tell me the weather" or 「毎朝7時半に東京の天気」."""
    rule: str = Field("", max_length=100)
    """A rule in place of a sentence."""
    zone: _Zone | None = None
    """The zone of the person."""


class ReadSchedule(DocumentedModel):
    """A schedule before it is made."""

    is_schedule: bool = Field(description="False if the sentence holds no schedule; the rest is empty then.")
    prompt: str
    rule: str
    reminder: bool
    zone: str
    words: str = Field(description="The rule in words, in the caller's language.")
    times: list[str] = Field(description="Its next three times, on the clocks of its zone.")


class ScheduleState(DocumentedModel):
    """A schedule."""

    id: str
    prompt: str
    rule: str
    zone: str
    words: str = Field(description="The rule in words, in the caller's language.")
    times: list[str] = Field(description="Its next three times, on the clocks of its zone; none when it is over.")
    next_at: str | None = Field(description="Its next time, in UTC.")
    state: Literal["active", "paused", "done"]
    reminder: bool
    quiet: bool
    tools: list[str]
    webhook: str
    webhook_form: Literal["json", "text"]
    secret: str = Field(description="Signs what the webhook gets; only for keys that may change schedules.")
    conversation: str | None = Field(description="The conversation with its results.")


class ScheduleList(DocumentedModel):
    """All schedules."""

    schedules: list[ScheduleState]
    zone: str = Field(description="The zone of schedules that name none; empty if the board knows none but UTC.")


class RunNotice(DocumentedModel):
    """A run that is over."""

    id: str
    schedule: str
    outcome: Literal["answered", "quiet", "reminded", "needs_yes", "failed", "missed", "interrupted", "paused"]
    title: str
    text: str = Field(description="What is said to the person, in the caller's language.")
    due: str
    ended: str
    ended_at: float = Field(description="Unix time; the next request's after.")
    delivery: str = Field(description="What became of the webhook: a status or a reason; empty without one.")
    conversation: str | None


class RunNotices(DocumentedModel):
    """Runs that are over, the latest first."""

    runs: list[RunNotice]
    now: float = Field(description="Unix time of the board, for the first request's after.")


class RunsQuery(bodies.RequestBody):
    """Which runs."""

    schedule: str = Field("", max_length=64, description="Of this schedule alone.")
    after: float = Field(0.0, ge=0, description="Those that ended after this Unix time.")
    limit: int = Field(50, ge=1, le=_RUNS, description="At most so many.")


class RunRequested(DocumentedModel):
    """A run that was asked for."""

    is_new: bool = Field(description="False if a run of the schedule waits already.")


@Route("GET", "/v1/schedules", answers=(RouteResponse(ScheduleList),))
async def list_schedules(request: Request) -> dict[str, Any]:
    """List the schedules, those that are due next first."""
    app = tenant_of(request).app
    stored_schedules = await app.store.schedules.all(app.tenant)
    now = await app.store.schedules.now()
    try:
        zone = zone_here(app.config.service.timezone)
    except UsageError:
        zone = ""
    return {"schedules": [_shown_schedule(request, schedule, now) for schedule in stored_schedules], "zone": zone}


@Route("POST", "/v1/schedules", body=ScheduleBody, answers=(RouteResponse(ScheduleState, status=201),), problems=(422,))
async def add_schedule(request: Request) -> dict[str, Any]:
    """Make a schedule."""
    app, body = tenant_of(request).app, await bodies.read(request, ScheduleBody)
    schedules = app.store.schedules
    now = await schedules.now()
    try:
        zone = body.zone or zone_here(app.config.service.timezone)
        schedule = new_schedule(
            body.prompt,
            body.rule,
            zone,
            now,
            is_reminder=body.reminder,
            is_quiet=body.quiet,
            tools=body.tools,
            webhook=body.webhook,
            webhook_form=body.webhook_form,
        )
        stored = await schedules.add(app.tenant, schedule)
    except UsageError as error:
        raise HTTPError(422, str(error)) from None
    return _shown_schedule(request, stored, now)


@Route("POST", "/v1/schedules:read", body=SentenceBody, answers=(RouteResponse(ReadSchedule),), problems=(422,))
async def read_schedule(request: Request) -> dict[str, Any]:
    """Read the schedule in a sentence, or the next times of a rule; nothing is made."""
    app, body = tenant_of(request).app, await bodies.read(request, SentenceBody)
    now, language = await app.store.schedules.now(), _language(request, app)
    try:
        zone = body.zone or zone_here(app.config.service.timezone)
        if body.rule:
            read = new_schedule(body.sentence or "-", body.rule, zone, now)
        else:
            read = schedule_of_sentence(body.sentence, zone, now)
    except UsageError as error:
        raise HTTPError(422, str(error)) from None
    if read is None:
        empty: dict[str, Any] = {"prompt": "", "rule": "", "reminder": False, "zone": zone, "words": "", "times": []}
        return {"is_schedule": False, **empty}
    words = describe_rule(read_rule(read.rule), language)
    times = upcoming(read, now, language)
    return shown(ReadSchedule, read, is_schedule=True, reminder=read.is_reminder, words=words, times=times)


@Route("GET", "/v1/schedules/runs", query=RunsQuery, answers=(RouteResponse(RunNotices),))
async def list_runs(request: Request) -> dict[str, Any]:
    """List the runs that are over: what the page shows as notices."""
    app, wish = tenant_of(request).app, bodies.query(request, RunsQuery)
    schedules, language = app.store.schedules, _language(request, app)
    runs = await schedules.runs(app.tenant, wish.schedule, limit=wish.limit, ended_after=wish.after)
    by_id = {schedule.id: schedule for schedule in await schedules.all(app.tenant)} if runs else {}
    rows: list[dict[str, Any]] = []
    for run in runs:
        if run.schedule in by_id:
            notice, ended_at = notice_of(by_id[run.schedule], run, language), run.ended or run.claimed
            fields = {"title": notice.title, "text": notice.text, "due": stamp(run.due), "ended": stamp(ended_at)}
            rows.append(shown(RunNotice, run, **fields, ended_at=ended_at, conversation=run.conversation or None))
    return {"runs": rows, "now": await schedules.now()}


@Route("PATCH", "/v1/schedules/{id}", body=ScheduleChange, answers=(RouteResponse(ScheduleState),), problems=(404, 422))
async def change_schedule(request: Request) -> dict[str, Any]:
    """Change, pause or resume a schedule."""
    app, schedule = await _schedule_named(request)
    body = await bodies.read(request, ScheduleChange)
    schedules = app.store.schedules
    now = await schedules.now()
    state = body.state or schedule.state
    changed = replace(
        schedule,
        prompt=body.prompt or schedule.prompt,
        is_quiet=schedule.is_quiet if body.quiet is None else body.quiet,
        tools=schedule.tools if body.tools is None else body.tools,
        webhook_form=body.webhook_form or schedule.webhook_form,
    )
    if body.webhook is not None and body.webhook != schedule.webhook:
        # The program at the old address knows the old secret.
        changed = replace(changed, webhook=body.webhook, secret=new_secret() if body.webhook else "")
    try:
        rule, zone = body.rule or schedule.rule, body.zone or schedule.zone
        is_moved = (rule, zone) != (schedule.rule, schedule.zone)
        if is_moved or (state == "active" and schedule.state != "active"):
            moved = new_schedule(changed.prompt, rule, zone, now)
            state = "active" if is_moved and schedule.state == "done" else state
            changed = replace(changed, rule=moved.rule, zone=moved.zone, next_at=moved.next_at, failures=0)
    except UsageError as error:
        raise HTTPError(422, str(error)) from None
    changed = replace(changed, state=state, next_at=changed.next_at if state == "active" else None)
    names = ["prompt", "is_quiet", "tools", "webhook", "webhook_form", "secret"]
    names += ["rule", "zone", "next_at", "state", "failures"]
    await schedules.change(app.tenant, schedule.id, **{name: getattr(changed, name) for name in names})
    return _shown_schedule(request, changed, now)


@Route("DELETE", "/v1/schedules/{id}", answers=(RouteResponse(status=204, says="It is gone."),), problems=(404,))
async def remove_schedule(request: Request) -> None:
    """Remove a schedule and the list of its runs; the conversation with its results stays."""
    app, schedule = await _schedule_named(request)
    await app.store.schedules.remove(app.tenant, schedule.id)


@Route("POST", "/v1/schedules/{id}/run", answers=(RouteResponse(RunRequested, status=202),), problems=(404,))
async def run_schedule(request: Request) -> RunRequested:
    """Run a schedule now, in its turn; its times stay as they are."""
    app, schedule = await _schedule_named(request)
    return RunRequested(is_new=await app.store.schedules.request_run(app.tenant, schedule.id))


async def _schedule_named(request: Request) -> tuple[App, Schedule]:
    app, schedule_id = tenant_of(request).app, request.path_params["id"]
    schedule = await app.store.schedules.get(app.tenant, schedule_id)
    if schedule is None:
        raise HTTPError(404, f"there is no schedule {schedule_id!r} here; GET /v1/schedules lists them")
    return app, schedule


def _language(request: Request, app: App) -> Language:
    return language_of_header(request.headers.get("accept-language", "")) or app.config.agent.person_language


def _shown_schedule(request: Request, schedule: Schedule, now: float) -> dict[str, Any]:
    language = _language(request, tenant_of(request).app)
    rights: Sequence[str] = request.state.rights
    return shown(
        ScheduleState,
        schedule,
        words=describe_rule(read_rule(schedule.rule), language),
        times=upcoming(schedule, now, language),
        next_at=stamp(schedule.next_at) if schedule.next_at is not None else None,
        reminder=schedule.is_reminder,
        quiet=schedule.is_quiet,
        tools=list(schedule.tools),
        webhook=schedule.webhook if "approve" in rights else "",
        secret=schedule.secret if "approve" in rights else "",
        conversation=schedule.conversation or None,
    )
