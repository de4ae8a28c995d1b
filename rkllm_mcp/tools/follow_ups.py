"""Questions that continue the one before with another value: "and of 380?", 大阪は？, "tomorrow?".

Such a question is asked as the one before with its value in the place of the value of the same kind. The values are
recognised by form and by lists of the data, as in ``kinds``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from rkllm_base.days import day_spans, days_in
from rkllm_base.numbers import with_digits
from rkllm_base.ranges import HIRAGANA, KATAKANA
from rkllm_mcp.builtin.clock import counts_days, places_in
from rkllm_mcp.builtin.units import continued_conversion, names_conversion, units_in
from rkllm_mcp.builtin.worded_sums import ONE_OF_EACH, expression_of
from rkllm_mcp.tools.kinds import TIME, named_places

_NUMBER = re.compile(r"(?<![\w.])[$€£¥]?\d+(?:\.\d+)?(?: ?(?:%|percent\b|パーセント|割))?", re.ASCII)
_COUNTED = re.compile(rf" ?[A-Za-z]+|[{KATAKANA}]+|[^\W\d_A-Za-z]?")
# The value at the end of a line of the calculator.
_VALUE = re.compile(r"= (-?\d+(?:\.\d+)?)\Z", re.ASCII)
_AMOUNT = re.compile(r"(?<![A-Za-z\d.:])\d+(?:\.\d+)?(?![.:]?\d)(?:[円個本枚つ人冊袋箱]|(?= ))?")
_ADDS = re.compile(r"足し|足す|合わせ|合計|\b(?:add|sum|total|together)\b", re.IGNORECASE)
# The price of several, without a sum that is added to it or divided.
_TOTAL = re.compile(
    r"^(?!.*(?:足|引|割|わる|\d ?倍|\b(?:plus|minus|add|split|share|each)\b)).*"
    r"(?:合計|全部で|みんなで|全員で|\b(?:total|altogether|in all|would be|whole)\b)",
    re.IGNORECASE | re.DOTALL,
)
_MONEY = re.compile(r"[$€£¥]|円|ドル|ユーロ|\b(?:yen|dollars?|euros?|pounds|bucks)\b", re.IGNORECASE)
_ANY_DAY = date(2026, 1, 1)
_PART_OF = re.compile(r"[そこ]れ(?=の)|(?<=\bof )(?:that|it)\b", re.IGNORECASE)
_ADDED = frozenset({"place", "day", "time"})
_MOST_CHARS = 60  # a longer text asks for itself
# What stands around the values of a question like that.
_AROUND = re.compile(
    rf"(?:そ|こ|あ)(?:れ|の|こ|ちら|っち)|じゃあ?|では|だと|なら|だったら|の?場合|何|[{HIRAGANA}]|[^\w\s]|\s|_"
    r"|\b(?:and|or|but|so|then|ok|okay|what|how|about|if|it|its|is|it's|here|there|in|at|on|of|for|to|from|by|with|into|as|the|an?|same)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Value:
    kind: str
    start: int
    end: int


def continued_question(before: str, text: str) -> str:
    """Return the question ``before`` with the values of ``text`` in the place of its own.

    It is empty if ``text`` has other words, or a value that nothing in ``before`` is alike: a question may leave out
    where and when.
    """
    question = with_digits(text)
    # Others ask for themselves: "18% of 245?", "10 kg in pounds".
    if not before or len(question) > _MOST_CHARS or expression_of(text) or names_conversion(text):
        return ""
    values, remaining = _values_in(question), question
    for value in reversed(values):
        # With what it counts: 15個, 12.5 kg.
        counted = _COUNTED.match(remaining, value.end) if value.kind == "number" else None
        remaining = f"{remaining[: value.start]} {remaining[counted.end() if counted else value.end :]}"
    if not values or _AROUND.sub("", remaining):
        return ""
    earlier = with_digits(before)
    priced = {match.start() for match in ONE_OF_EACH.finditer(earlier)}
    earlier_values = [value for value in _values_in(earlier) if value.start not in priced]
    edits: list[tuple[int, int, str]] = []
    more: list[str] = []
    for value in values:
        replaced = {start for start, _, _ in edits}
        same = [
            candidate
            for candidate in earlier_values
            if candidate.kind == value.kind and candidate.start not in replaced
        ]
        word = question[value.start : value.end]
        if not same and value.kind not in _ADDED:
            return ""
        if not same:
            more.append(word)
            continue
        # 12個 and 15個 are alike by what follows them.
        following = question[value.end :].lstrip()[:1]
        alike = [
            candidate
            for candidate in same
            if following.isalpha() and earlier[candidate.end :].lstrip()[:1] == following
        ]
        best = max(alike or same, key=lambda candidate: candidate.start)
        edits.append((best.start, best.end, word))
    for start, end, word in sorted(edits, reverse=True):
        earlier = f"{earlier[:start]}{word}{earlier[end:]}"
    return " ".join([earlier, *more])


def continued_value(answers: Sequence[str], text: str) -> str:
    """Return a question that lacks a number with that of the answer before; empty if it lacks none.

    It is a sum ("plus 8% tax", "split that by 3", 1本238円だと), that of the last two answers (足したら), the price of
    several (4人で行くと全部で), a conversion (カップだと), or a number of days until the day of an answer (あと何日).
    ``answers`` are the earlier ones, the oldest first.
    """
    if not answers or len(text) > _MOST_CHARS or expression_of(text) or names_conversion(text):
        return ""
    # The value of a sum, or the only number of an answer with what it counts; empty for several.
    amounts: list[str] = []
    for answer in answers[-2:]:
        numbers = [match[0] for match in _AMOUNT.finditer(with_digits(answer))]
        value = _VALUE.search(answer)
        amounts.append(value[1] if value else numbers[0] if len(numbers) == 1 else "")
    counts = _NUMBER.findall(with_digits(text))
    if len(counts) == 1 and counts[0].isdigit() and _TOTAL.search(text) and not _MONEY.search(with_digits(text)):
        return f"{amounts[-1].rstrip('円 ')} * {counts[0]}" if amounts[-1] and _MONEY.search(answers[-1]) else ""
    asked = f"{amounts[-1]} {text}"
    if amounts[-1] and _NUMBER.search(with_digits(text)):
        # それの3割 and "30% of that" with the number in the place of the word.
        pointed = _PART_OF.sub(amounts[-1].rstrip("円 "), text, count=1)
        if continued := next(filter(expression_of, (pointed, asked)), ""):
            return continued
    if all(amounts) and len(amounts) > 1 and not _NUMBER.search(with_digits(text)) and _ADDS.search(text):
        return " + ".join(amount.rstrip("円 ") for amount in amounts)
    if counts_days(text) and not days_in(text, _ANY_DAY):
        texts = map(with_digits, answers)
        days = [answer[start:end] for answer in texts for start, end, _ in day_spans(answer, _ANY_DAY)]
        return f"{days[-1]} {text}" if days else ""
    return continued_conversion(answers[-1], text)


def without_values(text: str) -> str:
    """Return a text, with its numbers in digits, without its values."""
    remaining = with_digits(text)
    for value in sorted(_values_in(remaining), key=lambda value: -value.start):
        remaining = f"{remaining[: value.start]} {remaining[value.end :]}"
    return remaining


def _values_in(text: str) -> Sequence[_Value]:
    """Return the values of a text with its numbers in digits; of those that overlap the one of the more exact kind."""
    candidates = [_Value("day", start, end) for start, end, _ in day_spans(text, _ANY_DAY)]
    candidates += [_Value("time", *match.span()) for match in TIME.finditer(text)]
    candidates += [_Value("place", start, end) for _, start, end in places_in(text)]
    for match in _NUMBER.finditer(text):
        candidates.append(_Value("share" if re.search(r"[^\d.$€£¥]", match[0]) else "number", *match.span()))
    candidates += [_Value("unit", start, end) for start, end in units_in(text)]
    candidates += [_Value("place", start, end) for start, end in named_places(text)]
    values: list[_Value] = []
    for value in candidates:
        if not any(value.start < other.end and other.start < value.end for other in values):
            values.append(value)
    return sorted(values, key=lambda value: value.start)
