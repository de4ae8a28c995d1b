"""What answers cost, in tokens: those that were evaluated and those that were written.

Each round of the model tells it at its end, by ``Usage``. One that is left before that tells nothing, and the runtime
has no figures of a run that was stopped; so it costs what its prompt needed evaluating when it was given to the
runtime, also where that had not come to its end, and the pieces that came. It is counted where answers are made: what
nobody hears any more costs the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rkllm_mcp.events import Event, Text, Thinking, Usage
from rkllm_mcp.messages import Conversation


class UsageCounter:
    """What the answers of one assistant have cost and nobody has settled yet."""

    def __init__(self) -> None:
        self._spent = 0

    @contextmanager
    def of(self, conversation: Conversation) -> Generator[Callable[[Event], None], None, None]:
        """Surround an answer; what is yielded is told its events."""
        pieces = 0

        def count(event: Event) -> None:
            nonlocal pieces
            if isinstance(event, (Text, Thinking)):
                pieces += 1
            elif isinstance(event, Usage):
                self._spent += event.prefilled_tokens + event.generated_tokens
                pieces = conversation.unpaid_tokens = 0

        try:
            yield count
        finally:
            self._spent += pieces + conversation.unpaid_tokens
            conversation.unpaid_tokens = 0

    def settle(self) -> int:
        """What they have cost since it was settled last, tokens."""
        spent, self._spent = self._spent, 0
        return spent
