"""The base of errors that a tool returns in Japanese and English."""

from __future__ import annotations

from typing import ClassVar


class BilingualError(Exception):
    """An error whose message is in Japanese and English, because the reader's language is not known."""

    # Templates formatted with the error as ``e``; field values are inserted and never parsed as templates.
    _JAPANESE: ClassVar[str] = ""
    _ENGLISH: ClassVar[str] = ""

    @property
    def japanese(self) -> str:
        """The message in Japanese."""
        return self._JAPANESE.format(e=self)

    @property
    def english(self) -> str:
        """The message in English."""
        return self._ENGLISH.format(e=self)

    def __str__(self) -> str:
        """Return both messages."""
        return f"{self.japanese} / {self.english}"
