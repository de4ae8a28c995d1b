"""Text of a specification, JSON or YAML -> plain dicts, lists and scalars.

YAML values are built from the parser's events, which is four times as fast as PyYAML's constructor and follows YAML
1.2: ``200:`` is a string key, ``no`` and ``2026-11-21`` are string values. Aliases share one object, so a document
cannot expand beyond its text; a recursive alias is cut.

Reference: YAML 1.2.2, core schema; RFC 8259. Independent of OpenAPI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, cast

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,30})|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,20}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]{1,30}(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")
# First characters of plain scalars that can be something other than text.
_MAYBE_VALUE = frozenset("+-.0123456789~nNtTfF")
_WORDS = {
    "": None,
    **dict.fromkeys(("~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})


class DocumentError(ValueError):
    """A text that is not a specification; the message is the reason, without a full stop."""


def parse_document(data: bytes | str) -> dict[str, Any]:
    """Return the specification in a text.

    Raises:
        DocumentError: the text is neither JSON nor YAML, or not an object.
    """
    text = _decoded(data) if isinstance(data, bytes) else data
    value = _from_json(text) if text.lstrip()[:1] == "{" else _from_yaml(text)
    if not isinstance(value, dict):
        raise DocumentError("it is not an OpenAPI document: it is not an object with a key 'paths'")
    return cast("dict[str, Any]", value)


def _decoded(data: bytes) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DocumentError(f"it is not UTF-8 text (at byte {error.start})") from None


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise DocumentError("it is nested too deeply") from None
    except ValueError as error:
        try:
            # YAML's flow style starts with a brace too.
            return _from_yaml(text)
        except DocumentError:
            raise DocumentError(f"it is not valid JSON: {error}") from None


def _from_yaml(text: str) -> Any:
    import yaml

    # The C parser is in every wheel, but not in every source build.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder().build(cast("Any", yaml).parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise DocumentError(f"it is not valid YAML: {error.problem}{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(f"it is not valid YAML: {str(error).splitlines()[0][:200]}") from None


_NO_KEY = object()


class _Builder:
    """Builds values from YAML parser events, with a stack instead of recursion."""

    def __init__(self) -> None:
        self._root: Any = None
        # Per level: the container, the key whose value follows, the anchor name.
        self._stack: list[tuple[Any, str]] = []
        self._keys: list[Any] = []
        self._anchors: dict[str, Any] = {}

    def build(self, events: Iterable[Any]) -> Any:
        """Return the value of the first document."""
        for event in events:
            kind = type(event).__name__
            if kind == "ScalarEvent":
                self._scalar(event)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._open({} if kind[0] == "M" else [], event.anchor or "")
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self._close()
            elif kind == "AliasEvent":
                self._put(self._anchors.get(event.anchor), str(event.anchor))
            elif kind == "DocumentEndEvent":
                break
        return self._root

    def _scalar(self, event: Any) -> None:
        text: str = event.value
        is_plain = event.implicit[0] and event.tag not in _TEXT_TAGS
        value = _plain(text) if is_plain else text
        if event.anchor:
            self._anchors[event.anchor] = value
        self._put(value, text)

    def _open(self, container: Any, anchor: str) -> None:
        self._put(container, "")
        self._stack.append((container, anchor))
        self._keys.append(_NO_KEY)

    def _close(self) -> None:
        container, anchor = self._stack.pop()
        self._keys.pop()
        if isinstance(container, dict) and "<<" in container:
            _merge(cast("dict[str, Any]", container))
        if anchor:
            # Registered at the end, so that a value cannot contain itself through an alias.
            self._anchors[anchor] = container

    def _put(self, value: Any, as_key: str) -> None:
        if not self._stack:
            self._root = value
            return
        container = self._stack[-1][0]
        if isinstance(container, list):
            cast("list[Any]", container).append(value)
        elif self._keys[-1] is _NO_KEY:
            self._keys[-1] = as_key
        else:
            container[self._keys[-1]] = value
            self._keys[-1] = _NO_KEY


def _merge(container: dict[str, Any]) -> None:
    merged = container.pop("<<")
    for source in cast("list[Any]", merged) if isinstance(merged, list) else [merged]:
        if isinstance(source, dict):
            for key, value in cast("dict[str, Any]", source).items():
                container.setdefault(key, value)


def _plain(text: str) -> Any:
    if text and text[0] not in _MAYBE_VALUE:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        # A number with a leading zero is a code or a telephone number; keep it as text.
        return text if text.lstrip("+-")[:1] == "0" and text.lstrip("+-")[1:2].isdigit() else float(text)
    return text
