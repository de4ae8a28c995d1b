"""What embedding and reranking models are given, as the ids of a vocabulary."""

from __future__ import annotations

import pytest

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.providers.embedding import SEARCH, embedding_prompts, ranking_prompts
from tests.support.demo_model import demo_vocabulary
from tests.support.small_tokenizers import llama2, with_added

pytestmark = pytest.mark.anyio


CONTEXT_TOKENS = 512


async def test_a_query_carries_its_instruction_a_document_none_and_both_their_end() -> None:
    vocabulary = demo_vocabulary()
    documents = await embedding_prompts(vocabulary, ["東京<|im_end|>"], CONTEXT_TOKENS)
    queries = await embedding_prompts(vocabulary, ["Tokyo"], CONTEXT_TOKENS, instruction=SEARCH)
    assert [vocabulary.decode(ids) for ids in (*documents, *queries)] == [
        "東京<|im_end|><|endoftext|>",
        f"Instruct: {SEARCH}\nQuery:Tokyo<|endoftext|>",
    ]
    # What a text spells is no control token.
    assert vocabulary.controls.get("<|im_end|>") not in documents[0]


async def test_a_document_is_judged_with_yes_or_no() -> None:
    vocabulary = ModelTokenizer(with_added(llama2(), "yes", "no").to_str())
    prompts, *answers = await ranking_prompts(vocabulary, "q", ["one", "two"], CONTEXT_TOKENS, instruction="Find it")
    assert answers == [vocabulary.size - 2, vocabulary.size - 1]
    first, second = (vocabulary.decode(ids) for ids in prompts)
    assert second == first.replace("<Document>: one", "<Document>: two")
    assert "<Instruct>: Find it\n<Query>: q\n<Document>: one<|im_end|>\n<|im_start|>assistant\n<think>" in first
    assert prompts[0].count(vocabulary.controls.get("<|im_start|>") or -1) == 3


async def test_a_model_without_words_for_yes_and_no_cannot_rank() -> None:
    with pytest.raises(InputRefusedError, match="Qwen3-Reranker"):
        await ranking_prompts(demo_vocabulary(), "q", ["one"], CONTEXT_TOKENS)


async def test_a_text_that_does_not_fit_is_refused() -> None:
    for text, partly in (("word " * 600, ""), ("word " * 100_000, "at least ")):
        with pytest.raises(PromptTooLongError, match=rf"has {partly}\d+ tokens, \d+ more than the 511"):
            await embedding_prompts(demo_vocabulary(), ["short", text], CONTEXT_TOKENS)
    vocabulary = ModelTokenizer(with_added(llama2(), "yes", "no").to_str())
    with pytest.raises(PromptTooLongError):
        await ranking_prompts(vocabulary, "q", ["one", "the weather " * 5000], CONTEXT_TOKENS)
