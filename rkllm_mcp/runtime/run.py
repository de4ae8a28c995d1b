"""One generation in flight: the worker's reports go in, what a consumer awaits comes out.

A run counts its tokens, holds the answer to its limits, joins UTF-8 across tokens, notices the end, also by a stop
string, and keeps the figures. It says when the runtime has to be told to stop; telling it is the engine's business.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rkllm_mcp.errors import ANSWER, EVALUATION, RkllmMcpError, RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import FinishReason, GenerationOptions, RunStats, Token, TokenInput
from rkllm_mcp.runtime.frames import RowsReport, RunCommand, RunEnded
from rkllm_mcp.toolcalls.stop_strings import StopStrings

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class TimedToken(Token):
    """A token with the time (CLOCK_MONOTONIC, ns) at which the runtime called back with it, for measurements."""

    entered_ns: int


class Run:
    """One generation."""

    def __init__(self, command: RunCommand, options: GenerationOptions, *, timed: bool = False) -> None:
        # Its name between engine and worker.
        self.number = command.run
        # What the worker is told.
        self.command = command
        # Its limits.
        self.options = options
        # The tokens that came, also those nobody was given.
        self.ids: array[int] = array("i")
        # What an evaluation gave.
        self.rows: RowsReport | None = None
        # It has returned, or never will.
        self.is_over = False
        # Nobody consumes it any more.
        self.is_left = False
        # The runtime has to be told to stop.
        self.must_stop = False
        self._stop_ids = options.stop_ids
        self._stops = StopStrings(options.stop_strings) if options.stop_strings else None
        self._limit = options.max_new_tokens
        self._ends_at_limit = True
        self._runs_on = False
        self._is_cold = False
        self._expected_prefill: int | None = None
        self._own_tokens: int | None = None
        self._timed = timed
        self._tokens: deque[Token] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._over = asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._count = 0
        self._is_complete = False
        self._is_void = False
        self._finish: FinishReason = "stop"
        # Why it is aborted although somebody wants it.
        self.fault = ""
        self._error: RkllmMcpError | None = None
        self._ended: RunEnded | None = None
        self._requested_ns = time.monotonic_ns()
        self._started_ns = 0
        self._first_ns = 0
        self._last_ns = 0
        self._over_ns = 0

    @property
    def tokens(self) -> Sequence[int]:
        """Its prompt; empty when it is none of token ids."""
        return self.command.prompt.tokens if isinstance(self.command.prompt, TokenInput) else ()

    @property
    def _task(self) -> str:
        return ANSWER if self.command.rows is None else EVALUATION

    @property
    def has_tokens(self) -> bool:
        """Whether its prefill is over, as far as anybody can see."""
        return bool(self.ids)

    @property
    def is_paused(self) -> bool:
        """It returned because it was told to pause."""
        return self._ended is not None and self._ended.is_paused

    @property
    def is_sound(self) -> bool:
        """It did not fail."""
        return self._error is None

    # The engine's side

    def start(
        self,
        *,
        runtime_limit: int | None,
        is_cold: bool,
        expected_prefill: int | None = None,
        own_tokens: int | None = None,
    ) -> None:
        """The run goes to the worker now."""
        self._started_ns = time.monotonic_ns()
        self._is_cold = is_cold
        self._expected_prefill = expected_prefill
        self._own_tokens = own_tokens
        if self.options.begun is not None and expected_prefill is not None:
            own = len(self.tokens) if own_tokens is None else own_tokens
            self.options.begun(max(expected_prefill, len(self.tokens) - own))
        if runtime_limit is not None:
            self._ends_at_limit = runtime_limit <= self._limit
            # What an aborted run leaves in the file, nobody knows.
            self._runs_on = self.options.save_prompt_cache is not None
            self._limit = min(self._limit, runtime_limit)

    def add(self, token_id: int, entered_ns: int, text: bytes) -> None:
        """A token arrived.

        After a stop token, and at a limit that the runtime keeps by itself, the runtime is about to end and need not
        be told. When another token comes all the same, it does not know its stop token (1.3.0 with models of toolkit
        1.2.2, rknn-llm #534).
        """
        self.ids.append(token_id)
        if self._is_complete or self.is_left:
            self.must_stop = self.is_left or not self._runs_on
            return
        self._first_ns = self._first_ns or entered_ns
        self._last_ns = entered_ns
        self._count += 1
        decoded = self._decoder.decode(text)
        token = TimedToken(token_id, decoded, entered_ns) if self._timed else Token(token_id, decoded)
        if self._stops is None:
            self._tokens.append(token)
        else:
            self._tokens.extend(self._stops.feed(token))
            if self._stops.found is not None:
                # The runtime knows nothing of it.
                self._is_complete = self.must_stop = True
                return
        if token_id in self._stop_ids:
            self._complete("stop")
        elif self._count >= self._limit:
            self._complete("length")
            self.must_stop = not self._ends_at_limit and not self._runs_on

    def wake(self) -> None:
        """Let the consumer see what arrived."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def end(self, ended: RunEnded, said: str = "") -> None:
        """The run returned; ``said`` is what the runtime printed about its failure."""
        self._ended = ended
        if ended.is_paused and not self._is_complete:
            self._finish = "paused"
        failure = f"{self.fault}, and it was aborted" if self.fault else ended.failure
        if self._is_void:
            self._error = RunRejectedError(self.fault, self._count, self._task)
        elif failure and not self._is_complete:
            self._error = RunRejectedError(f"{failure} ({said})" if said else failure, self._count, self._task)
        self._close()

    def fail(self, error: RkllmMcpError) -> None:
        """The run will never return. When its answer was complete, nobody has to know."""
        if not self._is_complete:
            if isinstance(error, (RunRejectedError, WorkerDiedError)):
                error.tokens_delivered = self._count
            if isinstance(error, RunRejectedError):
                error.task = self._task
            self._error = error
        self._close()

    def mark_silent(self, silence: str) -> None:
        """The runtime showed no sign of life for too long; the run is about to be aborted for it."""
        self.fault = silence

    def invalidate(self, reason: str) -> None:
        """What came is no answer, also when it is complete; the run has to be aborted for it."""
        self.fault, self._is_void, self.must_stop = reason, True, True

    def finish_early(self) -> None:
        """What was taken is the whole answer; what may still come is not wanted, nor what came meanwhile.

        A run that has returned already gives the same: which of the two is first is chance.
        """
        self.must_stop = self.must_stop or not self._is_complete
        self._is_complete, self._finish = True, "stop"
        self._tokens.clear()
        self._stops = None
        if not self._is_void:
            self._error = None

    def leave(self) -> None:
        """Nobody consumes it any more."""
        self.is_left = True
        self._tokens.clear()

    # The consumer's side

    async def next(self) -> Token | None:
        """The next token in order; None after the last.

        Raises:
            RkllmMcpError: the run failed; all tokens before that were delivered.
        """
        while not self._tokens:
            if self._error is not None:
                raise self._error
            if self.is_over:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._tokens.popleft()

    async def over(self) -> None:
        """Wait until the run has returned or never will."""
        await self._over.wait()

    def stats(self) -> RunStats:
        """The figures of a run that returned: the runtime's own, or measured where it gives none."""
        perf = self._ended.perf if self._ended else None
        first_ns = self._first_ns or self._over_ns
        first_callback_ns = (self._ended.first_ns if self._ended else 0) or first_ns
        return RunStats(
            finish=self._finish,
            prefilled_tokens=perf.prefill_tokens if perf else None,
            prefill_ms=perf.prefill_ms if perf else _ms(first_callback_ns - self._started_ns),
            decode_ms=perf.generate_ms if perf else _ms(self._last_ns - self._first_ns),
            generated_tokens=self._count,
            time_to_first_token_ms=_ms(first_ns - self._requested_ns),
            queued_ms=_ms(self._started_ns - self._requested_ns),
            memory_mb=perf.memory_mb if perf else None,
            cold=self._is_cold,
            expected_tokens=self._expected_prefill,
            stop_string=self._stops.found if self._stops else None,
            callback_ms=_ms(self._ended.callback_ns if self._ended else 0),
            own_tokens=self._own_tokens,
        )

    def _complete(self, finish: FinishReason) -> None:
        self._is_complete = True
        self._finish = finish
        self._let_go_of_text()

    def _let_go_of_text(self) -> None:
        if self._stops is not None and not self.is_left:
            self._tokens.extend(self._stops.finish())

    def _close(self) -> None:
        self._let_go_of_text()
        self.is_over = True
        self._over_ns = time.monotonic_ns()
        self._over.set()
        self.wake()


def _ms(nanoseconds: int) -> float:
    return nanoseconds / _NS_PER_MS
