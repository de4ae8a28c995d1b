"""What is known of embedding models by their names."""

from __future__ import annotations

import pytest

from mcp_servers.knowledge.embedding.models import known_model


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("Multilingual_E5_base@1f2e", "query: ", "passage: "),
        ("cl-nagoya/ruri-v3-130m", "検索クエリ: ", "検索文書: "),
        ("google/embeddinggemma-300m", "task: search result | query: ", "title: none | text: "),
        ("BAAI/bge-m3", "", ""),
        ("code5-large", "", ""),
        ("text-embedding-3-small", "", ""),
    ],
)
def test_a_model_gets_the_prompts_it_was_trained_with(name: str, query: str, document: str) -> None:
    known = known_model(name)
    assert (known.query, known.document) == (query, document)
