"""Equations of Office (OMML), its fields of signs and MathML as a line of text: 1/2, 10^3, x_1, √(a+b)."""

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
# A field of signs (EQ), which has its characters in its instruction: enclosed ones, fractions, older readings.
_EQ = re.compile(r"\s*eq[\s\\]", re.IGNORECASE)
_READING = re.compile(r"\\s\s*\\up\s*\d+\s*\([^()]*\)")
_SWITCH = re.compile(r'\\\*\s*(?:"[^"]*"|\w+)|\\[a-zA-Z]+\s*\d*|^\s*eq\b', re.IGNORECASE)
# Other forms of a formula, which are not shown.
_NOTATIONS = frozenset({"annotation", "annotation-xml", "mphantom"})
# What is in these is raised as a whole.
_CLOSERS = frozenset(")]}|")
_RINGS = frozenset("○◯〇□◇△")


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
    return "^" if text and is_value and (before.isalnum() or before in _CLOSERS) else ""


def equation_text(element: ET.Element) -> str:
    """Return an equation, or a part of one, as text."""
    tag = local_name(element)
    if tag in _UNREAD or tag.endswith("Pr"):
        return ""
    match tag:
        case "t":
            return element.text or ""
        case "f":
            above, below = _group(_part(element, "num")), _group(_part(element, "den"))
            return f"({above} {below})" if _property(element, "type", "") == "noBar" else f"{above}/{below}"
        case "sSup" | "sSub" | "sSubSup":
            return f"{_group(_part(element, 'e'))}{_limits(element)}"
        case "sPre":
            return f"{_limits(element)}{_part(element, 'e')}"
        case "rad":
            degree = _part(element, "deg").strip()
            return f"{_ROOTS.get(degree, f'{degree}√')}{_group(_part(element, 'e'))}"
        case "nary":
            return f"{_property(element, 'chr', '∫')}{_limits(element)} {_part(element, 'e')}"
        case "d":
            inside = _part(element, "e", _property(element, "sepChr", "|"))
            return f"{_property(element, 'begChr', '(')}{inside}{_property(element, 'endChr', ')')}"
        case "m":
            rows = (child for child in element if local_name(child) == "mr")
            return "; ".join(_part(row, "e", ", ") for row in rows)
        case "func":
            return f"{_part(element, 'fName').strip()} {_part(element, 'e')}"
        case "limLow" | "limUpp":
            mark = "^" if tag == "limUpp" else "_"
            return f"{_part(element, 'e')}{mark}{_group(_part(element, 'lim'))}"
        case "eqArr":
            return _part(element, "e", "; ")
        case _:
            return "".join(map(equation_text, element))


def _part(element: ET.Element, name: str, separator: str = "") -> str:
    return separator.join("".join(map(equation_text, child)) for child in element if local_name(child) == name)


def _group(text: str) -> str:
    text = text.strip()
    return text if not text or _ONE.fullmatch(text) else f"({text})"


def _property(element: ET.Element, name: str, default: str) -> str:
    """Return a property of a part, which may be stated as empty."""
    properties = (child for child in element if local_name(child).endswith("Pr"))
    return next((attribute(each, "val") for each in properties for each in elements_named(each, name)), default)


def _limits(element: ET.Element) -> str:
    """Return what is lowered and raised at a base: indices and exponents, or the limits of an integral."""
    below, above = _group(_part(element, "sub")), _group(_part(element, "sup"))
    return (f"_{below}" if below else "") + (f"^{above}" if above else "")


def field_signs(instruction: str) -> str:
    """Return the characters of a field of signs, without readings and rings; empty for another field."""
    if not _EQ.match(instruction):
        return ""
    signs = re.split(r"[,()]", _SWITCH.sub("", _READING.sub("", instruction)))
    return " ".join(sign for sign in map(str.strip, signs) if sign and sign not in _RINGS)


def formula_text(element: ET.Element) -> str:
    """Return a formula of MathML, or a part of one, as text."""
    children = list(element)
    if not children:
        return " ".join((element.text or "").split())
    parts = [formula_text(child) for child in children if local_name(child) not in _NOTATIONS]
    first, second, third = ([*map(_group, parts), "", "", ""])[:3]
    match local_name(element):
        case "mfrac":
            # Without a line they are one above the other, as in a binomial.
            return f"{first}{' ' if element.get('linethickness', '').startswith('0') else '/'}{second}"
        case "msub" | "munder":
            return f"{first}_{second}"
        case "msup":
            return f"{first}^{second}"
        case "mover":
            # An accent, or what a sign is raised to.
            return f"{first}{'^' if second[:1].isalnum() else ''}{second}"
        case "msubsup" | "munderover":
            return f"{first}_{second}^{third}"
        case "msqrt":
            return f"√{_group(_side_by_side(parts))}"
        case "mroot":
            return f"{_ROOTS.get(second, f'{second}√')}{first}"
        case "mfenced":
            inside = (element.get("separators") or ",")[:1].join(parts)
            return f"{element.get('open') or '('}{inside}{element.get('close') or ')'}"
        case "mtable":
            return "; ".join(parts)
        case "mtr" | "mlabeledtr":
            return ", ".join(parts)
        case _:
            return _side_by_side(parts)


def _side_by_side(parts: Iterable[str]) -> str:
    """Return parts next to each other, with a space between two numbers."""
    return re.sub(r"\x1f(?!(?<=\d\x1f)\d)", "", "\x1f".join(parts)).replace("\x1f", " ")
