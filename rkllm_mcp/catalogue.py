"""The texts of this program in each language, by key: ``catalogue.LANGUAGE.json``.

The first part of a key is its subject; the texts of ``model`` are read by the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkllm_mcp.events import End, Event, Status, ToolCallFailed

if TYPE_CHECKING:
    from rkllm_mcp.text import Language


# Longer texts are those of other programs, and matching them against patterns would take long.
_LONGEST_PHRASE = 600
_SENTENCES = re.compile(r"(?<=[.?!]) (?=[A-Z])")
_SUGGESTION = re.compile(r"; did you mean (?='[^']*'\?\Z)")
_PARTS = re.compile(r"; |[.?!] (?=[A-Z])")


@dataclass(frozen=True)
class Catalogue:
    """The texts in one language."""

    entries: Mapping[str, Any]
    language: Language = "en"

    def sentence(self, key: str, **values: object) -> str:
        """Return the sentence of ``key``, or of ``key_one`` where the count is one, with ``values`` inserted."""
        text = self.entries[key]
        return (self.entries.get(f"{key}_one", text) if values.get("count") == 1 else text).format(**values)

    def table(self, key: str) -> Mapping[Any, Any]:
        """Return the texts of ``key`` by what they are about."""
        return self.entries[key]

    def translate_text(self, key: str, text: str) -> str:
        """Return an English text of ours that is elsewhere, in this language; as it is without a translation.

        The entry of ``key`` has the translations by text, or by a pattern that is all of it.
        """
        table = self.table(key)
        if text in table:
            return table[text]
        matches = ((re.fullmatch(pattern, text), translation) for pattern, translation in table.items())
        return next((match.expand(translation) for match, translation in matches if match), text)

    def phrase(self, text: str) -> str:
        """Return an English sentence of this program in this language; as it is without a translation.

        The table ``phrases`` has the translations by sentence, with ``{}`` for what is inserted, which is translated
        in the same way. A problem and its remedy are looked up one by one where they are not an entry together.
        """
        exact, patterns = _read_phrases(self.language)
        if text in exact or not exact or " " not in text or len(text) > _LONGEST_PHRASE:
            return exact.get(text, text)
        for pattern, translation in patterns:
            if (match := pattern.fullmatch(text)) and not any(map(_PARTS.search, match.groups())):
                return translation.format(*map(self.phrase, match.groups()))
        if _SUGGESTION.search(text):
            problem, suggestion = _SUGGESTION.split(text, 1)
            return f"{self.phrase(problem)}。{self.phrase(f'did you mean {suggestion}')}"
        if len(sentences := _SENTENCES.split(text)) > 1:
            phrases = [self.phrase(sentence) for sentence in sentences]
            return (
                text
                if phrases == sentences
                else "".join(part if part[-1] in "。?" else f"{part} " for part in phrases).rstrip()
            )
        if text.endswith(".") and (told_text := self.phrase(text[:-1])) != text[:-1]:
            return f"{told_text}。"
        for mark, sign in (("; ", "。"), (": ", ": "), ("\n", "\n")):
            before, separator, after = text.partition(mark)
            if separator:
                parts = self.phrase(before), self.phrase(after)
                if parts != (before, after):
                    return f"{parts[0]}{sign}{parts[1]}"
        matches = ((pattern.fullmatch(text), translation) for pattern, translation in patterns)
        return next((words.format(*map(self.phrase, match.groups())) for match, words in matches if match), text)

    def told(self, event: Event) -> Event:
        """Return an event with its sentence in this language."""
        match event:
            case Status() if event.about:
                values = {name: self.phrase(x) if isinstance(x, str) else x for name, x in event.values.items()}
                return replace(event, text=self.table("status")[event.about].format(**values))
            case Status():
                return replace(event, text=self.phrase(event.text))
            case End() if event.error:
                return replace(event, error=self.phrase(event.error))
            case ToolCallFailed():
                return replace(event, reason=self.phrase(event.reason))
            case _:
                return event


@cache
def read_catalogue(language: Language) -> Catalogue:
    """Return the texts in ``language``."""
    return Catalogue(json.loads(Path(__file__).with_name(f"catalogue.{language}.json").read_text("utf-8")), language)


def status_line(about: str, **values: object) -> Status:
    """Return the status line of the table ``status``, in English; ``Catalogue.told`` says it in a language."""
    return Status(read_catalogue("en").table("status")[about].format(**values), about, values)


@cache
def _read_phrases(language: Language) -> tuple[Mapping[str, str], Sequence[tuple[re.Pattern[str], str]]]:
    """Return the translations by sentence, and those with blanks once more as patterns, the most particular first."""
    if language == "en":
        return {}, ()
    phrases: dict[str, str] = json.loads(Path(__file__).with_name(f"phrases.{language}.json").read_text("utf-8"))
    with_blanks = sorted((key for key in phrases if "{}" in key), key=lambda key: len(key.replace("{}", "")))
    return phrases, [
        (re.compile("(.+?)".join(map(re.escape, key.split("{}"))), re.DOTALL), phrases[key])
        for key in reversed(with_blanks)
    ]


def translate(key: str, language: Language = "en", **values: object) -> str:
    """Return the sentence of ``key`` in ``language``, with ``values`` inserted."""
    return read_catalogue(language).sentence(key, **values)
