"""Check that a ``tokenizer.json`` matches a model's template and header."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.prompt.conversation import stop_ids
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.vocabulary import Vocabulary


def check_tokenizer(path: Path, template_name: str, eos_token_id: int | None, say: Callable[[str], None]) -> None:
    """Check that the tokenizer can be the model's own, and report doubts with ``say``.

    ``eos_token_id`` is the end token in the header of the model's file.

    Raises:
        ModelFileError: the file is not a tokenizer, or lacks a token that the template needs.
    """
    template = TEMPLATES[template_name]
    try:
        vocabulary = Vocabulary(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"The tokenizer cannot be read: {error}.", "Take the tokenizer.json of the original model."
        ) from None
    if template.end_of_turn and vocabulary.control_id(template.end_of_turn) is None:
        raise ModelFileError(
            f"The tokenizer has no token {template.end_of_turn}, which the template {template_name!r} needs.",
            "Take the model's own tokenizer, or another template.",
        )
    if eos_token_id is not None and eos_token_id not in stop_ids(vocabulary, template):
        piece = vocabulary.decode([eos_token_id])
        here = (
            f"is {json.dumps(piece, ensure_ascii=False)} in this tokenizer" if piece else "this tokenizer does not have"
        )
        say(
            f"According to the file, token {eos_token_id} ends an answer, which {here}; "
            "if answers do not end, it is not the model's own tokenizer."
        )
