"""CacheState: what the engine knows of the runtime's KV cache, and what has to be cleared before a run may use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rkllm_mcp.runtime.commands import RunCommand
from rkllm_mcp.runtime.run import Run


class CacheState:
    """The knowledge of one engine.

    Attributes:
        ids: the token ids that it holds from its start, as far as that is known; for choosing what runs next only.
        is_cold: it is known to be empty.
        is_paused: a generation is paused in it.
    """

    def __init__(self) -> None:
        self.ids: Sequence[int] = ()
        self.is_cold = True
        self.is_paused = False
        self._has_history = False
        self._lora: str | None = None

    def renewed(self) -> None:
        """There is a new worker."""
        self.emptied()
        self.is_paused = False

    def emptied(self) -> None:
        """It was cleared. Whether that ends a pause is not known."""
        self.ids, self.is_cold, self._has_history = (), True, False

    def filled(self) -> None:
        """It holds something from outside: a prompt cache."""
        self.ids, self.is_cold = (), False

    def before(self, command: RunCommand) -> RunCommand:
        """The command, with what has to be cleared first.

        History that was kept stays in the cache when a later run keeps none (rknn-llm #272); a generation that is
        paused would answer in another's place; and whether the runtime knows with which adapter its cache was made is
        not documented.
        """
        is_stale = self.is_paused or (self._has_history and not command.infer.keep_history)
        is_stale = is_stale or (command.infer.lora != self._lora and not self.is_cold)
        return replace(command, clears_before=True) if is_stale else command

    def started(self) -> None:
        """A run uses it now."""
        self.is_cold = self.is_paused = False

    def after(self, run: Run, command: RunCommand) -> None:
        """A run returned."""
        if command.clears_after:
            self.emptied()
            return
        self.is_paused = run.is_paused
        self._lora = command.infer.lora
        self._has_history = command.infer.keep_history
        # The token sampled last was not evaluated.
        known = run.tokens if not self._has_history else ()
        self.ids = [*known, *run.ids[:-1]] if known else ()
