from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.config.loading import read_file
from rkllm_mcp.models import cards
from rkllm_mcp.models.cards import (
    ModelCard,
    PublishedCard,
    SamplingCard,
    SourceCard,
    card_text,
    list_models,
    load_model,
)


def test_a_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    card = ModelCard(
        name="mine",
        description='the "best" \\ of\x7f 東京\n',
        template="qwen3",
        context_tokens=2048,
        file="a b.rkllm",
        syntaxes=("hermes",),
        stop=("<|x|>", "]"),
        thinking="auto",
        sampling=SamplingCard.model_validate({"temperature": 0.6, "top_k": 20}),
        source=SourceCard(repository="owner/name", file="x/y.rkllm", sha256="0" * 64, platform="RK3576"),
        published=PublishedCard(decode_tokens_per_second=16.7, memory_mb=1689, source="them, 1.3.0"),
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.toml").write_text(card_text(card), "utf-8")
    for name in ("a b.rkllm", "tokenizer.json"):
        (tmp_path / "mine" / name).write_text("")
    assert load_model("mine", [tmp_path]).card == card


def test_what_goes_without_saying_is_left_out() -> None:
    assert card_text(ModelCard(name="mine", source=SourceCard(platform="RK3576"))) == (
        'name = "mine"\n\n[source]\nplatform = "RK3576"\n'
    )


def test_an_unchanged_card_is_read_once_and_a_changed_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def read_and_note(file: Path) -> dict[str, Any]:
        read.append(file)
        return read_file(file)

    monkeypatch.setattr(cards, "read_file", read_and_note)
    file = tmp_path / "mine" / "model.toml"
    file.parent.mkdir()
    for context_tokens in (2048, 4096):
        file.with_suffix(".new").write_text(f"context_tokens = {context_tokens}\n", "utf-8")
        file.with_suffix(".new").replace(file)
        assert [list_models([tmp_path])[0].card.context_tokens for _ in range(2)] == 2 * [context_tokens]
    assert read == [file, file]
