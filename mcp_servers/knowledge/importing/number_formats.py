"""Number format codes of spreadsheets (ECMA-376, 18.8.30): stored number -> text as the sheet shows it.

    7.5 %   0.075 with 0.0%            0042    42 with 0000            12 名   12 with 0"名"
    30:30   1.27083 with [h]:mm        2023-03-15 14:30    dates, in ISO form whatever the order and the calendar

A date is written with the year, month and day even if the format shows fewer of them, so that it can be found.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

# Formats that a file names by number only. Others with numbers below 164 are dates of East Asian calendars.
BUILT_IN = {
    0: "General",
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    12: "# ?/?",
    13: "# ??/??",
    **dict.fromkeys((*range(14, 18), *range(27, 32), 36, *range(50, 55), 57, 58), "yyyy-mm-dd"),
    **dict.fromkeys((18, 20, 32), "h:mm"),
    **dict.fromkeys((19, 21, 33), "h:mm:ss"),
    **dict.fromkeys((34, 35, 55, 56), "yyyy-mm-dd"),
    22: "yyyy-mm-dd h:mm",
    37: "#,##0;(#,##0)",
    38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;(#,##0.00)",
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "0.0E+0",
    49: "@",
}
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # a spreadsheet's dates have no zone
_MAX_DAYS = 2_958_466
# Excel counts 29 February 1900, which did not exist.
_LAST_WRONG_DAY = 60
_TOKEN = re.compile(
    r"""(?P<quoted>"[^"]*")|\\(?P<escaped>.)|[_*].|(?P<bracket>\[[^\]]*\])"""
    r"""|(?P<ampm>AM/PM|A/P|上午/下午|午前/午後)|(?P<general>General|G/標準|標準)"""
    r"""|(?P<exponent>E[+-]?0+)|(?P<date>y+|m+|d+|h+|s+(?:\.0+)?|g{1,3}|e+|a{3,4}|b+|r+)"""
    r"""|(?P<digits>[0#?](?:[0#?,.]|/[0-9?#]+)*(?<![.])|\.[0#?]+)|(?P<percent>%)|(?P<other>.)""",
    re.IGNORECASE | re.DOTALL,
)
_ELAPSED = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_CONDITION = re.compile(r"\[(<=|>=|<>|<|>|=)(-?[\d.]+)\]")
_CURRENCY = re.compile(r"\[\$([^\]-]*)(?:-[^\]]*)?\]")
_MAX_CODE = 500


class _Token(NamedTuple):
    kind: str
    text: str


def format_number(value: float, code: str, *, is_1904: bool = False) -> str:
    """Return a stored number as a cell with this format shows it."""
    sections = _sections(code[:_MAX_CODE])
    # The section that the value selects, and True if its sign is written by the section itself.
    section, is_magnitude = sections[0], False
    conditional = [(condition, part) for part in sections[:2] if (condition := _CONDITION.search(part))]
    if conditional:
        section = sections[-1] if len(sections) > len(conditional) else sections[0]
        for condition, part in conditional:
            comparison, limit = condition[1], float(condition[2])
            outcomes = {"<": value < limit, ">": value > limit, "=": value == limit}
            if value != limit if comparison == "<>" else any(outcomes[sign] for sign in comparison):
                section = part
                break
    elif value < 0 and len(sections) > 1 and sections[1]:
        section, is_magnitude = sections[1], True
    elif value == 0 and len(sections) > 2 and sections[2]:
        section = sections[2]
    tokens = _tokens(section)
    kinds = {token.kind for token in tokens}
    if kinds & {"date", "elapsed"}:
        return _date_text(value, tokens, is_1904=is_1904) or general_text(value)
    magnitude = abs(value) if is_magnitude else value
    if kinds & {"digits", "percent"}:
        return _number_text(magnitude, tokens)
    if kinds & {"general", "text"} or not section:
        return (
            "".join(general_text(magnitude) if t.kind in {"general", "text"} else t.text for t in tokens)
            if kinds
            else (general_text(magnitude))
        )
    # A section of words only, "済" or "-", replaces the number.
    return "".join(token.text for token in tokens).strip() or general_text(value)


def general_text(value: float) -> str:
    """Return a number with at most fifteen significant digits and without a needless exponent."""
    text = f"{value:.15g}"
    return f"{Decimal(text):f}" if "e" in text and abs(value) < 1e21 and abs(value) > 1e-7 else text


@lru_cache(maxsize=1_000)
def _sections(code: str) -> tuple[str, ...]:
    sections, start = list[str](), 0
    for token in _TOKEN.finditer(code):
        if token["other"] == ";":
            sections.append(code[start : token.start()])
            start = token.end()
    return (*sections, code[start:])


@lru_cache(maxsize=1_000)
def _tokens(section: str) -> tuple[_Token, ...]:
    tokens: list[_Token] = []
    for match in _TOKEN.finditer(section):
        kind, text = match.lastgroup or "", match.group()
        if kind == "quoted":
            tokens.append(_Token("literal", text[1:-1]))
        elif kind == "escaped":
            tokens.append(_Token("literal", match["escaped"]))
        elif kind == "bracket":
            currency = _CURRENCY.fullmatch(text)
            if _ELAPSED.fullmatch(text):
                tokens.append(_Token("elapsed", text[1:-1].lower()))
            elif currency and currency[1]:
                tokens.append(_Token("literal", currency[1]))
        elif kind == "other":
            tokens.append(_Token("text", text) if text == "@" else _Token("literal", text))
        elif kind:
            tokens.append(_Token(kind, text.lower() if kind == "date" else text))
        elif text.startswith("_"):
            tokens.append(_Token("literal", " "))
    return tuple(tokens)


def _date_text(value: float, tokens: tuple[_Token, ...], *, is_1904: bool) -> str:
    """Return a date in ISO form, a time of day or an elapsed time; empty for a number outside the calendar."""
    elapsed = next((token for token in tokens if token.kind == "elapsed"), None)
    letters = [token.text[0] for token in tokens if token.kind == "date"]
    if elapsed:
        total = round(abs(value) * 86_400)
        sign, seconds = "-" if value < 0 else "", f":{total % 60:02d}" if "s" in letters else ""
        match elapsed.text[0]:
            case "h":
                minutes = f":{total // 60 % 60:02d}" if "m" in letters or seconds else ""
                return f"{sign}{total // 3600}{minutes}{seconds}"
            case "m":
                return f"{sign}{total // 60}{seconds}"
            case _:
                return f"{sign}{total}"
    if not 0 <= value < _MAX_DAYS:
        return ""
    if not is_1904 and value < _LAST_WRONG_DAY:
        value += 1 if value >= 1 else 0
    has_clock = "h" in letters or "s" in letters
    has_day = bool({"y", "d", "g", "e", "r", "a", "b"} & {*letters}) or ("m" in letters and not has_clock)
    moment = (_EPOCH_1904 if is_1904 else _EPOCH) + timedelta(seconds=round(value * 86_400))
    day, clock = f"{moment:%Y-%m-%d}", f"{moment:%H:%M:%S}" if "s" in letters else f"{moment:%H:%M}"
    if not has_day:
        # A clock on a day that the format hides: only the time is meant.
        return clock
    is_midnight = not (moment.hour or moment.minute or moment.second)
    return f"{day} {clock}" if has_clock and not is_midnight else day


def _number_text(value: float, tokens: tuple[_Token, ...]) -> str:
    fraction = next((token.text for token in tokens if token.kind == "digits" and "/" in token.text), "")
    if fraction:
        # 1.2 is 1 1/5, or 6/5 where the format has no whole part.
        has_whole = sum(token.kind == "digits" for token in tokens) > 1
        denominator = fraction.partition("/")[2]
        if denominator.isdecimal() and int(denominator):
            size = int(denominator)
            numerator = round(abs(value) * size)
        else:
            part = Fraction(abs(value)).limit_denominator(10 ** min(len(denominator), 3) - 1)
            numerator, size = part.numerator, part.denominator
        quotient, numerator = divmod(numerator, size) if has_whole else (0, numerator)
        written = f"{numerator}/{size}" if numerator and size > 1 else "" if has_whole and quotient else str(numerator)
        return ("-" if value < 0 else "") + " ".join(filter(None, (str(quotient) if quotient else "", written)))
    patterns = [token.text for token in tokens if token.kind == "digits"]
    if len(patterns) > 1 and "." not in "".join(patterns):
        # The digits are divided, as in a postal code or telephone number: 000-0000.
        remainder = f"{abs(Decimal(repr(value)).quantize(Decimal(1), ROUND_HALF_UP)):f}".lstrip("0")
        groups: list[str] = []
        for at in range(len(patterns) - 1, -1, -1):
            places = [character for character in patterns[at] if character in "0#?"]
            group = remainder if at == 0 else remainder[-len(places) :]
            remainder = remainder[: len(remainder) - len(group)]
            groups.append(group.rjust(places.count("0"), "0"))
        divided = [groups.pop() if token.kind == "digits" else token.text for token in tokens]
        return ("-" if value < 0 else "") + "".join(divided).strip()
    pattern = patterns[0] if patterns else "0"
    exponent = next((token.text for token in tokens if token.kind == "exponent"), "")
    try:
        number = Decimal(repr(value)) * 100 ** sum(token.kind == "percent" for token in tokens)
        digits = _digits(number, pattern, exponent)
    except InvalidOperation:
        return general_text(value)
    is_negative, parts, is_written = digits.startswith("-"), list[str](), False
    for token in tokens:
        if token.kind != "digits":
            parts.append("" if token.kind == "exponent" else token.text)
        elif not is_written:
            parts.append(digits.lstrip("-"))
            is_written = True
    return (("-" if is_negative else "") + "".join(parts).strip()) or general_text(value)


def _digits(number: Decimal, pattern: str, exponent: str) -> str:
    if exponent:
        mantissa, _, power = f"{number:.{len(pattern.partition('.')[2])}E}".partition("E")
        sign = "-" if power.startswith("-") else "+" if "+" in exponent else ""
        return f"{mantissa}E{sign}{power.lstrip('+-').zfill(exponent.count('0'))}"
    # A comma after the last digit divides by a thousand.
    scaled = pattern.rstrip(",")
    number /= 1000 ** (len(pattern) - len(scaled))
    integer, _, fraction = scaled.partition(".")
    decimals, least = sum(character in "0#?" for character in fraction), fraction.count("0")
    text = f"{number.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):{',' if ',' in integer else ''}f}"
    before, _, after = text.lstrip("-").partition(".")
    after = after[:least] + after[least:].rstrip("0")
    least_digits = integer.count("0")
    if "," not in integer:
        before = before.zfill(least_digits)
    if before == "0" and not least_digits:
        before = ""
    is_negative = text.startswith("-") and any(character in "123456789" for character in text)
    return ("-" if is_negative else "") + before + (f".{after}" if after else "")
