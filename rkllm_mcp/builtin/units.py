"""Unit conversion; units by symbol, English or Japanese name.

Each quantity has a table of factors to its base unit; temperature scales also have a zero point.

Source: SI brochure, 9th edition; the traditional Japanese units by the Measurement Act of 1921
(尺 is 10/33 m, 貫 is 3.75 kg, 升 is 2401/1331 L); 畳 is the 1.62 m² of the Fair Competition Code for real estate.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from rkllm_mcp.builtin.function import LocalToolError

_DIGITS = ".10g"


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a quantity and return a line such as ``5 km = 5000 m``.

    Raises:
        LocalToolError: a unit is unknown, or the units measure different quantities.
    """
    if not math.isfinite(value):
        raise LocalToolError("The value must be a finite number.")
    source, target = _meanings_of(from_unit), _meanings_of(to_unit)
    kinds = [kind for kind in source if kind in target]
    if not kinds:
        raise LocalToolError(f"{from_unit} is {_article(source)} and {to_unit} is {_article(target)}.")
    (size, zero), (other_size, other_zero) = source[kinds[0]], target[kinds[0]]
    result = (value * size + zero - other_zero) / other_size
    return f"{value:{_DIGITS}} {from_unit} = {round(result, 12):{_DIGITS}} {to_unit}"


def _meanings_of(unit: str) -> dict[str, tuple[float, float]]:
    """Return the meanings of a unit: quantity -> (size in the base unit, zero point)."""
    spelled = unit.strip()
    plain = unicodedata.normalize("NFKC", spelled)
    for spelling in dict.fromkeys((spelled, plain, plain.lower(), plain.replace(" ", "").lower())):
        meanings = _KINDS.get(spelling)
        if meanings:
            return meanings
    raise LocalToolError(f"The unit '{unit[:40]}' is not known; write its sign or its name in English or Japanese.")


def _article(kinds: Mapping[str, object]) -> str:
    return " or ".join(f"a unit of {kind}" for kind in kinds)


def _kinds() -> dict[str, dict[str, tuple[float, float]]]:
    """Read units.tsv: quantity, factor to the base unit, zero point, names.

    Names are matched exactly first, then in lower case, so that MB and Mb, MW and mW stay distinct.
    """
    meanings: dict[str, dict[str, tuple[float, float]]] = {}
    for row in Path(__file__).with_name("units.tsv").read_text("utf-8").splitlines():
        kind, size, zero, spellings = row.split("\t")
        for spelling in spellings.split():
            meanings.setdefault(unicodedata.normalize("NFKC", spelling), {})[kind] = (float(size), float(zero))
    for spelling in list(meanings):
        meanings.setdefault(spelling.lower(), meanings[spelling])
    return meanings


_KINDS = _kinds()
