"""The prompts of the experiments: token ids of any length, all made of four short pieces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProbePrompts:
    """What the model is asked under experiment.

    Args:
        question: a whole prompt with a short answer, as token ids.
        other: another one, whose answer begins differently.
        filler: ids of plain text, from which prompts are made as long as needed.
        stop_ids: the tokens that end an answer.
    """

    question: tuple[int, ...]
    other: tuple[int, ...]
    filler: tuple[int, ...]
    stop_ids: frozenset[int]

    def of_length(self, tokens: int) -> list[int]:
        """A prompt of so many tokens that ends with the question; never shorter than the question."""
        wanted = max(0, tokens - len(self.question))
        return [*self._text(wanted), *self.question]

    def tail(self) -> list[int]:
        """What goes behind a prompt that has been evaluated: some text and the other question."""
        return [*self._text(8), *self.other]

    def _text(self, tokens: int) -> list[int]:
        return [self.filler[index % len(self.filler)] for index in range(tokens)]
