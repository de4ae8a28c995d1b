"""Fitting a conversation into the context window: token budget and compaction.

The prefix (system text and tool list) and the current exchange (the last user message and everything after it) always
stay. The oldest exchanges are dropped first, whole, down to a fraction of the window at once: every compaction costs a
new prefill, so it must not happen on each turn. If the current exchange alone is too long, its tool results and the
text that the host put before the user's words are shortened. A prompt that still does not fit is refused with numbers
before it reaches the NPU. The conversation itself does not change: a ``Compaction`` is a view of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.messages import Message

# 1.1.4 refused prompts longer than the context less 4 (reference: rkllm-runtime 2.12); later releases are not known
# to need it.
RUNTIME_RESERVE_TOKENS = 4
# At most this part of the window is reserved for an answer; a longer one may use the room that the prompt leaves.
ANSWER_SHARE = 0.25
# After a compaction the exchanges fill at most this part of their room, so that several turns pass before the next one.
COMPACTED_SHARE = 0.6
# Counting stops at this many windows: a prompt of megabytes is refused anyway, and counting it takes seconds.
COUNTED_WINDOWS = 4
_MOST_CHARS_PER_TOKEN = 16  # a text with this many characters per available token is certainly too long
SHORTEST_RESULT_CHARS = 200  # a shorter tool result is useless


@dataclass(frozen=True)
class Budget:
    """The context window and the requested length of the answer."""

    context_tokens: int  # the window that the model was loaded with
    max_new_tokens: int  # the longest requested answer

    @property
    def prompt_limit_tokens(self) -> int:
        """The longest prompt that leaves room for an answer."""
        answer = min(self.max_new_tokens, int(self.context_tokens * ANSWER_SHARE))
        return self.context_tokens - RUNTIME_RESERVE_TOKENS - answer

    @property
    def counted_tokens(self) -> int:
        """The number of tokens up to which a prompt that is too long is counted."""
        return self.context_tokens * COUNTED_WINDOWS

    def new_tokens_after(self, prompt_tokens: int) -> int:
        """Return how many tokens may be generated after a prompt of this length."""
        return max(1, min(self.max_new_tokens, self.context_tokens - RUNTIME_RESERVE_TOKENS - prompt_tokens))


@dataclass(eq=False)
class Compaction:
    """A view of one conversation that fits: the number of dropped leading messages, and the shortened tool turns.

    It is valid for one history and its continuations; another history is shown whole again. Its attributes are replaced
    and never changed, so that a copy of it is independent.
    """

    _history: list[Message] = field(default_factory=list[Message])
    _dropped: int = 0
    _shortened: dict[int, Message] = field(default_factory=dict[int, Message])

    def view(self, body: Sequence[Message]) -> list[Message]:
        """Return the messages to render of ``body``, the conversation without its system message."""
        if list(body[: len(self._history)]) != self._history:
            self._history, self._dropped, self._shortened = [], 0, {}
        return [self._shortened.get(index, body[index]) for index in range(self._dropped, len(body))]

    def tighten(
        self,
        body: Sequence[Message],
        cost: Callable[[Message], int],
        room_tokens: int,
        counted_tokens: int = sys.maxsize,
    ) -> str:
        """Drop more, so that the view costs at most ``room_tokens``; return a sentence for the user about it.

        ``cost`` returns the tokens of one rendered message, and any larger number for a message of more than
        ``counted_tokens``. ``room_tokens`` is the window without the prefix and the opening of the answer.

        Raises:
            PromptTooLongError: the current exchange does not fit, even with shortened tool results; ``prompt_tokens``
                and ``limit_tokens`` count the exchange alone. The view does not change then, so the history is
                complete when the question is withdrawn.
        """
        view = self.view(body)
        # Whole exchanges are dropped, never the last. From the end, so that messages to drop are counted only until
        # they do not fit.
        starts = [0, *(index for index, message in enumerate(view) if index and message.role == "user")]
        count, end, remaining = starts[-1], len(view), room_tokens * COMPACTED_SHARE
        for start in reversed(starts):
            remaining -= _cost_of(view[start:end], cost, remaining)
            if remaining < 0:
                break
            count = end = start
        dropped, shortened = self._dropped + count, self._shortened
        notices = [f"left out the {count} oldest message{'s' if count > 1 else ''}"] if count else []
        if _cost_of(view[count:], cost, room_tokens) > room_tokens:
            shortened = _short_enough(body, dropped, cost, room_tokens, counted_tokens)
            notices.append("shortened long tool results")
        # Messages that are rendered as they are may still change: the last question, when its results are with it.
        shortened = {index: message for index, message in shortened.items() if message != body[index]}
        end = max((*(index + 1 for index in shortened), dropped))
        self._history, self._dropped, self._shortened = list(body[:end]), dropped, shortened
        return " and ".join(notices)


def _cost_of(messages: Iterable[Message], cost: Callable[[Message], int], enough: float) -> int:
    """Return the cost of messages; counting stops above ``enough``."""
    total = 0
    for message in messages:
        total += cost(message)
        if total > enough:
            break
    return total


def _short_enough(
    body: Sequence[Message], dropped: int, cost: Callable[[Message], int], room_tokens: int, counted_tokens: int
) -> dict[int, Message]:
    """Return the tool turns after ``dropped``, by index, with the longest of them shortened as much as needed."""
    turns = {index: body[index] for index in range(dropped, len(body)) if body[index].results or body[index].context}
    uncut = (body[index] for index in range(dropped, len(body)) if index not in turns)
    fixed = _cost_of(uncut, cost, counted_tokens)
    lengths = (
        len(text) for turn in turns.values() for text in (turn.context, *(result.text for result in turn.results))
    )
    limit = min(max(lengths, default=0), max(room_tokens, SHORTEST_RESULT_CHARS) * _MOST_CHARS_PER_TOKEN)
    # Less than the whole room, so that the results of the next round do not shorten these again (a new prefill).
    target = fixed + (room_tokens - fixed) * COMPACTED_SHARE
    total = fixed + _cost_of(turns.values(), cost, counted_tokens - fixed)
    shortened = turns
    while total > target and limit > SHORTEST_RESULT_CHARS:
        limit = max(limit // 2, SHORTEST_RESULT_CHARS)
        shortened = dict[int, Message]()
        for index, turn in turns.items():
            results, context = list(turn.results), turn.context
            for number, result in enumerate(results):
                if len(result.text) > limit:
                    text = f"{result.text[:limit]}\n[shortened from {len(result.text)} characters]"
                    results[number] = replace(result, text=text, truncated=True)
            if len(context) > limit:
                # The end of the text before a user's words, where instructions stand, is preserved.
                half = limit // 2
                context = f"{context[:half]}\n[shortened from {len(context)} characters]\n{context[-half:]}"
            shortened[index] = replace(turn, results=tuple(results), context=context)
        total = fixed + _cost_of(shortened.values(), cost, counted_tokens - fixed)
    if total > room_tokens:
        raise PromptTooLongError(total, room_tokens, is_partial=total > counted_tokens)
    return shortened
