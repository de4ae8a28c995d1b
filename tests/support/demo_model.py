"""The demo model's parts, for tests that need a real tokenizer."""

from __future__ import annotations

import functools
import json

from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from tests.support.shared import REPOSITORY

DEMO_FOLDER = REPOSITORY / "models" / "demo"
DEMO_TOKENIZER = DEMO_FOLDER / "tokenizer.json"


@functools.cache
def demo_vocabulary() -> ModelTokenizer:
    """The demo tokenizer, read once; it has no state that a test could change."""
    return ModelTokenizer(DEMO_TOKENIZER.read_text("utf-8"))


def demo_vocabulary_with_special(*names: str) -> ModelTokenizer:
    """The demo tokenizer with these added tokens declared special, as some families do."""
    state = json.loads(DEMO_TOKENIZER.read_text("utf-8"))
    for token in state["added_tokens"]:
        token["special"] = token["special"] or token["content"] in names
    return ModelTokenizer(json.dumps(state))
