"""CacheState: what the engine knows of the runtime's KV cache, and what has to be cleared before a run may use it.

It also knows whose prompts the cache may hold. What is reported as reused must not depend on another owner's prompts:
who guesses a prompt and is told how much of it was there knows how far the guess was right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rkllm_mcp.generation import TokenInput
from rkllm_mcp.runtime.frames import RunCommand
from rkllm_mcp.runtime.run import Run
from rkllm_mcp.runtime.scheduler import common_prefix

# The owner of what is in the cache from nobody knows where; no tenant has this name.
_UNKNOWN = "\0"


class CacheState:
    """The knowledge of one engine.

    Args:
        reuses_prefix: a run finds there what the run before left; False where the runtime was seen not to.

    Attributes:
        ids: the token ids that it certainly holds from its start; none where that is not known.
        is_cold: it is known to be empty.
        is_paused: a generation is paused in it.
    """

    def __init__(self, *, reuses_prefix: bool = True) -> None:
        self._reuses_prefix = reuses_prefix
        self.ids: Sequence[int] = ()
        self.is_cold = True
        self.is_paused = False
        self._has_history = False
        self._lora: str | None = None
        # Of the prompts of these owners it may hold something.
        self._owners: frozenset[str] = frozenset()
        # What the service itself put there last; anybody may know it.
        self._shared: Sequence[int] = ()

    def renewed(self) -> None:
        """There is a new worker."""
        self.emptied()
        self.is_paused = False

    def emptied(self) -> None:
        """It was cleared. Whether that ends a pause is not known."""
        self.ids, self.is_cold, self._has_history = (), True, False
        self._owners = frozenset()

    def filled(self, ids: Sequence[int] = (), owner: str | None = None) -> None:
        """It holds something from outside: a prompt cache of these ids and this owner, where they are known."""
        self.ids, self.is_cold = ids, False
        if not ids:
            self._owners |= {_UNKNOWN}
        elif owner is None:
            self._owners, self._shared = frozenset(), ids
        else:
            self._owners = frozenset((owner,))

    def uncached(self, tokens: Sequence[int]) -> int:
        """How many of these ids a run evaluates at most; at least one, since the logits of the last are needed."""
        return max(1, len(tokens) - common_prefix(tokens, self.ids))

    def own_tokens(self, tokens: Sequence[int], owner: str | None) -> int | None:
        """How many of these ids ``owner`` may be told were reused, at most; None without a limit.

        An earlier run of the same owner counts only while no other owner's came after it: how much of it that one left
        would tell how alike the two are.
        """
        if owner is None or self._owners <= {owner}:
            return None
        return common_prefix(tokens, self._shared)

    def reported_uncached(self, tokens: Sequence[int], owner: str | None) -> int:
        """``uncached``, as far as ``owner`` may know it."""
        own = self.own_tokens(tokens, owner)
        return self.uncached(tokens) if own is None else max(self.uncached(tokens), len(tokens) - own)

    def expected_prefill(self, command: RunCommand) -> int | None:
        """What ``uncached`` says of a run with this command; None where its prompt is not one of token ids."""
        if not isinstance(command.prompt, TokenInput):
            return None
        tokens = command.prompt.tokens
        return len(tokens) if command.clears_before else self.uncached(tokens)

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
        # Without a token nobody knows how far it came, and what a failed run leaves is not documented either. The
        # token sampled last was not evaluated (observed on 1.3.1; reference: rkllm-runtime 2.6).
        is_known = self._reuses_prefix and run.is_sound and bool(run.ids) and not self._has_history
        self.ids = [*run.tokens, *run.ids[:-1]] if is_known and run.tokens else ()
        self._note_owner(run)

    def _note_owner(self, run: Run) -> None:
        owner = run.options.owner
        new: frozenset[str] = frozenset() if owner is None else frozenset((owner,))
        # A run that delivered a token has evaluated its whole prompt: nothing of those before is left behind it.
        is_whole = run.is_sound and bool(run.ids) and not self._has_history
        self._owners = new if is_whole else self._owners | new
        if owner is None and is_whole:
            self._shared = run.tokens
