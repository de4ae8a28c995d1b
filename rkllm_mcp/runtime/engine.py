"""Engine: the asynchronous client of the worker that owns the NPU.

    async with open_engine(EngineSettings(model_path="model.rkllm")) as engine:
        async with aclosing(engine.generate(ids, GenerationOptions(max_new_tokens=64))) as run:
            async for item in run: ...          # Token, Token, …, then one RunStats

    generate(prompt, options)                   token ids, or an ImageInput
    evaluate(prompt, "hidden" | "logits")       OutputRows; on top of it embed, logits and rerank
    clear_cache, kv_cache_size, save_prompt_cache, load_prompt_cache, release_prompt_cache
    extras.py                                   LoRA adapters, chat template

Runs go one at a time; scheduler.py orders the waiting ones. Calls go after the current run and before the next. A
consumer that leaves early aborts its run, and the next run starts when the runtime has returned. The model loads in
the background: ``ready`` and every run wait for it. If the worker dies, the current generation fails with the signal
and the number of delivered tokens, and a new worker loads the model. A silent runtime is aborted, then killed
(``supervisor.Watchdog``). All of this happens in reaction to a frame, a lost worker or a deadline; no task waits.

Several models: one engine each, with separate IOMMU domains (``settings.with_domains``).
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import count
from operator import mul
from os import PathLike
from typing import Any

import anyio

from rkllm_mcp.errors import (
    CALL,
    EVALUATION,
    GenerationError,
    InputRefusedError,
    RkllmMcpError,
    RunRejectedError,
    WorkerDiedError,
)
from rkllm_mcp.generation import GenerationOptions, ImageInput, Input, OutputRows, RunStats, Token
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi import FAMILIES
from rkllm_mcp.runtime.abi.common import Abi
from rkllm_mcp.runtime.calls import Calls
from rkllm_mcp.runtime.frames import CallCommand, RunCommand, WhichRows, pack_run
from rkllm_mcp.runtime.inputs import (
    Output,
    as_input,
    check_input,
    evaluation_command,
    existing_file,
    fit_command,
    generation_command,
    token_count,
)
from rkllm_mcp.runtime.kv_cache import CacheState
from rkllm_mcp.runtime.run import Run, StopReason
from rkllm_mcp.runtime.scheduler import RunQueue
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.runtime.supervisor import PrefillPace, Supervisor, Watchdog, complaint

__all__ = ["Engine", "EngineSettings", "open_engine"]

# Names of lasting settings, also in error messages
LORA_SETTING = "the LoRA adapter "
_PROMPT_CACHE = "the prompt cache"
# 1.3.0 loses about 2 MB with each picture (rknn-llm #529); this much is worth loading the model again.
_MOST_GROWTH_BYTES = 128 << 20


def unit_vector(vector: array[float]) -> array[float]:
    """Return the vector scaled to length 1; a zero vector is unchanged."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    return array("f", [value / length for value in vector]) if length else vector


def probability(yes: float, no: float) -> float:
    """Return the softmax of two logits: the share of the first."""
    difference = no - yes
    # math.exp overflows above 709.
    return 1.0 / (1.0 + math.exp(difference)) if difference < 700 else 0.0


class Engine:
    """Asynchronous client of one worker; ``open_engine`` creates it.

    A call on the model other than a run (``clear_cache``, ``kv_cache_size``, the prompt caches, ``extras``) follows the
    current run. It raises RunRejectedError if the runtime refused, WorkerDiedError if the worker died before it
    answered, UnsupportedError if the runtime lacks it, and RuntimeUnusableError if the model cannot be loaded.

    Attributes:
        supervisor: starts, loads and replaces the worker: its restarts, its last log lines, why it cannot be started.
        context_tokens: context window that the model is loaded with, tokens.
        may_reuse_prefix: False if measurements showed that runs do not reuse the KV cache of the previous run.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self.supervisor = Supervisor(
            settings, on_frames=self._on_frames, on_service=self._on_service, on_loss=self._on_loss
        )
        self.context_tokens = settings.context_tokens
        self.may_reuse_prefix = not settings.profile or settings.profile.reuses_prefix is not False
        self._calls = Calls()
        self._cache = CacheState(reuses_prefix=self.may_reuse_prefix)
        self._pace = PrefillPace(settings.silence, settings.profile.prefill_s if settings.profile else None)
        self._waiting: RunQueue[Run] = RunQueue(settings.max_skips, self._pace.cost_s, self._start_next)
        self._deferred: Run | None = None
        self._current: Run | None = None
        self._command: RunCommand | None = None
        self._cache_changes: list[Callable[[], None]] = []
        self._abort_deadline: asyncio.TimerHandle | None = None
        self._prefill_limit_s = 0.0  # of the current run
        self._watchdog = Watchdog(self._on_silence)
        self._is_decoding = False
        self._death_cause: str | None = None
        self._log_mark = 0
        self._settled = asyncio.Event()
        self._numbers = count(1)

    @property
    def is_ready(self) -> bool:
        """True while the model is loaded."""
        return self.supervisor.loaded is not None

    @property
    def is_stopping(self) -> bool:
        """True while a run that was stopped has not returned: a prefill ends first."""
        return self._current is not None and self._current.needs_abort

    @property
    def abi(self) -> Abi | None:
        """Interface in use; None until the model is loaded."""
        loaded = self.supervisor.loaded
        return next((abi for abi in FAMILIES if loaded and abi.name == loaded.abi), None)

    @property
    def version(self) -> str:
        """Release of the runtime; empty until the model is loaded."""
        return self.supervisor.loaded.version if self.supervisor.loaded else ""

    @property
    def limits_each_run(self) -> bool:
        """True if the runtime applies each run's own limit (1.3.0 on); False until the model is loaded."""
        return self.abi is not None and self.abi.has_per_run_token_limit

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the loaded LoRA adapters."""
        settings = self._calls.settings
        return tuple(name.removeprefix(LORA_SETTING) for name in settings if name.startswith(LORA_SETTING))

    def count_uncached(self, tokens: Sequence[int], owner: str | None = "") -> int:
        """Return how many of these tokens a run would evaluate as of the current run's start, as ``owner`` may know."""
        return self._cache.count_uncached(tokens, owner)

    @property
    def cached_tokens(self) -> Sequence[int]:
        """Token ids that are in the KV cache, or will be after the prefill of the current run; empty if unknown."""
        return self._cache.ids if self._current is None else self._current.tokens

    @property
    def holds_pictures(self) -> bool:
        """True while pictures may be in the KV cache, which is cleared before a run without them."""
        return bool(self._cache.images)

    @property
    def is_idle(self) -> bool:
        """True while no run or call goes on or waits."""
        return self._current is None and self._deferred is None and not self._waiting and not self._calls

    async def idle(self) -> None:
        """Wait until no run or call goes on or waits; a run that gives way ends for this."""
        self._make_way()
        while not self.is_idle:
            await self._settled.wait()

    def expect(self, tokens: Sequence[int]) -> None:
        """Expect a generation soon whose prompt begins with these tokens, such as one with a tool's result.

        Other runs whose prompts would replace the reusable part of the cache are held for a moment.
        """
        self._waiting.expect(tokens)

    @property
    def expected_tokens(self) -> Sequence[int]:
        """Prefix of the expected generation; empty without one."""
        return self._waiting.expected_tokens

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        """Cancel the expected generation with this very sequence, if it is still expected."""
        if self._waiting.expected_tokens is tokens:
            self._waiting.clear_expected()
            # Runs were held for it.
            self._start_next()

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker; None without one."""
        return self.supervisor.worker.pid if self.supervisor.worker else None

    async def ready(self) -> None:
        """Wait until the model is loaded; a RuntimeUnusableError says why it cannot be."""
        await self.supervisor.ready()

    async def unload(self) -> None:
        """Stop the worker, which frees the model's memory, until ``supervisor.load``; what still runs fails."""
        self._make_way()
        await self.supervisor.unload()

    async def generate(
        self, prompt: Input | Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[Token | RunStats, None]:
        """Run the model: yield every token, then one RunStats. Use it under ``aclosing``.

        Args:
            prompt: token ids of the whole prompt, whose cached prefix is not evaluated again; or another input.
            options: limits, sampling and switches. The token that ends the answer is the last one yielded.

        Raises:
            InputRefusedError: an input or an option that cannot work.
            PromptTooLongError: the prompt leaves no room for a single token.
            UnsupportedError: the runtime lacks the function.
            RunRejectedError: the runtime refused the run, failed during it, or was silent for too long.
            WorkerDiedError: the worker died; it is started again for the next generation.
            RuntimeUnusableError: the model cannot be loaded.
        """
        async with self.generation(prompt, options) as run:
            while batch := await run.next_batch():
                for token in batch:
                    yield token
            yield run.stats()

    @asynccontextmanager
    async def generation(
        self, prompt: Input | Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[Run, None]:
        """Queue a run, whose tokens ``Run.next_batch`` returns; else like ``generate``."""
        options = options or GenerationOptions()
        async with self._submit(generation_command(next(self._numbers), as_input(prompt), options)) as run:
            yield run

    async def prefill(self, tokens: Sequence[int], options: GenerationOptions) -> RunStats:
        """Run a prompt for its effect on the KV cache, and discard the generated tokens; else like ``generate``."""
        async with self.generation(tokens, options) as run:
            while await run.next_batch():
                pass
            return run.stats()

    async def evaluate(
        self,
        prompt: Input | Sequence[int],
        output: Output,
        *,
        rows: WhichRows = "last",
        columns: Sequence[int] = (),
        lora: str | None = None,
    ) -> OutputRows:
        """Evaluate a prompt without generating.

        Args:
            prompt: the input; a plain sequence is one of token ids.
            output: ``hidden`` for the last layer's states, ``logits`` for a value per token of the vocabulary.
            rows: the last token's row, or all rows of the runtime.
            columns: selected columns of each row; empty for all.
            lora: name of the adapter to use.

        Raises:
            RkllmMcpError: as for ``generate``; RunRejectedError also where the model gives no rows.
        """
        command = evaluation_command(next(self._numbers), as_input(prompt), output, rows, columns, lora)
        async with self._submit(command) as run:
            await run.next_batch()
            if run.rows is None:
                raise RunRejectedError(f"it gave no {output}", task=EVALUATION)
            if columns and not run.rows.values:
                width = run.rows.width
                raise InputRefusedError(
                    f"this model's {output} have {width} columns, so none is {max(columns)}; "
                    f"ask for one from 0 to {width - 1}"
                )
            return OutputRows(run.rows.values, run.rows.width, run.rows.given, run.stats())

    async def embed(
        self,
        prompts: Sequence[Input | Sequence[int]],
        *,
        dimensions: int | None = None,
        normalise: bool = True,
        lora: str | None = None,
    ) -> list[array[float]]:
        """Return one vector per prompt: the hidden state of its last token.

        Args:
            prompts: token ids of each, with the end token that the model was trained with.
            dimensions: keep this many leading dimensions (Matryoshka), for models trained for it; None for all.
            normalise: scale each vector to length 1, after cutting.
            lora: name of the adapter to use.

        Raises:
            InputRefusedError: ``dimensions`` is not one of the vector's.
            GenerationError: as for ``evaluate``.
        """
        vectors: list[array[float]] = []
        for prompt in prompts:
            vector = (await self.evaluate(prompt, "hidden", lora=lora)).row()
            if dimensions is not None and not 0 < dimensions <= len(vector):
                raise InputRefusedError(
                    f"this model's vectors have {len(vector)} dimensions, not {dimensions}; ask for fewer"
                )
            vector = vector[:dimensions]
            vectors.append(unit_vector(vector) if normalise else vector)
        return vectors

    async def logits(self, prompt: Input | Sequence[int], *, lora: str | None = None) -> array[float]:
        """Return the logits of the next token, one per id of the vocabulary; fails as ``evaluate`` does."""
        return (await self.evaluate(prompt, "logits", lora=lora)).row()

    async def rerank(
        self, prompts: Sequence[Input | Sequence[int]], yes_id: int, no_id: int, *, lora: str | None = None
    ) -> list[float]:
        """Return for each prompt the probability that the answer is yes rather than no; fails as ``evaluate`` does.

        Args:
            prompts: token ids of each: instruction, query and document in the model's layout.
            yes_id: id of the token for a relevant document.
            no_id: id of the token for an irrelevant one.
            lora: name of the adapter to use.
        """
        ids = (yes_id, no_id)
        rows = [(await self.evaluate(prompt, "logits", columns=ids, lora=lora)).row() for prompt in prompts]
        return [probability(yes, no) for yes, no in rows]

    async def clear_cache(self) -> None:
        """Clear the KV cache, after the current run."""
        await self.call("clear_kv_cache", {}, cold=True)

    async def kv_cache_size(self) -> int | None:
        """Return the number of tokens in the KV cache, after the current run; None if it is unknown (1.2.0)."""
        return await self.call("kv_cache_size", {})

    async def save_prompt_cache(self, tokens: Sequence[int], path: str | PathLike[str]) -> RunStats:
        """Evaluate a prefix and save it to a file, for ``load_prompt_cache`` in another process.

        A runtime without limits per run (before 1.3.0) generates up to the limit that it was loaded with.

        Args:
            tokens: common prefix of later prompts.
            path: the file, in a folder that exists; it is replaced.

        Raises:
            GenerationError: as for ``generate``; RunRejectedError also when no file was written.
        """
        file = await anyio.Path(path).expanduser()
        stats = await self.prefill(tokens, GenerationOptions(1, save_prompt_cache=str(file), owner=None))
        if not await file.is_file():
            raise RunRejectedError(f"it wrote no prompt cache to {path}", task=CALL)
        return stats

    async def load_prompt_cache(
        self, path: str | PathLike[str], *, tokens: Sequence[int] = (), owner: str | None = None
    ) -> None:
        """Fill the KV cache from a saved file; the next prompt with that prefix evaluates only the rest.

        Args:
            path: the file.
            tokens: the ids of its prompt, if known, to predict the prefill of later runs.
            owner: owner of the prompt, as in ``GenerationOptions``.

        Raises:
            InputRefusedError: the file does not exist.
            RunRejectedError: it belongs to another model or release.
        """
        if _PROMPT_CACHE in self._calls.settings:
            # Files may only be changed after the last one was released (SDK guide 1.3.0, 3.2.9).
            await self.release_prompt_cache()
        arguments = {"path": str(existing_file(path))}
        await self.call("load_prompt_cache", arguments, setting=_PROMPT_CACHE, cold=False, holds=tokens, owner=owner)

    async def release_prompt_cache(self) -> None:
        """Release the loaded prompt cache, if there is one."""
        if _PROMPT_CACHE in self._calls.settings:
            await self.call("release_prompt_cache", {}, cold=False)
            self._calls.drop(_PROMPT_CACHE)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        setting: str = "",
        cold: bool | None = None,
        holds: Sequence[int] = (),
        owner: str | None = None,
    ) -> int | None:
        """Call a method of ``NativeModel`` after the current run; used by the functions of ``extras``.

        Args:
            name: name of the method.
            arguments: its arguments, as JSON values.
            setting: name of the lasting setting that it makes, which is restored on a new worker; empty for none.
            cold: True if the KV cache is empty afterwards, False if it is filled, None if it is unchanged.
            holds: known token ids in the KV cache afterwards.
            owner: owner of these ids, as in ``GenerationOptions``.
        """
        await self.ready()
        worker = self.supervisor.worker
        if worker is None:
            raise RunRejectedError("its process is not running", task=CALL)
        self._make_way()
        if self._current is None and not self._calls:
            # Before sending: the worker may print errors of the call at once.
            self._log_mark = worker.log.total
        answer = self._calls.ask(worker.send, CallCommand(name, arguments), setting=setting)
        if self._current is None:
            self._expect_reply()
        effects = {None: None, True: self._cache.on_clear, False: partial(self._cache.on_load, holds, owner)}
        if (change := effects[cold]) is not None:
            # The worker executes the call after the current run.
            if self._current is None:
                change()
            else:
                self._cache_changes.append(change)
        try:
            return await asyncio.shield(answer)
        except RunRejectedError:
            if holds and self._cache.ids is holds:
                self._cache.on_load()
            raise

    @asynccontextmanager
    async def _submit(self, command: RunCommand) -> AsyncGenerator[Run, None]:
        """Queue a run; leaving early removes or aborts it, and gives an aborted one time to return."""
        self.supervisor.check()
        check_input(command.prompt, self.context_tokens)
        lora = command.options.lora
        if lora is not None and lora not in self.adapters:
            there = ", ".join(self.adapters) or "none"
            raise InputRefusedError(f"no LoRA adapter '{lora}' is loaded (there: {there}); load it with load_lora")
        command = replace(command, is_timed=self._settings.timed_callbacks)
        run = Run(command, timed=self._settings.timed_tokens)
        self._make_way()
        self._waiting.runs.append(run)
        self._start_next()
        try:
            yield run
        finally:
            if not run.has_returned.is_set():
                run.leave()
                if run is self._deferred:
                    self._deferred = None
                elif run in self._waiting.runs:
                    self._waiting.runs.remove(run)
                    self._notify_idle()
                else:
                    self._abort(run)
                    # The next run starts when this one has returned; waiting here means that it usually has.
                    with anyio.move_on_after(self._settings.leave_timeout_s, shield=True):
                        await run.has_returned.wait()

    def _make_way(self) -> None:
        """End the current run early if it gives way."""
        if self._current is not None:
            self._current.give_way()

    def _notify_idle(self) -> None:
        if self.is_idle:
            self._settled.set()
            self._settled = asyncio.Event()

    # Runs

    def _start_next(self) -> None:
        """Send the next run to the worker, if it is idle."""
        self._notify_idle()
        worker, loaded, abi = self.supervisor.worker, self.supervisor.loaded, self.abi
        if worker is None or loaded is None or abi is None or self._death_cause is not None or self._calls.is_restoring:
            return
        while self._current is None:
            run, self._deferred = self._deferred or self._waiting.next(self._cache.ids), None
            if run is None:
                return
            try:
                self._calls.check()
                command = self._cache.before(fit_command(run.command, abi, loaded.version))
                frame = pack_run(command)
            except GenerationError as error:
                run.fail(error)
                continue
            except (TypeError, ValueError) as error:
                run.fail(InputRefusedError(f"an option is of a wrong type: {error}; use plain numbers and texts"))
                continue
            if isinstance(command.prompt, ImageInput) and command.clears_before:
                # Memory lost to pictures is recovered before a new picture, for which the cache is cleared anyway.
                now, before_pictures = worker.memory_bytes(), self.supervisor.record.before_pictures
                if len(before_pictures) < 2:
                    # The first run allocates buffers that stay.
                    before_pictures.append(now)
                elif now - before_pictures[1] > _MOST_GROWTH_BYTES:
                    self._deferred = run
                    self._kill("its memory had grown with pictures")
                    return
            expected_prefill = None
            if run.tokens:
                clears = command.clears_before
                expected_prefill = len(run.tokens) if clears else self._cache.count_uncached(run.tokens)
            self._current, self._command = run, command
            self._waiting.clear_expected()
            run.start(
                runtime_limit=None if abi.has_per_run_token_limit else self._settings.max_new_tokens,
                is_cold=self._cache.is_cold or command.clears_before,
                expected_prefill=expected_prefill,
                own_tokens=self._cache.own_tokens(run.tokens, run.command.options.owner),
                abort=partial(self._abort, run),
            )
            self._cache.is_cold = False
            self.supervisor.record.is_used = True
            self._log_mark = worker.log.total
            # The length of a text input is unknown; the context is its upper limit.
            self._prefill_limit_s = self._pace.limit_s(token_count(command.prompt) or self.context_tokens)
            limit_s = self._prefill_limit_s + (self._settings.silence.call_s if self._calls else 0.0)
            self._watchdog.start("the first token" if run.command.rows is None else "its result", limit_s)
            worker.send(frame)

    def _abort(self, run: Run) -> None:
        """Abort the current run; kill the worker if the run does not return in time."""
        worker = self.supervisor.worker
        if worker is None:
            return
        worker.send(frames.pack_numbered(frames.ABORT, run.command.run))
        if self._abort_deadline is None:
            limit_s = self._settings.decode_abort_timeout_s
            if not run.ids and not run.stop_detail:
                limit_s += self._prefill_limit_s
            cause = f"{run.stop_detail or 'it was told to stop'} and it did not stop within {limit_s:.3g} s"
            self._abort_deadline = asyncio.get_running_loop().call_later(limit_s, self._kill, cause)

    def _kill(self, cause: str) -> None:
        if self.supervisor.worker is not None:
            self._death_cause = cause
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

    def _expect_reply(self) -> None:
        if self._calls:
            self._watchdog.start("an answer", self._settings.silence.call_s)
        else:
            self._watchdog.stop()

    def _on_silence(self, silence: str) -> None:
        run = self._current
        if run is None:
            self._kill(silence)
        elif self._abort_deadline is None:
            run.stop_because(StopReason.SILENT, silence)
            self._abort(run)

    # Reports of the worker

    def _on_frames(self, received: list[tuple[int, bytes]]) -> None:
        """Process frames, in the socket's callback; no task runs between the socket and the consumer of a run."""
        for kind, body in received:
            if kind == frames.TOKEN:
                number, token_id, entered_ns, text = frames.unpack_token(body)
                if self._current is not None and self._current.command.run == number:
                    self._current.add(token_id, entered_ns, text)
            else:
                self._on_report(kind, body)
        run = self._current
        if run is not None:
            if self._is_decoding:
                self._watchdog.feed()
            elif run.ids:
                self._is_decoding = True
                self._watchdog.start("the next token", self._settings.silence.decode_s)
                self._check_arithmetic(run)
            if run.stop_reason is not None and run.needs_abort:
                self._abort(run)
            run.hand_over()

    def _check_arithmetic(self, run: Run) -> None:
        """Invalidate a run with failed matrix products, which old drivers report only in the log (rknn-llm #413)."""
        lines = self.supervisor.worker.log.lines(self._log_mark) if self.supervisor.worker else ()
        # Such as ``matmul(w8a8) run failed``.
        failed_line = next((line for line in lines if line.startswith("E ") and "run failed" in line), "")
        if failed_line:
            run.stop_because(StopReason.INVALID_OUTPUT, f"its tokens mean nothing ({failed_line})")

    def _on_report(self, kind: int, body: bytes) -> None:
        if kind == frames.RUN_ENDED:
            ended, run, command = frames.unpack_run_ended(body), self._forget_current(), self._command
            if run is not None and command is not None:
                self._check_arithmetic(run)
                run.end(ended, self._explanation() if ended.failure else "")
                self._cache.after(run, command)
                changes, self._cache_changes = self._cache_changes, []
                for change in changes:
                    change()
                if (perf := ended.report.perf) is not None:
                    self._pace.record_prefill(perf.prefill_tokens, perf.prefill_ms)
                if not ended.failure:
                    self.supervisor.record.is_proven = True
            self._expect_reply()
            # After the consumer, which may expect another run.
            asyncio.get_running_loop().call_soon(self._start_next)
        elif kind == frames.ROWS:
            rows = frames.unpack_rows(body)
            if self._current is not None and self._current.command.run == rows.run:
                self._current.rows = rows
        elif kind == frames.REPLY:
            answer = frames.unpack(frames.CallReply, body)
            if answer.failure and (explanation := self._explanation()):
                answer = replace(answer, failure=f"{answer.failure} ({explanation})")
            self._log_mark = self.supervisor.worker.log.total if self.supervisor.worker else 0
            self._calls.on_reply(answer)
            if self._current is None:
                self._expect_reply()
                self._start_next()
        else:
            self.supervisor.on_load_report(kind, body)

    def _explanation(self) -> str:
        worker = self.supervisor.worker
        complaint_line = complaint(worker.log.lines(self._log_mark)) if worker else ""
        return "; ".join(filter(None, (complaint_line, self.supervisor.suspicion())))

    # Reports of the supervisor

    def _on_service(self) -> None:
        self._death_cause = None
        self._cache.on_clear()
        worker = self.supervisor.worker
        if worker is not None:
            self._calls.restore(worker.send)
        self._expect_reply()
        self._start_next()

    def _on_loss(self, error: RkllmMcpError) -> None:
        """Fail the current run and calls; fail waiting runs only if no other worker will start."""
        if isinstance(error, WorkerDiedError):
            error.cause = self._death_cause or ""
        self._cache_changes.clear()
        self._waiting.clear_expected()
        current = self._forget_current()
        lost = [current] if current is not None else []
        if not isinstance(error, WorkerDiedError):
            lost.extend([self._deferred] if self._deferred is not None else [])
            lost.extend(self._waiting.runs)
            self._waiting.runs.clear()
            self._deferred = None
        for run in lost:
            run.fail(copy(error))
        self._calls.fail(error)
        self._notify_idle()


@asynccontextmanager
async def open_engine(settings: EngineSettings) -> AsyncGenerator[Engine, None]:
    """Start an engine and stop it at the end. Entering returns immediately; ``Engine.ready`` waits for the model.

    Leaving stops the worker, also when cancelled; running generations fail.
    """
    engine = Engine(settings)
    supervisor = asyncio.create_task(engine.supervisor.run())
    try:
        yield engine
    finally:
        supervisor.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({supervisor})
        if not supervisor.cancelled() and (mistake := supervisor.exception()):
            raise mistake
