"""``$ref`` within one document: looked up, never fetched.

A reference to another file or address is refused: fetching what a document names would let it choose what this machine
reads and asks. Whatever cannot be resolved reads as nothing, and a note says what it was.

Followed: RFC 6901 (JSON pointer), OpenAPI 3.1.1, 4.6; siblings of ``$ref`` count, as in 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

Node: TypeAlias = Mapping[str, Any]

# A chain of references longer than this leads nowhere; real ones have two or three.
_MAX_HOPS = 16
_MAX_SHOWN = 120
_NOTHING: Node = {}


class References:
    """The references of one document.

    Args:
        root: the document.
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._found: dict[str, Any] = {}
        # In the order met; a dict for its set of keys.
        self.notes: dict[str, None] = {}

    def resolved(self, node: Any) -> Node:
        """The object that ``node`` is or refers to; an empty one where there is none."""
        return self.followed(node)[0]

    def followed(self, node: Any) -> tuple[Node, tuple[str, ...]]:
        """The object that ``node`` is or refers to, and the references on the way."""
        current = as_node(node)
        trail: list[str] = []
        while isinstance(reference := current.get("$ref"), str) and len(trail) < _MAX_HOPS:
            if reference in trail:
                self._note(f"$ref {reference[:_MAX_SHOWN]!r} leads back to itself")
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
            self._note(f"$ref {reference[:_MAX_SHOWN]!r} leads out of the document and is not followed")
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
            self._note(f"$ref {reference[:_MAX_SHOWN]!r} leads nowhere")
            return None
        return cast("Any", target)

    def _note(self, note: str) -> None:
        self.notes[note] = None


def as_node(value: Any) -> Node:
    """``value`` where it is an object, an empty object otherwise."""
    return cast("Node", value) if isinstance(value, Mapping) else _NOTHING


def as_list(value: Any) -> Sequence[Any]:
    """``value`` where it is a list, an empty one otherwise."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def as_text(value: Any) -> str:
    """``value`` where it is a text, an empty one otherwise."""
    return value if isinstance(value, str) else ""
