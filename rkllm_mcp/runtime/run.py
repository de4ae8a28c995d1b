"""Run: the state, tokens and statistics of one generation.

    QUEUED → PREFILL → DECODE → STOPPING → DONE | FAILED

The engine feeds it with the worker's reports and aborts the runtime when ``needs_abort`` is set; the consumer takes
tokens with ``deliver``. A run counts tokens, applies limits and joins UTF-8 across tokens.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from rkllm_mcp.errors import ANSWER, EVALUATION, RkllmMcpError, RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import FeedTokens, FinishReason, RunStats, Token, TokenInput
from rkllm_mcp.runtime.frames import RowsReport, RunCommand, RunEnded, RunReport

_NS_PER_MS = 1e6


class RunState(Enum):
    """Phase of a run."""

    QUEUED = auto()
    PREFILL = auto()
    DECODE = auto()
    # The reason to stop is known (``Run.stop_reason``), and the runtime has not returned yet.
    STOPPING = auto()
    DONE = auto()
    FAILED = auto()


class StopReason(Enum):
    """Reason why a run stops before its native run has returned."""

    # Stop token, or a limit that the runtime applies itself: it is about to return.
    STOP_TOKEN = auto()
    LENGTH = auto()
    # Tokens after one of these: the runtime does not know its stop token (1.3.0 with models of toolkit 1.2.2, rknn-llm
    # #534).
    OVERRUN = auto()
    # A limit that only the host applies.
    HOST_LIMIT = auto()
    FINISHED_EARLY = auto()
    CONSUMER_LEFT = auto()
    SILENT = auto()
    INVALID_OUTPUT = auto()


# Constants, because access through the enum is a function call on Python 3.10, and these are compared for every token.
_PREFILL, _DECODE, _STOPPING = RunState.PREFILL, RunState.DECODE, RunState.STOPPING
_ENDED = (RunState.DONE, RunState.FAILED)
_RUNTIME_RETURNS = (StopReason.STOP_TOKEN, StopReason.LENGTH)


@dataclass(frozen=True)
class TimedToken(Token):
    """A token with the entry time of its callback (CLOCK_MONOTONIC, ns), for measurements."""

    entered_ns: int


@dataclass
class RunLimits:
    """What ends an answer by itself."""

    stop_ids: frozenset[int]
    tokens: int
    reason: StopReason = StopReason.LENGTH  # to stop at ``tokens``
    # The runtime goes on after the end: the prompt cache file of an aborted run is undefined.
    may_overrun: bool = False


@dataclass
class RunMeasures:
    """Times of a run (CLOCK_MONOTONIC, ns; 0 before the event) and what it shares with the KV cache."""

    requested_ns: int
    started_ns: int = 0
    first_ns: int = 0  # the first token
    last_ns: int = 0  # the last token
    over_ns: int = 0
    tokens: int = 0  # delivered
    is_cold: bool = False
    expected_prefill: int | None = None  # tokens of the prompt that are not known to be in the KV cache
    own_tokens: int | None = None  # of these, those that no other owner shares; None if all are
    gave_way: bool = False
    report: RunReport = field(default_factory=RunReport)


@dataclass(eq=False)
class TokenDecoder:
    """Joins characters whose UTF-8 bytes come in several tokens; ``is_partial`` while one is incomplete."""

    is_partial: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=partial(codecs.getincrementaldecoder("utf-8"), "replace")
    )

    def decode(self, text: bytes) -> str:
        """Return the text of a token, with the parts of earlier tokens."""
        decoded = self._decoder.decode(text)
        self.is_partial = bool(self._decoder.getstate()[0])
        return decoded


class Run:
    """One generation; ``timed`` delivers TimedToken."""

    def __init__(self, command: RunCommand, *, timed: bool = False) -> None:
        options = command.options
        self.command = command
        # Token ids of the prompt; empty for other inputs.
        self.tokens: Sequence[int] = command.prompt.tokens if isinstance(command.prompt, TokenInput) else ()
        # Runs that went before this one out of turn; counted by the queue.
        self.skipped = 0
        self.state = RunState.QUEUED
        self.stop_reason: StopReason | None = None
        # Message for SILENT and INVALID_OUTPUT.
        self.stop_detail = ""
        # All tokens that the runtime generated, including those that were not delivered.
        self.ids: array[int] = array("i")
        self.rows: RowsReport | None = None
        self._task = ANSWER if command.rows is None else EVALUATION
        self._limits = RunLimits(options.stop_ids, options.max_new_tokens)
        self._measures = RunMeasures(time.monotonic_ns())
        self._decoder = TokenDecoder()
        self._abort: Callable[[], object] | None = None
        self._timed = timed
        self._tokens: list[Token] = []
        self._waiting: asyncio.Future[None] | None = None
        self._feed: FeedTokens | None = None
        # Set when the native run has returned, or never will.
        self.has_returned = asyncio.Event()
        # Set when the answer is complete; failures after that do not matter.
        self._finish: FinishReason | None = None
        self._error: RkllmMcpError | None = None

    @property
    def expected_prefill(self) -> int:
        """Prompt tokens that are not known to be in the KV cache, for the run's owner; 0 before the run starts."""
        measures = self._measures
        if measures.expected_prefill is None:
            return 0
        own_count = len(self.tokens) if measures.own_tokens is None else measures.own_tokens
        return max(measures.expected_prefill, len(self.tokens) - own_count)

    @property
    def needs_abort(self) -> bool:
        """True while the runtime must be aborted, repeatedly because it may forget an abort."""
        return self.state is _STOPPING and self.stop_reason not in _RUNTIME_RETURNS

    # Called by the engine

    def start(
        self,
        *,
        runtime_limit: int | None,
        is_cold: bool,
        expected_prefill: int | None = None,
        own_tokens: int | None = None,
        abort: Callable[[], object] | None = None,
    ) -> None:
        """QUEUED → PREFILL: the run is sent to the worker, and ``abort`` aborts it there.

        ``runtime_limit`` is the limit that the runtime applies to every run, None if it applies the run's own;
        ``expected_prefill`` counts the prompt tokens that are not known to be in the KV cache.
        """
        self.state = _PREFILL
        measures = self._measures
        measures.started_ns = time.monotonic_ns()
        measures.is_cold, measures.expected_prefill, measures.own_tokens = is_cold, expected_prefill, own_tokens
        self._abort = abort
        if runtime_limit is not None:
            limits = self._limits
            limits.may_overrun = self.command.options.save_prompt_cache is not None
            if runtime_limit > limits.tokens and not limits.may_overrun:
                limits.reason = StopReason.HOST_LIMIT
            limits.tokens = min(limits.tokens, runtime_limit)

    def add(self, token_id: int, entered_ns: int, text: bytes) -> None:
        """Add a token (PREFILL → DECODE with the first); it is delivered unless the answer is complete or unwanted."""
        self.ids.append(token_id)
        if self.state is not _DECODE:
            if self.state is _PREFILL:
                self.state = _DECODE
            elif self.stop_reason is not StopReason.SILENT or self._finish is not None:
                if self.stop_reason in _RUNTIME_RETURNS and not self._limits.may_overrun:
                    self._stop(StopReason.OVERRUN)
                return
        measures, limits = self._measures, self._limits
        measures.last_ns = entered_ns
        measures.tokens += 1
        measures.first_ns = measures.first_ns or entered_ns
        try:
            decoded = self._decoder.decode(text) if self._decoder.is_partial else text.decode()
        except UnicodeDecodeError:
            decoded = self._decoder.decode(text)
        self._tokens.append(TimedToken(token_id, decoded, entered_ns) if self._timed else Token(token_id, decoded))
        if token_id in limits.stop_ids:
            self._finish = "stop"
            self._stop(StopReason.STOP_TOKEN)
        elif measures.tokens >= limits.tokens:
            self._finish = "length"
            self._stop(limits.reason)

    def hand_over(self) -> None:
        """Pass the new tokens to the consumer at once while it waits in ``deliver``; else wake it.

        Called in a callback of the event loop, outside of any task.
        """
        waiting = self._waiting
        if self._feed is None or not self._tokens or waiting is None or waiting.done():
            self._wake()
            return
        batch, self._tokens = self._tokens, []
        try:
            self._feed(batch)
        except Exception as error:  # noqa: BLE001  raised in the consumer's task
            waiting.set_exception(error)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def end(self, ended: RunEnded, complaint: str = "") -> None:
        """Any → DONE or FAILED: the native run returned; ``complaint`` is the runtime's message about a failure."""
        self._measures.report = ended.report
        is_complete = self._finish is not None
        failure = f"{self.stop_detail}, and it was aborted" if self.stop_detail else ended.failure
        if self.stop_reason is StopReason.INVALID_OUTPUT:
            self._error = RunRejectedError(self.stop_detail, self._measures.tokens, self._task)
        elif failure and not is_complete:
            self._error = RunRejectedError(
                f"{failure} ({complaint})" if complaint else failure, self._measures.tokens, self._task
            )
        self._close()

    def fail(self, error: RkllmMcpError) -> None:
        """Any → FAILED, or DONE if the answer was complete: the native run will never return."""
        if self._finish is None:
            if isinstance(error, (RunRejectedError, WorkerDiedError)):
                error.tokens_delivered = self._measures.tokens
            if isinstance(error, RunRejectedError):
                error.task = self._task
            self._error = error
        self._close()

    def stop_because(self, reason: StopReason, detail: str) -> None:
        """Any → STOPPING: the run is about to be aborted, for SILENT, or for INVALID_OUTPUT even if it is complete."""
        self.stop_detail = detail
        if self._finish is None or reason is StopReason.INVALID_OUTPUT:
            self._stop(reason)

    def leave(self) -> None:
        """Any → STOPPING: the consumer has left."""
        self._stop(StopReason.CONSUMER_LEFT)
        self._tokens.clear()

    def give_way(self) -> None:
        """Any → STOPPING if the option is set and the answer is not complete: something else waits for the engine."""
        if self.command.options.gives_way and self._finish is None:
            self._measures.gave_way = True
            self.finish_early()

    # Called by the consumer

    async def next_batch(self) -> list[Token]:
        """Return the tokens that have arrived, in order; none after the last.

        Raises:
            RkllmMcpError: the run failed; all tokens before that were delivered.
        """
        while not self._tokens:
            if self._error is not None:
                raise self._error
            if self.state in _ENDED:
                return []
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        batch, self._tokens = self._tokens, []
        return batch

    async def deliver(self, feed: FeedTokens) -> None:
        """See ``Generation.deliver``: a token costs one iteration of the event loop, and no task is resumed for it."""
        self._feed = feed
        try:
            while batch := await self.next_batch():
                feed(batch)
        finally:
            self._feed = None

    def finish_early(self) -> None:
        """Any → STOPPING: finish as a success, and discard tokens that were not taken.

        A run that has returned gives the same result, so the order of the two events does not matter.
        """
        if self._finish is None and self.stop_reason is not StopReason.INVALID_OUTPUT:
            self._stop(StopReason.FINISHED_EARLY)
        self._finish = "stop"
        self._tokens.clear()
        if self.stop_reason is not StopReason.INVALID_OUTPUT:
            self._error = None
            if self.state is RunState.FAILED:
                self.state = RunState.DONE
        if self.needs_abort and self._abort is not None:
            self._abort()

    def stats(self) -> RunStats:
        """Return the statistics of a returned run: the runtime's own, else measured ones."""
        measures, report = self._measures, self._measures.report
        perf = report.perf
        first_ns = measures.first_ns or measures.over_ns
        first_callback_ns = report.first_ns or first_ns
        return RunStats(
            finish=self._finish or "stop",
            prefilled_tokens=perf.prefill_tokens if perf else None,
            prefill_ms=perf.prefill_ms if perf else (first_callback_ns - measures.started_ns) / _NS_PER_MS,
            decode_ms=perf.generate_ms if perf else (measures.last_ns - measures.first_ns) / _NS_PER_MS,
            generated_tokens=measures.tokens,
            time_to_first_token_ms=(first_ns - measures.requested_ns) / _NS_PER_MS,
            queued_ms=(measures.started_ns - measures.requested_ns) / _NS_PER_MS,
            memory_mb=perf.memory_mb if perf else None,
            cold=measures.is_cold,
            expected_tokens=measures.expected_prefill,
            callback_ms=report.callback_ns / _NS_PER_MS,
            own_tokens=measures.own_tokens,
            gave_way=measures.gave_way,
        )

    def _stop(self, reason: StopReason) -> None:
        self.stop_reason = reason
        if self.state not in _ENDED:
            self.state = _STOPPING

    def _close(self) -> None:
        self.state = RunState.DONE if self._error is None else RunState.FAILED
        self._abort = None
        self._measures.over_ns = time.monotonic_ns()
        self.has_returned.set()
        self._wake()
