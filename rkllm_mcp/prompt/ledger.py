"""The append-only token ids of one conversation.

What went in and what came out stays as it was: the next prompt is the ledger plus what is new, so the runtime's own
prefix matching evaluates only the new part (maintainer's recipe, rknn-llm issue 432: history off, send everything,
never clear). ``rewind`` exists for the owner's edits alone. The ledger knows no text and no roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class TokenLedger:
    """Token ids in order. ``ids`` may be read at any time and must not be changed."""

    def __init__(self) -> None:
        self._ids: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        """All ids so far."""
        return self._ids

    def append(self, ids: Iterable[int]) -> None:
        """Add ids at the end: rendered text, or what a generation delivered."""
        self._ids.extend(ids)

    def rewind(self, length: int) -> None:
        """Forget what lies behind the first ``length`` ids, because the conversation itself was changed there.

        Raises:
            ValueError: ``length`` is not within the ledger.
        """
        if not 0 <= length <= len(self._ids):
            raise ValueError(f"cannot rewind {len(self._ids)} tokens to {length}")
        del self._ids[length:]


@dataclass(eq=False)
class ExpectedRun:
    """What one run should find in the KV cache, and what it should leave there.

    Args:
        prompt: its prompt.
        generated: what it has generated; grows while it runs.
        before: the run before it on the same engine, None when there was none.
    """

    prompt: Sequence[int]
    generated: Sequence[int]
    before: ExpectedRun | None

    def prefill_tokens(self) -> int:
        """Tokens of the prompt that have to be evaluated; at least one, since the last one's logits are needed.

        Asked when the run is over: then the run before it is, too, also if this one had to wait for it.
        """
        found = common_prefix(self.prompt, self.before.left_behind()) if self.before else 0
        return max(1, len(self.prompt) - found)

    def left_behind(self) -> list[int]:
        """The ids that are certain to be in the cache after it.

        The last token was sampled and maybe never evaluated (observed on 1.3.1, reference: rkllm-runtime 2.6). As long
        as nothing was generated nothing is known: the run may have waited, or been stopped in the middle of its
        prefill.
        """
        return [*self.prompt, *self.generated[:-1]] if self.generated else []

    def ended(self, *, failed: bool = False) -> None:
        """It is over; what a run that failed leaves in the cache is not known."""
        self.before = None
        if failed:
            self.generated = ()


class CacheExpectation:
    """What the runtime's KV cache should hold, and so what a prompt should cost.

    One cache serves all conversations, so there is one of these per engine. It only claims what is certain: a run that
    costs more than it says is worth a line, a run that costs less is not.
    """

    def __init__(self) -> None:
        self._latest: ExpectedRun | None = None

    def begin(self, prompt: Sequence[int], generated: Sequence[int]) -> ExpectedRun:
        """A run is asked for, in the order in which the engine takes them; ``generated`` grows as tokens come."""
        self._latest = ExpectedRun(prompt, generated, self._latest)
        return self._latest


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of leading ids that are equal."""
    shortest = min(len(left), len(right))
    if list(left[:shortest]) == list(right[:shortest]):
        return shortest
    return next(index for index in range(shortest) if left[index] != right[index])
