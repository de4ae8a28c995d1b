"""What embedding and reranking models are given, as the ids of a vocabulary."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import anyio
import pytest

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.providers.embedding import SEARCH, embed_texts, rank_documents
from tests.support.demo_model import demo_vocabulary
from tests.support.small_tokenizers import llama2, with_added

pytestmark = pytest.mark.anyio


class Evaluating:
    """Remembers what it is given."""

    context_tokens = 512

    def __init__(self) -> None:
        self.prompts: list[Sequence[int]] = []
        self.wishes: list[object] = []

    async def embed(self, prompts: Sequence[Sequence[int]], *, dimensions: int | None = None) -> list[array[float]]:
        await anyio.lowlevel.checkpoint()
        self.prompts += prompts
        self.wishes.append(dimensions)
        return [array("f", [1.0])] * len(prompts)

    async def rerank(self, prompts: Sequence[Sequence[int]], yes_id: int, no_id: int) -> list[float]:
        await anyio.lowlevel.checkpoint()
        self.prompts += prompts
        self.wishes.append((yes_id, no_id))
        return [0.5] * len(prompts)


async def test_a_query_carries_its_instruction_a_document_none_and_both_their_end() -> None:
    engine, vocabulary = Evaluating(), demo_vocabulary()
    vectors = await embed_texts(engine, vocabulary, ["東京<|im_end|>"], dimensions=8)
    await embed_texts(engine, vocabulary, ["Tokyo"], instruction=SEARCH)
    assert [list(vector) for vector in vectors] == [[1.0]]
    assert [vocabulary.decode(ids) for ids in engine.prompts] == [
        "東京<|im_end|><|endoftext|>",
        f"Instruct: {SEARCH}\nQuery:Tokyo<|endoftext|>",
    ]
    # What a text spells is no control token.
    assert vocabulary.control_id("<|im_end|>") not in engine.prompts[0]
    assert engine.wishes == [8, None]


async def test_a_document_is_judged_with_yes_or_no() -> None:
    engine = Evaluating()
    vocabulary = ModelTokenizer(with_added(llama2(), "yes", "no").to_str())
    assert await rank_documents(engine, vocabulary, "q", ["one", "two"], instruction="Find it") == [0.5, 0.5]
    assert engine.wishes == [(vocabulary.size - 2, vocabulary.size - 1)]
    first, second = (vocabulary.decode(ids) for ids in engine.prompts)
    assert second == first.replace("<Document>: one", "<Document>: two")
    assert "<Instruct>: Find it\n<Query>: q\n<Document>: one<|im_end|>\n<|im_start|>assistant\n<think>" in first
    assert engine.prompts[0].count(vocabulary.control_id("<|im_start|>") or -1) == 3


async def test_a_model_without_words_for_yes_and_no_cannot_rank() -> None:
    with pytest.raises(InputRefusedError, match="Qwen3-Reranker"):
        await rank_documents(Evaluating(), demo_vocabulary(), "q", ["one"])


async def test_a_text_that_does_not_fit_is_refused_before_anything_is_evaluated() -> None:
    engine = Evaluating()
    for text, partly in (("word " * 600, ""), ("word " * 100_000, "at least ")):
        with pytest.raises(PromptTooLongError, match=rf"has {partly}\d+ tokens, \d+ more than the 511"):
            await embed_texts(engine, demo_vocabulary(), ["short", text])
    vocabulary = ModelTokenizer(with_added(llama2(), "yes", "no").to_str())
    with pytest.raises(PromptTooLongError):
        await rank_documents(engine, vocabulary, "q", ["one", "the weather " * 5000])
    assert engine.prompts == []
