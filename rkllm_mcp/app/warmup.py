"""A head start: the system text and the tools are in the KV cache before the first question comes.

It begins when the model and the servers are there, since only then the list of tools is known. A question that comes
meanwhile waits for it as far as that saves it time. Nothing that goes wrong here is an error of an answer. It knows
neither conversations nor surfaces; ``app`` owns the task.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
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


class WarmUp:
    """The head start of one assistant.

    Args:
        config: the configuration.
        model: the model that is loaded.
        engine: whose KV cache it is.
        say: is told, one line each, what was loaded, saved or dropped; nobody is when None.
        one_shot: there will be one question, which comes at once, so nothing is evaluated in advance for its own sake.
        tenant: whose assistant it is. The head of the owner's is the service's own, and no secret to tenants.
    """

    def __init__(
        self,
        config: Config,
        model: ModelFolder,
        engine: Engine,
        say: Say | None,
        *,
        one_shot: bool,
        tenant: str = "",
    ) -> None:
        self._section = config.model
        self._model = model
        self._engine = engine
        self._say = say or _unsaid
        self._one_shot = one_shot
        self._tenant = tenant
        self._warm_up: CacheWarmUp | None = None
        self._is_awaited = False
        self._is_over = anyio.Event()
        self._tokens = 0

    @property
    def reading_tokens(self) -> int:
        """How long the prompt is that is put into the KV cache right now, tokens; 0 when none is."""
        return self._tokens

    async def run(self, ready: Callable[[], Awaitable[None]], head: Callable[[], list[int]]) -> None:
        """Take it.

        Args:
            ready: waits until the model is loaded and the servers are there.
            head: the ids that every prompt begins with; is asked then.
        """
        try:
            await ready()
            self._warm_up = await self._prepared()
            if self._warm_up is not None:
                if self._is_awaited:
                    self._warm_up.awaited()
                ids = head()
                self._tokens = len(ids)
                await self._warm_up.run(ids)
        except RkllmMcpError as error:
            logger.info("no head start: %s", error)
        except Exception:
            logger.exception("the head start failed")
        finally:
            self._tokens = 0
            self._is_over.set()

    def awaited(self) -> None:
        """A question is there; what would not save it time is left."""
        self._is_awaited = True
        if self._warm_up is not None:
            self._warm_up.awaited()

    async def over(self) -> None:
        """Wait until it is over; bounded, as loading and every run are."""
        await self._is_over.wait()

    async def _prepared(self) -> CacheWarmUp | None:
        """What fills the KV cache; None where nothing does."""
        from rkllm_mcp.runtime.prompt_cache import CacheWarmUp, PromptCaches, PromptFiles, prompts_folder, subject_of

        section, model, engine = self._section, self._model, self._engine
        if not model.keeps_prompts:
            if section.prompt_cache:
                self._say(f"[NPU: model '{model.name}' cannot keep prompts; prompt_cache has no effect]")
            return None
        evaluates = section.warm_up and not self._one_shot
        if not section.prompt_cache:
            return CacheWarmUp(engine, None) if evaluates else None
        identity = (model.file, find_library(engine.library), engine.version, engine.context_tokens)
        subject = await to_thread.run_sync(subject_of, *identity)
        files = PromptFiles(prompts_folder(), section.prompt_cache_mb)
        return CacheWarmUp(
            engine, PromptCaches(engine, files, subject, self._say, self._tenant or None), evaluates=evaluates
        )


def _unsaid(line: str) -> None:
    """Take a line that nobody wants to read."""
    del line
