"""An embedder and a reranker on this machine's processor: a model in ONNX, run by ONNX Runtime, installed as an extra.

The library and the model are loaded when they are first needed, in a thread, and stay. Several texts are run side by
side, so a question does not wait for the passages that are embedded in the background.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.embedding.model_folder import ModelFolder, Pooling, read_model_folder
from mcp_servers.knowledge.embedding.ports import Vectors, squashed, unit_rows
from mcp_servers.knowledge.problems import EngineUnreachableError, MissingExtraError, ModelUnusableError

# Between two batches the program may end; a board needs about a second for one.
_BATCH = 8
_LIBRARY = "onnxruntime"
# Its warnings are about the graph, and nobody here can do anything about them.
_ERRORS_ONLY = 3
# What Optimum calls a vector of the whole text, where the network makes one itself.
_WHOLE = "sentence_embedding"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_MATRIX, _CUBE = 2, 3
_YES_AND_NO = 2

Texts = Sequence[str] | Sequence[tuple[str, str]]


class CpuEmbedder:
    """Embeddings by a model of this machine.

    Args:
        folder: where the model lies.

    Raises:
        BadArgumentError: no model lies there.
        MissingExtraError: ONNX Runtime is not installed.
    """

    is_quick = False

    def __init__(self, folder: str) -> None:
        self._folder = read_model_folder("embedder", folder)
        self._network = _Network(self._folder)
        self.name = self._folder.name

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One unit row for each text, in order."""
        prompt = self._folder.document_prompt
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        rows = [await self._vectors([f"{prompt}{text}" for text in batch]) for batch in batches]
        return np.concatenate(rows)

    async def embed_query(self, text: str) -> Vectors:
        """One unit vector."""
        return (await self._vectors([f"{self._folder.query_prompt}{text}"]))[0]

    async def aclose(self) -> None:
        """Gives the model's memory back."""
        self._network.unload()

    async def _vectors(self, texts: list[str]) -> Vectors:
        made = await anyio.to_thread.run_sync(self._network.run, texts)
        return unit_rows(_pooled(made, self._folder.pooling), self.name)


class CpuReranker:
    """Relevance by a cross-encoder of this machine.

    Args:
        folder: where the model lies.

    Raises:
        BadArgumentError: no model lies there.
        MissingExtraError: ONNX Runtime is not installed.
    """

    def __init__(self, folder: str) -> None:
        found = read_model_folder("reranker", folder)
        self._network = _Network(found)
        self.name = found.name

    async def relevance(self, query: str, passages: Sequence[str]) -> list[float]:
        """The probability of each passage, 0..1."""
        pairs = [(query, passage) for passage in passages]
        batches = [pairs[start : start + _BATCH] for start in range(0, len(pairs), _BATCH)]
        made = [await anyio.to_thread.run_sync(self._network.run, batch) for batch in batches]
        return [share for batch in made for share in _shares(batch, self.name)]

    async def aclose(self) -> None:
        """Gives the model's memory back."""
        self._network.unload()


@dataclass(frozen=True)
class _Made:
    """What a network made of some texts.

    Args:
        outputs: by name, in the network's order.
        mask: which places of each text hold a token.
    """

    outputs: Mapping[str, NDArray[Any]]
    mask: NDArray[np.int64]


class _Network:
    """A model's tokenizer and network, loaded by who needs them first."""

    def __init__(self, folder: ModelFolder) -> None:
        if importlib.util.find_spec(_LIBRARY) is None:
            raise MissingExtraError("A model on the CPU", _LIBRARY)
        self._folder = folder
        self._loading = threading.Lock()
        self._parts: tuple[Any, Any] | None = None

    def unload(self) -> None:
        self._parts = None

    def run(self, texts: Texts) -> _Made:
        """What the network makes of texts, or of pairs of them.

        Raises:
            EngineUnreachableError: it cannot be loaded or run.
        """
        try:
            tokenizer, session = self._loaded()
            given = _feeds(tokenizer.encode_batch(list(texts)))
            outputs = session.run(None, {node.name: given[node.name] for node in session.get_inputs()})
            made = dict(zip([node.name for node in session.get_outputs()], outputs, strict=True))
        except EngineUnreachableError:
            raise
        except Exception as error:
            # Whatever a library of models raises, the search goes on without it.
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ModelUnusableError(self._folder.name, reason) from error
        return _Made(made, given["attention_mask"])

    def _loaded(self) -> tuple[Any, Any]:
        with self._loading:
            if self._parts is None:
                self._parts = self._load()
            return self._parts

    def _load(self) -> tuple[Any, Any]:
        library: Any = importlib.import_module(_LIBRARY)
        tokenizer: Any = importlib.import_module("tokenizers").Tokenizer.from_file(str(self._folder.tokenizer))
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._folder.most_tokens)
        options = library.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        # Threads without work would turn in circles, at the cost of the model that answers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        session = library.InferenceSession(str(self._folder.network), options, providers=providers)
        strange = [node.name for node in session.get_inputs() if node.name not in _INPUTS]
        if strange:
            raise ModelUnusableError(self._folder.name, f"it wants {strange[0]!r}, which no text has")
        return tokenizer, session


def _feeds(encoded: Sequence[Any]) -> dict[str, NDArray[np.int64]]:
    """Texts in tokens -> what a network may ask for, padded to the longest."""
    # A text that has no token at all is read as one token, for it must have a vector.
    width = max(1, *(len(each.ids) for each in encoded))
    ids, types, mask = (np.zeros((len(encoded), width), np.int64) for _ in range(3))
    for row, each in enumerate(encoded):
        length = len(each.ids)
        ids[row, :length], types[row, :length] = each.ids, each.type_ids
        mask[row, : max(length, 1)] = 1
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
    return dict(zip(_INPUTS, (ids, mask, types, positions), strict=True))


def _pooled(made: _Made, pooling: Pooling) -> Vectors:
    """One row for each text; what comes in another shape is left for ``unit_rows`` to refuse."""
    output = made.outputs.get(_WHOLE)
    tokens = np.asarray(next(iter(made.outputs.values())) if output is None else output, np.float32)
    if tokens.ndim != _CUBE:
        return tokens
    if pooling == "first":
        return tokens[:, 0]
    if pooling == "last":
        return tokens[np.arange(len(tokens)), made.mask.sum(axis=1) - 1]
    weights = made.mask[:, :, np.newaxis].astype(np.float32)
    return cast("Vectors", (tokens * weights).sum(axis=1) / weights.sum(axis=1))


def _shares(made: _Made, name: str) -> list[float]:
    """A network's logits as probabilities: one for each pair, or one for no and one for yes."""
    logits: NDArray[np.float64] = np.asarray(next(iter(made.outputs.values())), np.float64)
    columns = logits[:, np.newaxis] if logits.ndim == 1 else logits
    if columns.ndim != _MATRIX or columns.shape[1] not in {1, _YES_AND_NO}:
        raise ModelUnusableError(name, "it gives no relevance, so it is no cross-encoder")
    if not np.isfinite(columns).all():
        raise ModelUnusableError(name, "it gave a relevance that is no number")
    raw = columns[:, -1] - (columns[:, 0] if columns.shape[1] == _YES_AND_NO else 0.0)
    return [squashed(score) for score in raw.tolist()]
