"""An embedder on this machine's processor: fastembed, installed as an extra, imported when it is used.

It downloads its model on first use unless that is in its cache; ``FASTEMBED_CACHE_PATH`` says where that is.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import numpy as np

from mcp_servers.knowledge.embedding.ports import Vectors, unit_rows
from mcp_servers.knowledge.problems import EngineUnreachableError, MissingExtraError

# Fifty languages, 384 numbers, 0.2 GB: what an eight-gigabyte board has room for beside a chat model.
DEFAULT_MODEL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"


class CpuEmbedder:
    """Embeddings by ONNX Runtime.

    Args:
        model: a name fastembed knows.

    Raises:
        MissingExtraError: fastembed is not installed.
    """

    is_quick = False

    def __init__(self, model: str = "") -> None:
        self.name = model or DEFAULT_MODEL
        self._model: Any = None
        self._lock = threading.Lock()
        try:
            self._library: Any = importlib.import_module("fastembed")
        except ImportError:
            raise MissingExtraError("An embedder on the CPU", "fastembed") from None

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One unit row for each text."""
        return await anyio.to_thread.run_sync(self._embed, "embed", list(texts))

    async def embed_query(self, text: str) -> Vectors:
        """One unit vector."""
        return (await anyio.to_thread.run_sync(self._embed, "query_embed", [text]))[0]

    async def aclose(self) -> None:
        """Gives the model's memory back."""
        self._model = None

    def _embed(self, method: str, texts: list[str]) -> Vectors:
        with self._lock:
            try:
                if self._model is None:
                    self._model = self._library.TextEmbedding(model_name=self.name)
                rows = np.array(list(getattr(self._model, method)(texts)), np.float32)
            except Exception as error:
                # Whatever a library of models raises, the search goes on without it.
                raise EngineUnreachableError(f"{self.name} on the CPU", str(error).partition("\n")[0]) from error
        return unit_rows(rows, self.name)
