"""Whether what follows an opener makes it the beginning of a call: confirmations, built from short shapes.

Every confirmation gives the third answer, "not yet", as long as the text ends inside what it looks for, so the answer
does not depend on how the stream was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rkllm_mcp.toolcalls.form import Confirmation
from rkllm_mcp.toolcalls.markers import SPACE, Shape, literal
from rkllm_mcp.toolcalls.spelling import NAME_KEYS

_FENCE = (*literal("```"), r"[a-zA-Z_]{0,12}")
_QUOTE = "[\"'“”]"
# A name as models write them bare: letters of any script, and what separates words in names.
NAME = (r"[^\W\d]", r"[\w.\-]{0,80}")
_NAME_RUN = re.compile(r"[\w.\-/]*")
# A key in any quotes or none. What else may follow a brace (``{json}``, ``{...}``) is somebody explaining the form.
_KEY = (
    (r"\{", SPACE, "[\"'“”{}]"),
    (r"\{", SPACE, r"[A-Za-z_]", r"\w{0,31}", SPACE, "[:=\"']"),
)
# The keys arguments have in bare objects; the others that are understood are too common in plain data.
_ARGUMENT_KEYS = ("arguments", "parameters", "args")


def followed_by(*shapes: Shape) -> Confirmation:
    """A confirmation by any of several shapes, whatever the declared names."""

    def confirm(text: str, _names: frozenset[str]) -> bool | None:
        return _any(shape.at(text, 0) for shape in shapes)

    return confirm


def any_of(*confirmations: Confirmation) -> Confirmation:
    """A confirmation by any of several others."""

    def confirm(text: str, names: frozenset[str]) -> bool | None:
        return _any(confirmation(text, names) for confirmation in confirmations)

    return confirm


def declared_behind(leads: Sequence[Shape], *behind: Shape) -> Confirmation:
    """A declared name right behind one of the shapes ``leads``, and one of the shapes ``behind`` after it."""

    def confirm(text: str, names: frozenset[str]) -> bool | None:
        return _any(_declared(text, lead, behind, names) for lead in leads)

    return confirm


def _declared(text: str, lead: Shape, behind: Sequence[Shape], names: frozenset[str]) -> bool | None:
    verdict = lead.at(text, 0)
    place = lead.match(text, 0)
    if not verdict or place is None:
        return verdict
    run = _NAME_RUN.match(text, place)
    end = place if run is None else run.end()
    if end == len(text):
        return None if any(name.startswith(text[place:end]) for name in names) else False
    if text[place:end] in names:
        return _any(shape.at(text, end) for shape in behind)
    # A name with other characters in it, which no run of letters shows.
    unusual = [name for name in names if not _NAME_RUN.fullmatch(name)]
    if any(name.startswith(text[place:]) for name in unusual):
        return None
    named = (name for name in unusual if text.startswith(name, place))
    return _any(shape.at(text, place + len(name)) for name in named for shape in behind)


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    found = list(verdicts)
    return True if True in found else None if None in found else False


def optional(*atoms: str) -> tuple[tuple[str, ...], ...]:
    """Nothing, and ``atoms``: for shapes that may have a part."""
    return (), atoms


def _shapes(*parts: Iterable[Sequence[str]]) -> list[Shape]:
    """The shapes of every choice of one sequence of atoms from each part."""
    chosen: list[tuple[str, ...]] = [()]
    for part in parts:
        chosen = [(*before, *atoms) for before in chosen for atoms in part]
    return [Shape(*atoms) for atoms in chosen]


SPACED = ((SPACE,),)
FENCED = optional(*_FENCE, SPACE)
LISTED = optional(r"\[", SPACE)

JSON = followed_by(*_shapes(SPACED, FENCED, LISTED, _KEY))
"""An object, or a list that begins with one; in a fence or not."""


def _keyed(keys: Iterable[str], *value: str) -> list[tuple[str, ...]]:
    return [(_QUOTE, *literal(key), _QUOTE, SPACE, ":", SPACE, *value) for key in keys]


_NAME_ENDS = Shape(_QUOTE)
_CALL_KEYS = (
    *_keyed(_ARGUMENT_KEYS, '[{"]'),
    *_keyed(("type",), *literal('"function"')),
    *_keyed(("function",), r"\{"),
)
# A list whose first call names no declared tool may hold others; what it has beside the name tells it from plain data.
_UNKNOWN_CALL = [
    (*name, r"[\w.\-]{1,64}", _QUOTE, SPACE, ",", SPACE, *arguments)
    for name in _keyed(("name",), _QUOTE)
    for arguments in _keyed(("arguments", "parameters"), '[{"]')
]


def bare_json(*, in_list: bool, leads: Sequence[Sequence[str]] = ((),)) -> Confirmation:
    """An object that names a declared tool, behind its own first bracket.

    Args:
        in_list: the bracket was the one of a list.
        leads: what stands before the object's brace.
    """
    brace = (r"\{", SPACE) if in_list else ()
    openings = [(*lead, SPACE, *brace) for lead in leads]
    named = _shapes(openings, _keyed(NAME_KEYS, _QUOTE))
    others = _shapes(openings, [*_CALL_KEYS, *(_UNKNOWN_CALL if in_list else ())])
    firsts = {lead[0] for lead in leads if lead} or {r"\{" if in_list else _QUOTE}
    begins = re.compile(rf"{SPACE}(?:\Z|{'|'.join(firsts)})")
    whole = any_of(declared_behind(named, _NAME_ENDS), followed_by(*others))

    def confirm(text: str, names: frozenset[str]) -> bool | None:
        # Code is full of brackets, and nearly always the next character tells.
        return whole(text, names) if begins.match(text) else False

    return confirm


FENCED_JSON = any_of(
    *(
        bare_json(in_list=in_list, leads=[(*language, SPACE, bracket)])
        for language in (literal("json"), literal("tool_call"), ())
        for in_list, bracket in ((False, r"\{"), (True, r"\["))
    )
)
"""Behind the backticks of a fence: its language, and an object that names a declared tool."""

PYTHON_CALL = followed_by(*_shapes(SPACED, FENCED, LISTED, [(*NAME, SPACE, r"\(")]))
"""``f(…`` or ``[f(…``, whatever the name; for forms that have a marker."""

PYTHON_OR_JSON = any_of(PYTHON_CALL, JSON)


def python_names(*leads: Sequence[str]) -> Confirmation:
    """A Python call of a declared name behind one of ``leads``."""
    return declared_behind([Shape(*lead) for lead in leads], Shape(SPACE, r"\("))
