"""The questions that wait for a person: asked on an answer's stream, answered from wherever the person is.

A question goes out as an event with an id; the answer comes back by that id, from a terminal's prompt or an HTTP
request. A question that nobody answers in time is refused, and one whose answer was stopped is forgotten.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import TypeAlias, cast

import anyio

from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.protocols import Decision, ElicitationAnswer, EmitEvents

PendingRequest: TypeAlias = Approval | Elicitation

NO_APPROVER = ElicitationAnswer("cancel")


class PendingRequests:
    """All open questions of an assistant.

    Args:
        patience_s: how long a question waits for its answer, seconds.
    """

    def __init__(self, patience_s: float = 300.0) -> None:
        self.patience_s = patience_s
        self._numbers = count(1)
        self._open: dict[str, tuple[PendingRequest, asyncio.Future[Decision | ElicitationAnswer]]] = {}
        self._settled: dict[str, anyio.Event] = {}

    def open(self) -> tuple[PendingRequest, ...]:
        """The questions that wait, oldest first."""
        return tuple(question for question, _ in self._open.values())

    def decide(self, question_id: str, decision: Decision) -> bool:
        """Answer a question for approval; False when no such question waits."""
        return self._answer(question_id, Approval, decision)

    def fill(self, question_id: str, answer: ElicitationAnswer) -> bool:
        """Answer a server's question; False when no such question waits."""
        return self._answer(question_id, Elicitation, answer)

    async def settled(self, question_id: str) -> None:
        """Wait until a question does not wait any more: answered, too late, or its answer was stopped."""
        if question_id in self._open:
            await self._settled.setdefault(question_id, anyio.Event()).wait()

    async def ask(self, emit: EmitEvents, question: PendingRequest) -> Decision | ElicitationAnswer | None:
        """Put a question on a stream and wait for its answer; None when there was none in time.

        The question gets an id of its own here.
        """
        question = replace(question, id=f"question_{next(self._numbers)}")
        answer: asyncio.Future[Decision | ElicitationAnswer] = asyncio.get_running_loop().create_future()
        self._open[question.id] = (question, answer)
        try:
            await emit([question])
            with anyio.move_on_after(self.patience_s):
                return await answer
            return None
        finally:
            del self._open[question.id]
            self._settled.pop(question.id, anyio.Event()).set()

    def _answer(self, question_id: str, kind: type[PendingRequest], value: Decision | ElicitationAnswer) -> bool:
        question, answer = self._open.get(question_id, (None, None))
        if answer is None or not isinstance(question, kind) or answer.done():
            return False
        answer.set_result(value)
        return True


class StreamApprover:
    """The asker of one answer: its questions go on the answer's stream.

    It is entered for the answer: what is still asked when that is over is forgotten, also by a server that does not
    hear that its call was given up.

    Args:
        questions: where the answers come in.
        emit: the answer's stream.
    """

    def __init__(self, questions: PendingRequests, emit: EmitEvents) -> None:
        self._questions = questions
        self._emit = emit
        self._open: set[anyio.CancelScope] = set()
        self._is_over = False

    def __enter__(self) -> StreamApprover:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        for scope in self._open:
            scope.cancel()

    async def approve(self, question: Approval) -> Decision | None:
        """The person's decision; None when there is none in time."""
        return cast("Decision | None", await self._asked(question))

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """What the person filled in; ``cancel`` when nothing came in time."""
        return cast("ElicitationAnswer | None", await self._asked(question)) or NO_APPROVER

    async def _asked(self, question: PendingRequest) -> Decision | ElicitationAnswer | None:
        with anyio.CancelScope() as scope:
            if self._is_over:
                return None
            self._open.add(scope)
            try:
                return await self._questions.ask(self._emit, question)
            finally:
                self._open.discard(scope)
        return None
