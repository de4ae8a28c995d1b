"""A file's names and architecture, beside the catalogue, become the entry that it is like.

Names are compared as sequences of words and numbers: ``Gemma-3-1B-it_W8A8`` and ``gemma3-1b`` are both ``gemma 3 1b``
at their beginning, whatever stands between the words. The entry with the most words wins; without its size it stands
for its family. Nothing here opens a file.
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
# Architectures whose name is not that of the family as its models are called. "llama" is missing on purpose: several
# families, each with its own template, are built on it.
_ARCHITECTURES: Mapping[str, str] = {"qwen2": "qwen2.5", "phi3": "phi-3.5", "gemma3_text": "gemma3"}


@dataclass(frozen=True)
class Recognition:
    """The entry of the catalogue that a file is like.

    Args:
        card: the entry.
        by: what is alike: the ``model`` itself, its ``family``, or only the ``architecture``.
    """

    card: ModelCard
    by: Literal["model", "family", "architecture"]


def recognise(names: Sequence[str], architecture: str | None, entries: Sequence[ModelCard]) -> Recognition | None:
    """Find the entry that a file is like.

    Args:
        names: what the file is called, the most trustworthy name first.
        architecture: as its header has it.
        entries: the catalogue.
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
    """The candidate with the most words, all of which stand in the name in this order."""
    spelled = _words(name)
    fitting = [(len(own), card) for card, own in candidates if own and _stands_in(own, spelled)]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _stands_in(own: Sequence[str], spelled: Sequence[str]) -> bool:
    rest = iter(spelled)
    return all(word in rest for word in own)


def _words(name: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(name.lower()))
