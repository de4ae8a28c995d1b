"""Token usage of answers: evaluated and generated tokens.

Each round reports its ``Usage`` at its end. A round that is stopped earlier reports none, and the runtime has no
figures of it; it is charged with the prompt tokens that needed evaluation and the pieces of text that arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rkllm_mcp.events import Event, Text, Thinking, Usage
from rkllm_mcp.messages import Conversation


class UsageCounter:
    """Usage of the answers of one assistant since it was last settled."""

    def __init__(self) -> None:
        self._spent = 0

    @contextmanager
    def of(self, conversation: Conversation) -> Generator[Callable[[Event], None], None, None]:
        """Count one answer: the yielded function is called with each of its events."""
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
        """Return the tokens since the last call, and start again at 0."""
        spent, self._spent = self._spent, 0
        return spent
