"""A server's questions to its owner: a form to fill or an address to open, asked of whoever watches the call.

Rules: an accepted form has the schema's defaults where nothing was entered, and fits the schema, or it is asked again;
an address is shown and never opened; nothing is answered while the server runs no call. A callback never raises.

Followed: MCP 2025-11-25 and 2026-07-28, client features, elicitation.
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

# How often a form is asked again whose answer does not fit; an asker that never learns must not be asked for ever.
_ATTEMPTS = 3
_CANCEL = ElicitationAnswer("cancel")


def elicitation_of(
    spec: ServerSpec, in_flight: Sequence[CallContext], note: Callable[[str], None]
) -> ElicitationFnT | None:
    """What answers a server's questions; None when the configuration says that nobody does.

    Args:
        spec: who asks, and who answers it.
        in_flight: the calls under way on its connection, whose askers are asked.
        note: called with a line about a question that came to nothing.
    """
    if spec.elicitation == "deny":
        return None

    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        from mcp_types import ElicitResult

        del context
        try:
            answer = await _answer(spec, params, present(in_flight))
        except Exception as error:  # noqa: BLE001  (a callback that raises would break the call it belongs to)
            note(f"(its question could not be asked: {error})")
            answer = _CANCEL
        if answer.action != "accept":
            note(f"(its question was not answered: {params.message})".replace("\n", " "))
        content: Any = dict(answer.content) if answer.action == "accept" and params.mode == "form" else None
        return ElicitResult(action=answer.action, content=content)

    return elicit


async def visited(error: MCPError, spec: ServerSpec, context: CallContext) -> bool:
    """Have the addresses opened that a server of 2025-11-25 wants visited before it runs a call.

    Args:
        error: what the server answered instead.
        spec: the server, and who answers its questions.
        context: the call's circumstances.

    Returns:
        whether that was what it wanted, and somebody has opened all of them: then the call can be made again.
    """
    from mcp_types import URL_ELICITATION_REQUIRED, ElicitationRequiredErrorData
    from pydantic import ValidationError

    if error.error.code != URL_ELICITATION_REQUIRED or spec.elicitation != "ask":
        return False
    try:
        wanted = ElicitationRequiredErrorData.model_validate(error.error.data).elicitations
    except ValidationError:
        return False
    for address in wanted:
        if (await _shown_address(spec.name, address, context)).action != "accept":
            return False
    return bool(wanted)


async def _answer(spec: ServerSpec, params: ElicitRequestParams, context: CallContext | None) -> ElicitationAnswer:
    if params.mode == "url":
        if spec.elicitation == "defaults":
            return ElicitationAnswer("decline")
        return await _shown_address(spec.name, params, context)
    if spec.elicitation == "defaults":
        return _defaults(params)
    return await _filled_form(spec.name, params, context)


def _defaults(params: ElicitRequestFormParams) -> ElicitationAnswer:
    content = filled(params.requested_schema, {})
    if problems(params.requested_schema, content):
        return ElicitationAnswer("decline")
    return ElicitationAnswer("accept", content)


async def _shown_address(server: str, params: ElicitRequestURLParams, context: CallContext | None) -> ElicitationAnswer:
    if context is None or urlsplit(params.url).scheme not in ("http", "https"):
        return _CANCEL
    return await _ask(context, Elicitation("", server, params.message, {}, params.url))


async def _filled_form(server: str, params: ElicitRequestFormParams, context: CallContext | None) -> ElicitationAnswer:
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
