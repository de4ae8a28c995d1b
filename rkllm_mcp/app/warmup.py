"""Warm-up: system text and tools in the KV cache before the first question.

It starts when the model is loaded and the servers are connected, since the tool list is complete only then; a file of
the tools that they had the last time is read before. While a server is late, the other tools are evaluated and not
saved. A question waits for it as long as that saves time. A failure here is never an error of an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.models.cards import ModelFolder
from rkllm_mcp.runtime.library import find_library

if TYPE_CHECKING:
    from rkllm_mcp.runtime.engine import Engine
    from rkllm_mcp.runtime.prompt_cache import CacheWarmUp

logger = logging.getLogger(__name__)

Say = Callable[[str], None]


@dataclass
class WarmUp:
    """Warm-up of one assistant with one model.

    With ``one_shot`` nothing is prefilled, since the only question follows at once. With ``comes_back`` the model was
    loaded in place of another: its prompts are kept on disk unless the owner forbids it.
    """

    config: Config
    model: ModelFolder
    engine: Engine
    say: Say | None
    one_shot: bool
    tenant: str = ""
    comes_back: bool = False
    prefill_tokens: int = 0  # length of the prompt that is being prefilled; 0 if none is
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)  # ends it: the model is about to be exchanged
    _warm_up: CacheWarmUp | None = None
    _is_awaited: bool = False
    _lull: anyio.CancelScope = field(default_factory=anyio.CancelScope)  # the wait for a late server
    _renewed: set[int] = field(default_factory=set[int])
    # Bounded, as loading and every run are.
    is_over: anyio.Event = field(default_factory=anyio.Event)

    async def run(
        self,
        model_ready: Callable[[], Awaitable[None]],
        servers_ready: Callable[[], Awaitable[bool]],
        all_servers: Callable[[], Awaitable[None]],
        prefix: Callable[..., list[int]],
    ) -> None:
        """Prefill the ids that every prompt begins with; a file of them is read before the servers are there.

        Args:
            model_ready: waits for the model.
            servers_ready: waits for the servers as long as a question would; returns False if one is late.
            all_servers: waits until each is ready or has failed.
            prefix: returns the ids; see ``App.prompt_prefix``.
        """
        try:
            with self.scope:
                await model_ready()
                self._warm_up = await self._prepare()
                saved = await self._load(prefix)
                if not await servers_ready():
                    # The tools of a server in this process are not remembered, but are there by now.
                    if not saved and not self._is_awaited:
                        saved = await self._load(prefix)
                    await self._evaluate(prefix, saved, is_whole=False)
                    with self._lull:
                        await all_servers()
                if not self._lull.cancelled_caught:
                    await self._evaluate(prefix, saved)
        except RkllmMcpError as error:
            logger.info("no warm-up: %s", error)
        except Exception:
            logger.exception("the warm-up failed")
        finally:
            self.prefill_tokens = 0
            self.is_over.set()

    async def _load(self, prefix: Callable[..., list[int]]) -> list[int]:
        """Return what was read from a file, with the tools that servers had the last time; empty if no file fits."""
        caches = self._warm_up.caches if self._warm_up is not None else None
        if caches is None:
            return []
        ids = prefix(is_remembered=True)
        return ids if await caches.load(ids) else []

    async def _evaluate(self, prefix: Callable[..., list[int]], saved: list[int], *, is_whole: bool = True) -> None:
        if self._warm_up is None or (saved and saved == prefix(is_remembered=True)):
            return
        if self._is_awaited:
            self._warm_up.give_way()
        ids = prefix()
        self.prefill_tokens = len(ids)
        await self._warm_up.run(ids, saves=is_whole)
        self.prefill_tokens = 0

    def give_way(self) -> None:
        """A question is there; what would not save it time is left."""
        self._is_awaited = True
        self._lull.cancel()
        if self._warm_up is not None:
            self._warm_up.give_way()

    async def renew(self, ids: Sequence[int]) -> None:
        """Save what prompts begin with since the tools have changed, once, so that the next start reads a file.

        It is for a pause in which nothing is asked: an open conversation is read again from its tools on.
        """
        if not self.is_over.is_set() or self._warm_up is None or (beginning := hash(tuple(ids))) in self._renewed:
            return
        self._renewed.add(beginning)
        try:
            await self._warm_up.renew(ids)
        except RkllmMcpError as error:
            logger.info("what prompts begin with now is not saved: %s", error)

    async def _prepare(self) -> CacheWarmUp | None:
        """Return the ids to prefill; None if none exist."""
        from rkllm_mcp.runtime.prompt_cache import CacheWarmUp, PromptCaches, PromptFiles, prompts_folder, subject_of

        section, model, engine = self.config.model, self.model, self.engine
        say: Say = self.say or (lambda _: None)
        if not model.keeps_prompts:
            if section.prompt_cache:
                say(f"[NPU: model '{model.name}' cannot keep prompts; prompt_cache has no effect]")
            return None
        evaluates = section.warm_up and not self.one_shot
        if not (self.comes_back if section.prompt_cache is None else section.prompt_cache):
            return CacheWarmUp(engine, None) if evaluates else None
        identity = (model.file, find_library(engine.supervisor.library), engine.version, engine.context_tokens)
        subject = replace(await to_thread.run_sync(subject_of, *identity), tenant=self.tenant)
        files = PromptFiles(prompts_folder(), section.prompt_cache_mb)
        caches = PromptCaches(engine, files, subject, say, self.tenant or None)
        return CacheWarmUp(engine, caches, evaluates=evaluates)
