"""Token usage of answers: evaluated and generated tokens.

Each round reports its ``Usage`` at its end. A round that is stopped earlier reports none, and the runtime has no
figures of it; it is charged with the prompt tokens that needed evaluation and the pieces of text that arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rkllm_mcp.events import Event, Text, Thinking, Usage
from rkllm_mcp.messages import Conversation
from rkllm_mcp.protocols import Step


@dataclass(eq=False)
class UsageCounter:
    """Usage of the answers of one assistant since it was last settled."""

    spent: int = 0  # tokens

    def add_round(self, usage: Usage) -> None:
        """Add the tokens that a round has evaluated and generated."""
        self.spent += usage.prefilled_tokens + usage.generated_tokens

    def settle(self) -> int:
        """Return the tokens since the last call, and start again at 0."""
        spent, self.spent = self.spent, 0
        return spent


@dataclass(eq=False)
class AnswerUsage(Step):
    """The step that counts the tokens of one answer; close it when the answer is over."""

    conversation: Conversation
    counter: UsageCounter
    _pieces: int = field(default=0, init=False)  # of text, since the last ``Usage``

    def feed(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Count the events and return them."""
        for event in batch:
            if isinstance(event, (Text, Thinking)):
                self._pieces += 1
            elif isinstance(event, Usage):
                self.counter.add_round(event)
                self._pieces = self.conversation.unpaid_tokens = 0
        return batch

    def close(self) -> None:
        """Count what a round without ``Usage`` has cost."""
        self.counter.spent += self._pieces + self.conversation.unpaid_tokens
        self.conversation.unpaid_tokens = 0
