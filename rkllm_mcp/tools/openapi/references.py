"""Resolution of ``$ref`` within one document.

References to other files or addresses are rejected: following them would let a document choose which files and
addresses this machine accesses. An unresolvable reference becomes an empty object and a note.

Reference: RFC 6901 (JSON pointer), OpenAPI 3.1.1, 4.6; siblings of ``$ref`` apply, as in 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

Node: TypeAlias = Mapping[str, Any]

# Longer chains of references are treated as unresolvable; real ones have two or three.
_MAX_HOPS = 16
_MAX_SHOWN = 120
_NOTHING: Node = {}


class References:
    """References of one document."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._found: dict[str, Any] = {}
        # An ordered set of notes.
        self.notes: dict[str, None] = {}

    def resolved(self, node: Any) -> Node:
        """Return the object that ``node`` is or refers to; else an empty object."""
        return self.followed(node)[0]

    def followed(self, node: Any) -> tuple[Node, tuple[str, ...]]:
        """Return the object that ``node`` is or refers to, and the references in between."""
        current = as_node(node)
        trail: list[str] = []
        while isinstance(reference := current.get("$ref"), str) and len(trail) < _MAX_HOPS:
            if reference in trail:
                self._note(f"$ref {reference[:_MAX_SHOWN]!r} refers to itself")
                return _NOTHING, tuple(trail)
            trail.append(reference)
            siblings = {key: value for key, value in current.items() if key != "$ref"}
            target = as_node(self._target(reference))
            current = {**target, **siblings} if siblings and target else target
        return current, tuple(trail)

    def _target(self, reference: str) -> Any:
        if reference not in self._found:
            self._found[reference] = self._looked_up(reference)
        return self._found[reference]

    def _looked_up(self, reference: str) -> Any:
        if not reference.startswith("#"):
            self._note(f"$ref {reference[:_MAX_SHOWN]!r} refers to another document and is not followed")
            return None
        target: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping):
                target = cast("Node", target).get(key)
            elif isinstance(target, list):
                items = cast("list[Any]", target)
                target = items[int(key)] if key.isdecimal() and len(key) < 6 and int(key) < len(items) else None
            if target is None:
                break
        if not isinstance(target, (Mapping, bool)) or not reference.startswith("#/"):
            self._note(f"$ref {reference[:_MAX_SHOWN]!r} has no target")
            return None
        return cast("Any", target)

    def _note(self, note: str) -> None:
        self.notes[note] = None


def as_node(value: Any) -> Node:
    """Return ``value`` if it is an object, else an empty object."""
    return cast("Node", value) if isinstance(value, Mapping) else _NOTHING


def as_list(value: Any) -> Sequence[Any]:
    """Return ``value`` if it is a list, else an empty list."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def as_text(value: Any) -> str:
    """Return ``value`` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""
