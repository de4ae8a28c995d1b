"""Approval and elicitation requests that wait for the user.

A request goes out as an event with an id on the answer's stream; the response comes back with that id, from the
terminal or an HTTP request. A request without a response in time is refused; one whose answer was stopped is dropped.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import anyio

from rkllm_mcp.elicitation import fields_of
from rkllm_mcp.errors import StoreError
from rkllm_mcp.events import Approval, Elicitation, QuestionAnswered, event_to_dict
from rkllm_mcp.protocols import Approver, Decision, ElicitationAnswer, EventSink, FixedApprover, SharedQuestions
from rkllm_mcp.tasks import open_task_group

# How long a request that is over waits for the database.
_CLOSE_S = 2.0

PendingRequest: TypeAlias = Approval | Elicitation


@dataclass(eq=False)
class PendingRequests:
    """The open requests of one assistant; each waits ``patience_s`` seconds for its response.

    Where several boards share a database, ``shared`` has the requests of the tenant for the others.
    """

    patience_s: float = 300.0
    shared: SharedQuestions | None = None
    tenant: str = ""
    _open: dict[str, tuple[PendingRequest, asyncio.Future[Decision | ElicitationAnswer]]] = field(
        default_factory=dict[str, "tuple[PendingRequest, asyncio.Future[Decision | ElicitationAnswer]]"], init=False
    )
    _settled: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event], init=False)

    def open(self) -> tuple[PendingRequest, ...]:
        """Return the open requests, oldest first."""
        # A request with its response stays until ``ask`` runs again: a second response would seem to count.
        return tuple(question for question, answer in self._open.values() if not answer.done())

    def respond(self, question_id: str, response: Decision | ElicitationAnswer) -> bool:
        """Respond to an approval request or, with an answer to one, to an elicitation request.

        Returns:
            False if no request of that kind with this id is open.
        """
        question, answer = self._open.get(question_id, (None, None))
        if (
            answer is None
            or answer.done()
            or isinstance(question, Elicitation) != isinstance(response, ElicitationAnswer)
        ):
            return False
        answer.set_result(response)
        return True

    async def wait_until_settled(self, question_id: str) -> None:
        """Wait until a request is closed: answered, timed out, or its answer was stopped."""
        if question_id in self._open:
            await self._settled.setdefault(question_id, anyio.Event()).wait()

    async def ask(
        self, sink: EventSink, question: PendingRequest, limit_s: float | None = None, id_prefix: str = ""
    ) -> Decision | ElicitationAnswer | None:
        """Feed a request with its id to ``sink`` and wait for the response; return None if there was none in time.

        A random part of the id follows ``id_prefix``.
        """
        limit_s = min(self.patience_s, limit_s or self.patience_s)
        began, call = time.monotonic(), question.id
        # A number would come again after a restart and on another board: a late yes would be one to another call.
        question = replace(question, id=f"question_{id_prefix}{secrets.token_hex(8)}", refused_at=began + limit_s)
        answer: asyncio.Future[Decision | ElicitationAnswer] = asyncio.get_running_loop().create_future()
        self._open[question.id] = (question, answer)
        try:
            sink.feed([question])
            response = None
            with anyio.move_on_after(limit_s):
                fields = fields_of(question.schema) if isinstance(question, Elicitation) else ()
                # The answer to a form with secret fields is not stored.
                if self.shared is None or any(field.is_secret for field in fields):
                    response = await answer
                else:
                    # It may be given at another board.
                    async with open_task_group() as tasks:
                        tasks.start_soon(self._hear, self.shared, question, limit_s)
                        try:
                            response = await answer
                        finally:
                            tasks.cancel_scope.cancel()
                            with anyio.move_on_after(_CLOSE_S, shield=True), suppress(StoreError):
                                await self.shared.close(self.tenant, question.id)
        finally:
            del self._open[question.id]
            self._settled.pop(question.id, anyio.Event()).set()
        action = response.action if isinstance(response, ElicitationAnswer) else response or "late"
        content = without_secrets(question, response)
        sink.feed([QuestionAnswered(question.id, call, action, content, round(time.monotonic() - began, 1))])
        return response

    async def _hear(self, shared: SharedQuestions, question: PendingRequest, limit_s: float) -> None:
        """Show the question at the other boards, and take the answer of one of them."""
        is_shown = False
        while True:
            with suppress(StoreError):
                if not is_shown:
                    await shared.ask(self.tenant, question.id, event_to_dict(question), limit_s)
                    is_shown = True
                if (answer := await shared.answer_to(self.tenant, question.id)) is not None:
                    is_form = isinstance(question, Elicitation)
                    response = ElicitationAnswer(answer["action"], answer["content"]) if is_form else answer
                    self.respond(question.id, response)
            await shared.wait_for_change(question.id)


def without_secrets(question: PendingRequest, response: Decision | ElicitationAnswer | None) -> Mapping[str, Any]:
    """Return the content of a form without its secret fields; nothing for other answers."""
    if not isinstance(question, Elicitation) or not isinstance(response, ElicitationAnswer):
        return {}
    secret = {field.name for field in fields_of(question.schema) if field.is_secret}
    return {name: value for name, value in response.content.items() if name not in secret}


@dataclass(eq=False)
class StreamApprover:
    """An ``Approver`` that feeds the requests of one answer to its stream.

    Entered for the answer: leaving it closes open requests, also those of a server that ignores the cancellation of
    its call.
    """

    questions: PendingRequests
    sink: EventSink
    limit_s: float | None = None
    id_prefix: str = ""
    _open: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope], init=False)
    _is_over: bool = field(default=False, init=False)

    def __enter__(self) -> StreamApprover:
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        for scope in self._open:
            scope.cancel()

    async def approve(self, question: Approval) -> Decision | None:
        """Return the user's decision; None if there was none in time."""
        return cast("Decision | None", await self._response_to(question))

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Return the form's content; ``cancel`` if there was no response in time."""
        return cast("ElicitationAnswer | None", await self._response_to(question)) or ElicitationAnswer("cancel")

    async def _response_to(self, question: PendingRequest) -> Decision | ElicitationAnswer | None:
        with anyio.CancelScope() as scope:
            if self._is_over:
                return None
            self._open.add(scope)
            try:
                return await self.questions.ask(self.sink, question, self.limit_s, self.id_prefix)
            finally:
                self._open.discard(scope)
        return None


class FormApprover(FixedApprover):
    """Refuses every call with ``advice``, and leaves servers' forms to ``forms``."""

    def __init__(self, forms: Approver, advice: str) -> None:
        super().__init__("deny", advice)
        self.elicit = forms.elicit
