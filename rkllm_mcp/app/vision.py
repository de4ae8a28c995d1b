"""The eyes of the model on the NPU: its vision encoder, and what has to be set before the first picture."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio import to_thread

from rkllm_mcp.app.settings import picture_tags
from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.generation import ImageTags, PictureEmbedding
from rkllm_mcp.messages import Picture
from rkllm_mcp.models.cards import ModelFolder
from rkllm_mcp.models.compatibility import check_width
from rkllm_mcp.models.rkllm_header import embedding_width
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.runtime.extras import set_chat_template
from rkllm_mcp.runtime.vision.encoder import VisionEncoder, read_picture

# Size to which a picture is read to see whether it can be.
_LOOK = (16, 16)


@dataclass(eq=False)
class ModelVision:
    """A ``Vision`` for one model; ``open_vision`` creates it."""

    engine: Engine
    encoder: VisionEncoder
    model: ModelFolder
    tags: ImageTags
    _lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _is_prepared: bool = field(default=False, init=False)

    @property
    def takes_several(self) -> bool:
        """False if the runtime takes one picture in a prompt."""
        abi = self.engine.abi
        return abi is not None and abi.has_image_sizes

    async def tokens(self) -> int:
        """Return the number of tokens of a picture."""
        # Rockchip's demo loads the language model first.
        await self.engine.ready()
        return (await self.encoder.shape()).tokens

    async def embedding(self, picture: Picture) -> PictureEmbedding:
        """Return the embedding of a picture, after the language model is loaded.

        Raises:
            ModelFileError: the encoder is another model's.
        """
        if not self.engine.is_ready:
            # One that cannot be read is refused before the language model has been loaded for it.
            await read_picture(picture.data, *_LOOK)
        await self.engine.ready()
        async with self._lock:
            if not self._is_prepared:
                # The library says what the encoder gives; a file may not.
                row, expected = (
                    (await self.encoder.shape()).row,
                    await to_thread.run_sync(embedding_width, self.model.file),
                )
                check_width(self.encoder.model, row, self.model.file, expected)
                # Pictures are sent with text, to which the runtime would apply its template; the text has ours already.
                await set_chat_template(self.engine, "", "", "")
                self._is_prepared = True
        return await self.encoder.encode(picture)


@asynccontextmanager
async def open_vision(engine: Engine, model: ModelFolder, encoder: Path) -> AsyncGenerator[ModelVision, None]:
    """Yield the eyes of a model, whose encoder is loaded at the first picture.

    Raises:
        ModelFileError: nothing says how the model's family marks pictures.
    """
    tags = picture_tags(model.card)
    if tags is None:
        raise ModelFileError(
            f"{model.folder} has a vision encoder, and the template {model.card.template!r} no tags for pictures.",
            "Write picture_tags = [before, behind, in place of a token] into its model.toml.",
        )
    async with aclosing(VisionEncoder(encoder)) as opened:
        yield ModelVision(engine, opened, model, tags)
