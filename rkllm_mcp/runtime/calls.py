"""Calls: what is asked of a loaded model besides runs, and what of it a new worker has to be told again.

The worker answers in the order of asking, behind the run under way. A call that leaves something standing (an adapter,
a template, tools) is kept by name and repeated when another worker takes over, before any run, so that a crash changes
no answer after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from rkllm_mcp.errors import CALL, RkllmMcpError, RunRejectedError
from rkllm_mcp.runtime.commands import CallCommand, pack_call
from rkllm_mcp.runtime.frames import Answer

# Without what this call gives, answers are the same.
_SAVES_TIME_ONLY = "load_prompt_cache"


@dataclass(frozen=True)
class _Awaited:
    """A call under way; nobody waits for the value of one that is repeated."""

    command: CallCommand
    keep: str
    value: asyncio.Future[int | None] | None


class Calls:
    """The calls of one engine."""

    def __init__(self) -> None:
        self._awaited: deque[_Awaited] = deque()
        self._standing: dict[str, CallCommand] = {}
        self._refusals: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._awaited)

    @property
    def is_repeating(self) -> bool:
        """Whether a new worker has not yet taken all that stands."""
        return any(awaited.value is None for awaited in self._awaited)

    @property
    def standing(self) -> tuple[str, ...]:
        """The names of what stands, in the order in which it was set."""
        return tuple(self._standing)

    def check(self) -> None:
        """Refuse runs that would not be what was asked for.

        Raises:
            RunRejectedError: a new worker did not take what had been set before.
        """
        for name, reason in self._refusals.items():
            raise RunRejectedError(f"after its restart it refused {name}: {reason}")

    def ask(self, send: Callable[[bytes], None], command: CallCommand, *, keep: str = "") -> asyncio.Future[int | None]:
        """Call; the value comes with the future.

        Args:
            send: sends a frame to the worker.
            command: the call.
            keep: where it has an effect that stands, what to call that; it replaces the last of that name.

        The future raises RunRejectedError when the runtime refused, and WorkerDiedError when the worker died before it
        answered. Whoever awaits it shields it: what was asked happens all the same.
        """
        value: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._awaited.append(_Awaited(command, keep, value))
        send(pack_call(command))
        return value

    def drop(self, name: str) -> None:
        """Repeat it no more."""
        self._standing.pop(name, None)
        self._refusals.pop(name, None)

    def repeat(self, send: Callable[[bytes], None]) -> None:
        """Tell a new worker what stands."""
        self._refusals.clear()
        for name, command in self._standing.items():
            self._awaited.append(_Awaited(command, name, None))
            send(pack_call(command))

    def answered(self, answer: Answer) -> None:
        """The oldest call got its answer."""
        awaited = self._awaited.popleft()
        if awaited.keep and not answer.failure:
            self.drop(awaited.keep)
            self._standing[awaited.keep] = awaited.command
        elif awaited.value is None and awaited.command.name == _SAVES_TIME_ONLY:
            self.drop(awaited.keep)
        elif awaited.value is None:
            self._refusals[awaited.keep] = answer.failure
        if awaited.value is None or awaited.value.done():
            return
        if answer.failure:
            _raise_from(awaited.value, RunRejectedError(answer.failure, task=CALL))
        else:
            awaited.value.set_result(answer.value)

    def fail(self, error: RkllmMcpError) -> None:
        """No call that is awaited will be answered."""
        for awaited in self._awaited:
            if awaited.value is not None and not awaited.value.done():
                failure = copy(error)
                if isinstance(failure, RunRejectedError):
                    failure.task = CALL
                _raise_from(awaited.value, failure)
            elif awaited.value is None and awaited.command.name == _SAVES_TIME_ONLY:
                # Maybe the worker died of it, and then the next one would.
                self.drop(awaited.keep)
        self._awaited.clear()


def _raise_from(value: asyncio.Future[int | None], error: RkllmMcpError) -> None:
    value.set_exception(error)
    # Whoever asked may have left; that is no mistake, so asyncio need not report an error that nobody fetched.
    value.exception()
