"""An answer on its way to a person: its events are shown, its questions asked, its silence explained.

Rules: questions are asked one after the other, in the order in which they came; one that is not waited for any more is
taken off the screen; who leaves a question has said no and stops the answer. After a while without an event, one line
says how much the NPU is reading; that is a timer, nothing looks again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.calling import Decision, ElicitationAnswer
from rkllm_mcp.events import Approval, Elicitation, End, EndReason, Event
from rkllm_mcp.surfaces.inquiry import NO_ANSWER, Inquirer, InquiryLeftError
from rkllm_mcp.surfaces.phrases import ENGLISH, Phrases
from rkllm_mcp.surfaces.terminal import YELLOW, Terminal

if TYPE_CHECKING:
    from rkllm_mcp.app import App

# Shorter silences are nothing to wonder about, seconds.
SILENCE_S = 2.0


class Answering:
    """Shows answers to a person.

    Args:
        app: who answers.
        terminal: where the lines around an answer go.
        inquirer: asks the person; None where nobody can be asked, and nothing is.
        silence_s: how long nothing may happen before a line says what is going on, seconds.
        phrases: in which words.
    """

    def __init__(
        self,
        app: App,
        terminal: Terminal,
        inquirer: Inquirer | None = None,
        silence_s: float = SILENCE_S,
        phrases: Phrases = ENGLISH,
    ) -> None:
        self._app = app
        self._terminal = terminal
        self._inquirer = inquirer
        self._silence_s = silence_s
        self._phrases = phrases
        # An answer came for a question that nobody waited for any more.
        self._is_late = False

    async def follow(
        self, conversation_id: str, events: AsyncGenerator[Event, None], show: Callable[[Event], None]
    ) -> EndReason:
        """Show an answer to its end; how it ended.

        Args:
            conversation_id: whose answer it is.
            events: the answer.
            show: shows an event that is no question.
        """
        reason: EndReason = "failed"
        silence = _Silence(self._silence_s, lambda: self._explain_silence(conversation_id))
        try:
            async with aclosing(events):
                silence.begin()
                async for event in events:
                    silence.over()
                    self._tell_late(event)
                    if isinstance(event, (Approval, Elicitation)) and self._inquirer is not None:
                        await self._ask(conversation_id, event, self._inquirer)
                    else:
                        show(event)
                    reason = event.reason if isinstance(event, End) else reason
                    silence.begin()
        finally:
            silence.over()
        return reason

    def _explain_silence(self, conversation_id: str) -> None:
        reading = self._app.reading(conversation_id)
        if reading is None or not self._terminal.shows_progress:
            return
        is_long = reading.seconds is not None and reading.seconds >= 1
        share = self._phrases.about.format(seconds=f"{reading.seconds:.0f}") if is_long else ""
        self._terminal.note(self._phrases.reading.format(tokens=reading.tokens, share=share))

    async def _ask(self, conversation_id: str, question: Approval | Elicitation, inquirer: Inquirer) -> None:
        answer: Decision | ElicitationAnswer | None = None
        has_left = False
        async with anyio.create_task_group() as asking:

            async def take_away() -> None:
                await self._app.settled(question.id)
                asking.cancel_scope.cancel()

            asking.start_soon(take_away)
            try:
                is_call = isinstance(question, Approval)
                answer = await (inquirer.approve(question) if is_call else inquirer.elicit(question))
            except InquiryLeftError:
                has_left = True
            asking.cancel_scope.cancel()
        if has_left:
            self._answer(question, None)
            self._app.cancel(conversation_id)
        elif answer is None or not self._answer(question, answer):
            self._is_late = True

    def _tell_late(self, event: Event) -> None:
        """Say that a question was taken back, unless the person did that by stopping the answer."""
        was_stopped = isinstance(event, End) and event.reason == "cancelled"
        if self._is_late and not was_stopped:
            self._terminal.error(self._phrases.too_late, YELLOW)
        self._is_late = False

    def _answer(self, question: Approval | Elicitation, answer: Decision | ElicitationAnswer | None) -> bool:
        """Hand the answer over; no answer is a no. False when nobody waits for it."""
        if isinstance(question, Approval):
            return self._app.decide(question.id, "deny" if isinstance(answer, ElicitationAnswer) else answer or "deny")
        return self._app.fill(question.id, answer if isinstance(answer, ElicitationAnswer) else NO_ANSWER)


class _Silence:
    """Says something once when nothing has happened for a while.

    Args:
        after_s: how long, seconds.
        say: says it.
    """

    def __init__(self, after_s: float, say: Callable[[], None]) -> None:
        self._after_s = after_s
        self._say = say
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """From here on it is silent."""
        self._timer = asyncio.get_running_loop().call_later(self._after_s, self._say)

    def over(self) -> None:
        """Something has happened."""
        if self._timer is not None:
            self._timer.cancel()
