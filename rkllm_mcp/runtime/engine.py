"""Engine: the asynchronous client of the worker that owns the NPU.

    async with open_engine(EngineSettings(model_path="model.rkllm")) as engine:
        async with aclosing(engine.generate(ids, GenerationOptions(max_new_tokens=64))) as run:
            async for item in run: ...          # Token, Token, …, then one RunStats

    generate(prompt, options)                   token ids, or an ImageInput
    evaluate(prompt, "hidden" | "logits")       OutputRows; on top of it embed, logits and rerank
    clear_cache, kv_cache_size, save_prompt_cache, load_prompt_cache, release_prompt_cache
    extras.py                                   LoRA adapters, chat template

Runs go one at a time; scheduler.py orders the waiting ones. A consumer that leaves early aborts its run, and the next
run starts when the runtime has returned. The model loads in the background: ``ready`` and every run wait for it. If the
worker dies, the current generation fails with the signal and the number of delivered tokens, and a new worker loads the
model. A silent runtime is aborted, then killed (``supervisor.Watchdog``).

Several models: one engine each, with separate IOMMU domains (``settings.with_domains``).
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from operator import mul
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args

import anyio

from rkllm_mcp.errors import CALL, EVALUATION, InputRefusedError, RkllmMcpError, RunRejectedError
from rkllm_mcp.generation import (
    GenerationOptions,
    ImageInput,
    Input,
    OutputRows,
    RunStats,
    Sampling,
    Token,
)
from rkllm_mcp.runtime.abi.common import RKLLM_INFER_GET_LAST_HIDDEN_LAYER, RKLLM_INFER_GET_LOGITS
from rkllm_mcp.runtime.dispatcher import Dispatcher
from rkllm_mcp.runtime.frames import CallCommand, OutputSelection, RunCommand, WhichRows
from rkllm_mcp.runtime.inputs import as_input, check_input
from rkllm_mcp.runtime.run import Run
from rkllm_mcp.runtime.settings import EngineSettings

Output = Literal["hidden", "logits"]


def cut(vector: array[float], dimensions: int | None) -> array[float]:
    """Return the leading dimensions of a vector; refuse more than it has."""
    if dimensions is None:
        return vector
    if not 0 < dimensions <= len(vector):
        raise InputRefusedError(f"this model's vectors have {len(vector)} dimensions, not {dimensions}; ask for fewer")
    return vector[:dimensions]


def unit_vector(vector: array[float]) -> array[float]:
    """Return the vector scaled to length 1; a zero vector is unchanged."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    return array("f", [value / length for value in vector]) if length else vector


def probability(yes: float, no: float) -> float:
    """Return the softmax of two logits: the share of the first."""
    difference = no - yes
    # math.exp overflows above 709.
    return 1.0 / (1.0 + math.exp(difference)) if difference < 700 else 0.0


# 0 keeps the limit that the model was loaded with: the effect of a limit on a run without generation is undocumented,
# and a run that generates is aborted.
_NO_LIMIT_OF_ITS_OWN = 0

# A wrong type would fail far from its origin.
_OPTION_TYPES: dict[str, tuple[type, ...]] = {
    "max_new_tokens": (int,),
    "stop_ids": (frozenset, set),
    "sampling": (Sampling, NoneType),
    "save_prompt_cache": (str, PathLike, NoneType),
}


def generation_command(run: int, prompt: Input, options: GenerationOptions) -> RunCommand:
    """Check the options of a generation and return its command."""
    for name, types in _OPTION_TYPES.items():
        if not isinstance(value := getattr(options, name), types):
            raise InputRefusedError(f"{name} has to be of type {types[0].__name__}, not {value!r}")
    if options.max_new_tokens < 1:
        raise InputRefusedError(f"an answer of {options.max_new_tokens} tokens is none; ask for 1 or more")
    path = options.save_prompt_cache
    if path is not None and not Path(path).expanduser().absolute().parent.is_dir():
        raise InputRefusedError(f"there is no folder for {path}; make it first")
    if path is not None:
        options = replace(options, save_prompt_cache=str(Path(path).expanduser().absolute()))
    is_unnamed = isinstance(prompt, ImageInput) and not prompt.digests
    return RunCommand(run, prompt, options, clears_before=is_unnamed, clears_after=is_unnamed)


def evaluation_command(
    run: int, prompt: Input, output: Output, which: WhichRows, columns: Sequence[int], lora: str | None
) -> RunCommand:
    """Check the options of an evaluation and return its command."""
    for option, choices in ((output, get_args(Output)), (which, get_args(WhichRows))):
        if option not in choices:
            raise InputRefusedError(f"there is no {option!r} to evaluate; there are {', '.join(choices)}")
    for column in cast("Sequence[object]", columns):
        if not isinstance(column, int) or column < 0:
            raise InputRefusedError(f"there is no column {column!r}; columns are numbers that begin with 0")
    mode = RKLLM_INFER_GET_LOGITS if output == "logits" else RKLLM_INFER_GET_LAST_HIDDEN_LAYER
    selection = OutputSelection(which, tuple(columns), mode)
    options = GenerationOptions(_NO_LIMIT_OF_ITS_OWN, lora=lora)
    return RunCommand(run, prompt, options, rows=selection, clears_before=True, clears_after=True)


__all__ = ["Engine", "EngineSettings", "open_engine"]

# Names of lasting settings, also in error messages
LORA_SETTING = "the LoRA adapter "
_PROMPT_CACHE = "the prompt cache"


class Engine:
    """Asynchronous client of one worker; ``open_engine`` creates it.

    A call on the model other than a run (``clear_cache``, ``kv_cache_size``, the prompt caches, ``extras``) follows the
    current run. It raises RunRejectedError if the runtime refused, WorkerDiedError if the worker died before it
    answered, UnsupportedError if the runtime lacks it, and RuntimeUnusableError if the model cannot be loaded.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._dispatcher = Dispatcher(settings)
        self._supervisor = self._dispatcher.supervisor
        self._numbers = count(1)

    @property
    def is_ready(self) -> bool:
        """True while the model is loaded."""
        return self._supervisor.loaded is not None

    @property
    def is_stopping(self) -> bool:
        """True while a run that was stopped has not returned: a prefill ends first."""
        return self._dispatcher.is_stopping

    @property
    def context_tokens(self) -> int:
        """Context window that the model is loaded with, tokens."""
        return self._settings.context_tokens

    @property
    def version(self) -> str:
        """Release of the runtime; empty until the model is loaded."""
        return self._supervisor.loaded.version if self._supervisor.loaded else ""

    @property
    def is_emulated(self) -> bool:
        """True for the emulated runtime; False until the model is loaded."""
        return self._supervisor.loaded is not None and self._supervisor.loaded.emulated

    @property
    def limits_each_run(self) -> bool:
        """True if the runtime applies each run's own limit (1.3.0 on); False until the model is loaded."""
        return self._dispatcher.abi is not None and self._dispatcher.abi.has_per_run_token_limit

    @property
    def takes_several_images(self) -> bool:
        """True if a prompt may hold several images (1.2.1 on); False until the model is loaded."""
        return self._dispatcher.abi is not None and self._dispatcher.abi.has_image_sizes

    @property
    def may_reuse_prefix(self) -> bool:
        """False if measurements showed that runs do not reuse the KV cache of the previous run."""
        profile = self._settings.profile
        return profile is None or profile.reuses_prefix is not False

    @property
    def library(self) -> str:
        """Path of the runtime's library; empty until it is known."""
        return self._supervisor.library

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the loaded LoRA adapters."""
        settings = self._dispatcher.calls.standing
        return tuple(name.removeprefix(LORA_SETTING) for name in settings if name.startswith(LORA_SETTING))

    def count_uncached(self, tokens: Sequence[int], owner: str | None = "") -> int:
        """Return how many of these tokens a run would evaluate as of the current run's start, as ``owner`` may know."""
        return self._dispatcher.cache.reported_uncached(tokens, owner)

    @property
    def cached_tokens(self) -> Sequence[int]:
        """Token ids that the KV cache certainly holds, from its start, with the prompt of a run that goes on."""
        return self._dispatcher.cached_tokens

    @property
    def holds_pictures(self) -> bool:
        """True while pictures may be in the KV cache, which is cleared before a run without them."""
        return self._dispatcher.cache.holds_images

    @property
    def is_idle(self) -> bool:
        """True while no run or call goes on or waits."""
        return self._dispatcher.is_idle

    async def idle(self) -> None:
        """Wait until no run or call goes on or waits; a run that gives way ends for this."""
        await self._dispatcher.idle()

    def expect(self, tokens: Sequence[int]) -> None:
        """Expect a generation soon whose prompt begins with these tokens, such as one with a tool's result.

        Other runs whose prompts would replace the reusable part of the cache are held for a moment.
        """
        self._dispatcher.waiting.expect(tokens)

    @property
    def expected_tokens(self) -> Sequence[int]:
        """Prefix of the expected generation; empty without one."""
        return self._dispatcher.waiting.expected_tokens

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        """Cancel the expected generation with this very sequence, if it is still expected."""
        self._dispatcher.cancel_expected(tokens)

    @property
    def restarts(self) -> int:
        """Number of restarts of the worker."""
        return self._supervisor.restarts

    @property
    def failure(self) -> RkllmMcpError | None:
        """Reason why no answer will come any more; None while the model is loaded or loading."""
        return self._supervisor.failure

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker; None without one."""
        return self._supervisor.worker.pid if self._supervisor.worker else None

    @property
    def log_lines(self) -> tuple[str, ...]:
        """Last lines that the runtime printed, of the current or else the last worker."""
        return self._supervisor.log_lines

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the runtime when it loaded the model, about an old driver or a newer toolkit."""
        return self._supervisor.warnings

    async def wait_until_started(self) -> None:
        """Wait until the worker loads the model, or cannot be started; the emulated runtime may be built before."""
        await self._supervisor.started.wait()

    async def ready(self) -> None:
        """Wait until the model is loaded; a RuntimeUnusableError says why it cannot be."""
        await self._supervisor.ready()

    @property
    def is_unloaded(self) -> bool:
        """True between ``unload`` and ``load``; runs and calls are refused meanwhile."""
        return self._supervisor.is_unloaded

    async def unload(self) -> None:
        """Stop the worker, which frees the model's memory; what still runs fails."""
        self._dispatcher.make_way()
        await self._supervisor.unload()

    def load(self) -> None:
        """Load the model again after ``unload``; ``ready`` waits for it."""
        self._supervisor.load()

    async def given_up(self) -> None:
        """Wait until the model cannot be loaded any more and ``failure`` holds the reason.

        Closing the engine does not end the wait.
        """
        await self._supervisor.given_up.wait()

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
        value = self._check_input(prompt, options.lora)
        async with self._submit(generation_command(next(self._numbers), value, options)) as run:
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
        value = self._check_input(prompt, lora)
        command = evaluation_command(next(self._numbers), value, output, rows, columns, lora)
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
        vectors = [cut((await self.evaluate(prompt, "hidden", lora=lora)).row(), dimensions) for prompt in prompts]
        return [unit_vector(vector) for vector in vectors] if normalise else vectors

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
        if _PROMPT_CACHE in self._dispatcher.calls.standing:
            # Files may only be changed after the last one was released (SDK guide 1.3.0, 3.2.9).
            await self.release_prompt_cache()
        arguments = {"path": str(existing_file(path))}
        await self.call("load_prompt_cache", arguments, setting=_PROMPT_CACHE, cold=False, holds=tokens, owner=owner)

    async def release_prompt_cache(self) -> None:
        """Release the loaded prompt cache, if there is one."""
        if _PROMPT_CACHE in self._dispatcher.calls.standing:
            await self.call("release_prompt_cache", {}, cold=False)
            self._dispatcher.calls.drop(_PROMPT_CACHE)

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
        worker, dispatcher = self._supervisor.worker, self._dispatcher
        if worker is None:
            raise RunRejectedError("its process is not running", task=CALL)
        effects = {None: None, True: dispatcher.cache.on_clear, False: partial(dispatcher.cache.on_load, holds, owner)}
        answer = dispatcher.ask(worker, CallCommand(name, arguments), setting=setting, change=effects[cold])
        try:
            return await asyncio.shield(answer)
        except RunRejectedError:
            if holds and dispatcher.cache.ids is holds:
                dispatcher.cache.on_load()
            raise

    async def run(self) -> None:
        """Keep the worker running until cancelled; called by ``open_engine``."""
        await self._supervisor.run()

    def _check_input(self, prompt: Input | Sequence[int], lora: str | None) -> Input:
        self._supervisor.check()
        value = as_input(prompt)
        check_input(value, self.context_tokens)
        if lora is not None and lora not in self.adapters:
            there = ", ".join(self.adapters) or "none"
            raise InputRefusedError(f"no LoRA adapter '{lora}' is loaded (there: {there}); load it with load_lora")
        return value

    @asynccontextmanager
    async def _submit(self, command: RunCommand) -> AsyncGenerator[Run, None]:
        """Queue a run; leaving early removes or aborts it, and gives an aborted one time to return."""
        command = replace(command, is_timed=self._settings.timed_callbacks)
        run = Run(command, timed=self._settings.timed_tokens)
        self._dispatcher.submit(run)
        try:
            yield run
        finally:
            if not run.has_ended and self._dispatcher.withdraw(run):
                # The next run starts when this one has returned; waiting here means that it usually has.
                with anyio.move_on_after(self._settings.leave_timeout_s, shield=True):
                    await run.wait_until_returned()


def existing_file(path: str | PathLike[str]) -> Path:
    """Return the absolute path of a file; refuse one that does not exist."""
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise InputRefusedError(f"there is no file {file}; correct the path")
    return file


@asynccontextmanager
async def open_engine(settings: EngineSettings) -> AsyncGenerator[Engine, None]:
    """Start an engine and stop it at the end. Entering returns immediately; ``Engine.ready`` waits for the model.

    Leaving stops the worker, also when cancelled; running generations fail.
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
