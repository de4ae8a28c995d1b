"""Calls on the model between two runs, and the lasting settings that they made."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field

from rkllm_mcp.errors import CALL, RkllmMcpError, RunRejectedError
from rkllm_mcp.runtime.frames import CallCommand, CallReply, pack

# This call saves time and does not change answers.
_SAVES_TIME_ONLY = "load_prompt_cache"


@dataclass(frozen=True)
class _PendingCall:
    """A call without a reply; ``value`` is None for one that restores a setting on a new worker."""

    command: CallCommand
    setting: str
    value: asyncio.Future[int | None] | None


@dataclass(eq=False)
class Calls:
    """Calls of one engine, and the settings they made."""

    _pending: deque[_PendingCall] = field(default_factory=deque[_PendingCall])
    # By name, in the order in which they were made.
    settings: dict[str, CallCommand] = field(default_factory=dict[str, CallCommand])
    _refusals: dict[str, str] = field(default_factory=dict[str, str])

    def __bool__(self) -> bool:
        """True while a reply is pending."""
        return bool(self._pending)

    @property
    def is_restoring(self) -> bool:
        """True while a new worker has not confirmed all settings."""
        return any(call.value is None for call in self._pending)

    def check(self) -> None:
        """Raise RunRejectedError if a new worker refused a setting that had been made before."""
        for name, reason in self._refusals.items():
            raise RunRejectedError(f"after its restart it refused {name}: {reason}")

    def ask(
        self, send: Callable[[bytes], None], command: CallCommand, *, setting: str = ""
    ) -> asyncio.Future[int | None]:
        """Send a call; return the future of its value.

        ``setting`` names a lasting setting; it replaces the previous one of that name and is restored on a new worker.
        The future raises RunRejectedError if the runtime refused, and WorkerDiedError if the worker died first. Shield
        it when awaiting: the call happens in any case.
        """
        value: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingCall(command, setting, value))
        send(pack(command))
        return value

    def drop(self, name: str) -> None:
        """Forget a setting."""
        self.settings.pop(name, None)
        self._refusals.pop(name, None)

    def restore(self, send: Callable[[bytes], None]) -> None:
        """Send all settings to a new worker."""
        self._refusals.clear()
        for name, command in self.settings.items():
            self._pending.append(_PendingCall(command, name, None))
            send(pack(command))

    def on_reply(self, answer: CallReply) -> None:
        """Resolve the oldest call; ignore a reply to one that has failed already."""
        if not self._pending:
            # A worker that unloads its model still replies to earlier requests.
            return
        call = self._pending.popleft()
        if call.setting and not answer.failure:
            self.drop(call.setting)
            self.settings[call.setting] = call.command
        elif call.value is None and call.command.name == _SAVES_TIME_ONLY:
            self.drop(call.setting)
        elif call.value is None:
            self._refusals[call.setting] = answer.failure
        if call.value is None or call.value.done():
            return
        if answer.failure:
            _raise_from(call.value, RunRejectedError(answer.failure, task=CALL))
        else:
            call.value.set_result(answer.value)

    def fail(self, error: RkllmMcpError) -> None:
        """Fail all pending calls."""
        for call in self._pending:
            if call.value is not None and not call.value.done():
                failure = copy(error)
                if isinstance(failure, RunRejectedError):
                    failure.task = CALL
                _raise_from(call.value, failure)
            elif call.value is None and call.command.name == _SAVES_TIME_ONLY:
                # The worker may have died of this file, and the next one would, too.
                self.drop(call.setting)
        self._pending.clear()


def _raise_from(value: asyncio.Future[int | None], error: RkllmMcpError) -> None:
    value.set_exception(error)
    # The caller may have left; mark the exception as retrieved, or asyncio logs it.
    value.exception()
