"""A head start: what every prompt begins with is in the KV cache before the first question needs it.

    saved earlier ─▶ loaded from disk ─────────────┐
    not saved, may be ─▶ evaluated once and saved ─┼─▶ the KV cache begins with the system text and the tools
    may not be ─▶ evaluated ───────────────────────┘

``PromptCaches`` loads and saves; ``WarmUp`` decides. A file that the runtime refuses, that its process dies of, or that
saves nothing is dropped and not tried again with this model and runtime. None of it is ever an error of an answer: what
fails is said in a line, and the prompt is evaluated as usual. It knows token ids, no templates and no tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

import anyio
from anyio import to_thread

from rkllm_mcp.errors import InputRefusedError, RunRejectedError, RuntimeUnusableError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.runtime.prompt_files import Dropped, KeptPrompt, PromptFiles, Subject

# Fewer tokens are evaluated before anybody has typed a letter.
WORTHWHILE_TOKENS = 32
_MB = 1 << 20
# Shorter prefills say nothing about a file where the runtime does not count tokens (1.2.0).
_TELLING_MS = 200.0


class PromptCaches:
    """The prompts of one engine on disk.

    Args:
        engine: whose KV cache is filled.
        files: where they are kept.
        subject: what they belong to.
        say: is told, one line each, what was loaded, saved or dropped.
        owner: whose prompts they are, as for ``GenerationOptions``.
    """

    def __init__(
        self,
        engine: Engine,
        files: PromptFiles,
        subject: Subject,
        say: Callable[[str], None],
        owner: str | None = None,
    ) -> None:
        self._engine = engine
        self._files = files
        self.subject = subject
        self._say = say
        self._owner = owner
        self.is_refused = bool(files.refusal(subject))

    async def load(self, head: Sequence[int]) -> bool:
        """Fill the KV cache with what was saved for ``head``; False where that cannot be.

        Raises:
            GenerationError: the run that tries the file failed, for reasons of its own.
            RuntimeUnusableError: the model cannot be loaded.
        """
        found = None if self.is_refused else await to_thread.run_sync(self._files.find, self.subject, head)
        if isinstance(found, Dropped):
            self._say(f"[NPU: the prompt cache is dropped: {found.reason}]")
        if not isinstance(found, KeptPrompt):
            return False
        try:
            await self._engine.load_prompt_cache(found.file, tokens=head, owner=self._owner)
        except (InputRefusedError, RunRejectedError, WorkerDiedError) as error:
            if isinstance(error, WorkerDiedError) or self._engine.is_ready:
                self._give_up(found, str(error))
            return False
        if not found.is_proven and not await self._saves_time(found, head):
            await self._engine.release_prompt_cache()
            self._give_up(found, "loading it saved nothing")
            # The trial has evaluated the head.
            return True
        self._say(f"[NPU: {len(head)} tokens of system text and tools are there from the last start]")
        return True

    async def save(self, head: Sequence[int]) -> None:
        """Evaluate ``head`` and keep what the runtime writes of it.

        Raises:
            GenerationError: the run failed.
            RuntimeUnusableError: the model cannot be loaded.
        """
        try:
            draft = self._files.draft(self.subject, head)
        except OSError as error:
            self._say(f"[NPU: no prompt can be kept in {self._files.folder}: {error.strerror}]")
            return
        try:
            options = GenerationOptions(1, save_prompt_cache=str(draft), owner=self._owner)
            stats = await evaluated(self._engine, head, options)
            if not draft.is_file():
                self._refuse("the runtime wrote no file")
                return
            kept = await to_thread.run_sync(self._files.keep, draft, self.subject, head, stats.prefill_ms)
        except OSError as error:
            self._say(f"[NPU: the prompt cache was not kept: {error.strerror}]")
            return
        finally:
            self._files.discard(draft)
        if isinstance(kept, Dropped):
            self._say(f"[NPU: the prompt cache was not kept: {kept.reason}]")
        else:
            size = f"{kept.size_bytes / _MB:.1f} MB"
            self._say(f"[NPU: {len(head)} tokens of system text and tools are kept for the next start, {size}]")

    async def _saves_time(self, found: KeptPrompt, head: Sequence[int]) -> bool:
        """Try it with one token behind it, because of a prompt that is there whole some evaluate all again."""
        stats = await evaluated(self._engine, [*head, head[-1]], GenerationOptions(1, owner=self._owner))
        if stats.prefilled_tokens is None:
            is_faster = found.prefill_ms < _TELLING_MS or stats.prefill_ms < found.prefill_ms / 2
        else:
            is_faster = stats.prefilled_tokens < len(head) / 2
        if is_faster:
            await to_thread.run_sync(self._files.prove, found)
        return is_faster

    def _give_up(self, found: KeptPrompt, reason: str) -> None:
        self._files.discard(found.file)
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        self.is_refused = True
        self._files.refuse(self.subject, reason)
        self._say(f"[NPU: prompt caches are not tried again with this model and runtime: {reason}]")


class WarmUp:
    """Puts the head of all prompts into the KV cache, once.

    Args:
        engine: whose KV cache.
        caches: where it may come from and go to; None where nothing is kept.
        evaluates: evaluate it also where nothing is kept.
    """

    def __init__(self, engine: Engine, caches: PromptCaches | None, *, evaluates: bool = True) -> None:
        self._engine = engine
        self._caches = caches
        self._evaluates = evaluates and engine.may_reuse_prefix
        self._postponable: anyio.CancelScope | None = None
        self._is_awaited = False

    def awaited(self) -> None:
        """Somebody waits for the NPU: what can be done another time is left."""
        self._is_awaited = True
        if self._postponable is not None:
            self._postponable.cancel()

    async def run(self, head: Sequence[int]) -> None:
        """Load the head, or evaluate and save it, or evaluate it.

        Nothing is evaluated only for a question that is there already; it would wait as long for its own prefill. A
        run that saves is worth waiting for: it happens once. But before 1.3.0 it generates until the model ends by
        itself, so it is only made while nobody waits.

        Raises:
            GenerationError: the run failed.
            RuntimeUnusableError: the model cannot be loaded.
        """
        if len(head) < WORTHWHILE_TOKENS:
            return
        caches = self._caches
        if caches is not None:
            if await caches.load(head):
                return
            if not caches.is_refused and self._engine.limits_each_run:
                await caches.save(head)
                return
        if self._is_awaited:
            return
        if caches is not None and not caches.is_refused:
            with anyio.CancelScope() as self._postponable:
                await caches.save(head)
        elif self._evaluates:
            # Only the service's own prompt is evaluated in advance.
            await evaluated(self._engine, head, GenerationOptions(1, owner=None))


async def evaluated(engine: Engine, ids: Sequence[int], options: GenerationOptions) -> RunStats:
    """Run a prompt for its effect on the KV cache, and forget what was generated.

    Raises:
        GenerationError: as for ``Engine.generate``.
    """
    async with aclosing(engine.generate(ids, options)) as run:
        async for item in run:
            if isinstance(item, RunStats):
                return item
    raise RuntimeUnusableError("The runtime ended a run without its figures.", "Please report it.")
