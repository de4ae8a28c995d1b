from __future__ import annotations

from pathlib import Path

from rkllm_mcp.models.cards import ModelCard, PublishedCard, SamplingCard, SourceCard, card_text, load_model


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
        sampling=SamplingCard(temperature=0.6, top_k=20),
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
