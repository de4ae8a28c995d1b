"""The texts of this program in each language, by key: ``catalogue.LANGUAGE.json``.

The first part of a key is its subject; the texts of ``model`` are read by the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rkllm_mcp.text import Language


@dataclass(frozen=True)
class Catalogue:
    """The texts in one language."""

    entries: Mapping[str, Any]

    def sentence(self, key: str, **values: object) -> str:
        """Return the sentence of ``key``, with ``values`` inserted."""
        return self.entries[key].format(**values)

    def table(self, key: str) -> Mapping[Any, Any]:
        """Return the texts of ``key`` by what they are about."""
        return self.entries[key]

    def translated(self, key: str, text: str) -> str:
        """Return an English text of ours that stands elsewhere, in this language; as it is without a translation.

        The entry of ``key`` has the translations by text, or by a pattern that is all of it.
        """
        table = self.table(key)
        if text in table:
            return table[text]
        matches = ((re.fullmatch(pattern, text), translation) for pattern, translation in table.items())
        return next((match.expand(translation) for match, translation in matches if match), text)


@cache
def read_catalogue(language: Language) -> Catalogue:
    """Return the texts in ``language``."""
    return Catalogue(json.loads(Path(__file__).with_name(f"catalogue.{language}.json").read_text("utf-8")))


def translate(key: str, language: Language = "en", **values: object) -> str:
    """Return the sentence of ``key`` in ``language``, with ``values`` inserted."""
    return read_catalogue(language).sentence(key, **values)
