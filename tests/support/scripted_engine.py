"""A ``Generator`` that plays texts and keeps a KV cache as the runtime does, for tests of what is on an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from rkllm_mcp.errors import WorkerDiedError
from rkllm_mcp.generation import FeedTokens, GenerationOptions, Input, RunStats, Token
from rkllm_mcp.prompt.conversation import common_prefix
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer


@dataclass(frozen=True)
class Play:
    """One run: a text, and what happens after it; ``hangs`` without an error waits to be left."""

    text: str = ""
    error: Exception | None = None
    hangs: bool = False


class ScriptedGeneration:
    """One run: one token in each batch."""

    def __init__(self, engine: ScriptedEngine, play: Play, prompt: list[int], options: GenerationOptions) -> None:
        self._engine = engine
        self._play = play
        self._prompt = prompt
        self._options = options
        self._ids = engine.sampled(play.text, options)
        self._done: list[int] = []
        self._is_over = False
        self._cold = False
        self.expected_prefill = 0

    def start(self) -> None:
        engine, prompt = self._engine, self._prompt
        engine.prompts.append(prompt)
        engine.options.append(self._options)
        new = max(1, len(prompt) - common_prefix(prompt, engine.cache))
        engine.prefilled.append(min(len(prompt), new + engine.overhead_tokens))
        self._cold, self.expected_prefill = not engine.cache, engine.count_uncached(prompt)

    async def deliver(self, feed: FeedTokens) -> None:
        while batch := await self._next_batch():
            feed(batch)

    async def _next_batch(self) -> list[Token]:
        while not self._is_over and len(self._done) < len(self._ids):
            token_id = self._ids[len(self._done)]
            self._done.append(token_id)
            if self._is_delivered(token_id):
                await anyio.lowlevel.checkpoint()
                return [Token(token_id, self._engine.vocabulary.decode([token_id]))]
        if self._play.hangs and not self._is_over:
            self._engine.hanging.set()
            await anyio.sleep_forever()
        self._is_over = True
        if self._play.error is not None:
            raise self._play.error
        return []

    def finish_early(self) -> None:
        self._is_over = True

    def end(self) -> None:
        engine, play = self._engine, self._play
        engine.aborted += not self._is_over
        engine.evaluated.append([*self._prompt, *self._done[:-1]])
        engine.cache = [] if isinstance(play.error, WorkerDiedError) else engine.evaluated[-1]
        engine.known = [] if play.error or not self._done else engine.evaluated[-1]

    def stats(self) -> RunStats:
        ids, options = self._ids, self._options
        is_cut = len(ids) == options.max_new_tokens and ids[-1] not in options.stop_ids
        return RunStats(
            "length" if is_cut else "stop",
            self._engine.prefilled[-1] if self._engine.reports else None,
            1.0,
            2.0,
            sum(map(self._is_delivered, self._done)),
            1.5,
            cold=self._cold,
            expected_tokens=self.expected_prefill,
        )

    def _is_delivered(self, token_id: int) -> bool:
        return token_id not in self._options.stop_ids or self._engine.delivers_stops


@dataclass
class ScriptedEngine:
    """Plays ``answers`` in turn, one token of the vocabulary at a time, ``<|im_end|>`` at the end where it is written.

    It knows of its cache what an engine knows: not that it was lost (``forget``), and nothing after a failure.
    ``reports`` is False for a runtime before 1.2.1, which does not say what it prefilled; ``delivers_stops`` is False
    for one that leaves special tokens out (skip_special_token); ``overhead_tokens`` are evaluated next to what is new.
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
    cache: list[int] = field(default_factory=list[int])
    known: list[int] = field(default_factory=list[int])
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    def forget(self) -> None:
        """Lose the cache without telling anyone, as a runtime that does not match prefixes would."""
        self.cache = [-1]  # warm, and of no use

    async def ready(self) -> None:
        """The model is always loaded."""

    def expect(self, tokens: Sequence[int]) -> None:
        self.expected.append(list(tokens))

    def cancel_expected(self, tokens: Sequence[int]) -> None:
        self.cancelled.append(list(tokens))

    def count_uncached(self, tokens: Sequence[int], owner: str | None = "") -> int:
        return max(1, len(tokens) - common_prefix(tokens, self.known))

    @asynccontextmanager
    async def generation(
        self, prompt: Input | Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[ScriptedGeneration, None]:
        options = options or GenerationOptions()
        if not isinstance(prompt, Sequence):
            raise TypeError("the double reads token ids only")
        play = self.answers.pop(0)
        if not isinstance(play, Play):
            play = Play(error=play) if isinstance(play, Exception) else Play(play)
        run = ScriptedGeneration(self, play, list(prompt), options)
        async with self._turn:
            try:
                run.start()
                yield run
            finally:
                run.end()

    def sampled(self, text: str, options: GenerationOptions) -> list[int]:
        """The tokens of ``text`` up to the limit and up to the first that ends an answer, that one included."""
        ids = self.vocabulary.encode([ControlText(text)])[: options.max_new_tokens]
        stops = [index for index, token_id in enumerate(ids) if token_id in options.stop_ids]
        return ids[: stops[0] + 1] if stops else ids
