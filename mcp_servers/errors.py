"""Errors whose texts are in a file: the common base of the servers' errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

# Names of the field with the value that cannot be used.
_WHAT = ("query", "name", "area", "base_id", "document_id", "field", "days", "host")


class CatalogError(Exception):
    """An error whose texts are in a table, ``errors.json`` next to the server's own errors.

    ``kind`` is its key there. A kind that callers tell apart is a subclass of this name, with fields; the others are
    made with their values as keywords. The texts are templates formatted with the error as ``e``, and with ``because``,
    its reason after a colon; values are inserted and never parsed as templates.
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
        reason = getattr(self, "reason", "")
        return self.catalog[self.kind][name].format(e=self, because=f": {reason}" if reason else "")


class BilingualError(CatalogError):
    """An error whose message is in Japanese and English, because the reader's language is not known."""

    @property
    def texts(self) -> dict[str, dict[str, str]]:
        """Each message by its language, for ``_meta`` of the result."""
        return {language: {"text": self.text(language)} for language in ("en", "ja")}

    def __str__(self) -> str:
        """Return both messages."""
        return f"{self.text('ja')} / {self.text('en')}"
