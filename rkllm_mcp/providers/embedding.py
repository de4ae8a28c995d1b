"""Token ids for embedding and reranking models.

    text, optionally with an instruction ─▶ ids + end token ─▶ engine ─▶ one vector
    query and documents                  ─▶ one yes-or-no question per document ─▶ engine ─▶ one score each

Follows the model cards of Qwen3-Embedding (queries carry an instruction, documents none; the vector is the state of the
end token) and Qwen3-Reranker (the question below; softmax over yes and no). Other models get the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence

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


async def embedding_prompts(
    tokenizer: ModelTokenizer, texts: Sequence[str], context_tokens: int, *, instruction: str = ""
) -> list[list[int]]:
    """Return the ids of each text for ``Engine.embed``; ``instruction`` is set for queries and empty for documents.

    Raises:
        PromptTooLongError: a text does not fit.
    """
    token_ids = [token_id for name in _END_TOKENS if (token_id := tokenizer.controls.get(name)) is not None]
    lead = f"Instruct: {instruction}\nQuery:" if instruction else ""
    segments = [[PlainText(f"{lead}{text}")] for text in texts]
    return await _encode_in_parts(tokenizer, segments, token_ids[:1], context_tokens)


async def ranking_prompts(
    tokenizer: ModelTokenizer, query: str, documents: Sequence[str], context_tokens: int, *, instruction: str = SEARCH
) -> tuple[list[list[int]], int, int]:
    """Return the ids of a question for each document, and those of the answers yes and no, for ``Engine.rerank``.

    Raises:
        InputRefusedError: yes or no is not a single token.
        PromptTooLongError: a document does not fit.
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
    return await _encode_in_parts(tokenizer, questions, (), context_tokens), answers[0], answers[1]


async def _encode_in_parts(
    tokenizer: ModelTokenizer, prompts: Sequence[Sequence[Segment]], end: Sequence[int], context_tokens: int
) -> list[list[int]]:
    """Encode prompts in a thread, a few at a time: thousands take seconds, and may be cancelled between.

    A prompt that leaves no room in the window is refused.
    """
    counted = context_tokens * COUNTED_WINDOWS
    encoded: list[list[int]] = []
    for start in range(0, len(prompts), _ENCODED_AT_ONCE):
        part = prompts[start : start + _ENCODED_AT_ONCE]
        # The thread makes the list, and so encodes.
        for text_ids in await run_costly(list[list[int]], (tokenizer.encode(segments, counted) for segments in part)):
            ids = [*text_ids, *end]
            if len(ids) >= context_tokens:
                raise PromptTooLongError(len(ids), context_tokens - 1, is_partial=len(ids) > counted)
            encoded.append(ids)
    return encoded
