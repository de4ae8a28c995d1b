"""The answers under way: each is a task of its own that writes its events into a bounded stream.

So whoever reads them may leave at any moment: leaving cancels the task and waits until it is over, the NPU free again
and the conversation in order. One conversation has one answer at a time. It knows neither models nor tools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from rkllm_mcp.agent.bill import Bill
from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.events import End, Event
from rkllm_mcp.messages import Conversation

logger = logging.getLogger(__name__)

# What an answer consists of: it sends its events, the last one an ``End``.
Work: TypeAlias = Callable[[Emit], Awaitable[None]]

# Events that an answer may be ahead of its reader; a full buffer slows the answer, it never drops anything.
EVENTS_AHEAD = 256


@dataclass
class _Job:
    """One answer under way."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)


class AnswersUnderWay:
    """The answers of one assistant.

    Args:
        tasks: where they run.
        bill: counts what they cost.
    """

    def __init__(self, tasks: TaskGroup, bill: Bill) -> None:
        self._tasks = tasks
        self._bill = bill
        self._jobs: dict[str, _Job] = {}
        self._is_closed = False
        self._idle = anyio.Event()

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._jobs

    async def stream(self, conversation: Conversation, work: Work) -> AsyncGenerator[Event, None]:
        """The events of an answer, an ``End`` last; consume it under ``aclosing``.

        Args:
            conversation: what it answers.
            work: sends the events. What it raises becomes a failed ``End``.

        Raises:
            UsageError: the conversation has an answer under way, or there are to be no more.
        """
        if conversation.id in self._jobs:
            raise UsageError("this conversation has an answer under way; wait for it or cancel it")
        if self._is_closed:
            raise UsageError("this assistant is closed; ask while its 'async with open_app(...)' block runs")
        send, receive = anyio.create_memory_object_stream[Event](EVENTS_AHEAD)
        job = self._jobs[conversation.id] = _Job()
        self._tasks.start_soon(self._run, conversation, work, send, job)
        try:
            with receive:
                async for event in receive:
                    yield event
                    if isinstance(event, End):
                        return
            # Stopped: the task that made the answer may not wait for a reader any more, so the reader says it.
            yield End("cancelled")
        finally:
            job.scope.cancel()
            with anyio.CancelScope(shield=True):
                # Bounded: everything that the answer may be in, a run, a tool, a connection, has a limit of its own.
                await job.done.wait()

    def cancel(self, conversation_id: str) -> bool:
        """Stop an answer; its stream closes with ``End("cancelled")``. False when there is none."""
        job = self._jobs.get(conversation_id)
        if job is None:
            return False
        job.scope.cancel()
        return True

    async def stopped(self, conversation_id: str) -> None:
        """Stop an answer and wait until it is over, kept what there was of it; nothing happens when there is none."""
        if (job := self._jobs.get(conversation_id)) is not None:
            job.scope.cancel()
            await job.done.wait()

    async def idle(self) -> None:
        """Wait until there is none; there may be again by the time that the caller runs."""
        while self._jobs:
            self._idle = anyio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """Take no more."""
        self._is_closed = True

    async def _run(
        self, conversation: Conversation, work: Work, send: MemoryObjectSendStream[Event], job: _Job
    ) -> None:
        async def emit(event: Event) -> None:
            count(event)
            await send.send(event)

        try:
            with self._bill.of(conversation) as count, job.scope:
                await _worked(emit, work)
        except anyio.BrokenResourceError:
            pass  # the reader has left; there is nobody to tell
        finally:
            send.close()
            del self._jobs[conversation.id]
            job.done.set()
            if not self._jobs:
                self._idle.set()


async def _worked(emit: Emit, work: Work) -> None:
    try:
        await work(emit)
    except RkllmMcpError as error:
        await emit(End("failed", str(error), error))
    except anyio.BrokenResourceError:
        raise
    except Exception as error:
        # A mistake of ours must cost this answer, not the service and everybody else's answers.
        logger.exception("an answer failed")
        await emit(End("failed", f"internal error: {error!r}; please report it with the output of --debug", error))
