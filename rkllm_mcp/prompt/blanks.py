"""A tokenizer that puts a blank before every text becomes one that adds nothing and takes nothing away.

Tokenizers in the manner of sentencepiece (Llama 2, TinyLlama, Yi) encode "x" as if " x" was written, and leave the
first blank out again when they decode. For one whole text that comes out even. A prompt is encoded in pieces, and in
the middle of it each of these blanks would be one that nobody wrote. Works on the parts of a ``tokenizers.Tokenizer``;
knows nothing of vocabularies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

# How the library's JSON names the lists of a sequence.
_PARTS = ("normalizers", "pretokenizers", "decoders")


def keep_blanks(tokenizer: Tokenizer) -> None:
    """Make ``tokenizer`` encode and decode without a blank added or taken away at the beginning of a text.

    Source: the components of tokenizers 0.15 to 0.23 and what they do to a first blank.
    """
    for name, nothing in (
        ("normalizer", normalizers.Sequence),
        ("pre_tokenizer", pre_tokenizers.Sequence),
        ("decoder", decoders.Sequence),
    ):
        component = getattr(tokenizer, name)
        if component is None:
            continue
        state = cast("dict[str, Any]", json.loads(component.__getstate__()))
        changed = _without_prefix(state)
        if changed == state:
            continue
        replacement = nothing([])
        if changed:
            replacement.__setstate__(json.dumps(changed).encode())
        setattr(tokenizer, name, replacement)


def _without_prefix(state: Mapping[str, Any]) -> dict[str, Any]:
    """A component's state without what adds or strips a first blank; empty when nothing of it is left."""
    changed = dict(state)
    kind = state.get("type")
    if kind == "Prepend":
        return {}
    if kind == "Metaspace":
        changed["prepend_scheme"] = "never"
    elif kind == "ByteLevel":
        changed["add_prefix_space"] = False
    elif kind == "Strip" and state.get("content") == " ":
        changed["start"] = 0
    for parts in _PARTS:
        if parts in state:
            changed[parts] = [inner for part in state[parts] if (inner := _without_prefix(part))]
    return changed
