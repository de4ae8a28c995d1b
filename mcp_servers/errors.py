"""Errors whose texts are in a file: the common base of the servers' errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

# Names of the field with the value that cannot be used.
_WHAT = ("query", "name", "area", "base_id", "document_id", "field", "days", "host")


class CatalogError(Exception):
    """An error whose texts are in a table, ``errors.json`` next to the server's own errors.

    ``kind`` is its key there. A kind that callers tell apart is a subclass of this name, with fields; the others are
    made with their values as keywords. The texts are templates formatted with the error as ``e``; values are inserted
    and never parsed as templates.
    """

    catalog: ClassVar[Mapping[str, Mapping[str, Any]]]
    kind: str

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__

    def __init__(self, kind: str, **values: object) -> None:
        super().__init__(kind)
        self.kind = kind
        vars(self).update(values)

    def details(self) -> dict[str, Any]:
        """Return the error for programs: its kind, the value that cannot be used, and values that can."""
        what = next((str(value) for name in _WHAT if (value := getattr(self, name, ""))), "")
        return {"kind": self.kind, "what": what, "suggestions": list(getattr(self, "suggestions", ()))}

    def text(self, name: str) -> str:
        """Return one of the texts of the table."""
        return self.catalog[self.kind][name].format(e=self)


def read_catalog(module: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the table next to a module, given by its ``__file__``."""
    return json.loads(Path(module).with_name("errors.json").read_text("utf-8"))


class BilingualError(CatalogError):
    """An error whose message is in Japanese and English, because the reader's language is not known."""

    @property
    def japanese(self) -> str:
        """The message in Japanese."""
        return self.text("ja")

    @property
    def english(self) -> str:
        """The message in English."""
        return self.text("en")

    @property
    def texts(self) -> dict[str, dict[str, str]]:
        """Each message by its language, for ``_meta`` of the result."""
        return {"en": {"text": self.english}, "ja": {"text": self.japanese}}

    def __str__(self) -> str:
        """Return both messages."""
        return f"{self.japanese} / {self.english}"
