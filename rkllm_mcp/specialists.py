"""Models beside the chat model, on the same NPU: one that embeds, one that ranks.

Each has an engine, and so a process, of its own, and IOMMU domains that the chat model leaves free. They load in the
background like any other. It knows what a configuration calls them and what their engines are for, no surface.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from rkllm_mcp.assembly import chosen_model, engine_settings, model_form
from rkllm_mcp.config import Config
from rkllm_mcp.prompt.vocabulary import Vocabulary
from rkllm_mcp.providers.embedding import embed_texts
from rkllm_mcp.runtime.domains import with_domains
from rkllm_mcp.runtime.engine import Engine, open_engine


@dataclass(frozen=True)
class Specialist:
    """A model that evaluates instead of answering.

    Args:
        name: as it is shown.
        engine: the owner of the model.
        vocabulary: its tokenizer.
    """

    name: str
    engine: Engine
    vocabulary: Vocabulary

    async def embed(self, texts: Sequence[str]) -> list[array[float]]:
        """A vector of length 1 for each text.

        Raises:
            RkllmMcpError: the model cannot be loaded, or gives no vectors.
        """
        return await embed_texts(self.engine, self.vocabulary, texts)


@asynccontextmanager
async def open_specialists(config: Config, names: Iterable[str]) -> AsyncGenerator[Mapping[str, Specialist], None]:
    """Load models beside the chat model of ``config``; on leaving they are gone.

    Args:
        config: the configuration; its runtime runs them as well.
        names: their names or paths.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
        ModelLoadError: the NPU has no address space left for so many.
    """
    configs = {name: config.overridden(model=name) for name in dict.fromkeys(names)}
    folders = {name: chosen_model(each) for name, each in configs.items()}
    if not folders:
        yield {}
        return
    # The chat model begins in the first domain, where every model does that is alone.
    shared = [engine_settings(config, chosen_model(config))]
    shared += [engine_settings(configs[name], folder) for name, folder in folders.items()]
    settings = dict(zip(folders, with_domains(shared)[1:], strict=True))
    async with AsyncExitStack() as stack:
        specialists: dict[str, Specialist] = {}
        for name, folder in folders.items():
            engine = await stack.enter_async_context(open_engine(settings[name]))
            specialists[name] = Specialist(folder.name, engine, model_form(configs[name], folder).vocabulary)
        yield specialists
