"""The opened parts of an application: models, tools and tasks; ``root`` opens them."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import anyio

from rkllm_mcp.errors import RkllmMcpError, RuntimeUnusableError, UsageError

if TYPE_CHECKING:
    from rkllm_mcp.app.model_form import PromptListing
    from rkllm_mcp.app.vision import ModelVision
    from rkllm_mcp.models.cards import ModelFolder
    from rkllm_mcp.prompt.tokenizer import ModelTokenizer
    from rkllm_mcp.protocols import StatefulModel
    from rkllm_mcp.providers.prefill_progress import PrefillProgress
    from rkllm_mcp.providers.remote import RemoteModel
    from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
    from rkllm_mcp.runtime.engine import Engine
    from rkllm_mcp.store import Store
    from rkllm_mcp.tools.toolbox import Toolbox

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuxiliaryModel:
    """A model that evaluates instead of answering."""

    name: str
    engine: Engine
    tokenizer: ModelTokenizer

    async def embed(
        self, texts: Sequence[str], *, instruction: str = "", dimensions: int | None = None
    ) -> list[array[float]]:
        """Return a vector of length 1 for each text; ``instruction`` is set for queries and empty for documents.

        ``dimensions`` truncates the vectors. A GenerationError if a text does not fit, or the runtime returns none.
        """
        from rkllm_mcp.providers.embedding import embedding_prompts

        context_tokens = self.engine.context_tokens
        prompts = await embedding_prompts(self.tokenizer, texts, context_tokens, instruction=instruction)
        return await self.engine.embed(prompts, dimensions=dimensions)

    async def rerank(self, query: str, documents: Sequence[str], *, instruction: str = "") -> list[float]:
        """Return a score from 0 to 1 for each document: how well it answers the query.

        A GenerationError if a document does not fit, or the model cannot judge.
        """
        from rkllm_mcp.providers.embedding import SEARCH, ranking_prompts

        context_tokens, instruction = self.engine.context_tokens, instruction or SEARCH
        prompts, yes_id, no_id = await ranking_prompts(
            self.tokenizer, query, documents, context_tokens, instruction=instruction
        )
        return await self.engine.rerank(prompts, yes_id, no_id)


@dataclass(frozen=True)
class LocalModel:
    """The board's own model."""

    model: ModelFolder
    engine: Engine
    form: ModelForm
    chat_model: RkllmModel
    prefill_progress: PrefillProgress
    vision: ModelVision | None = None  # None for a model that does not see


@dataclass(frozen=True)
class ModelHost:
    """The chat model; ``open_model`` opens one."""

    name: str
    chat_model: StatefulModel
    listing: PromptListing  # format and token cost of the tool list
    npu: LocalModel | None  # None if only a remote service answers
    embedder: AuxiliaryModel | None = None  # for the search for tools
    description: str = ""
    has_stand_in: bool = False  # True if a fallback answers while the local model cannot be loaded
    remote: RemoteModel | None = None  # None if the NPU answers
    takes_pictures: bool = False  # the model sees pictures
    is_emulated: bool = False  # the NPU is emulated: the answers come from a script, or from weights on the CPU
    # what an answer after results is made of; the model's card decides
    answers_from: Literal["conversation", "facts", "sentences"] = "conversation"
    # embedding and reranking models, by the name or path in the configuration
    auxiliary_models: Mapping[str, AuxiliaryModel] = field(default_factory=dict[str, AuxiliaryModel])

    @property
    def board(self) -> LocalModel:
        """The board's own model; a UsageError if a remote service answers and no model is loaded here."""
        if self.npu is None:
            raise UsageError(f"{self.name} is a remote service; what was asked needs a model on the NPU")
        return self.npu

    def evaluator(self, name: str | None) -> AuxiliaryModel:
        """Return the embedding or reranking model of this name or path; the board's chat model if none exists."""
        chat_evaluator = AuxiliaryModel(self.name, self.board.engine, self.board.form.tokenizer)
        return self.auxiliary_models.get(name or "", chat_evaluator)

    def count_tokens(self, text: str) -> int:
        """Return the tokens of a text, estimated where a remote service answers."""
        if self.npu is None:
            from rkllm_mcp.providers.remote_settings import estimated_tokens

            return estimated_tokens(text)
        from rkllm_mcp.prompt.tokenizer import PlainText

        return len(self.npu.form.tokenizer.encode([PlainText(text)]))

    @property
    def has_weights(self) -> bool:
        """The CPU computes the answers, on the emulated NPU."""
        return self.npu is not None and self.npu.model.has_weights

    @property
    def is_ready(self) -> bool:
        """Nothing has to be loaded before the next answer."""
        if self.npu is None:
            return self.remote is not None and self.remote.is_ready
        return self.npu.engine.is_ready or (self.has_stand_in and self.npu.engine.supervisor.failure is not None)

    @property
    def failure(self) -> RkllmMcpError | None:
        """The reason why no answer will come any more; None where one still can, be it from the fallback.

        An auxiliary model that is lost is none: its own requests fail with its reason.
        """
        return None if self.npu is None or self.has_stand_in else self.npu.engine.supervisor.failure

    async def ready(self) -> None:
        """Wait until the model is loaded; a RuntimeUnusableError if it could not be."""
        if self.npu is not None:
            with suppress(*((RuntimeUnusableError,) if self.has_stand_in else ())):
                await self.npu.engine.ready()
        if self.remote is not None:
            await self.remote.ready()

    async def given_up(self) -> None:
        """Wait until no answer will come any more, and ``failure`` is the reason.

        A model that will not be loaded again, and without which answers go on, is logged meanwhile.
        """
        async with anyio.create_task_group() as tasks:
            for auxiliary in self.auxiliary_models.values():
                tasks.start_soon(_log_loss, auxiliary.name, auxiliary.engine, "its requests are refused")
            if self.npu is None or self.has_stand_in:
                if self.npu is not None:
                    await _log_loss(self.name, self.npu.engine, "the fallback answers")
                await anyio.sleep_forever()
            else:
                await self.npu.engine.supervisor.given_up.wait()
            tasks.cancel_scope.cancel()


async def _log_loss(name: str, engine: Engine, effect: str) -> None:
    await engine.supervisor.given_up.wait()
    logger.error(
        "model '%s' is not loaded until the service is restarted, %s: %s", name, effect, engine.supervisor.failure
    )


@dataclass(frozen=True)
class ToolEnvironment:
    """An open toolbox and the store of its calls, approvals and switches."""

    toolbox: Toolbox
    store: Store

    async def refresh(self) -> None:
        """Take over what other processes have switched off or on since."""
        switches = await self.store.switches.all()
        # A failure to read or to store changes nothing here: a tool that is off must not come on by that.
        if switches is not None:
            self.toolbox.switches.replace(switches)
