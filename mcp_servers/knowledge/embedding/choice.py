"""Setting -> embedder or reranker.

none                        BM25 only
hashing                     no model, 1024 dimensions
cpu:FOLDER                  ONNX model on this machine's processor (extra: onnxruntime)
http://HOST/v1#MODEL        OpenAI-style service
"""

from __future__ import annotations

from urllib.parse import urlsplit

from mcp_servers.knowledge.embedding import Embedder, Reranker
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.embedding.onnx import OnnxEmbedder, OnnxReranker
from mcp_servers.knowledge.embedding.remote import ModelAddress, RemoteEmbedder, RemoteReranker
from mcp_servers.knowledge.errors import BadArgumentError

_REMEDY = "give none, hashing, cpu:FOLDER, or an address like http://127.0.0.1:8080/v1#Qwen3-Embedding-0.6B"


def embedder_from(text: str, *, key: str = "", dimensions: int = 0, query_template: str = "") -> Embedder | None:
    """Return the embedder of a setting; None for ``none`` and an empty setting.

    ``dimensions`` (0: the model's default) and ``query_template`` (text with ``{query}``; empty chooses by model name)
    apply to services. Raises BadArgumentError for an unknown form or a folder without a model, MissingExtraError
    without ONNX Runtime.
    """
    kind, _, rest = text.partition(":")
    if kind in {"", "none"}:
        return None
    if text == "hashing":
        return HashingEmbedder()
    if kind == "cpu" and rest:
        return OnnxEmbedder(rest)
    address = _address("embedder", text, key)
    return RemoteEmbedder(address, dimensions=dimensions, query_template=query_template)


def reranker_from(text: str, *, key: str = "") -> Reranker | None:
    """Return the reranker of a setting, as ``embedder_from``."""
    kind, _, rest = text.partition(":")
    if kind in {"", "none"}:
        return None
    return OnnxReranker(rest) if kind == "cpu" and rest else RemoteReranker(_address("reranker", text, key))


def _address(name: str, text: str, key: str) -> ModelAddress:
    url, _, model = text.partition("#")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise BadArgumentError(name, f"is {text.partition(':')[0]!r}, which is not a model", _REMEDY)
    if not model:
        raise BadArgumentError(name, "names no model", "write it behind the address: http://HOST/v1#MODEL")
    return ModelAddress(url.rstrip("/"), model, key)
