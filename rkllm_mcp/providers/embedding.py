"""Texts become vectors, and documents a ranking: what embedding and reranking models expect, as token ids.

    text, maybe with an instruction ─▶ ids + end token ─▶ engine ─▶ one vector
    query and documents             ─▶ a question with the answer yes or no for each ─▶ engine ─▶ a score each

Followed: the model cards of Qwen3-Embedding (queries carry an instruction, documents none, the end token's state is the
vector) and Qwen3-Reranker (the question below, the softmax over yes and no). Other models take the same ids; how good
their vectors are is theirs. It knows an engine by the port ``Evaluator`` alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from anyio import to_thread

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError
from rkllm_mcp.prompt.budget import COUNTED_WINDOWS
from rkllm_mcp.prompt.vocabulary import Foreign, Segment, Trusted, Vocabulary

# What both models were trained with for searches; a better one names the task.
SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
_END_TOKENS = ("<|endoftext|>", "</s>", "<eos>")
_JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
_BEFORE = f"<|im_start|>system\n{_JUDGE}<|im_end|>\n<|im_start|>user\n"
_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class Evaluator(Protocol):
    """What is needed of an engine."""

    @property
    def context_tokens(self) -> int:
        """The context window that the model was loaded with."""
        ...

    async def embed(self, prompts: Sequence[Sequence[int]], *, dimensions: int | None = None) -> list[array[float]]:
        """One vector of length 1 per prompt."""
        ...

    async def rerank(self, prompts: Sequence[Sequence[int]], yes_id: int, no_id: int) -> list[float]:
        """How probable yes is rather than no, for each prompt."""
        ...


async def embed_texts(
    engine: Evaluator,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    instruction: str = "",
    dimensions: int | None = None,
) -> list[array[float]]:
    """A vector of length 1 for each text; the closer two texts are in meaning, the greater their product.

    Args:
        engine: what evaluates.
        vocabulary: the model's.
        texts: queries or documents.
        instruction: what queries are asked for, such as ``SEARCH``; empty for documents.
        dimensions: keep this many of the vector's; all when None.

    Raises:
        GenerationError: a text does not fit, or the runtime gives no vectors.
    """
    end = _end_token(vocabulary)
    lead = f"Instruct: {instruction}\nQuery:" if instruction else ""
    segments = [[Foreign(f"{lead}{text}")] for text in texts]
    # Thousands of texts take seconds, which nobody else's answers are to wait for.
    prompts = await to_thread.run_sync(_encoded, vocabulary, segments, end, engine.context_tokens)
    return await engine.embed(prompts, dimensions=dimensions)


async def rank_documents(
    engine: Evaluator,
    vocabulary: Vocabulary,
    query: str,
    documents: Sequence[str],
    *,
    instruction: str = SEARCH,
) -> list[float]:
    """How well each document answers the query, from 0 to 1.

    Args:
        engine: what evaluates.
        vocabulary: the model's.
        query: what is looked for.
        documents: what may answer it.
        instruction: what a document has to do for the query.

    Raises:
        GenerationError: a document does not fit, the runtime gives no logits, or the model has no words for yes and no.
    """
    yes, no = _word_id(vocabulary, "yes"), _word_id(vocabulary, "no")
    questions = [_question(instruction, query, document) for document in documents]
    prompts = await to_thread.run_sync(_encoded, vocabulary, questions, (), engine.context_tokens)
    return await engine.rerank(prompts, yes, no)


def _encoded(
    vocabulary: Vocabulary, prompts: Sequence[Sequence[Segment]], end: Sequence[int], context_tokens: int
) -> list[list[int]]:
    """The ids of every prompt; of one that does not fit nothing is evaluated, nor of those before it.

    Raises:
        PromptTooLongError: one leaves no room for a single token.
    """
    counted = context_tokens * COUNTED_WINDOWS
    encoded: list[list[int]] = []
    for segments in prompts:
        ids = [*vocabulary.encode(segments, counted), *end]
        if len(ids) >= context_tokens:
            raise PromptTooLongError(len(ids), context_tokens - 1, is_partial=len(ids) > counted)
        encoded.append(ids)
    return encoded


def _question(instruction: str, query: str, document: str) -> list[Segment]:
    body = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    return [Trusted(_BEFORE), Foreign(body), Trusted(_BEHIND)]


def _end_token(vocabulary: Vocabulary) -> list[int]:
    """The token whose state is a text's vector; none where the vocabulary has no such token."""
    known = [token_id for name in _END_TOKENS if (token_id := vocabulary.control_id(name)) is not None]
    return known[:1]


def _word_id(vocabulary: Vocabulary, word: str) -> int:
    ids = vocabulary.encode([Foreign(word)])
    if len(ids) != 1:
        raise InputRefusedError(f"this model has no token for {word!r}; rank with a model made for it (Qwen3-Reranker)")
    return ids[0]
