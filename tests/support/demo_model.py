"""The demo model's parts, for tests that need a real tokenizer."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

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


def rotated_tokenizer() -> str:
    """A tokenizer.json with the demo's pieces under other ids; its control tokens keep theirs."""
    state = json.loads(DEMO_TOKENIZER.read_text("utf-8"))
    added = {token["id"] for token in state["added_tokens"]}
    ids = sorted(number for number in state["model"]["vocab"].values() if number not in added)
    moved = dict(zip(ids, [*ids[7:], *ids[:7]], strict=True))
    state["model"]["vocab"] = {piece: moved.get(number, number) for piece, number in state["model"]["vocab"].items()}
    return json.dumps(state)


def demo_with_wrong_tokenizer(folder: Path) -> Path:
    """The demo model in its own folder, whose card names another tokenizer.json than its script."""
    shutil.copytree(DEMO_FOLDER, folder)
    (folder / "other.json").write_text(rotated_tokenizer(), "utf-8")
    card = (folder / "model.toml").read_text("utf-8")
    (folder / "model.toml").write_text(
        card.replace('tokenizer = "tokenizer.json"', 'tokenizer = "other.json"'), "utf-8"
    )
    assert "other.json" in (folder / "model.toml").read_text("utf-8")
    return folder
