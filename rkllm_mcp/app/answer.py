"""``Answer``: one answer of the assistant, from its first event to its ``End``.

    rounds, tools ─▶ Answer.feed ─▶ step.feed ─▶ step.feed ─▶ … ─▶ sink.feed

The steps are plain objects that never wait; the sink is the reader's: the stream of an HTTP response, or the queue of a
generator. An answer is saved before its ``End`` is fed, and cancelled by its ``CancelScope`` alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import anyio.lowlevel

from rkllm_mcp.agent.markup_filter import MarkupFilter
from rkllm_mcp.agent.usage import AnswerUsage, UsageCounter
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.conversations.recorder import AnswerRecord
from rkllm_mcp.errors import PromptTooLongError, RkllmMcpError, UsageError
from rkllm_mcp.events import End, Event, Status
from rkllm_mcp.messages import Conversation, Ending
from rkllm_mcp.protocols import EventSink, Step, feed_through
from rkllm_mcp.text import Language

logger = logging.getLogger(__name__)

# Batches that an answer may be ahead of the reader of a generator before its next round.
BATCHES_AHEAD = 256


class EventQueue:
    """The sink of an answer whose reader is a generator."""

    def __init__(self) -> None:
        self._batches: list[Sequence[Event]] = []
        self._news = asyncio.Event()
        self._space = asyncio.Event()
        self._is_closed = False

    def feed(self, batch: Sequence[Event]) -> None:
        """Add the events."""
        self._batches.append(batch)
        self._news.set()

    async def drain(self) -> None:
        """Wait while the reader has too many events to take."""
        while len(self._batches) > BATCHES_AHEAD and not self._is_closed:
            self._space.clear()
            await self._space.wait()

    def close(self) -> None:
        """Note that no more events follow."""
        self._is_closed = True
        self._news.set()
        self._space.set()

    async def next_events(self) -> list[Event]:
        """Wait for the next events and return them; none after ``close``."""
        while not self._batches and not self._is_closed:
            self._news.clear()
            await self._news.wait()
        batches, self._batches = self._batches, []
        self._space.set()
        return [event for batch in batches for event in batch]


class Answer:
    """One answer; rounds, tools and approvals feed their events to it.

    Args:
        conversation: the conversation.
        sink: the reader's.
        usage: counts the tokens.
        on_end: called once the conversation is free for the next question, before the ``End`` is fed.
        steps: further steps, before the sink.
        markup: the first step of an answer that may have no tools.
        record: saves the answer.
        language: the person's, of status lines and errors.
    """

    def __init__(
        self,
        conversation: Conversation,
        sink: EventSink,
        usage: UsageCounter,
        on_end: Callable[[], None],
        steps: Sequence[Step] = (),
        markup: MarkupFilter | None = None,
        record: AnswerRecord | None = None,
        language: Language = "en",
    ) -> None:
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.conversation = conversation
        # Set by the maker of the answer.
        self.end: End | None = None
        self.markup = markup
        self.record = record
        self.sink = sink
        self._usage = AnswerUsage(conversation, usage)
        self._on_end = on_end
        self._catalogue = None if language == "en" else read_catalogue(language)
        own_steps = (markup, self._usage, record)
        self._steps: list[Step] = [*(step for step in own_steps if step is not None), *steps]
        # ``is_ending``: its ``End`` is decided, which a cancellation does not change any more.
        self.is_ending = self._is_saved = False
        # The reason of its ``End`` if its scope is cancelled.
        self.cancelled_as: Literal["cancelled", "interrupted"] = "cancelled"
        # Called when no more events follow, also if the caller was cancelled.
        self.on_close: Callable[[], None] | None = None

    def feed(self, batch: Sequence[Event]) -> None:
        """Pass events, in the person's language, through the steps to the sink."""
        if self._catalogue is not None:
            batch = [self._catalogue.told(event) for event in batch]
        for step in self._steps:
            batch = step.feed(batch)
            if not batch:
                return
        self.sink.feed(batch)

    async def drain(self) -> None:
        """Do the input and output that is due, and wait until the reader has taken the events."""
        for step in self._steps:
            await step.settle()
        await self.sink.drain()

    @asynccontextmanager
    async def making(self) -> AsyncGenerator[Answer, None]:
        """Make the answer in this block, which sets ``end``; an exception becomes a failed ``End``.

        Afterwards the answer is saved and its ``End`` is fed, also if its scope was cancelled, but not if the caller
        was.
        """
        try:
            try:
                with self.scope:
                    # An answer that was cancelled before it began is not saved.
                    self._is_saved = self.scope.cancel_called
                    try:
                        yield self
                    except RkllmMcpError as error:
                        self.end = End("failed", str(error), error)
                    except Exception as error:
                        # A defect costs this answer, not the service and the answers of others.
                        logger.exception("an answer failed")
                        text = f"internal error: {error!r}; please report it with the output of --debug"
                        self.end = End("failed", text, error)
                    # ``cancel`` returned True if it came before this.
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    self.is_ending = True
                    for number, step in enumerate(self._steps, 1):
                        feed_through(self._steps[number:], step.finish(), self.sink)
                    end = self.end or End("failed")
                    await self._save(end.reason, is_refused=isinstance(end.cause, PromptTooLongError))
            finally:
                self._usage.close()
                if not self._is_saved:
                    await self._save(self.cancelled_as)
                self._on_end()
                self.done.set()
            self.feed(((self.end if self.is_ending else None) or End(self.cancelled_as),))
        finally:
            if self.on_close is not None:
                self.on_close()

    async def _save(self, ending: Ending, *, is_refused: bool = False) -> None:
        self._is_saved = True
        if self.record is not None and (notice := await self.record.save(ending, is_refused=is_refused)):
            self.feed((Status(notice),))


class OpenAnswers:
    """The answers of one assistant that are being made, one for a conversation at most."""

    def __init__(self) -> None:
        self._by_conversation: dict[str, Answer] = {}
        self._idle = anyio.Event()
        self._is_closed = False

    def __bool__(self) -> bool:
        return bool(self._by_conversation)

    def check_free(self, conversation: Conversation) -> None:
        """Refuse a question to a conversation with an answer, and every question after ``close``.

        Raises:
            UsageError: the conversation has a running answer, or the assistant is closed.
        """
        if conversation.id in self._by_conversation:
            raise UsageError("this conversation has an answer under way; wait for it or cancel it")
        if self._is_closed:
            raise UsageError("this assistant is closed; ask while its 'async with open_app(...)' block runs")

    def add(self, answer: Answer) -> None:
        """Add an answer; from now on its conversation has a running one."""
        self._by_conversation[answer.conversation.id] = answer

    def remove(self, conversation_id: str) -> None:
        """Remove an answer that has ended."""
        del self._by_conversation[conversation_id]
        if not self._by_conversation:
            self._idle.set()

    def is_making(self, conversation_id: str) -> bool:
        """Return True if a conversation has a running answer."""
        return conversation_id in self._by_conversation

    def cancel(self, conversation_id: str) -> bool:
        """Cancel a running answer, whose last event is ``End("cancelled")``; False if it has ended."""
        answer = self._by_conversation.get(conversation_id)
        if answer is None or answer.is_ending:
            return False
        answer.scope.cancel()
        return True

    async def stop(self, conversation_id: str) -> None:
        """Cancel the running answer, if any, and wait until it is over and saved."""
        if (answer := self._by_conversation.get(conversation_id)) is not None:
            answer.scope.cancel()
            await answer.done.wait()

    async def idle(self) -> None:
        """Wait until no answer runs; the next one may begin before the caller goes on."""
        while self._by_conversation:
            self._idle = anyio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """Cancel every answer, whose last event is ``End("interrupted")``, and take no more."""
        self._is_closed = True
        for answer in self._by_conversation.values():
            if not answer.scope.cancel_called:
                answer.cancelled_as = "interrupted"
            answer.scope.cancel()
