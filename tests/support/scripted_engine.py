"""A ``Generator`` that plays texts and keeps a KV cache as the runtime does, for tests of what stands on an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import anyio

from rkllm_mcp.errors import WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.prompt.conversation import common_prefix
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer


@dataclass(frozen=True)
class Play:
    """One run: a text, and what happens behind it; ``hangs`` without an error waits to be left."""

    text: str = ""
    error: Exception | None = None
    hangs: bool = False


@dataclass
class ScriptedEngine:
    """Plays ``answers`` in turn, one token of the vocabulary at a time, ``<|im_end|>`` at the end where it is written.

    It knows of its cache what an engine knows: not that it was lost (``forget``), and nothing after a failure.
    ``reports`` is False for a runtime before 1.2.1, which does not say what it prefilled; ``delivers_stops`` is False
    for one that leaves special tokens out (skip_special_token); ``overhead_tokens`` are evaluated beside what is new.
    One run at a time, in the order asked.
    """

    vocabulary: ModelTokenizer
    answers: list[str | Exception | Play]
    context_tokens: int = 4096
    reports: bool = True
    delivers_stops: bool = True
    overhead_tokens: int = 0
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    prefilled: list[int] = field(default_factory=list[int])
    evaluated: list[list[int]] = field(default_factory=list[list[int]])
    options: list[GenerationOptions] = field(default_factory=list[GenerationOptions])
    expected: list[list[int]] = field(default_factory=list[list[int]])
    cancelled: list[list[int]] = field(default_factory=list[list[int]])
    aborted: int = 0
    # Set once a run that hangs has come so far.
    hanging: anyio.Event = field(default_factory=anyio.Event)
    _cache: list[int] = field(default_factory=list[int])
    _known: list[int] = field(default_factory=list[int])
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    def forget(self) -> None:
        """Lose the cache without telling anyone, as a runtime that does not match prefixes would."""
        self._cache = [-1]  # warm, and of no use

    async def ready(self) -> None:
        """The model is always loaded."""

    def expect(self, tokens: Sequence[int]) -> None:
        self.expected.append(list(tokens))

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        self.cancelled.append(list(tokens))

    def uncached(self, tokens: Sequence[int], owner: str | None = "") -> int:
        return max(1, len(tokens) - common_prefix(tokens, self._known))

    async def generate(
        self, tokens: Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[Token | RunStats, None]:
        options = options or GenerationOptions()
        play = self.answers.pop(0)
        if not isinstance(play, Play):
            play = Play(error=play) if isinstance(play, Exception) else Play(play)
        async with self._turn:
            prompt = list(tokens)
            self.prompts.append(prompt)
            self.options.append(options)
            new = max(1, len(prompt) - common_prefix(prompt, self._cache))
            self.prefilled.append(min(len(prompt), new + self.overhead_tokens))
            ids = self._sampled(play.text, options)
            done: list[int] = []
            cold, expected = not self._cache, self.uncached(prompt)
            if options.begun is not None:
                options.begun(expected)
            is_over = False
            try:
                for token_id in ids:
                    done.append(token_id)
                    if token_id not in options.stop_ids or self.delivers_stops:
                        yield Token(token_id, self.vocabulary.decode([token_id]))
                    if options.enough is not None and options.enough():
                        break
                if play.hangs:
                    self.hanging.set()
                    await anyio.sleep_forever()
                is_over = True
            finally:
                self.aborted += not is_over
                self.evaluated.append([*prompt, *done[:-1]])
                self._cache = [] if isinstance(play.error, WorkerDiedError) else self.evaluated[-1]
                self._known = [] if play.error or not done else self.evaluated[-1]
            if play.error is not None:
                raise play.error
            is_cut = len(ids) == options.max_new_tokens and ids[-1] not in options.stop_ids
            delivered = len([token_id for token_id in done if token_id not in options.stop_ids or self.delivers_stops])
            reported = self.prefilled[-1] if self.reports else None
            finish = "length" if is_cut else "stop"
            stats = RunStats(finish, reported, 1.0, 2.0, delivered, 1.5, cold=cold, expected_tokens=expected)
        yield stats

    def _sampled(self, text: str, options: GenerationOptions) -> list[int]:
        """The tokens of ``text`` up to the limit and up to the first that ends an answer, that one included."""
        ids = self.vocabulary.encode([ControlText(text)])[: options.max_new_tokens]
        stops = [index for index, token_id in enumerate(ids) if token_id in options.stop_ids]
        return ids[: stops[0] + 1] if stops else ids
