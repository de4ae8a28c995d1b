"""Engine: the asynchronous client of the worker that owns the NPU. Token ids go in, tokens come out as they are made.

    async with open_engine(EngineSettings(model_path="model.rkllm")) as engine:
        async with aclosing(engine.generate(ids, GenerationOptions(max_new_tokens=64))) as run:
            async for item in run: ...          # Token, Token, …, then one RunStats

One generation at a time, in the order in which they were asked for; the others wait. Whoever leaves early has the run
aborted, and the next one starts when the runtime has really returned. The model loads in the background: ``ready``
waits for it, and so does every generation. When the worker dies, the generation under way fails with an error that
names the signal, and a new worker loads the model for the next one.

Everything here happens in reaction to something: a frame, a death, a deadline. Consumers own nothing, so a consumer
that is cancelled leaves nothing undone. It knows no text, no tools and no prompts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from itertools import count

import anyio

from rkllm_mcp.errors import PromptTooLongError, RkllmMcpError, RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.run import Run
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.runtime.supervision import EMULATOR, Supervisor, complaint

__all__ = ["EMULATOR", "Engine", "EngineSettings", "open_engine"]


class Engine:
    """The owner of the NPU; ``open_engine`` makes one."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._supervisor = Supervisor(
            settings, on_frames=self._on_frames, on_service=self._on_service, on_loss=self._on_loss
        )
        self._numbers = count(1)
        self._queue: deque[Run] = deque()
        self._current: Run | None = None
        self._abort_deadline: asyncio.TimerHandle | None = None
        self._answers: deque[asyncio.Future[int]] = deque()
        self._is_cold = True
        self._log_mark = 0

    # What a consumer sees

    @property
    def is_ready(self) -> bool:
        """Whether the model is loaded."""
        return self._supervisor.loaded is not None

    @property
    def context_tokens(self) -> int:
        """The context window that the model is loaded with, tokens."""
        return self._settings.context_tokens

    @property
    def version(self) -> str:
        """The runtime's release; empty until the model is loaded."""
        return self._supervisor.loaded.version if self._supervisor.loaded else ""

    @property
    def abi_name(self) -> str:
        """The interface in use; empty until the model is loaded."""
        return self._supervisor.loaded.abi if self._supervisor.loaded else ""

    @property
    def is_emulated(self) -> bool:
        """Whether the runtime is the emulated one; False until the model is loaded."""
        return self._supervisor.loaded is not None and self._supervisor.loaded.emulated

    @property
    def restarts(self) -> int:
        """How often a worker has been started again."""
        return self._supervisor.restarts

    @property
    def worker_pid(self) -> int | None:
        """The worker's process; None while there is none."""
        return self._supervisor.worker.pid if self._supervisor.worker else None

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The last lines that the runtime printed, of the last worker where there is none now."""
        return self._supervisor.log_lines

    async def ready(self) -> None:
        """Wait until the model is loaded.

        Raises:
            RuntimeUnusableError: it cannot be loaded, and why.
        """
        await self._supervisor.ready()

    async def generate(
        self, tokens: Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[Token | RunStats, None]:
        """Run the model: every token as it comes, then one RunStats. Consume it under ``aclosing``.

        Args:
            tokens: the whole prompt; what of it is in the KV cache already is not evaluated again.
            options: limits and sampling. The token that ends the answer is the last one yielded.

        Raises:
            PromptTooLongError: the prompt leaves no room for a single token.
            RunRejectedError: the runtime refused the run or failed in the middle of it.
            WorkerDiedError: the worker died; it is started again for the next generation.
            RuntimeUnusableError: the model cannot be loaded.
        """
        run = self._new_run(tokens, options or GenerationOptions())
        self._queue.append(run)
        self._start_next()
        try:
            while (token := await run.next()) is not None:
                yield token
            yield run.stats()
        finally:
            await self._leave(run)

    async def clear_cache(self) -> None:
        """Make the runtime forget all that was prefilled, after the generation under way.

        Raises:
            RunRejectedError: the runtime refused.
            WorkerDiedError: the worker died before it answered.
        """
        await self.ready()
        self._is_cold = True  # for the next generation: the worker does as it is told in order
        if await self._ask(frames.CLEAR_CACHE) != 0:
            raise RunRejectedError("it did not clear its KV cache")

    async def kv_cache_size(self) -> int | None:
        """Tokens in the KV cache, after the generation under way; None where the runtime cannot tell (1.2.0).

        Raises:
            WorkerDiedError: the worker died before it answered.
        """
        await self.ready()
        if self._supervisor.loaded is None or not self._supervisor.loaded.has_kv_cache_size:
            return None
        size = await self._ask(frames.CACHE_SIZE)
        return size if size >= 0 else None

    async def run(self) -> None:
        """Keep the worker running until cancelled; ``open_engine`` does this."""
        await self._supervisor.run()

    # Generations

    def _new_run(self, tokens: Sequence[int], options: GenerationOptions) -> Run:
        self._supervisor.check()
        if not tokens:
            raise RunRejectedError("the prompt has no tokens")
        if len(tokens) >= self.context_tokens:
            # Some runtimes die of a prompt that is too long instead of refusing it.
            raise PromptTooLongError(len(tokens), self.context_tokens - 1)
        number = next(self._numbers)
        command = frames.pack_run(number, tokens, options.max_new_tokens, options.sampling)
        return Run(number, command, options, timed=self._settings.timed_tokens)

    def _start_next(self) -> None:
        """Give the worker the next generation, if both are there."""
        worker, loaded = self._supervisor.worker, self._supervisor.loaded
        if worker is None or loaded is None or self._current is not None or not self._queue:
            return
        run = self._current = self._queue.popleft()
        runtime_limit = None if loaded.has_per_run_token_limit else self._settings.max_new_tokens
        run.start(runtime_limit=runtime_limit, is_cold=self._is_cold)
        self._is_cold = False
        self._supervisor.is_used = True
        self._log_mark = worker.log.total
        worker.send(run.command)

    async def _leave(self, run: Run) -> None:
        """The consumer goes: a waiting run is forgotten, a running one is told to stop and given time to return."""
        if run.is_over:
            return
        run.leave()
        if run in self._queue:
            self._queue.remove(run)
            return
        self._tell_to_stop(run)
        # The queue goes on when the run has returned, however long that takes; this is so that it usually has.
        with anyio.move_on_after(self._settings.leave_timeout_s, shield=True):
            await run.over()

    def _tell_to_stop(self, run: Run) -> None:
        """Abort the run under way; when it does not return in time, the worker hangs and is killed."""
        worker = self._supervisor.worker
        if worker is None:
            return
        worker.send(frames.pack_abort(run.number))
        if self._abort_deadline is None:
            limits = self._settings
            limit_s = limits.decode_abort_timeout_s if run.has_tokens else limits.prefill_abort_timeout_s
            self._abort_deadline = asyncio.get_running_loop().call_later(limit_s, worker.kill)

    def _forget_current(self) -> Run | None:
        run, self._current = self._current, None
        if self._abort_deadline is not None:
            self._abort_deadline.cancel()
            self._abort_deadline = None
        return run

    # What the worker says

    def _on_frames(self, received: Iterator[tuple[int, bytes]]) -> None:
        for kind, body in received:
            if kind == frames.TOKEN:
                number, token_id, entered_ns, text = frames.unpack_token(body)
                if self._current is not None and self._current.number == number:
                    self._current.take(token_id, entered_ns, text)
            else:
                self._on_report(kind, body)
        if self._current is not None:
            if self._current.must_stop:
                self._tell_to_stop(self._current)
            self._current.wake()

    def _on_report(self, kind: int, body: bytes) -> None:
        if kind == frames.RUN_ENDED:
            self._on_run_ended(frames.unpack_run_ended(body))
        elif kind == frames.ANSWER:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result(frames.unpack_answer(body))
        else:
            self._supervisor.on_load_report(kind, body)

    def _on_run_ended(self, ended: frames.RunEnded) -> None:
        run, worker = self._forget_current(), self._supervisor.worker
        if run is not None:
            run.end(ended, complaint(worker.log.since(self._log_mark)) if ended.failure and worker else "")
        self._start_next()

    async def _ask(self, kind: int) -> int:
        worker = self._supervisor.worker
        if worker is None:
            raise RunRejectedError("its process is not running")
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        worker.send(frames.frame(kind))
        return await answer

    # What the supervisor says

    def _on_service(self) -> None:
        self._is_cold = True
        self._start_next()

    def _on_loss(self, error: RkllmMcpError) -> None:
        """What was under way fails; what waits fails only when there will never be another worker."""
        current = self._forget_current()
        lost = [current] if current is not None else []
        if not isinstance(error, WorkerDiedError):
            lost.extend(self._queue)
            self._queue.clear()
        for run in lost:
            run.fail(copy(error))
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(copy(error))
        self._answers.clear()


@asynccontextmanager
async def open_engine(settings: EngineSettings) -> AsyncGenerator[Engine, None]:
    """Start an engine and stop it at the end. Entering returns at once; ``Engine.ready`` waits for the model.

    Leaving stops the worker, also when it is cancelled; what still generates fails.
    """
    engine = Engine(settings)
    supervisor = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        supervisor.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({supervisor})
        if not supervisor.cancelled() and (mistake := supervisor.exception()):
            raise mistake
