"""What the owner wrote -> an embedder and a reranker.

none                        words alone
hashing                     no model, 1024 numbers
cpu:FOLDER                  a model in ONNX on this machine's processor (extra: onnxruntime); a reranker likewise
http://HOST/v1#MODEL        an OpenAI-style service; a reranker likewise
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
    """The embedder that a setting names; None for ``none`` and for nothing.

    Args:
        text: one of the forms above.
        key: for a service.
        dimensions: for a service whose model offers a choice; 0 takes what comes.
        query_template: for a service: what a question becomes, with ``{query}`` in it; empty chooses by the model.

    Raises:
        BadArgumentError: it is none of them, or the folder has no model.
        MissingExtraError: the library for models on the CPU is not installed.
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
    """The reranker that a setting names; None for ``none`` and for nothing.

    Raises:
        BadArgumentError, MissingExtraError: as ``embedder_from``.
    """
    kind, _, rest = text.partition(":")
    if kind in {"", "none"}:
        return None
    return OnnxReranker(rest) if kind == "cpu" and rest else RemoteReranker(_address("reranker", text, key))


def _address(name: str, text: str, key: str) -> ModelAddress:
    url, _, model = text.partition("#")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise BadArgumentError(name, f"is {text.partition(':')[0]!r}, which is no model", _REMEDY)
    if not model:
        raise BadArgumentError(name, "names no model", "write it behind the address: http://HOST/v1#MODEL")
    return ModelAddress(url.rstrip("/"), model, key)
