"""Embedder and reranker that run an ONNX model folder with ONNX Runtime (optional dependency).

    FOLDER/model.onnx, or onnx/model.onnx, or the only .onnx file
    FOLDER/tokenizer.json
    FOLDER/tokenizer_config.json, sentence_bert_config.json        maximum number of tokens
    FOLDER/1_Pooling/config.json                                   pooling; default mean
    FOLDER/config_sentence_transformers.json                       prompts before queries and passages

This is the layout of Sentence Transformers and Optimum. Nothing is downloaded. Library and model are loaded on first
use, in a thread. Batches run in separate threads, so a query does not wait for background embedding.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from mcp_servers.knowledge.embedding import Vectors, sigmoid, unit_rows
from mcp_servers.knowledge.embedding.models import known_model
from mcp_servers.knowledge.errors import BadArgumentError, EngineUnreachableError, MissingExtraError, ModelUnusableError

Pooling = Literal["mean", "first", "last"]

_POOLINGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
# Chunks are rarely longer, and attention grows faster than the length.
_MAX_TOKENS = 1024
# The usual limit of BERT models, if the folder names none.
_DEFAULT_TOKENS = 512
# Distinguishes two trainings without hashing all weights at every start.
_SAMPLE_BYTES = 1 << 20
_DIGITS = 8
_REMEDY = "Give cpu:FOLDER with tokenizer.json and one .onnx file in it, or name that file"


@dataclass(frozen=True)
class ModelFolder:
    """An ONNX model on disk."""

    name: str  # folder name and fingerprint of the contents
    network: Path  # ONNX file
    tokenizer: Path
    max_tokens: int  # longer texts are truncated
    pooling: Pooling
    query_prompt: str
    document_prompt: str


def read_model_folder(setting: str, path_or_name: str) -> ModelFolder:
    """Read a model folder, or one ``.onnx`` file in it; BadArgumentError names the argument ``setting``."""
    try:
        path = Path(path_or_name).expanduser().absolute()
        if path.is_dir():
            usual = (path / "model.onnx", path / "onnx" / "model.onnx")
            there = [file for file in usual if file.is_file()][:1]
            networks = there or sorted([*path.glob("*.onnx"), *path.glob("onnx/*.onnx")])
        elif path.is_file():
            networks = [path]
        else:
            raise BadArgumentError(setting, f"is not a folder ({path})", _REMEDY)
        if not networks:
            raise BadArgumentError(setting, f"is a folder without an .onnx file ({path})", _REMEDY)
        if len(networks) > 1:
            names = ", ".join(str(file.relative_to(path)) for file in networks)
            reason = f"is a folder with several models ({path}: {names})"
            raise BadArgumentError(setting, reason, "Name one of the files")
        (network,) = networks
        tokenizers = (folder / "tokenizer.json" for folder in (network.parent, network.parent.parent))
        tokenizer = next((file for file in tokenizers if file.is_file()), None)
        if tokenizer is None:
            raise BadArgumentError(setting, f"is a folder without tokenizer.json ({network.parent})", _REMEDY)
        folder = tokenizer.parent
        table = _read_json(folder / "1_Pooling" / "config.json")
        poolings: list[Pooling] = [pooling for key, pooling in _POOLINGS.items() if table.get(key) is True]
        pooling = poolings[0] if poolings else "mean"
        declared = (
            _read_json(folder / "tokenizer_config.json").get("model_max_length"),
            _read_json(folder / "sentence_bert_config.json").get("max_seq_length"),
        )
        # Unknown lengths are written as 10^30.
        limits = [limit for limit in declared if isinstance(limit, int) and 0 < limit < 1 << 31]
        max_tokens = min([*limits, _MAX_TOKENS]) if limits else _DEFAULT_TOKENS
        # E5 models need prompts, but their folders do not contain them.
        recommended = known_model(folder.name)
        query_prompt, document_prompt = recommended.query, recommended.document
        prompts = _read_json(folder / "config_sentence_transformers.json").get("prompts")
        if isinstance(prompts, dict) and prompts:
            written = cast("dict[str, Any]", prompts)
            query_prompt = str(written.get("query") or "")
            document_prompt = str(written.get("document") or written.get("passage") or "")
        # A short hash of everything that the vectors depend on. Large weights are stored in external data files.
        digest = hashlib.sha256(f"{pooling}\0{document_prompt}\0{max_tokens}\0".encode())
        digest.update(tokenizer.read_bytes())
        for file in (network, *sorted(network.parent.glob(f"{network.name}_data*"))):
            with file.open("rb") as opened:
                size = file.stat().st_size
                digest.update(f"{size}\0".encode())
                digest.update(opened.read(_SAMPLE_BYTES))
                opened.seek(max(size - _SAMPLE_BYTES, 0))
                digest.update(opened.read(_SAMPLE_BYTES))
        name = f"{folder.name}@{digest.hexdigest()[:_DIGITS]}"
        return ModelFolder(name, network, tokenizer, max_tokens, pooling, query_prompt, document_prompt)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadArgumentError(setting, f"cannot be read ({path_or_name!r:.200}: {reason})", _REMEDY) from error


def _read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one without the file."""
    if not file.is_file():
        return {}
    value: object = json.loads(file.read_text("utf-8"))
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


# The program can stop between batches; a board needs about a second for one.
_BATCH = 8
_LIBRARY = "onnxruntime"
# Its warnings concern the graph, which users cannot change.
_LOG_ERRORS = 3
# Optimum's name of the pooled output, if the network has one.
_SENTENCE_OUTPUT = "sentence_embedding"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_2D, _3D = 2, 3
_YES_AND_NO = 2

Texts = Sequence[str] | Sequence[tuple[str, str]]


class OnnxEmbedder:
    """Embedder of an ONNX model folder."""

    is_fast = False
    batch = 32

    def __init__(self, folder: str) -> None:
        self._folder = read_model_folder("embedder", folder)
        self._network = _OnnxNetwork(self._folder)
        self.name = self._folder.name

    async def embed(self, texts: Sequence[str], *, are_queries: bool = False) -> Vectors:
        """Return one unit row per text, in order."""
        prompt = self._folder.query_prompt if are_queries else self._folder.document_prompt
        rows: list[Vectors] = []
        for start in range(0, len(texts), _BATCH):
            batch = [f"{prompt}{text}" for text in texts[start : start + _BATCH]]
            output = await anyio.to_thread.run_sync(self._network.run, batch)
            sentence = output.outputs.get(_SENTENCE_OUTPUT)
            tokens = np.asarray(next(iter(output.outputs.values())) if sentence is None else sentence, np.float32)
            # Other shapes than one row per token are those of sentences, or refused by unit_rows.
            if tokens.ndim == _3D and self._folder.pooling == "first":
                tokens = tokens[:, 0]
            elif tokens.ndim == _3D and self._folder.pooling == "last":
                tokens = tokens[np.arange(len(tokens)), output.mask.sum(axis=1) - 1]
            elif tokens.ndim == _3D:
                weights = output.mask[:, :, np.newaxis].astype(np.float32)
                tokens = cast("Vectors", (tokens * weights).sum(axis=1) / weights.sum(axis=1))
            rows.append(unit_rows(tokens, self.name))
        return np.concatenate(rows)


class OnnxReranker:
    """Reranker of an ONNX cross-encoder folder."""

    def __init__(self, folder: str) -> None:
        model = read_model_folder("reranker", folder)
        self._network = _OnnxNetwork(model)
        self.name = model.name

    async def relevance(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return the probability of each passage, 0..1."""
        pairs = [(query, passage) for passage in passages]
        batches = [pairs[start : start + _BATCH] for start in range(0, len(pairs), _BATCH)]
        output = [await anyio.to_thread.run_sync(self._network.run, batch) for batch in batches]
        probabilities: list[float] = []
        for batch in output:
            # Logits: one column per pair, or two for no and yes.
            logits: NDArray[np.float64] = np.asarray(next(iter(batch.outputs.values())), np.float64)
            columns = logits[:, np.newaxis] if logits.ndim == 1 else logits
            if columns.ndim != _2D or columns.shape[1] not in {1, _YES_AND_NO}:
                raise ModelUnusableError(self.name, "its output is not a relevance: it is not a cross-encoder")
            if not np.isfinite(columns).all():
                raise ModelUnusableError(self.name, "its relevance is not a number")
            raw = columns[:, -1] - (columns[:, 0] if columns.shape[1] == _YES_AND_NO else 0.0)
            probabilities += [sigmoid(score) for score in raw.tolist()]
        return probabilities


@dataclass(frozen=True)
class _NetworkOutput:
    """Output tensors by name in the network's order, and the attention mask of the input."""

    outputs: Mapping[str, NDArray[Any]]
    mask: NDArray[np.int64]


class _OnnxNetwork:
    """Tokenizer and inference session of a model, loaded on first use."""

    def __init__(self, folder: ModelFolder) -> None:
        if importlib.util.find_spec(_LIBRARY) is None:
            raise MissingExtraError("A model on the CPU", _LIBRARY, "knowledge-cpu")
        self._folder = folder
        self._loading = threading.Lock()
        self._parts: tuple[Any, Any] | None = None

    def run(self, texts: Texts) -> _NetworkOutput:
        """Run texts or pairs of texts; raise EngineUnreachableError on failure."""
        try:
            with self._loading:
                self._parts = self._parts or self._load()
                tokenizer, session = self._parts
            encoded = tokenizer.encode_batch(list(texts))
            # Padded to the longest text. Texts without tokens get one, so that every text has a vector.
            width = max(1, *(len(encoding.ids) for encoding in encoded))
            ids, types, mask = (np.zeros((len(encoded), width), np.int64) for _ in range(3))
            for row, encoding in enumerate(encoded):
                length = len(encoding.ids)
                ids[row, :length], types[row, :length] = encoding.ids, encoding.type_ids
                mask[row, : max(length, 1)] = 1
            positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
            feeds = dict(zip(_INPUTS, (ids, mask, types, positions), strict=True))
            outputs = session.run(None, {node.name: feeds[node.name] for node in session.get_inputs()})
            output = dict(zip([node.name for node in session.get_outputs()], outputs, strict=True))
        except EngineUnreachableError:
            raise
        except Exception as error:
            # Any exception of the libraries only skips the stage.
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ModelUnusableError(self._folder.name, reason) from error
        return _NetworkOutput(output, feeds["attention_mask"])

    def _load(self) -> tuple[Any, Any]:
        library: Any = importlib.import_module(_LIBRARY)
        tokenizer: Any = importlib.import_module("tokenizers").Tokenizer.from_file(str(self._folder.tokenizer))
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._folder.max_tokens)
        options = library.SessionOptions()
        options.log_severity_level = _LOG_ERRORS
        # Spinning threads would slow down the language model.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        session = library.InferenceSession(str(self._folder.network), options, providers=providers)
        unknown = [node.name for node in session.get_inputs() if node.name not in _INPUTS]
        if unknown:
            raise ModelUnusableError(self._folder.name, f"it requires {unknown[0]!r}, which is not a text input")
        return tokenizer, session
