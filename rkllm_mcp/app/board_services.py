"""What a board can do for others: generate, embed, rank, say how it is. One request at a time uses the NPU.

    open_abilities ─▶ the chat model (app), and an engine each for the models that embed and rank, where they are others

Requests wait for the NPU in the order in which they came, whichever model they are for. Whoever is cancelled leaves the
queue, or has its run stopped. It knows no protocol; ``surfaces.offering`` puts it behind MCP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from rkllm_mcp.app.assistant import Assistant, ReplyOptions, open_app
from rkllm_mcp.app.root import AuxiliaryModel, StatusSink, open_auxiliary_models
from rkllm_mcp.app.settings import device_state
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import GenerationError
from rkllm_mcp.events import End, EndReason, Text, Usage
from rkllm_mcp.providers.embedding import SEARCH, embed_texts, rank_documents

# The text that has come, and how many pieces of it.
OnText = Callable[[str, int], Awaitable[None]]


@dataclass(frozen=True)
class OtherModels:
    """Models for what the chat model does badly.

    Args:
        embedding: a model's name or path; the chat model embeds when None.
        ranking: likewise for ranking documents.
    """

    embedding: str | None = None
    ranking: str | None = None


@dataclass(frozen=True)
class Generated:
    """An answer.

    Args:
        text: its words.
        model: who gave it.
        reason: why it ended: ``answered`` or ``token_limit``.
        prompt_tokens: length of the prompt, tokens.
        generated_tokens: length of the answer, tokens.
    """

    text: str
    model: str
    reason: EndReason
    prompt_tokens: int
    generated_tokens: int


@dataclass
class BoardServices:
    """What one board can do; ``open_abilities`` makes it."""

    app: Assistant
    embedder: AuxiliaryModel
    ranker: AuxiliaryModel
    _npu: anyio.Lock = field(default_factory=anyio.Lock)

    async def generate(
        self, prompt: str, system: str = "", max_tokens: int | None = None, on_text: OnText | None = None
    ) -> Generated:
        """Answer a prompt, without tools and without a memory of others.

        Args:
            prompt: the user's words.
            system: the system text; none when empty.
            max_tokens: the longest answer; None for the configuration's.
            on_text: told of each piece of the answer as it comes.

        Raises:
            GenerationError: the answer failed.
            RuntimeUnusableError: the model cannot be loaded.
        """
        options = ReplyOptions(tools=False, max_new_tokens=max_tokens)
        pieces: list[str] = []
        usage: Usage | None = None
        end = End("failed")
        async with self._npu, aclosing(self.app.reply(self.app.new_conversation(system), prompt, options)) as events:
            async for event in events:
                if isinstance(event, Text):
                    pieces.append(event.text)
                    if on_text is not None:
                        await on_text(event.text, len(pieces))
                elif isinstance(event, Usage):
                    usage = event
                elif isinstance(event, End):
                    end = event
        if end.reason not in ("answered", "token_limit"):
            raise GenerationError(end.error or "the answer was stopped; ask again")
        counts = (usage.prompt_tokens, usage.generated_tokens) if usage else (0, 0)
        return Generated("".join(pieces).strip(), self.app.model.name, end.reason, *counts)

    async def embed(
        self, texts: Sequence[str], *, instruction: str = "", dimensions: int | None = None
    ) -> list[list[float]]:
        """A vector for each text; see ``providers.embedding.embed_texts``."""
        async with self._npu:
            vectors = await embed_texts(
                self.embedder.engine,
                self.embedder.vocabulary,
                texts,
                instruction=instruction,
                dimensions=dimensions,
            )
        return [list(vector) for vector in vectors]

    async def rerank(self, query: str, documents: Sequence[str], *, instruction: str = "") -> list[float]:
        """How well each document answers the query, as in a web search unless ``instruction`` says otherwise.

        See ``providers.embedding.rank_documents``.
        """
        ranker = self.ranker
        async with self._npu:
            return await rank_documents(
                ranker.engine, ranker.vocabulary, query, documents, instruction=instruction or SEARCH
            )

    async def status(self) -> dict[str, str]:
        """How the board is: its models and runtime, load, clocks, temperature, memory."""
        app = self.app
        rows = {
            "model": app.model.name,
            "context": f"{app.engine.context_tokens} tokens",
            "runtime": app.engine.version or "not loaded yet",
            "emulated": "yes" if app.model.card.emulated else "no",
            "embedding model": self.embedder.name,
            "ranking model": self.ranker.name,
        }
        return rows | dict(await anyio.to_thread.run_sync(device_state))


def board_services_of(app: Assistant) -> BoardServices:
    """What an assistant's board can do, with the models that were loaded beside the chat model for the service.

    Raises:
        UsageError: a remote service answers, and no model is loaded here.
    """
    service, beside = app.config.service, app.core.specialists
    own = AuxiliaryModel(app.model.name, app.engine, app.core.board.form.vocabulary)
    return BoardServices(
        app,
        beside.get(service.embedding_model or "", own),
        beside.get(service.ranking_model or "", own),
    )


@asynccontextmanager
async def open_board_services(
    config: Config, others: OtherModels | None = None, *, status: StatusSink | None = None
) -> AsyncGenerator[BoardServices, None]:
    """Load the models, without any server; on leaving all of them are gone.

    Args:
        config: the configuration.
        others: further models.
        status: is told, one line each, what is started.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
    """
    others = others or OtherModels()
    config = config.overridden(tools=False)
    names = [name for name in (others.embedding, others.ranking) if name is not None]
    async with open_app(config, status=status) as app, open_auxiliary_models(config, names) as specialists:
        own = AuxiliaryModel(app.model.name, app.engine, app.core.board.form.vocabulary)
        embedder = specialists[others.embedding] if others.embedding else own
        yield BoardServices(app, embedder, specialists[others.ranking] if others.ranking else own)
