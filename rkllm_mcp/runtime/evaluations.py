"""Evaluations: embeddings, scores and logits, as methods of the engine. Nothing is generated.

Each one begins with an empty KV cache and leaves an empty one: rows come only for tokens that are evaluated, so reuse
of a prefix would leave some out; and otherwise they were wrong or ever slower on several releases (rknn-llm #278,
rkllama PR 139). Texts are evaluated one after the other, and generations may come in between.

Source of the pooling: the model cards of Qwen3-Embedding (last token, L2, dimensions may be cut) and Qwen3-Reranker
(softmax over the logits of yes and no).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from operator import mul
from typing import Literal

from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.generation import Input, Rows
from rkllm_mcp.runtime.commands import WhichRows

Output = Literal["hidden", "logits"]


class Evaluations(ABC):
    """The part of an engine that evaluates."""

    @abstractmethod
    async def evaluate(
        self,
        prompt: Input | Sequence[int],
        output: Output,
        *,
        rows: WhichRows = "last",
        columns: Sequence[int] = (),
        lora: str | None = None,
    ) -> Rows:
        """Evaluate a prompt without generating.

        Args:
            prompt: the input; a plain sequence is one of token ids.
            output: ``hidden`` for the last layer's states, ``logits`` for a value per token of the vocabulary.
            rows: the last token's row, or every row that the runtime gives.
            columns: only these columns of each row; empty for all.
            lora: name of the adapter to use.

        Raises:
            GenerationError: as for ``Engine.generate``; RunRejectedError also where the model gives no rows.
            RuntimeUnusableError: the model cannot be loaded.
        """

    async def embed(
        self,
        prompts: Sequence[Input | Sequence[int]],
        *,
        dimensions: int | None = None,
        normalise: bool = True,
        lora: str | None = None,
    ) -> list[array[float]]:
        """One vector per prompt: the hidden state of its last token.

        Args:
            prompts: each one's token ids, with the end token that the model was trained with.
            dimensions: keep this many leading dimensions (Matryoshka), for models trained for it; None for all.
            normalise: scale each vector to length 1, after cutting.
            lora: name of the adapter to use.

        Raises:
            InputRefusedError: ``dimensions`` is not one of the vector's.
            GenerationError: as for ``evaluate``.
        """
        vectors: list[array[float]] = []
        for prompt in prompts:
            rows = await self.evaluate(prompt, "hidden", lora=lora)
            vector = cut(rows.row(), dimensions)
            vectors.append(normalised(vector) if normalise else vector)
        return vectors

    async def logits(self, prompt: Input | Sequence[int], *, lora: str | None = None) -> array[float]:
        """The logits of the token that would come next, one per id of the model's vocabulary.

        Raises:
            GenerationError: as for ``evaluate``.
        """
        return (await self.evaluate(prompt, "logits", lora=lora)).row()

    async def rerank(
        self, prompts: Sequence[Input | Sequence[int]], yes_id: int, no_id: int, *, lora: str | None = None
    ) -> list[float]:
        """How probable it is that each prompt is answered with yes rather than no.

        Args:
            prompts: each one's token ids: instruction, query and document as the model wants them.
            yes_id: the token that means a document answers the query.
            no_id: the token that means it does not.
            lora: name of the adapter to use.

        Raises:
            GenerationError: as for ``evaluate``.
        """
        scores: list[float] = []
        for prompt in prompts:
            yes, no = (await self.evaluate(prompt, "logits", columns=(yes_id, no_id), lora=lora)).row()
            scores.append(probability(yes, no))
        return scores


def cut(vector: array[float], dimensions: int | None) -> array[float]:
    """The leading dimensions of a vector.

    Raises:
        InputRefusedError: there are not that many.
    """
    if dimensions is None:
        return vector
    if not 0 < dimensions <= len(vector):
        raise InputRefusedError(f"this model's vectors have {len(vector)} dimensions, not {dimensions}; ask for fewer")
    return vector[:dimensions]


def normalised(vector: array[float]) -> array[float]:
    """The vector scaled to length 1; a vector of zeros stays one."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    return array("f", [value / length for value in vector]) if length else vector


def probability(yes: float, no: float) -> float:
    """Softmax over two logits: the share of the first."""
    difference = no - yes
    # The exponential of a large number is none, and either end is the limit.
    return 1.0 / (1.0 + math.exp(difference)) if difference < 700 else 0.0
