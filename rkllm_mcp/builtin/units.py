"""Unit conversion; units by symbol, English or Japanese name.

Each quantity has a table of factors to its base unit; temperature scales also have a zero point.

Source: SI brochure, 9th edition; the traditional Japanese units by the Measurement Act of 1921
(尺 is 10/33 m, 貫 is 3.75 kg, 升 is 2401/1331 L); 畳 is the 1.62 m² of the Fair Competition Code for real estate.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import cache
from pathlib import Path

from rkllm_base.days import without_days
from rkllm_base.numbers import with_digits
from rkllm_mcp.builtin.function import LocalToolError
from rkllm_mcp.builtin.sentences import sentences_for

_DIGITS = ".10g"
# Digits of a result that people can use.
_RESULT_DIGITS = 7
_NUMBER = r"(?<![\d.])-?\d+(?:\.\d+)?"
# Before a unit that is asked for, and after a Japanese one; before one of which there is one.
_WANTED = re.compile(r"\b(?:in|to|into|as|many|much)\s+$|何$", re.IGNORECASE)
_WANTED_JAPANESE = re.compile(r"(?:で|に|だと|とか|換算|数)")
_ONE = re.compile(r"(?<![a-z])an?\s$", re.IGNORECASE)
# Latin names that are also words or letters: they count after a number, or as a sign after "in" or "何".
_SHORT = 2
_NEVER_WANTED = frozenset({"a", "in", "to", "go"})
_TEMPERATURE = "temperature"
_DEGREES = re.compile(r"何度|\bdegrees\b", re.IGNORECASE)
_ROMAJI = frozenset(["shaku", "sun", "ken", "cho", "ri", "kan", "tan", "jo", "sho", "go", "to", "koku", "kin"])
# Half a litre; 華氏100度, 時速60マイル, 大さじ3杯: what is said before the number.
_SAID_BEFORE = (
    (rf"(?:マイナス|氷点下|零下|\bminus |\bnegative )(?={_NUMBER})", "-"),
    (r"\bhalf an? ", "0.5 "),
    (r"\b(?:a )?quarter (?:of )?an? ", "0.25 "),
    (r"\b(?:us|american) (?=gal|quart|pint|cup|fl)", ""),
    (r"\b(?:imperial|uk|british) (?=gal|pint)", "imperial"),
    (r"\bfl(?:uid|\.)? ?(?:oz|ounces?)\b", "floz"),
    (r"\bdegrees? (?=fahrenheit|celsius|[fc]\b)", ""),
    (r"何度", ""),
    (rf"(華氏|摂氏) ?({_NUMBER}) ?度?", r"\2\1"),
    (rf"時速 ?({_NUMBER}|何) ?マイル", r"\1mph"),
    (rf"時速 ?({_NUMBER}|何) ?(?:キロメートル|キロ|km)", r"\1km/h"),
    (rf"秒速 ?({_NUMBER}|何) ?(?:メートル|m)", r"\1m/s"),
    (rf"(大さじ|小さじ) ?({_NUMBER}) ?杯?", r"\2\1"),
)


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a quantity and return a line such as ``5 km = 5000 m``.

    Raises:
        LocalToolError: a unit is unknown, or the units measure different quantities.
    """
    if not math.isfinite(value):
        raise LocalToolError("The value must be a finite number.")
    return f"{value:{_DIGITS}} {from_unit} = {_readable(_convert(value, from_unit, to_unit))} {to_unit}"


def convert_question(question: str) -> str:
    """Convert the quantity that a question names into the unit that it asks for: ``72 f in c``, ``6畳って何平米``.

    Raises:
        LocalToolError: a quantity or the unit that is wanted is missing, or several are wanted.
    """
    quantities, target_unit = _read_question(without_days(question))
    if not quantities or len(target_unit) != 1:
        raise LocalToolError(sentences_for(question)["no_quantity"], "unclear", question)
    (target,) = target_unit
    first = quantities[0][1]
    total = sum(_convert(value, unit, first) for value, unit in quantities)
    amount = " ".join(f"{value:{_DIGITS}} {unit}" for value, unit in quantities)
    return f"{amount} = {_readable(_convert(total, first, target))} {target}"


def continued_conversion(said: str, question: str) -> str:
    """Return a question that names only the unit it wants, with the first quantity of ``said`` that can be in it.

    It is empty if none can.
    """
    quantities, wanted = _read_question(without_days(question))
    # あと何日 asks for a time, and 2026年 says which year.
    if len(wanted) != 1 or quantities:
        return ""
    kinds = _meanings_of(wanted[0]).keys() - {"time"}
    fitting = (
        f"{value:{_DIGITS}} {unit} {question}"
        for value, unit in _read_question(said)[0]
        if unit != wanted[0] and not kinds.isdisjoint(_meanings_of(unit))
    )
    return next(fitting, "")


def names_conversion(question: str) -> bool:
    """Return True if a question names a quantity, which is not a day (3週間後), and another unit."""
    quantities, target = _read_question(without_days(question))
    return bool(quantities) and bool(target)


def units_in(text: str) -> list[tuple[int, int]]:
    """Return where a text names the units that it wants."""
    spans = [match.span() for match in _spellings().finditer(text)]
    return [
        (start, end)
        for start, end in spans
        if not re.search(rf"{_NUMBER}[ -]?$", text[:start])
        and (not _is_word(text[start:end]) or _is_wanted(text, start, end))
        and text[start:end].lower() not in _NEVER_WANTED
    ]


def _is_word(unit: str) -> bool:
    """Return True if the name of a unit is also a word or a part of words, as in, go and 合 of 合計."""
    return (len(unit) <= _SHORT or unit.lower() in _ROMAJI) if unit.isascii() else len(unit) == 1


def _is_wanted(text: str, start: int, end: int) -> bool:
    """Return True if a text asks for the unit there, whose name is also a word."""
    is_asked = _WANTED.search(text[:start]) is not None
    return is_asked or (not text[start:end].isascii() and _WANTED_JAPANESE.match(text[end:]) is not None)


def _read_question(question: str) -> tuple[list[tuple[float, str]], list[str]]:
    """Return the quantities of a question, and the other units in it."""
    text = with_digits(question)
    for pattern, form in _SAID_BEFORE:
        text = re.sub(pattern, form, text)
    quantities: list[tuple[float, str]] = []
    targets: list[str] = []
    for match in _spellings().finditer(text):
        unit, before = match[0], text[: match.start()]
        is_word = _is_word(unit)
        if number := re.search(rf"({_NUMBER})[ -]?$", before):
            quantities.append((float(number[1]), unit))
        elif _ONE.search(before) and not is_word:
            quantities.append((1.0, unit))
        elif not is_word or (_is_wanted(text, *match.span()) and unit.lower() not in _NEVER_WANTED):
            targets.append(unit)
    sources = {unit for _, unit in quantities}
    # 52 weeks are not asked for in weeks.
    sources |= {unit for unit in targets for source in sources if _meanings_of(unit) == _meanings_of(source)}
    # 98.6Fって何度, how many degrees is 98.6 f: those that are not of an angle, nor the same.
    if _DEGREES.search(question) and quantities and _TEMPERATURE in _meanings_of(quantities[0][1]):
        targets = [unit for unit in targets if _TEMPERATURE in _meanings_of(unit)] or ["°C"]
        celsius = _meanings_of("°C")[_TEMPERATURE]
        sources |= {"°C" for unit in sources if _meanings_of(unit)[_TEMPERATURE] == celsius}
    return quantities, [*dict.fromkeys(unit for unit in targets if unit not in sources)]


@cache
def _spellings() -> re.Pattern[str]:
    """Return a pattern of all names of units, the longest first."""
    names = sorted(_KINDS, key=lambda name: (-len(name), name))
    forms = [re.escape(name).replace("square", "square ?") for name in names if name != "°"]
    latin = "|".join(form for form in forms if form.isascii())
    japanese = "|".join(form for form in forms if not form.isascii())
    return re.compile(rf"(?<![A-Za-z])(?:{latin})(?![A-Za-z])|(?:{japanese})", re.IGNORECASE)


def _convert(value: float, from_unit: str, to_unit: str) -> float:
    source, target = _meanings_of(from_unit), _meanings_of(to_unit)
    kinds = [kind for kind in source if kind in target]
    if not kinds:
        here, there = (" or ".join(f"a unit of {kind}" for kind in meanings) for meanings in (source, target))
        raise LocalToolError(f"{from_unit} is {here} and {to_unit} is {there}.")
    (size, zero), (other_size, other_zero) = source[kinds[0]], target[kinds[0]]
    return (value * size + zero - other_zero) / other_size


def _readable(value: float) -> str:
    """Return a number with as many digits as people use; whole numbers as they are."""
    digits = max(_RESULT_DIGITS, len(str(abs(round(value)))) + 2)
    return f"{round(value, 12):.{digits}g}"


def _meanings_of(unit: str) -> dict[str, tuple[float, float]]:
    """Return the meanings of a unit: quantity -> (size in the base unit, zero point)."""
    spelled = unit.strip()
    plain = unicodedata.normalize("NFKC", spelled)
    for spelling in dict.fromkeys((spelled, plain, plain.lower(), plain.replace(" ", "").lower())):
        meanings = _KINDS.get(spelling)
        if meanings:
            return meanings
    raise LocalToolError(f"The unit '{unit[:40]}' is not known; write its sign or its name in English or Japanese.")


# The meanings of each name of a unit, of units.tsv: quantity, factor to the base unit, zero point, names. They are
# matched exactly first, then in lower case, so that MB and Mb, MW and mW stay distinct.
_KINDS: dict[str, dict[str, tuple[float, float]]] = {}
for _row in Path(__file__).with_name("units.tsv").read_text("utf-8").splitlines():
    _kind, _size, _zero, _names = _row.split("\t")
    for _name in _names.split():
        _KINDS.setdefault(unicodedata.normalize("NFKC", _name), {})[_kind] = (float(_size), float(_zero))
for _name in list(_KINDS):
    _KINDS.setdefault(_name.lower(), _KINDS[_name])
