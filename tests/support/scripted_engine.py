"""A ``Generator`` that plays texts and keeps a KV cache as the runtime does, for tests of what stands on an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from rkllm_mcp.generation import GenerationOptions, RunStats, Token
from rkllm_mcp.prompt.ledger import common_prefix
from rkllm_mcp.prompt.vocabulary import Trusted, Vocabulary


@dataclass
class ScriptedEngine:
    """Plays ``answers`` in turn, one token of the vocabulary at a time, ``<|im_end|>`` at the end where it is written.

    ``reports`` is False for a runtime before 1.2.1, which does not say what it prefilled.
    """

    vocabulary: Vocabulary
    answers: list[str | Exception]
    context_tokens: int = 4096
    reports: bool = True
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    prefilled: list[int] = field(default_factory=list[int])
    options: list[GenerationOptions] = field(default_factory=list[GenerationOptions])
    aborted: int = 0
    _cache: list[int] = field(default_factory=list[int])

    def forget(self) -> None:
        """Lose the cache without telling anyone, as a runtime that does not match prefixes would."""
        self._cache = [-1]  # warm, and of no use

    async def generate(
        self, tokens: Sequence[int], options: GenerationOptions | None = None
    ) -> AsyncGenerator[Token | RunStats, None]:
        options = options or GenerationOptions()
        prompt = list(tokens)
        self.prompts.append(prompt)
        self.options.append(options)
        prefilled = max(1, len(prompt) - common_prefix(prompt, self._cache))
        self.prefilled.append(prefilled)
        cold = not self._cache
        answer = self.answers.pop(0)
        ids = [] if isinstance(answer, Exception) else self.vocabulary.encode([Trusted(answer)])
        ids = ids[: options.max_new_tokens]
        done: list[int] = []
        try:
            for token_id in ids:
                done.append(token_id)
                yield Token(token_id, self.vocabulary.decode([token_id]))
            if isinstance(answer, Exception):
                raise answer
        except GeneratorExit:
            self.aborted += 1
            raise
        finally:
            self._cache = [*prompt, *done[:-1]]
        finish = "length" if len(ids) == options.max_new_tokens else "stop"
        yield RunStats(finish, prefilled if self.reports else None, 1.0, 2.0, len(done), 1.5, cold=cold)
