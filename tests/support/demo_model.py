"""The demo model's parts, for tests that need a real tokenizer."""

from __future__ import annotations

import functools

from rkllm_mcp.prompt.vocabulary import Vocabulary
from tests.support.shared import REPOSITORY

DEMO_FOLDER = REPOSITORY / "models" / "demo"
DEMO_TOKENIZER = DEMO_FOLDER / "tokenizer.json"


@functools.cache
def demo_vocabulary() -> Vocabulary:
    """The demo tokenizer, read once; it has no state that a test could change."""
    return Vocabulary(DEMO_TOKENIZER.read_text("utf-8"))
