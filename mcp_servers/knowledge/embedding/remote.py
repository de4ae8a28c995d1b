"""An embedder and a reranker behind an address: the board's own service, or any other of these two shapes.

    POST {address}/embeddings  {model, input: [...], encoding_format, dimensions?} -> {data: [{index, embedding}]}
    POST {address}/rerank      {model, query, documents, top_n} -> {results: [{index, relevance_score}]}

``address`` ends where the paths begin, usually in ``/v1``. Whatever is not a usable answer is one kind of problem, so
that a search can leave the stage out and go on. Keys travel in a header and appear nowhere else.

Followed: OpenAI, "Create embeddings"; Jina and Cohere, "Rerank"; the model card of Qwen3-Embedding for its instruction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx2

from mcp_servers.knowledge.embedding import Vectors, sigmoid, unit_rows
from mcp_servers.knowledge.errors import EngineUnreachableError

QWEN3_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:{query}"
_OK = 200
_CONNECT_TIMEOUT_S = 3.0
_CLOSE_S = 1.0


@dataclass(frozen=True)
class ModelAddress:
    """Where a model answers.

    Args:
        url: http or https, up to where ``/embeddings`` or ``/rerank`` follows.
        model: its name there.
        key: sent as a bearer token; empty for none.
        timeout_s: for one request; an NPU needs 0.4 s for a passage, and a batch has several.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    timeout_s: float = 60.0


class ModelClient:
    def __init__(self, address: ModelAddress) -> None:
        self._address = address
        parts = urlsplit(address.url)
        # A password in the address is as secret as a key.
        self.place = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._client: httpx2.AsyncClient | None = None

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            with anyio.fail_after(self._address.timeout_s):
                response = await self._http_client().post(self._address.url.rstrip("/") + path, json=body)
                answer: object = response.json() if response.status_code == _OK else None
        except TimeoutError:
            raise EngineUnreachableError(self.place, f"no answer in {self._address.timeout_s:g} s") from None
        except (httpx2.HTTPError, OSError) as error:
            raise EngineUnreachableError(self.place, str(error) or type(error).__name__) from error
        except ValueError:
            raise EngineUnreachableError(self.place, "its answer is not JSON") from None
        if response.status_code != _OK:
            raise EngineUnreachableError(self.place, f"HTTP {response.status_code} for {path}")
        if not isinstance(answer, dict):
            raise EngineUnreachableError(self.place, "its answer is no object")
        return cast("dict[str, Any]", answer)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await client.aclose()

    def _http_client(self) -> httpx2.AsyncClient:
        # Made at the first request: reading the trust store takes a moment.
        if self._client is None:
            key = self._address.key
            self._client = httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx2.Timeout(self._address.timeout_s, connect=_CONNECT_TIMEOUT_S),
            )
        return self._client


class RemoteEmbedder:
    """Embeddings from an address.

    Args:
        address: where.
        dimensions: how many numbers are asked for, of models that offer a choice; 0 takes what comes.
        query_template: what a question becomes, with ``{query}`` in it; empty chooses by the model's name.
        batch: texts in one request.
    """

    is_fast = False

    def __init__(
        self, address: ModelAddress, *, dimensions: int = 0, query_template: str = "", batch: int = 16
    ) -> None:
        self._client = ModelClient(address)
        self._model = address.model
        self._dimensions = dimensions
        self._template = query_template or (QWEN3_QUERY if "qwen3-embedding" in address.model.lower() else "{query}")
        self._batch = batch
        self.name = f"{address.model}/{dimensions}" if dimensions else address.model

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One unit row for each text, in order."""
        rows: list[list[float]] = []
        for start in range(0, len(texts), self._batch):
            rows += await self._request(list(texts[start : start + self._batch]))
        return unit_rows(rows, self._client.place)

    async def embed_query(self, text: str) -> Vectors:
        """One unit vector, of the text within the template."""
        rows = await self._request([self._template.replace("{query}", text)])
        return unit_rows(rows, self._client.place)[0]

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _request(self, texts: list[str]) -> list[list[float]]:
        body: dict[str, Any] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._dimensions:
            body["dimensions"] = self._dimensions
        answer = await self._client.post("/embeddings", body)
        try:
            found = {int(row["index"]): row["embedding"] for row in answer["data"]}
            return [[float(number) for number in found[at]] for at in range(len(texts))]
        except (KeyError, TypeError, ValueError):
            raise EngineUnreachableError(
                self._client.place, f"its answer is not {len(texts)} embeddings as OpenAI gives them"
            ) from None


class RemoteReranker:
    """Relevance from an address.

    Args:
        address: where.
        most_characters: of a passage that are sent; an NPU reads 640 tokens in a second.
    """

    def __init__(self, address: ModelAddress, *, max_characters: int = 1000) -> None:
        self._client = ModelClient(address)
        self._model = address.model
        self._most_characters = max_characters
        self.name = address.model

    async def relevance(self, query: str, passages: Sequence[str]) -> list[float]:
        """The relevance of each passage, 0..1; raw scores of models that give no probability are squashed."""
        documents = [passage[: self._most_characters] for passage in passages]
        body = {"model": self._model, "query": query, "documents": documents, "top_n": len(documents)}
        answer = await self._client.post("/rerank", body)
        try:
            found = {int(row["index"]): float(row["relevance_score"]) for row in answer["results"]}
            scores = [found[at] for at in range(len(documents))]
        except (KeyError, TypeError, ValueError):
            raise EngineUnreachableError(
                self._client.place, f"its answer is not {len(documents)} results with relevance_score"
            ) from None
        if not all(math.isfinite(score) for score in scores):
            raise EngineUnreachableError(self._client.place, "it gave a relevance that is no number")
        return scores if all(0 <= score <= 1 for score in scores) else [sigmoid(score) for score in scores]

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
