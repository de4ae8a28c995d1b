"""Elicitation: a server's form to fill or URL to open, presented to the user of the active call.

Accepted form content includes the schema's defaults and is valid, or the form is asked again; a URL is shown, never
opened; without an active call the request is cancelled. A callback never raises.

Follows MCP 2025-11-25 and 2026-07-28, client features, elicitation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rkllm_mcp.calling import Asker, CallContext, ElicitationAnswer
from rkllm_mcp.events import Elicitation
from rkllm_mcp.forms import filled, problems
from rkllm_mcp.tools.asked.in_flight import present
from rkllm_mcp.tools.servers import ServerSpec

if TYPE_CHECKING:
    from mcp import MCPError
    from mcp.client.session import ClientRequestContext, ElicitationFnT
    from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

# Attempts at a form whose content does not fit the schema; bounds a loop with a program as approver.
_ATTEMPTS = 3
_CANCEL = ElicitationAnswer("cancel")


def elicitation_of(
    spec: ServerSpec, in_flight: Sequence[CallContext], note: Callable[[str], None]
) -> ElicitationFnT | None:
    """Return the elicitation callback of a server; None if the configuration denies elicitation."""
    if spec.elicitation == "deny":
        return None

    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        from mcp_types import ElicitResult

        del context
        try:
            answer = await _answer(spec, params, present(in_flight))
        except Exception as error:  # noqa: BLE001  (a callback that raises would break the call it belongs to)
            note(f"(its elicitation request failed: {error})")
            answer = _CANCEL
        if answer.action != "accept":
            note(f"(its elicitation request was not answered: {params.message})".replace("\n", " "))
        content: Any = dict(answer.content) if answer.action == "accept" and params.mode == "form" else None
        return ElicitResult(action=answer.action, content=content)

    return elicit


async def visited(error: MCPError, spec: ServerSpec, context: CallContext) -> bool:
    """Present the URLs of a URLElicitationRequiredError (2025-11-25).

    Return True if ``error`` is one and the user has opened all URLs: the call can then be repeated.
    """
    from mcp_types import URL_ELICITATION_REQUIRED, ElicitationRequiredErrorData
    from pydantic import ValidationError

    if error.error.code != URL_ELICITATION_REQUIRED or spec.elicitation != "ask":
        return False
    try:
        requests = ElicitationRequiredErrorData.model_validate(error.error.data).elicitations
    except ValidationError:
        return False
    for request in requests:
        if (await _show_url(spec.name, request, context)).action != "accept":
            return False
    return bool(requests)


async def _answer(spec: ServerSpec, params: ElicitRequestParams, context: CallContext | None) -> ElicitationAnswer:
    if params.mode == "url":
        if spec.elicitation == "defaults":
            return ElicitationAnswer("decline")
        return await _show_url(spec.name, params, context)
    if spec.elicitation == "defaults":
        return _defaults(params)
    return await _fill_form(spec.name, params, context)


def _defaults(params: ElicitRequestFormParams) -> ElicitationAnswer:
    content = filled(params.requested_schema, {})
    if problems(params.requested_schema, content):
        return ElicitationAnswer("decline")
    return ElicitationAnswer("accept", content)


async def _show_url(server: str, params: ElicitRequestURLParams, context: CallContext | None) -> ElicitationAnswer:
    if context is None or urlsplit(params.url).scheme not in ("http", "https"):
        return _CANCEL
    return await _ask(context, Elicitation("", server, params.message, {}, params.url))


async def _fill_form(server: str, params: ElicitRequestFormParams, context: CallContext | None) -> ElicitationAnswer:
    if context is None:
        return _CANCEL
    schema = params.requested_schema
    question = Elicitation("", server, params.message, schema)
    for _ in range(_ATTEMPTS):
        answer = await _ask(context, question)
        if answer.action != "accept":
            return answer
        content = filled(schema, answer.content)
        wrong = problems(schema, content)
        if not wrong:
            return ElicitationAnswer("accept", content)
        question = replace(question, message="\n".join((params.message, *wrong)))
    return _CANCEL


async def _ask(context: CallContext, question: Elicitation) -> ElicitationAnswer:
    asker: Asker = context.asker
    with context.pause():
        return await asker.elicit(question)
