"""Train models/demo/tokenizer.json: a small byte-level BPE on the project's own text, with the control tokens of Qwen3.

Run it by hand when the demo's texts have changed a lot; the result is committed, and ids may change, so nothing may
depend on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = REPOSITORY / "models" / "demo" / "tokenizer.json"
VOCABULARY_SIZE = 4096
TEXTS = ("*.md", "docs/**/*.md", "models/demo/*.rkllm", "mcp_servers/**/*.py", "rkllm_mcp/**/*.py")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# As in Qwen3: recognised in a template, but not special, so the runtime never hides them.
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def texts() -> Iterator[str]:
    """The project's own words, in a fixed order."""
    for pattern in TEXTS:
        for path in sorted(REPOSITORY.glob(pattern)):
            yield path.read_text(encoding="utf-8")


def main() -> None:
    """Train and write the tokenizer."""
    tokenizer: Any = Tokenizer(models.BPE())  # its stubs leave lists unparametrised
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(SPECIAL) - len(TAGS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in TAGS])
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    written = json.loads(tokenizer.to_str())
    TARGET.write_text(json.dumps(written, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"{TARGET.relative_to(REPOSITORY)}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
