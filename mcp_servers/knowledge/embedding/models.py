"""What is known of embedding models by their names: the texts before queries and passages, and the weight of words.

``words`` is the weight of the words next to the vectors when passages are ranked. Small encoders need the words; strong
ones lose by more than 0.5, which still finds file names and codes (docs/development/search.md).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KnownModel:
    """A family of models."""

    match: str  # words of the name, in lower case with hyphens between
    query: str = ""  # text before a query
    document: str = ""  # text before a passage
    words: float = 2.0  # weight of the words next to the vectors


_UNKNOWN = KnownModel("")
_KNOWN = tuple(KnownModel(**row) for row in json.loads(Path(__file__).with_name("models.json").read_text("utf-8")))


def known_model(name: str) -> KnownModel:
    """Return what is known of a model; without prompts for an unknown one."""
    plain = re.sub(r"[^a-z0-9.]+", "-", f"-{name.lower()}-")
    return next((row for row in _KNOWN if f"-{row.match}-" in plain), _UNKNOWN)
