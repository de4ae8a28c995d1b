"""Name and architecture of a file -> the matching entry of the catalogue. No IO.

Names are compared as sequences of words and numbers: ``Gemma-3-1B-it_W8A8`` and ``gemma3-1b`` both start with ``gemma 3
1b``, regardless of separators. The entry with the most words is used; without its size it stands for its family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rkllm_mcp.config.models import ModelCard

# A size (1.5b, 350m, e2b), a number or a word.
_WORD = re.compile(r"e?\d+(?:\.\d+)*[bm](?![a-z0-9])|[a-z]+|\d+(?:\.\d+)*")
_SIZE = re.compile(r"e?\d+(?:\.\d+)*[bm]")
# Architectures whose name differs from the family name of the models. "llama" is missing on purpose: several families,
# each with its own template, are built on it.
_ARCHITECTURES: Mapping[str, str] = {"qwen2": "qwen2.5", "phi3": "phi-3.5", "gemma3_text": "gemma3"}


@dataclass(frozen=True)
class Recognition:
    """The matching entry of the catalogue."""

    card: ModelCard  # the entry
    # matched by: the ``model`` itself, its ``family``, or only the ``architecture``
    by: Literal["model", "family", "architecture"]


def recognise(names: Sequence[str], architecture: str | None, entries: Sequence[ModelCard]) -> Recognition | None:
    """Find the matching entry of the catalogue.

    ``names`` are the file's names, the most reliable first; ``architecture`` comes from its header.
    """
    words = [(card, _words(card.name)) for card in entries if not card.emulated]
    for name in names:
        if (card := _longest(name, words)) is not None:
            return Recognition(card, "model")
    families = [(card, tuple(word for word in own if not _SIZE.fullmatch(word))) for card, own in words]
    for name in names:
        if (card := _longest(name, families)) is not None:
            return Recognition(card, "family")
    family = _ARCHITECTURES.get(architecture or "", architecture or "")
    if (card := _longest(family, families)) is not None:
        return Recognition(card, "architecture")
    return None


def _longest(name: str, candidates: Sequence[tuple[ModelCard, tuple[str, ...]]]) -> ModelCard | None:
    """Return the candidate with the most words, all of which occur in the name in this order."""
    spelled = _words(name)
    fitting = [(len(own), card) for card, own in candidates if own and _stands_in(own, spelled)]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _stands_in(own: Sequence[str], spelled: Sequence[str]) -> bool:
    rest = iter(spelled)
    return all(word in rest for word in own)


def _words(name: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(name.lower()))
