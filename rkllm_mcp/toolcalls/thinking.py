"""How families of models mark what they think before they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rkllm_mcp.toolcalls.markers import Markers


@dataclass(frozen=True, eq=False)
class ThinkingTags:
    """The marks of one family.

    Args:
        opener: what begins thinking.
        closer: what ends it.
        header: a line right behind the opener that is not part of what is thought.
        anywhere: the model thinks in the middle of an answer too, and a closer that closes nothing means nothing.
            Elsewhere the marks count only where the answer begins, and are text behind that.
    """

    opener: str
    closer: str
    header: str = ""
    anywhere: bool = False

    def at_the_beginning(self) -> ThinkingTags:
        """The same marks, counting only where the answer begins."""
        return replace(self, anywhere=False)


THINKING: dict[str, ThinkingTags] = {
    # Qwen3, DeepSeek R1, SmolLM3, GLM-4.5, RWKV7, LFM2.5
    "think": ThinkingTags("<think>", "</think>"),
    "gemma4": ThinkingTags("<|channel>", "<channel|>", header="thought\n", anywhere=True),
    "minicpm3": ThinkingTags("<|thought_start|>", "<|thought_end|>"),
    "mistral": ThinkingTags("[THINK]", "[/THINK]", anywhere=True),
    "seed": ThinkingTags("<seed:think>", "</seed:think>"),
    "apriel": ThinkingTags("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
}
"""Every family's marks by name; a syntax names its own."""


class ThinkingMarks:
    """The marks that count in one answer.

    Args:
        families: the families they are of; none when nothing is thinking.
    """

    def __init__(self, families: Sequence[ThinkingTags]) -> None:
        self._families = families
        self._anywhere = tuple(mark for tags in families if tags.anywhere for mark in (tags.opener, tags.closer))
        self._owners = {mark: tags for tags in families for mark in (tags.opener, tags.closer)}
        self._closing: dict[ThinkingTags | None, Markers] = {}

    def closers(self, tags: ThinkingTags | None) -> tuple[str, ...]:
        """What ends the thinking that ``tags`` began, or the prompt did for None."""
        return tuple(each.closer for each in self._families) if tags is None else (tags.closer,)

    def closing(self, tags: ThinkingTags | None) -> Markers:
        """``closers``, to search for."""
        if tags not in self._closing:
            self._closing[tags] = Markers(self.closers(tags))
        return self._closing[tags]

    def anywhere(self) -> tuple[str, ...]:
        """What begins or ends thinking in the middle of text."""
        return self._anywhere

    def of(self, mark: str) -> ThinkingTags:
        """Whose ``mark`` it is."""
        return self._owners[mark]

    def standing(self, text: str, *, openers_only: bool) -> ThinkingTags | None:
        """Whose mark ``text`` begins with."""
        return next((self._owners[mark] for mark in self._leading(openers_only) if text.startswith(mark)), None)

    def may_begin(self, text: str, *, openers_only: bool) -> bool:
        """Whether ``text`` may be the beginning of a mark."""
        return any(mark.startswith(text) for mark in self._leading(openers_only))

    def _leading(self, openers_only: bool) -> list[str]:
        return [mark for mark, tags in self._owners.items() if mark == tags.opener or not openers_only]
