"""A model folder that sees: the demo's tokenizer with tags for pictures, a script, and an emulated encoder."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.pictures import emulated_encoder
from tests.support.shared import REPOSITORY

TAGS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
# 64 x 64 pixels are 16 tokens.
TOKENS_PER_PICTURE = 16 + 2
_CARD = 'name = "seeing"\ntemplate = "qwen2.5"\nfile = "seeing.rkllm"\nemulated = true\n'
_HEAD = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context 4096
speed flat
hidden 16
pictures {outputs} 16
{faults}
"""
_RULES = """
rule
  user write.*￼
  results 0
  call write_file {"path": "colours.txt", "content": "$0"}
rule
  user ￼\\[([^]]*)\\].*￼\\[([^]]*)\\]
  say The first is $1, the second is $2.
rule
  user ￼\\[([^]]*)\\]
  say It is $1.
rule
  results 1+
  prompt ￼\\[red above, blue below\\]
  say The tool shows red above, blue below.
rule
  user still
  prompt ￼\\[red above, blue below\\]
  say Still red above, blue below.
rule
  user not shown
  say I see nothing.
rule
  user (.*)
  say You said $1
"""


def seeing_model(folder: Path, *, outputs: int = 1, faults: str = "", encoder: str = "", rules: str = _RULES) -> Path:
    """Make the model's folder; ``outputs`` are those of its encoder, whose file gets the lines ``encoder``."""
    home = folder / "seeing"
    home.mkdir(parents=True)
    tokenizer = json.loads((REPOSITORY / "models" / "demo" / "tokenizer.json").read_text("utf-8"))
    size = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    like = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": size + n, "content": tag, **like} for n, tag in enumerate(TAGS)]
    (home / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (home / "model.toml").write_text(_CARD, encoding="utf-8")
    head = _HEAD.format(outputs=outputs, faults=faults)
    (home / "seeing.rkllm").write_text(head + rules, encoding="utf-8")
    emulated_encoder(home, lines=f"outputs {outputs}\n{encoder}")
    return home


def without_eyes(folder: Path, *, rules: str = _RULES) -> Path:
    """The same model without its encoder."""
    home = seeing_model(folder, rules=rules)
    (home / "vision.rknn").unlink()
    (home / "model.toml").write_text(_CARD.replace('name = "seeing"', 'name = "blind"'), encoding="utf-8")
    return home.rename(folder / "blind")
