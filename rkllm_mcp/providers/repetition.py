"""Find an answer that repeats itself, which a small model does until its token limit."""

from __future__ import annotations

# The same tokens so many times, one behind the other or at equal distances, are a loop.
LOOP_TOKENS = 30
LOOP_TIMES = 4

_SENTENCE = "[The answer repeated itself and was ended here.]"
_SENTENCE_JA = "[同じ内容の繰り返しになったため、回答をここで終了しました]"


class RepetitionWatch:
    """Follow the tokens of one answer; each costs the same, however long the answer is."""

    def __init__(self) -> None:
        self._last: list[int] = []
        self._count = 0
        # Of each run of ``LOOP_TOKENS``: where it ended last, the distance to the time before, and how often in a row.
        self._seen: dict[int, tuple[int, int, int]] = {}

    def add(self, token_id: int) -> bool:
        """Add the next token; return True if the answer has repeated itself ``LOOP_TIMES``."""
        self._last.append(token_id)
        self._count += 1
        if len(self._last) < LOOP_TOKENS:
            return False
        key = hash(tuple(self._last))
        del self._last[0]
        place, distance, times = self._seen.get(key, (0, 0, 0))
        apart = self._count - place
        times = 1 if not times else times + 1 if apart == distance else 2
        self._seen[key] = (self._count, apart, times)
        # With a shorter period the runs overlap.
        covered = LOOP_TOKENS + (times - 1) * min(apart, LOOP_TOKENS)
        return covered >= LOOP_TOKENS * LOOP_TIMES


def repetition_sentence(text: str) -> str:
    """Return the sentence that ends a repeating answer, in the language of its end."""
    return _SENTENCE_JA if any("\u3040" <= character <= "\u30ff" for character in text[-200:]) else _SENTENCE
