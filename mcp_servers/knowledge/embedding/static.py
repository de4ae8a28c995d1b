"""Embedder of a static model: the vector of a text is the mean of the vectors of its tokens, NumPy alone.

    FOLDER/0_StaticEmbedding/model.safetensors, or FOLDER/model.safetensors     one matrix, a row for each token
    tokenizer.json in the same folder

This is the layout of Sentence Transformers' StaticEmbedding, as of static-embedding-japanese. The matrix stays on disk
and is mapped into memory, so only the rows of words that occur are read. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import numpy as np

from mcp_servers.knowledge.embedding import Vectors, unit_rows
from mcp_servers.knowledge.errors import BadArgumentError, ModelUnusableError

_FOLDERS, _MATRIX, _TOKENIZER = ("0_StaticEmbedding", "."), "model.safetensors", "tokenizer.json"
_TYPES = {"F32": "<f4", "F16": "<f2"}
_LIBRARY = "tokenizers"
_RANK = 2
_LENGTH_BYTES, _MAX_HEADER = 8, 1_000_000
_SAMPLE_BYTES, _DIGITS = 1 << 20, 8
_REMEDY = "Give cpu:FOLDER with model.safetensors, which has one matrix, and tokenizer.json in it"


def static_folder(path: str) -> Path | None:
    """Return the folder of the matrix and the tokenizer below a model's folder, None for another kind of model."""
    try:
        root = Path(path).expanduser().absolute()
        folders = [root / name for name in _FOLDERS]
        is_network = any(root.glob("*.onnx")) or any(root.glob("onnx/*.onnx"))
        return None if is_network else next((folder for folder in folders if (folder / _MATRIX).is_file()), None)
    except (OSError, RuntimeError, ValueError):
        return None


class StaticEmbedder:
    """Embedder of a folder that ``static_folder`` returned; raises BadArgumentError for one without such a model."""

    is_fast = True
    batch = 256

    def __init__(self, folder: Path) -> None:
        self._tokenizer_file = folder / _TOKENIZER
        try:
            self._matrix = _matrix(folder / _MATRIX)
            sample = self._matrix[: _SAMPLE_BYTES // self._matrix.shape[1] // self._matrix.itemsize + 1].tobytes()
            digest = hashlib.sha256(self._tokenizer_file.read_bytes() + sample).hexdigest()[:_DIGITS]
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadArgumentError("embedder", f"cannot be read ({folder}: {reason})", _REMEDY) from error
        name = folder.parent.name if folder.name == _FOLDERS[0] else folder.name
        self.name = f"{name}@{digest}"
        self._loading = threading.Lock()
        self._tokenizer: Any = None

    async def embed(self, texts: Sequence[str], *, are_queries: bool = False) -> Vectors:
        """Return one unit row per text, in order."""
        del are_queries
        return await anyio.to_thread.run_sync(self._encode, texts)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        try:
            with self._loading:
                if self._tokenizer is None:
                    self._tokenizer = importlib.import_module(_LIBRARY).Tokenizer.from_file(str(self._tokenizer_file))
                    self._tokenizer.no_padding()
                    self._tokenizer.no_truncation()
                encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
            # A text without a token gets the first one, so that every text has a vector.
            rows = [self._matrix[encoding.ids or [0]].mean(axis=0, dtype=np.float32) for encoding in encoded]
        except Exception as error:
            # Any exception of the library only skips the stage.
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ModelUnusableError(self.name, reason) from error
        return unit_rows(np.stack(rows), self.name)


def _matrix(file: Path) -> Vectors:
    """Return the only matrix of a safetensors file, mapped; raise ValueError, LookupError or TypeError without one."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        if not 0 < length <= _MAX_HEADER:
            raise ValueError("the header of model.safetensors is damaged")
        header = cast("Mapping[str, Any]", json.loads(opened.read(length)))
    matrices = [tensor for name, tensor in header.items() if name != "__metadata__" and len(tensor["shape"]) == _RANK]
    if len(matrices) != 1:
        raise ValueError(f"model.safetensors has {len(matrices)} matrices")
    (tensor,) = matrices
    if tensor["dtype"] not in _TYPES:
        raise ValueError(f"numbers of the type {tensor['dtype']} are not read")
    shape, start = tuple(tensor["shape"]), int(tensor["data_offsets"][0])
    if not math.prod(shape):
        raise ValueError("the matrix is empty")
    return np.memmap(file, _TYPES[tensor["dtype"]], "r", _LENGTH_BYTES + length + start, shape)
