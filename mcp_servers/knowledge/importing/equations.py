"""Equations of Office (OMML) as a line of text, and raised or lowered digits: 1/2, 10^3, x_1, √(a+b)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.importing.archives import attribute, elements_named, local_name

_SIGNS = frozenset("+-−–")
# One name, number or group needs no parentheses around it.
_ONE = re.compile(r"[^\W_]+(?:[.,]\d+)?|\([^()]*\)|\S")
_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}
_UNREAD = frozenset({"del", "moveFrom", "rPr"})


def raised_mark(text: str, before: str, *, is_lowered: bool) -> str:
    """Return ``^`` or ``_`` where raised or lowered digits would become part of the number before them.

    Args:
        text: what is raised or lowered.
        before: the character before it; empty for none.
        is_lowered: it is lowered.
    """
    text = text.strip()
    if is_lowered:
        return "_" if before.isdecimal() and text[:1].isdecimal() else ""
    is_value = text[:1].isdecimal() or text[:1] in _SIGNS or (len(text) == 1 and text.isalpha())
    return "^" if text and is_value and before.isalnum() else ""


def equation_text(element: ET.Element) -> str:
    """Return an equation, or a part of one, as text."""
    tag = local_name(element)
    if tag == "t":
        return element.text or ""
    if tag in _UNREAD or tag.endswith("Pr"):
        return ""
    write = _WRITERS.get(tag)
    return write(element) if write else _all(element)


def _all(elements: Iterable[ET.Element]) -> str:
    return "".join(map(equation_text, elements))


def _part(element: ET.Element, name: str) -> str:
    return "".join(_all(child) for child in element if local_name(child) == name)


def _group(text: str) -> str:
    text = text.strip()
    return text if not text or _ONE.fullmatch(text) else f"({text})"


def _property(element: ET.Element, name: str, default: str) -> str:
    """Return a property of a part, which may be stated as empty."""
    properties = (child for child in element if local_name(child).endswith("Pr"))
    return next((attribute(each, "val") for each in properties for each in elements_named(each, name)), default)


def _fraction(element: ET.Element) -> str:
    above, below = _group(_part(element, "num")), _group(_part(element, "den"))
    return f"({above} {below})" if _property(element, "type", "") == "noBar" else f"{above}/{below}"


def _scripts(element: ET.Element) -> str:
    below = "_" + lowered if (lowered := _group(_part(element, "sub"))) else ""
    above = "^" + raised if (raised := _group(_part(element, "sup"))) else ""
    if local_name(element) == "sPre":
        return f"{below}{above}{_part(element, 'e')}"
    return f"{_group(_part(element, 'e'))}{below}{above}"


def _root(element: ET.Element) -> str:
    degree = _part(element, "deg").strip()
    return f"{_ROOTS.get(degree, f'{degree}√')}{_group(_part(element, 'e'))}"


def _operator(element: ET.Element) -> str:
    below, above = (_group(_part(element, name)) for name in ("sub", "sup"))
    limits = (f"_{below}" if below else "") + (f"^{above}" if above else "")
    return f"{_property(element, 'chr', '∫')}{limits} {_part(element, 'e')}"


def _delimiters(element: ET.Element) -> str:
    between = _property(element, "sepChr", "|")
    inside = between.join(_all(child) for child in element if local_name(child) == "e")
    return f"{_property(element, 'begChr', '(')}{inside}{_property(element, 'endChr', ')')}"


def _matrix(element: ET.Element) -> str:
    rows = (child for child in element if local_name(child) == "mr")
    return "; ".join(", ".join(_all(cell) for cell in row if local_name(cell) == "e") for row in rows)


def _function(element: ET.Element) -> str:
    return f"{_part(element, 'fName').strip()} {_part(element, 'e')}"


def _limit(element: ET.Element) -> str:
    mark = "^" if local_name(element) == "limUpp" else "_"
    return f"{_part(element, 'e')}{mark}{_group(_part(element, 'lim'))}"


def _lines(element: ET.Element) -> str:
    return "; ".join(_all(child) for child in element if local_name(child) == "e")


_WRITERS = {
    "f": _fraction,
    **dict.fromkeys(("sSup", "sSub", "sSubSup", "sPre"), _scripts),
    "rad": _root,
    "nary": _operator,
    "d": _delimiters,
    "m": _matrix,
    "func": _function,
    **dict.fromkeys(("limLow", "limUpp"), _limit),
    "eqArr": _lines,
}
