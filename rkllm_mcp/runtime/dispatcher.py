"""Lane: the one way to the NPU. Runs go through it one at a time, calls go between them.

It gives the worker the next run when the last has returned, tells it to stop, waits for that only so long, and hears
what the worker and the supervisor report. All of it happens in reaction to a frame, a death or a deadline; nothing here
waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

from rkllm_mcp.errors import CALL, GenerationError, InputRefusedError, RkllmMcpError, RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import ImageInput
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi import FAMILIES
from rkllm_mcp.runtime.abi.common import (
    Abi,
    require,
)
from rkllm_mcp.runtime.frames import CallCommand, CallReply, RunCommand, pack_call, pack_run
from rkllm_mcp.runtime.inputs import check_support, token_count
from rkllm_mcp.runtime.kv_cache import CacheState
from rkllm_mcp.runtime.run import Run
from rkllm_mcp.runtime.scheduler import ExpectedRun, RunQueue
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.runtime.supervisor import PrefillPace, Supervisor, Watchdog, complaint, failed_arithmetic
from rkllm_mcp.runtime.worker_process import WorkerProcess

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

    def answered(self, answer: CallReply) -> None:
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


def fitted(command: RunCommand, abi: Abi, version: str) -> RunCommand:
    """The command as the runtime at hand needs it.

    Raises:
        UnsupportedError: the runtime lacks something that it takes.
    """
    check_support(command.prompt, abi, version)
    if command.pause_after:
        require(abi, version, "callback_returns_int")
    if isinstance(command.prompt, ImageInput) and command.clears_after and abi.leaks_images:
        # 1.3.0 loses 2 MB with each image unless history is kept, and is told to forget it (rknn-llm #529).
        return replace(command, infer=replace(command.infer, keep_history=True))
    return command


class Dispatcher:
    """The lane of one engine.

    Args:
        settings: what the worker loads, and every limit.

    Attributes:
        supervisor: keeps the worker.
        calls: what is asked of the model between runs.
        cache: what is known of the KV cache.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self.supervisor = Supervisor(
            settings, on_frames=self._on_frames, on_service=self._on_service, on_loss=self._on_loss
        )
        self.calls = Calls()
        self.cache = CacheState(reuses_prefix=not settings.profile or settings.profile.reuses_prefix is not False)
        self._waiting: RunQueue[Run] = RunQueue(settings.patience_runs)
        self._deferred: Run | None = None
        self._announced: ExpectedRun | None = None
        self._hold: asyncio.TimerHandle | None = None
        self._current: Run | None = None
        self._command: RunCommand | None = None
        self._changes: list[Callable[[], None]] = []
        self._abort_deadline: asyncio.TimerHandle | None = None
        self._watchdog = Watchdog(self._on_silence)
        self._pace = PrefillPace(settings.silence, settings.profile.prefill_s if settings.profile else None)
        self._is_decoding = False
        self._is_dying = False
        self._cause = ""
        self._log_mark = 0

    @property
    def abi(self) -> Abi | None:
        """The interface in use; None until the model is loaded."""
        loaded = self.supervisor.loaded
        return next((abi for abi in FAMILIES if loaded and abi.name == loaded.abi), None)

    def submit(self, run: Run) -> None:
        """Let a run wait for its turn."""
        self._waiting.append(run)
        self._start_next()

    def withdraw(self, run: Run) -> bool:
        """Nobody wants this run: forget it, or tell it to stop; True when it is under way."""
        run.leave()
        if run is self._deferred:
            self._deferred = None
            return False
        if self._waiting.remove(run):
            return False
        self._tell_to_stop(run)
        return True

    def suffice(self, run: Run) -> None:
        """What came of this run is enough: it ends, and its figures are wanted."""
        run.suffice()
        if run.must_stop and not run.is_over:
            self._tell_to_stop(run)

    def announce(self, tokens: Sequence[int]) -> None:
        """A run that begins with these tokens will be submitted soon."""
        self._announced = ExpectedRun(tokens, asyncio.get_running_loop().time())

    @property
    def announced(self) -> Sequence[int]:
        """What the announced run begins with; empty when none is to come."""
        return self._announced.tokens if self._announced is not None else ()

    def revoke(self, tokens: Sequence[int]) -> None:
        """The run that was announced with this very sequence will not come: those that wait go on."""
        if self._announced is not None and self._announced.tokens is tokens:
            self._forget_announcement()
            self._start_next()

    def ask(
        self, worker: WorkerProcess, command: CallCommand, *, keep: str = "", change: Callable[[], None] | None = None
    ) -> asyncio.Future[int | None]:
        """Send a call. The worker does as it is told in order: behind the run under way, before the next.

        Args:
            worker: the one in service.
            command: the call.
            keep: as for ``Calls.ask``.
            change: notes what the call does to the KV cache.
        """
        if self._current is None and not self.calls:
            # Before it is sent: it may have been done, and complained of, by the time that sending returns.
            self._log_mark = self._printed()
        answer = self.calls.ask(worker.send, command, keep=keep)
        if self._current is None:
            self._expect_answer()
        if change is not None:
            self._changes.append(change)
            if self._current is None:
                self._apply_changes()
        return answer

    def _apply_changes(self) -> None:
        changes, self._changes = self._changes, []
        for change in changes:
            change()

    def _printed(self) -> int:
        worker = self.supervisor.worker
        return worker.log.total if worker else 0

    # Runs

    def _start_next(self) -> None:
        """Give the worker the next run, if both are there."""
        worker, loaded, abi = self.supervisor.worker, self.supervisor.loaded, self.abi
        if worker is None or loaded is None or abi is None or self._is_dying or self.calls.is_repeating:
            return
        while self._current is None and (run := self._next()) is not None:
            try:
                command = self._prepared(run, abi, loaded.version)
                frame = pack_run(command)
            except GenerationError as error:
                run.fail(error)
                continue
            except (TypeError, ValueError) as error:
                run.fail(InputRefusedError(f"an option is of a wrong type: {error}; use plain numbers and texts"))
                continue
            if self._must_replace_worker(run):
                self._deferred = run
                self._kill("a generation was paused and something else was asked")
                return
            self._current, self._command = run, command
            self._forget_announcement()
            run.start(
                runtime_limit=None if abi.has_per_run_token_limit else self._settings.max_new_tokens,
                is_cold=self.cache.is_cold or command.clears_before,
                expected_prefill=self.cache.expected_prefill(command),
                own_tokens=self.cache.own_tokens(run.tokens, run.options.owner),
            )
            self.cache.started()
            self.supervisor.is_used = True
            self._log_mark = self._printed()
            self._expect_first(run)
            worker.send(frame)

    def _next(self) -> Run | None:
        run, self._deferred = self._deferred, None
        if run is None and len(self._waiting) and not self._holds():
            run = self._waiting.take(self.cache.ids)
        return run

    def _holds(self) -> bool:
        """Whether those that wait are kept waiting for a run that was announced."""
        if self._announced is None or not self._waiting.may_wait:
            return False
        upcoming = self._waiting.peek(self.cache.ids)
        until = self._announced.held_until(upcoming, self.cache.ids, self._pace.cost_s)
        loop = asyncio.get_running_loop()
        if loop.time() >= until:
            return False
        if self._hold is not None:
            self._hold.cancel()
        self._hold = loop.call_at(until, self._start_next)
        return True

    def _forget_announcement(self) -> None:
        self._announced = None
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None

    def _prepared(self, run: Run, abi: Abi, version: str) -> RunCommand:
        self.calls.check()
        if run.options.resume and not self.cache.is_paused:
            raise InputRefusedError("no generation is paused, so none can be resumed; ask without resume")
        command = fitted(run.command, abi, version)
        return command if run.options.resume else self.cache.before(command)

    def _must_replace_worker(self, run: Run) -> bool:
        """Whether a paused generation would answer in this run's place.

        Whether clearing the KV cache ends a pause is not documented, so only a profile that saw it is believed.
        """
        if not self.cache.is_paused or run.options.resume:
            return False
        profile = self._settings.profile
        return profile is None or "clear" not in (profile.facts.get("pause_left_by") or ())

    def _tell_to_stop(self, run: Run) -> None:
        """Abort the run under way; when it does not return in time, the worker hangs and is killed."""
        worker = self.supervisor.worker
        if worker is None:
            return
        worker.send(frames.pack_abort(run.number))
        if self._abort_deadline is None:
            limit_s = self._settings.decode_abort_timeout_s
            if not run.has_tokens and not run.fault:
                limit_s += self._prefill_limit_s(run)
            cause = f"{run.fault or 'it was told to stop'} and it did not stop within {limit_s:.3g} s"
            self._abort_deadline = asyncio.get_running_loop().call_later(limit_s, self._kill, cause)

    def _kill(self, cause: str) -> None:
        if self.supervisor.worker is not None:
            self._is_dying = True
            self._cause = cause
            self.supervisor.worker.kill()

    def _forget_current(self) -> Run | None:
        run, self._current = self._current, None
        self._is_decoding = False
        self._watchdog.rest()
        if self._abort_deadline is not None:
            self._abort_deadline.cancel()
            self._abort_deadline = None
        return run

    # Signs of life

    def _prefill_limit_s(self, run: Run) -> float:
        # The length of a text is not known here; it has room in the context at most.
        return self._pace.limit_s(token_count(run.command.prompt) or self._settings.context_tokens)

    def _expect_first(self, run: Run) -> None:
        limit_s = self._prefill_limit_s(run) + (self._settings.silence.call_s if self.calls else 0.0)
        self._watchdog.expect("the first token" if run.command.rows is None else "its result", limit_s)

    def _expect_answer(self) -> None:
        if self.calls:
            self._watchdog.expect("an answer", self._settings.silence.call_s)
        else:
            self._watchdog.rest()

    def _on_silence(self, silence: str) -> None:
        run = self._current
        if run is None:
            self._kill(silence)
        elif self._abort_deadline is None:
            run.fall_silent(silence)
            self._tell_to_stop(run)

    # What the worker says

    def _on_frames(self, received: Iterator[tuple[int, bytes]]) -> None:
        for kind, body in received:
            if kind == frames.TOKEN:
                number, token_id, entered_ns, text = frames.unpack_token(body)
                if self._current is not None and self._current.number == number:
                    self._current.take(token_id, entered_ns, text)
            else:
                self._on_report(kind, body)
        run = self._current
        if run is not None:
            if self._is_decoding:
                self._watchdog.heard()
            elif run.has_tokens:
                self._is_decoding = True
                self._watchdog.expect("the next token", self._settings.silence.decode_s)
                self._look_for_failing_arithmetic(run)
            if run.must_stop:
                self._tell_to_stop(run)
            run.wake()

    def _look_for_failing_arithmetic(self, run: Run) -> None:
        """With drivers that are too old every matrix product fails, and the run goes on without (rknn-llm #413)."""
        worker = self.supervisor.worker
        if worker is not None and (said := failed_arithmetic(worker.log.since(self._log_mark))):
            run.void(f"its tokens mean nothing ({said})")

    def _on_report(self, kind: int, body: bytes) -> None:
        if kind == frames.RUN_ENDED:
            self._on_run_ended(frames.unpack_run_ended(body))
        elif kind == frames.ROWS:
            rows = frames.unpack_rows(body)
            if self._current is not None and self._current.number == rows.run:
                self._current.rows = rows
        elif kind == frames.ANSWER:
            answer = frames.unpack_answer(body)
            if answer.failure and (said := self._explanation()):
                answer = replace(answer, failure=f"{answer.failure} ({said})")
            self._log_mark = self._printed()
            self.calls.answered(answer)
            if self._current is None:
                self._expect_answer()
                self._start_next()
        else:
            self.supervisor.on_load_report(kind, body)

    def _on_run_ended(self, ended: frames.RunEnded) -> None:
        run, command = self._forget_current(), self._command
        if run is not None and command is not None:
            self._look_for_failing_arithmetic(run)
            run.end(ended, self._explanation() if ended.failure else "")
            self.cache.after(run, command)
            self._apply_changes()
            if ended.perf is not None:
                self._pace.measured(ended.perf.prefill_tokens, ended.perf.prefill_ms)
            if not ended.failure:
                self.supervisor.is_proven = True
        self._expect_answer()
        # Whoever was answered learns of it first, and may announce a run.
        asyncio.get_running_loop().call_soon(self._start_next)

    def _explanation(self) -> str:
        worker = self.supervisor.worker
        said = complaint(worker.log.since(self._log_mark)) if worker else ""
        return "; ".join(filter(None, (said, self.supervisor.suspicion())))

    # What the supervisor says

    def _on_service(self) -> None:
        self._is_dying, self._cause = False, ""
        self.cache.renewed()
        worker = self.supervisor.worker
        if worker is not None:
            self.calls.repeat(worker.send)
        self._expect_answer()
        self._start_next()

    def _on_loss(self, error: RkllmMcpError) -> None:
        """What was under way fails; what waits fails only when there will never be another worker."""
        if isinstance(error, WorkerDiedError):
            error.cause = self._cause
        self._changes.clear()
        self._forget_announcement()
        current = self._forget_current()
        lost = [current] if current is not None else []
        if not isinstance(error, WorkerDiedError):
            lost.extend([self._deferred] if self._deferred is not None else [])
            lost.extend(self._waiting.clear())
            self._deferred = None
        for run in lost:
            run.fail(copy(error))
        self.calls.fail(error)
