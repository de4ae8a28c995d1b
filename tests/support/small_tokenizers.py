"""Tokenizers of every manner that model folders bring, trained in a moment on two sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SENTENCES = [
    "the weather in Tokyo is fine today and the answer is a short one",
    "user assistant system 東京の天気は晴れ",
]
BYTES = [f"<0x{number:02X}>" for number in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<tool_call>", "</tool_call>"]


def _bpe(*, byte_fallback: bool = True) -> Tokenizer:
    return Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True))


def _trained(tokenizer: Tokenizer, *, with_bytes: bool = True) -> Tokenizer:
    tokens = [*SPECIAL, *(BYTES if with_bytes else [])]
    if isinstance(tokenizer.model, models.Unigram):
        trainer: trainers.Trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>")
    else:
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=tokens, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    # The trainer makes its bytes special tokens; in published files they are ordinary ones.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]
    return with_added(Tokenizer.from_str(json.dumps(state)), *PLAIN)


def with_added(tokenizer: Tokenizer, *contents: str, normalized: bool = False, lstrip: bool = False) -> Tokenizer:
    """``tokenizer`` with further added tokens that are not special."""
    state = json.loads(tokenizer.to_str())
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": normalized, "special": False}
    for token_id, content in enumerate(contents, tokenizer.get_vocab_size(with_added_tokens=True)):
        state["added_tokens"].append({"id": token_id, "content": content, **flags})
    return Tokenizer.from_str(json.dumps(state))


def _strip_decoder(*, strip: bool) -> decoders.Decoder:
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if strip else parts)


def llama2() -> Tokenizer:
    """A normalizer puts the blank there, a decoder takes it away, a post-processor writes ``<s>``."""
    tokenizer = _bpe()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = _strip_decoder(strip=True)
    tokenizer = _trained(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def metaspace(scheme: str) -> Callable[[], Tokenizer]:
    """A pre-tokenizer puts the blank there."""

    def build() -> Tokenizer:
        tokenizer = _bpe()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme, split=False), decoders.Fuse()]
        )
        return _trained(tokenizer)

    return build


def prepend_alone() -> Tokenizer:
    """A normalizer that does nothing else."""
    tokenizer = _bpe()
    tokenizer.normalizer = normalizers.Prepend("▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = _strip_decoder(strip=True)
    return _trained(tokenizer)


def gemma() -> Tokenizer:
    """Blanks become ▁ and none is added."""
    tokenizer = _bpe()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = _strip_decoder(strip=False)
    return _trained(tokenizer)


def unigram() -> Tokenizer:
    """Sentencepiece's other model, in which characters may be unknown."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return _trained(tokenizer, with_bytes=False)


def byte_level(*, add_prefix_space: bool) -> Callable[[], Tokenizer]:
    """GPT-2's manner."""

    def build() -> Tokenizer:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIAL
        )
        tokenizer.train_from_iterator(SENTENCES, trainer)
        return with_added(tokenizer, *PLAIN)

    return build


def without_bytes() -> Tokenizer:
    """Characters outside its vocabulary are ``<unk>``."""
    tokenizer = _bpe(byte_fallback=False)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = _strip_decoder(strip=False)
    return _trained(tokenizer, with_bytes=False)


def folding() -> Tokenizer:
    """A normalizer makes plain letters of full-width ones, also where added tokens are looked for."""
    tokenizer = _bpe()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = _strip_decoder(strip=False)
    return with_added(_trained(tokenizer), "<tool_response>", normalized=True, lstrip=True)


LOSSLESS: Mapping[str, Callable[[], Tokenizer]] = {
    "llama2": llama2,
    "metaspace first": metaspace("first"),
    "metaspace always": metaspace("always"),
    "prepend alone": prepend_alone,
    "gemma": gemma,
    "byte level": byte_level(add_prefix_space=False),
    "byte level with a blank": byte_level(add_prefix_space=True),
}
