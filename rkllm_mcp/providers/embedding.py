"""Token ids for embedding and reranking models.

    text, optionally with an instruction ─▶ ids + end token ─▶ engine ─▶ one vector
    query and documents                  ─▶ one yes-or-no question per document ─▶ engine ─▶ one score each

Follows the model cards of Qwen3-Embedding (queries carry an instruction, documents none; the vector is the state of the
end token) and Qwen3-Reranker (the question below; softmax over yes and no). Other models get the same ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError
from rkllm_mcp.prompt.budget import COUNTED_WINDOWS
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer, PlainText, Segment
from rkllm_mcp.tasks import run_costly

# The default instruction of both models; one that names the task is better.
SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
_END_TOKENS = ("<|endoftext|>", "</s>", "<eos>")
# Texts that are encoded before a cancellation is noticed; each is shorter than a few windows.
_ENCODED_AT_ONCE = 16
_JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
_BEFORE = f"<|im_start|>system\n{_JUDGE}<|im_end|>\n<|im_start|>user\n"
_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class Evaluator(Protocol):
    """The part of an engine that this module uses."""

    @property
    def context_tokens(self) -> int:
        """Context window that the model was loaded with."""
        ...

    async def embed(self, prompts: Sequence[Sequence[int]], *, dimensions: int | None = None) -> list[array[float]]:
        """Return one vector of length 1 per prompt."""
        ...

    async def rerank(self, prompts: Sequence[Sequence[int]], yes_id: int, no_id: int) -> list[float]:
        """Return the probability of yes against no for each prompt."""
        ...


async def embed_texts(
    engine: Evaluator,
    tokenizer: ModelTokenizer,
    texts: Sequence[str],
    *,
    instruction: str = "",
    dimensions: int | None = None,
) -> list[array[float]]:
    """Return a vector of length 1 for each text.

    ``instruction`` is set for queries (such as ``SEARCH``) and empty for documents; ``dimensions`` truncates the
    vectors.

    Raises:
        GenerationError: a text does not fit, or the runtime returns no vectors.
    """
    token_ids = [token_id for name in _END_TOKENS if (token_id := tokenizer.control_id(name)) is not None]
    end = token_ids[:1]
    lead = f"Instruct: {instruction}\nQuery:" if instruction else ""
    segments = [[PlainText(f"{lead}{text}")] for text in texts]
    prompts = await _encode_in_parts(tokenizer, segments, end, engine.context_tokens)
    return await engine.embed(prompts, dimensions=dimensions)


async def rank_documents(
    engine: Evaluator, tokenizer: ModelTokenizer, query: str, documents: Sequence[str], *, instruction: str = SEARCH
) -> list[float]:
    """Return a score from 0 to 1 for each document: how well it answers the query.

    Raises:
        GenerationError: a document does not fit, the runtime returns no logits, or yes or no is not a single token.
    """
    answers: list[int] = []
    for word in ("yes", "no"):
        ids = tokenizer.encode([PlainText(word)])
        if len(ids) != 1:
            raise InputRefusedError(
                f"this model has no token for {word!r}; rank with a model made for it (Qwen3-Reranker)"
            )
        answers += ids
    texts = (f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}" for document in documents)
    questions = [[ControlText(_BEFORE), PlainText(text), ControlText(_BEHIND)] for text in texts]
    prompts = await _encode_in_parts(tokenizer, questions, (), engine.context_tokens)
    return await engine.rerank(prompts, *answers)


async def _encode_in_parts(
    tokenizer: ModelTokenizer, prompts: Sequence[Sequence[Segment]], end: Sequence[int], context_tokens: int
) -> list[list[int]]:
    """Encode prompts in a thread, a few at a time: thousands take seconds, and may be cancelled between."""
    encoded: list[list[int]] = []
    for start in range(0, len(prompts), _ENCODED_AT_ONCE):
        part = prompts[start : start + _ENCODED_AT_ONCE]
        encoded += await run_costly(_encode, tokenizer, part, end, context_tokens)
    return encoded


def _encode(
    tokenizer: ModelTokenizer, prompts: Sequence[Sequence[Segment]], end: Sequence[int], context_tokens: int
) -> list[list[int]]:
    """Encode prompts; refuse those that leave no room in the window."""
    counted = context_tokens * COUNTED_WINDOWS
    encoded: list[list[int]] = []
    for segments in prompts:
        ids = [*tokenizer.encode(segments, counted), *end]
        if len(ids) >= context_tokens:
            raise PromptTooLongError(len(ids), context_tokens - 1, is_partial=len(ids) > counted)
        encoded.append(ids)
    return encoded
