"""Send runs and calls to the worker, abort runs, and react to its reports.

Runs go one at a time; calls go after the current run and before the next. Everything here happens in reaction to a
frame, a lost worker or a deadline; nothing waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from rkllm_mcp.errors import CALL, GenerationError, InputRefusedError, RkllmMcpError, RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import ImageInput
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi import FAMILIES
from rkllm_mcp.runtime.abi.common import (
    Abi,
)
from rkllm_mcp.runtime.frames import CallCommand, CallReply, RunCommand, pack, pack_run
from rkllm_mcp.runtime.inputs import check_support, token_count
from rkllm_mcp.runtime.kv_cache import CacheState
from rkllm_mcp.runtime.run import Run
from rkllm_mcp.runtime.scheduler import RunQueue
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.runtime.supervisor import PrefillPace, Supervisor, Watchdog, arithmetic_failure, complaint
from rkllm_mcp.runtime.worker_process import WorkerProcess

# This call saves time and does not change answers.
_SAVES_TIME_ONLY = "load_prompt_cache"
# 1.3.0 loses about 2 MB with each picture (rknn-llm #529); this much is worth loading the model again.
_MOST_GROWTH_BYTES = 128 << 20


@dataclass(frozen=True)
class _PendingCall:
    """A call without a reply; ``value`` is None for one that restores a setting on a new worker."""

    command: CallCommand
    setting: str
    value: asyncio.Future[int | None] | None


class Calls:
    """Calls of one engine, and the settings they made."""

    def __init__(self) -> None:
        self._pending: deque[_PendingCall] = deque()
        self._settings: dict[str, CallCommand] = {}
        self._refusals: dict[str, str] = {}

    def __bool__(self) -> bool:
        """True while a reply is pending."""
        return bool(self._pending)

    @property
    def is_restoring(self) -> bool:
        """True while a new worker has not confirmed all settings."""
        return any(call.value is None for call in self._pending)

    @property
    def standing(self) -> tuple[str, ...]:
        """Names of the settings, in the order in which they were made."""
        return tuple(self._settings)

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
        self._settings.pop(name, None)
        self._refusals.pop(name, None)

    def restore(self, send: Callable[[bytes], None]) -> None:
        """Send all settings to a new worker."""
        self._refusals.clear()
        for name, command in self._settings.items():
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
            self._settings[call.setting] = call.command
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


def fit_command(command: RunCommand, abi: Abi, version: str) -> RunCommand:
    """Return the command adapted to this runtime; refuse one that takes something that the runtime lacks."""
    check_support(command.prompt, abi, version)
    if isinstance(command.prompt, ImageInput) and command.clears_after and abi.leaks_images:
        # 1.3.0 leaks 2 MB with each image of a run without history (rknn-llm #529); it is cleared afterwards.
        return replace(command, keeps_history=True)
    return command


class Dispatcher:
    """Runs and calls of one engine."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self.supervisor = Supervisor(
            settings, on_frames=self._on_frames, on_service=self._on_service, on_loss=self._on_loss
        )
        self.calls = Calls()
        self.cache = CacheState(reuses_prefix=not settings.profile or settings.profile.reuses_prefix is not False)
        self._pace = PrefillPace(settings.silence, settings.profile.prefill_s if settings.profile else None)
        self.waiting: RunQueue[Run] = RunQueue(settings.max_skips, self._pace.cost_s, self._start_next)
        self._deferred: Run | None = None
        self._current: Run | None = None
        self._command: RunCommand | None = None
        self._cache_changes: list[Callable[[], None]] = []
        self._abort_deadline: asyncio.TimerHandle | None = None
        self._watchdog = Watchdog(self._on_silence)
        self._is_decoding = False
        self._is_dying = False
        self._cause = ""
        self._log_mark = 0
        self._settled = asyncio.Event()
        # Memory of the worker before each of its first two runs with new pictures; the second is compared with.
        self._before_pictures: list[int] = []

    @property
    def abi(self) -> Abi | None:
        """Interface in use; None until the model is loaded."""
        loaded = self.supervisor.loaded
        return next((abi for abi in FAMILIES if loaded and abi.name == loaded.abi), None)

    @property
    def is_stopping(self) -> bool:
        """True while a run that is aborted has not returned."""
        return self._current is not None and self._current.needs_abort

    @property
    def is_idle(self) -> bool:
        """True while no run or call goes on or waits."""
        return self._current is None and self._deferred is None and not self.waiting and not self.calls

    async def idle(self) -> None:
        """Wait until no run or call goes on or waits; a run that gives way ends for this."""
        self.make_way()
        while not self.is_idle:
            await self._settled.wait()

    def _notify_idle(self) -> None:
        if self.is_idle:
            self._settled.set()
            self._settled = asyncio.Event()

    @property
    def cached_tokens(self) -> Sequence[int]:
        """Token ids that are in the KV cache, or will be after the prefill of the current run; empty if unknown."""
        return self.cache.ids if self._current is None else self._current.tokens

    def make_way(self) -> None:
        """End the current run early if it gives way."""
        if self._current is not None:
            self._current.give_way()

    def submit(self, run: Run) -> None:
        """Queue a run."""
        self.make_way()
        self.waiting.append(run)
        self._start_next()

    def withdraw(self, run: Run) -> bool:
        """Remove a run whose consumer has left, or abort it; return True if it is running."""
        run.leave()
        if run is self._deferred:
            self._deferred = None
            return False
        if self.waiting.remove(run):
            self._notify_idle()
            return False
        self._abort(run)
        return True

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        """Cancel the expected run with this very sequence, and release the runs that were held for it."""
        if self.waiting.expected_tokens is tokens:
            self.waiting.clear_expected()
            self._start_next()

    def ask(
        self,
        worker: WorkerProcess,
        command: CallCommand,
        *,
        setting: str = "",
        change: Callable[[], None] | None = None,
    ) -> asyncio.Future[int | None]:
        """Send a call, which the worker executes after the current run and before the next.

        ``setting`` is that of ``Calls.ask``; ``change`` records the call's effect on the KV cache.
        """
        self.make_way()
        if self._current is None and not self.calls:
            # Before sending: the worker may print errors of the call before ``ask`` returns.
            self._log_mark = self._printed_total()
        answer = self.calls.ask(worker.send, command, setting=setting)
        if self._current is None:
            self._expect_reply()
        if change is not None:
            self._cache_changes.append(change)
            if self._current is None:
                self._apply_cache_changes()
        return answer

    def _apply_cache_changes(self) -> None:
        changes, self._cache_changes = self._cache_changes, []
        for change in changes:
            change()

    def _printed_total(self) -> int:
        worker = self.supervisor.worker
        return worker.log.total if worker else 0

    # Runs

    def _start_next(self) -> None:
        """Send the next run to the worker, if it is idle."""
        self._notify_idle()
        worker, loaded, abi = self.supervisor.worker, self.supervisor.loaded, self.abi
        if worker is None or loaded is None or abi is None or self._is_dying or self.calls.is_restoring:
            return
        while self._current is None and (run := self._next_run()) is not None:
            try:
                self.calls.check()
                command = self.cache.before(fit_command(run.command, abi, loaded.version))
                frame = pack_run(command)
            except GenerationError as error:
                run.fail(error)
                continue
            except (TypeError, ValueError) as error:
                run.fail(InputRefusedError(f"an option is of a wrong type: {error}; use plain numbers and texts"))
                continue
            if cause := self._replacement(command, worker):
                self._deferred = run
                self._kill(cause)
                return
            self._current, self._command = run, command
            self.waiting.clear_expected()
            run.start(
                runtime_limit=None if abi.has_per_run_token_limit else self._settings.max_new_tokens,
                is_cold=self.cache.is_cold or command.clears_before,
                expected_prefill=self.cache.expected_prefill(command),
                own_tokens=self.cache.own_tokens(run.tokens, run.options.owner),
                abort=partial(self._abort, run),
            )
            self.cache.on_start()
            self.supervisor.record.is_used = True
            self._log_mark = self._printed_total()
            limit_s = self._prefill_limit_s(run) + (self._settings.silence.call_s if self.calls else 0.0)
            self._watchdog.start("the first token" if run.command.rows is None else "its result", limit_s)
            worker.send(frame)

    def _next_run(self) -> Run | None:
        run, self._deferred = self._deferred, None
        return run or self.waiting.next(self.cache.ids)

    def _replacement(self, command: RunCommand, worker: WorkerProcess) -> str:
        """Return the reason to replace the worker before this run; empty to keep it.

        Memory lost to pictures is recovered before a new picture, for which the cache is cleared anyway.
        """
        if isinstance(command.prompt, ImageInput) and command.clears_before:
            now = worker.memory_bytes()
            if len(self._before_pictures) < 2:
                # The first run allocates buffers that stay.
                self._before_pictures.append(now)
            elif now - self._before_pictures[1] > _MOST_GROWTH_BYTES:
                return "its memory had grown with pictures"
        return ""

    def _abort(self, run: Run) -> None:
        """Abort the current run; kill the worker if the run does not return in time."""
        worker = self.supervisor.worker
        if worker is None:
            return
        worker.send(frames.pack_abort(run.number))
        if self._abort_deadline is None:
            limit_s = self._settings.decode_abort_timeout_s
            if not run.has_tokens and not run.stop_detail:
                limit_s += self._prefill_limit_s(run)
            cause = f"{run.stop_detail or 'it was told to stop'} and it did not stop within {limit_s:.3g} s"
            self._abort_deadline = asyncio.get_running_loop().call_later(limit_s, self._kill, cause)

    def _kill(self, cause: str) -> None:
        if self.supervisor.worker is not None:
            self._is_dying = True
            self._cause = cause
            self.supervisor.worker.kill()

    def _forget_current(self) -> Run | None:
        run, self._current = self._current, None
        self._is_decoding = False
        self._watchdog.stop()
        if self._abort_deadline is not None:
            self._abort_deadline.cancel()
            self._abort_deadline = None
        return run

    # Silence limits

    def _prefill_limit_s(self, run: Run) -> float:
        # The length of a text input is unknown; the context is its upper limit.
        return self._pace.limit_s(token_count(run.command.prompt) or self._settings.context_tokens)

    def _expect_reply(self) -> None:
        if self.calls:
            self._watchdog.start("an answer", self._settings.silence.call_s)
        else:
            self._watchdog.stop()

    def _on_silence(self, silence: str) -> None:
        run = self._current
        if run is None:
            self._kill(silence)
        elif self._abort_deadline is None:
            run.mark_silent(silence)
            self._abort(run)

    # Reports of the worker

    def _on_frames(self, received: list[tuple[int, bytes]]) -> None:
        """Process frames, in the socket's callback; no task runs between the socket and the consumer of a run."""
        for kind, body in received:
            if kind == frames.TOKEN:
                number, token_id, entered_ns, text = frames.unpack_token(body)
                if self._current is not None and self._current.number == number:
                    self._current.add(token_id, entered_ns, text)
            else:
                self._on_report(kind, body)
        run = self._current
        if run is not None:
            if self._is_decoding:
                self._watchdog.feed()
            elif run.has_tokens:
                self._is_decoding = True
                self._watchdog.start("the next token", self._settings.silence.decode_s)
                self._check_arithmetic(run)
            if run.stop_reason is not None and run.needs_abort:
                self._abort(run)
            run.hand_over()

    def _check_arithmetic(self, run: Run) -> None:
        """Invalidate a run with failed matrix products, which old drivers report only in the log (rknn-llm #413)."""
        worker = self.supervisor.worker
        if worker is not None and (complaint_line := arithmetic_failure(worker.log.since(self._log_mark))):
            run.invalidate(f"its tokens mean nothing ({complaint_line})")

    def _on_report(self, kind: int, body: bytes) -> None:
        if kind == frames.RUN_ENDED:
            self._on_run_ended(frames.unpack_run_ended(body))
        elif kind == frames.ROWS:
            rows = frames.unpack_rows(body)
            if self._current is not None and self._current.number == rows.run:
                self._current.rows = rows
        elif kind == frames.REPLY:
            answer = frames.unpack(frames.CallReply, body)
            if answer.failure and (explanation := self._explanation()):
                answer = replace(answer, failure=f"{answer.failure} ({explanation})")
            self._log_mark = self._printed_total()
            self.calls.on_reply(answer)
            if self._current is None:
                self._expect_reply()
                self._start_next()
        else:
            self.supervisor.on_load_report(kind, body)

    def _on_run_ended(self, ended: frames.RunEnded) -> None:
        run, command = self._forget_current(), self._command
        if run is not None and command is not None:
            self._check_arithmetic(run)
            run.end(ended, self._explanation() if ended.failure else "")
            self.cache.after(run, command)
            self._apply_cache_changes()
            if (perf := ended.report.perf) is not None:
                self._pace.record_prefill(perf.prefill_tokens, perf.prefill_ms)
            if not ended.failure:
                self.supervisor.record.is_proven = True
        self._expect_reply()
        # After the consumer, which may expect another run.
        asyncio.get_running_loop().call_soon(self._start_next)

    def _explanation(self) -> str:
        worker = self.supervisor.worker
        complaint_line = complaint(worker.log.since(self._log_mark)) if worker else ""
        return "; ".join(filter(None, (complaint_line, self.supervisor.suspicion())))

    # Reports of the supervisor

    def _on_service(self) -> None:
        self._is_dying, self._cause = False, ""
        self._before_pictures = []
        self.cache.on_clear()
        worker = self.supervisor.worker
        if worker is not None:
            self.calls.restore(worker.send)
        self._expect_reply()
        self._start_next()

    def _on_loss(self, error: RkllmMcpError) -> None:
        """Fail the current run and calls; fail waiting runs only if no other worker will start."""
        if isinstance(error, WorkerDiedError):
            error.cause = self._cause
        self._cache_changes.clear()
        self.waiting.clear_expected()
        current = self._forget_current()
        lost = [current] if current is not None else []
        if not isinstance(error, WorkerDiedError):
            lost.extend([self._deferred] if self._deferred is not None else [])
            lost.extend(self.waiting.clear())
            self._deferred = None
        for run in lost:
            run.fail(copy(error))
        self.calls.fail(error)
        self._notify_idle()
