"""What waits for a person: calls for approval and servers' forms. They are on the stream of their answer, and here."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.app.assistant import App
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.elicitation import complete_content, field_problems
from rkllm_mcp.errors import StoreError
from rkllm_mcp.events import Approval, Elicitation, event_from_dict, event_to_dict
from rkllm_mcp.protocols import ElicitationAnswer
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import Route, RouteResponse
from rkllm_mcp.surfaces.http.state import tenant_of

_GONE = "no question {!r} waits (any more); GET /v1/questions lists those that do"


class Waiting(DocumentedModel):
    """The questions that wait, oldest first."""

    questions: list[dict[str, Any]] = Field(description="Events of the kinds approval and elicitation.")


class DecisionBody(bodies.RequestBody):
    """The answer to a question for approval."""

    decision: Literal["once", "conversation", "always", "deny", "never"]
    """once: this call; conversation: the tool until the conversation ends; always, never: for good; deny: not now."""


class Decided(DocumentedModel):
    """The decision that was taken."""

    id: str
    decision: str


class FormBody(bodies.RequestBody):
    """The answer to a server's question."""

    action: Literal["accept", "decline", "cancel"]
    """accept with what was filled in; decline is a clear no; cancel is no answer."""
    content: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The filled form."""


class Answered(DocumentedModel):
    """The request that was answered."""

    id: str
    action: str


@Route("GET", "/v1/questions", answers=(RouteResponse(Waiting),))
async def waiting(request: Request) -> dict[str, Any]:
    """List what waits for a person."""
    return {"questions": [event_to_dict(question) for question in (await _open(tenant_of(request).app)).values()]}


@Route("POST", "/v1/approvals/{id}", body=DecisionBody, answers=(RouteResponse(Decided),), problems=(404,))
async def decide(request: Request) -> Decided:
    """Allow or refuse a call of a tool."""
    body = await bodies.read(request, DecisionBody)
    app, question_id = tenant_of(request).app, request.path_params["id"]
    if not isinstance((await _open(app)).get(question_id), Approval):
        raise HTTPError(404, _GONE.format(question_id))
    if not await _is_first(app, question_id, body.decision):
        raise HTTPError(404, _GONE.format(question_id))
    app.pending.respond(question_id, body.decision)
    return Decided(id=question_id, decision=body.decision)


@Route("POST", "/v1/elicitations/{id}", body=FormBody, answers=(RouteResponse(Answered),), problems=(404,))
async def fill(request: Request) -> Answered:
    """Answer what a server asks."""
    body = await bodies.read(request, FormBody)
    app, question_id = tenant_of(request).app, request.path_params["id"]
    form, content = (await _open(app)).get(question_id), dict[str, Any]()
    if not isinstance(form, Elicitation):
        raise HTTPError(404, _GONE.format(question_id))
    if body.action == "accept" and not form.url:
        content = complete_content(form.schema, body.content)
        for name, problem in field_problems(form.schema, content).items():
            raise HTTPError(422, problem, param=f"content.{name}")
    if not await _is_first(app, question_id, {"action": body.action, "content": content}):
        raise HTTPError(404, _GONE.format(question_id))
    app.pending.respond(question_id, ElicitationAnswer(body.action, content))
    return Answered(id=question_id, action=body.action)


async def _open(app: App) -> dict[str, Approval | Elicitation]:
    """Return the open questions by their ids, those of other boards after our own."""
    questions: dict[str, Approval | Elicitation] = {question.id: question for question in app.pending.open()}
    if app.store.leases is not None:
        with suppress(StoreError):  # while the database is away, our own
            for values, seconds in await app.store.leases.questions(app.tenant):
                question = event_from_dict(values)
                if isinstance(question, (Approval, Elicitation)):
                    questions.setdefault(question.id, replace(question, refused_at=monotonic() + seconds))
    return questions


async def _is_first(app: App, question_id: str, answer: object) -> bool:
    """Return False if a question was answered before, at any board; else the answer is this one."""
    is_own = any(question.id == question_id for question in app.pending.open())
    if app.store.leases is None:
        return is_own
    try:
        is_first = await app.store.leases.answer(app.tenant, question_id, answer)
    except StoreError:
        is_first = None
    # A question that is not stored is known at its board only.
    return is_own if is_first is None else is_first
