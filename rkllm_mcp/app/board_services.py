"""Services of a board for other hosts: generate, embed, rerank and status; one request at a time uses the NPU.

    open_board_services ─▶ the chat model (App), and an engine for each other model that embeds or reranks

Requests use the NPU in order of arrival, whichever model they need. A cancelled request leaves the queue, or stops its
run. ``surfaces.mcp_server`` offers the services over MCP.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import anyio.to_thread

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.environment import AuxiliaryModel
from rkllm_mcp.app.models import open_auxiliary_models
from rkllm_mcp.app.root import StatusSink, open_app
from rkllm_mcp.board.system import device_state
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import GenerationError
from rkllm_mcp.events import End, Text, Usage
from rkllm_mcp.generation import AnswerOptions, ModelOptions
from rkllm_mcp.runtime.scheduler import Scheduler

# The text that has come, and how many pieces of it.
OnText = Callable[[str, int], Awaitable[None]]


@dataclass(frozen=True)
class Generated:
    """A generated answer."""

    text: str  # the answer
    model: str  # name of the model
    is_cut: bool  # the token limit ended it
    prompt_tokens: int  # length of the prompt, tokens
    generated_tokens: int  # length of the answer, tokens


@dataclass
class BoardServices:
    """The services of one board; created by ``open_board_services``."""

    app: App
    embedder: AuxiliaryModel
    ranker: AuxiliaryModel
    # One request at a time in order of arrival: all have the same key and kind.
    scheduler: Scheduler = field(default_factory=lambda: Scheduler(1, sys.maxsize))

    async def generate(
        self, prompt: str, system: str = "", max_tokens: int | None = None, on_text: OnText | None = None
    ) -> Generated:
        """Answer a prompt without tools or history, or raise an error; ``on_text`` receives the text in pieces."""
        options = AnswerOptions(ModelOptions(max_tokens), tools=False)
        pieces: list[str] = []
        usage: Usage | None = None
        end = End("failed")
        with self.scheduler.admit() as slot:
            await slot.wait_until_admitted()
            conversation = self.app.new_conversation(system, with_person=False)
            async with aclosing(self.app.reply(conversation, prompt, options)) as events:
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
        model = self.app.model_host.board.model
        return Generated("".join(pieces).strip(), model.name, end.reason == "token_limit", *counts)

    async def embed(
        self, texts: Sequence[str], *, instruction: str = "", dimensions: int | None = None
    ) -> list[array[float]]:
        """Return a vector for each text; see ``AuxiliaryModel.embed``."""
        with self.scheduler.admit() as slot:
            await slot.wait_until_admitted()
            return await self.embedder.embed(texts, instruction=instruction, dimensions=dimensions)

    async def rerank(self, query: str, documents: Sequence[str], *, instruction: str = "") -> list[float]:
        """Return a relevance score for each document, as in web search unless ``instruction`` says otherwise."""
        with self.scheduler.admit() as slot:
            await slot.wait_until_admitted()
            return await self.ranker.rerank(query, documents, instruction=instruction)

    async def status(self) -> dict[str, str]:
        """Return models, runtime, load, clocks, temperature and memory."""
        board = self.app.model_host.board
        rows = {
            "model": board.model.name,
            "context": f"{board.engine.context_tokens} tokens",
            "runtime": board.engine.version or "not loaded yet",
            "emulated": "yes" if board.model.card.emulated else "no",
            "embedding model": self.embedder.name,
            "ranking model": self.ranker.name,
        }
        return rows | dict(await anyio.to_thread.run_sync(device_state))


@asynccontextmanager
async def open_board_services(
    config: Config, embedding: str | None = None, ranking: str | None = None, *, status: StatusSink | None = None
) -> AsyncGenerator[BoardServices, None]:
    """Load the models without any server; unload them on exit.

    ``embedding`` and ``ranking`` are names or paths of models; the chat model embeds and reranks when they are None.
    """
    config = config.with_options(tools=False)
    names = [name for name in (embedding, ranking) if name is not None]
    async with open_app(config, status=status) as app, open_auxiliary_models(config, names) as auxiliary_models:
        chat_evaluator = app.model_host.evaluator(None)
        yield BoardServices(
            app,
            auxiliary_models.get(embedding or "", chat_evaluator),
            auxiliary_models.get(ranking or "", chat_evaluator),
        )
