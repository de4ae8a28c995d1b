"""What waits for a person: calls for approval and servers' forms. They are on the stream of their answer, and here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.elicitation import field_problems, filled
from rkllm_mcp.events import Elicitation, event_to_dict
from rkllm_mcp.protocols import ElicitationAnswer
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import Route, RouteResponse
from rkllm_mcp.surfaces.http.state import tenant_of


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
    return {"questions": [event_to_dict(question) for question in tenant_of(request).app.pending.open()]}


@Route("POST", "/v1/approvals/{id}", body=DecisionBody, answers=(RouteResponse(Decided),), problems=(404,))
async def decide(request: Request) -> Decided:
    """Allow or refuse a call of a tool."""
    body = await bodies.read(request, DecisionBody)
    question_id = request.path_params["id"]
    if not tenant_of(request).app.pending.decide(question_id, body.decision):
        raise _gone(question_id)
    return Decided(id=question_id, decision=body.decision)


@Route("POST", "/v1/elicitations/{id}", body=FormBody, answers=(RouteResponse(Answered),), problems=(404,))
async def fill(request: Request) -> Answered:
    """Answer what a server asks."""
    body = await bodies.read(request, FormBody)
    pending, question_id = tenant_of(request).app.pending, request.path_params["id"]
    forms = {question.id: question for question in pending.open() if isinstance(question, Elicitation)}
    if question_id not in forms:
        raise _gone(question_id)
    form, content = forms[question_id], dict[str, Any]()
    if body.action == "accept" and not form.url:
        content = filled(form.schema, body.content)
        for name, problem in field_problems(form.schema, content).items():
            raise HTTPError(422, problem, param=f"content.{name}")
    pending.fill(question_id, ElicitationAnswer(body.action, content))
    return Answered(id=question_id, action=body.action)


def _gone(question_id: str) -> HTTPError:
    return HTTPError(404, f"no question {question_id!r} waits (any more); GET /v1/questions lists those that do")
