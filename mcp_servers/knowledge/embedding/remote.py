"""Model services over HTTP: client, embedder and reranker.

    POST {url}/embeddings  {model, input: [...], encoding_format} -> {data: [{index, embedding}]}
    POST {url}/rerank      {model, query, documents, top_n} -> {results: [{index, relevance_score}]}

``url`` usually ends in ``/v1``. Every failure is an EngineUnreachableError, so a search can skip the stage. Keys are
sent in a header and appear nowhere else.

References: OpenAI, "Create embeddings"; Jina and Cohere, "Rerank".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2

from mcp_servers.knowledge.embedding import Vectors, sigmoid, unit_rows
from mcp_servers.knowledge.embedding.models import known_model
from mcp_servers.knowledge.errors import EngineUnreachableError, ModelServiceUnavailableError
from mcp_servers.program import close_in_time, redact_url
from rkllm_base.answers import AnswerLimits, AnswerRefusedError, AnswerTooSlowError, fetch, read_json

# Of a passage to rank: an NPU reads 640 tokens/s.
_MAX_CHARACTERS = 1000
_OK = 200
_CONNECT_TIMEOUT_S = 3.0
# 64 vectors of 8,192 numbers, of 20 characters each.
_ANSWER_BYTES, _ANSWER_VALUES = 32 * 2**20, 1_000_000


@dataclass(frozen=True)
class ModelAddress:
    """A model of a service."""

    url: str  # base of /embeddings, /rerank and /chat/completions
    model: str
    key: str = field(default="", repr=False)  # bearer token; empty for none
    timeout_s: float = 60.0  # per request; an NPU needs 0.4 s per passage, and a batch has several
    batch: int = 16  # texts of one request for vectors


class ModelClient:
    """HTTP client of one model service."""

    def __init__(self, address: ModelAddress) -> None:
        self._address = address
        self.place = redact_url(address.url)
        self._client: httpx2.AsyncClient | None = None

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a JSON request and return the JSON object of the answer."""
        try:
            limits = AnswerLimits(self._address.timeout_s, _ANSWER_BYTES, _ANSWER_VALUES)
            # Created on first use: reading the trust store takes time.
            if self._client is None:
                key = self._address.key
                self._client = httpx2.AsyncClient(
                    headers={"Authorization": f"Bearer {key}"} if key else {},
                    timeout=httpx2.Timeout(self._address.timeout_s, connect=_CONNECT_TIMEOUT_S),
                )
            response = await fetch(self._client, "POST", self._address.url.rstrip("/") + path, limits, json=body)
            answer: object = read_json(response.content, limits.values) if response.status == _OK else None
        except AnswerTooSlowError:
            raise EngineUnreachableError(self.place, f"no answer in {self._address.timeout_s:g} s") from None
        except AnswerRefusedError as refusal:
            raise EngineUnreachableError(self.place, str(refusal)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise EngineUnreachableError(self.place, str(error) or type(error).__name__) from error
        if response.status != _OK:
            raise EngineUnreachableError(self.place, f"HTTP {response.status} for {path}")
        if not isinstance(answer, dict):
            raise EngineUnreachableError(self.place, "its answer is not an object")
        return cast("dict[str, Any]", answer)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client:
            await close_in_time(client.aclose)


class RemoteEmbedder:
    """Embedder of a service; queries and passages get the prompts of ``models.json``."""

    is_fast = False

    def __init__(self, address: ModelAddress) -> None:
        self.client = ModelClient(address)
        self._model = address.model
        self.batch = address.batch
        self._recommended = known_model(address.model)
        # Vectors of passages without the prompt, made by an earlier version, are not comparable.
        self.name = (
            f"{address.model}, {self._recommended.document.strip()}" if self._recommended.document else address.model
        )

    async def embed(self, texts: Sequence[str], *, are_queries: bool = False) -> Vectors:
        """Return one unit row per text after the model's prompt, in order."""
        prompt = self._recommended.query if are_queries else self._recommended.document
        rows: list[list[float]] = []
        for start in range(0, len(texts), self.batch):
            batch = [f"{prompt}{text}" for text in texts[start : start + self.batch]]
            body = {"model": self._model, "input": batch, "encoding_format": "float"}
            answer = await self.client.post("/embeddings", body)
            try:
                vectors = {int(row["index"]): row["embedding"] for row in answer["data"]}
                rows += [[float(number) for number in vectors[at]] for at in range(len(batch))]
            except (KeyError, TypeError, ValueError):
                reason = f"its answer is not {len(batch)} embeddings as OpenAI gives them"
                raise EngineUnreachableError(self.client.place, reason) from None
        return unit_rows(rows, self.client.place)


class RemoteReranker:
    """Reranker of a service; passages are truncated."""

    def __init__(self, address: ModelAddress) -> None:
        self.client = ModelClient(address)
        self.name = address.model

    async def relevance(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return the relevance of each passage, 0..1; raw scores are converted with a sigmoid."""
        documents = [passage[:_MAX_CHARACTERS] for passage in passages]
        body = {"model": self.name, "query": query, "documents": documents, "top_n": len(documents)}
        answer = await self.client.post("/rerank", body)
        try:
            by_index = {int(row["index"]): float(row["relevance_score"]) for row in answer["results"]}
            scores = [by_index[at] for at in range(len(documents))]
        except (KeyError, TypeError, ValueError):
            reason = f"its answer is not {len(documents)} results with relevance_score"
            raise EngineUnreachableError(self.client.place, reason) from None
        if not all(math.isfinite(score) for score in scores):
            raise EngineUnreachableError(self.client.place, "its relevance is not a number")
        return scores if all(0 <= score <= 1 for score in scores) else [sigmoid(score) for score in scores]


# Tokens for text around the requested lines. A Japanese token is about one character, so the lines themselves need no
# more tokens than the question has characters.
_EXTRA_TOKENS = 64


@dataclass(frozen=True)
class ChatJudge:
    """Judge behind an OpenAI-style chat completion service: one request, no retry."""

    address: ModelAddress

    async def answer(self, instructions: str, text: str) -> str:
        """Return the model's answer at temperature 0; raise ModelServiceUnavailableError."""
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
        max_tokens = len(text) + _EXTRA_TOKENS
        body = {"model": self.address.model, "messages": messages, "temperature": 0, "max_tokens": max_tokens}
        client = ModelClient(self.address)
        try:
            completion = await client.post("/chat/completions", body)
        except EngineUnreachableError as error:
            raise ModelServiceUnavailableError(error.reason) from error
        finally:
            await client.aclose()
        try:
            content: object = completion["choices"][0]["message"]["content"]
        except (LookupError, TypeError) as error:
            raise ModelServiceUnavailableError("its answer is not a chat completion") from error
        if not isinstance(content, str):
            raise ModelServiceUnavailableError("its answer has no text")
        return content
