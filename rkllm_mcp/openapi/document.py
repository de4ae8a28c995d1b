"""Swagger 2.0 -> OpenAPI 3; some large APIs publish only the old version.

Only the differences are rewritten: addresses, body and form parameters, list formats, and names of security.
Definitions stay in place, so references to them remain valid.

Reference: Swagger 2.0 specification; OpenAPI 3.0.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from rkllm_base.answers import count_values
from rkllm_mcp.messages import as_list, as_mapping

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


# The largest published specifications have about half as many.
MOST_VALUES = 1_000_000
_TOO_MANY = f"it has more than {MOST_VALUES:,} values"


def parse_document(data: bytes | str) -> dict[str, Any]:
    """Return the specification in a text; a DocumentError if the text is neither JSON nor YAML, or not an object."""
    if isinstance(data, bytes):
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            raise DocumentError(f"it is not UTF-8 text (at byte {error.start})") from None
    else:
        text = data
    if text.lstrip()[:1] != "{":
        value = _from_yaml(text)
    elif count_values(text.encode("utf-8", "replace")) > MOST_VALUES:
        # The parser holds the lock of the interpreter until it has read all of them.
        raise DocumentError(_TOO_MANY)
    else:
        try:
            value = json.loads(text)
        except RecursionError:
            raise DocumentError("it is nested too deeply") from None
        except ValueError as error:
            try:
                # YAML's flow style starts with a brace too.
                value = _from_yaml(text)
            except DocumentError:
                raise DocumentError(f"it is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise DocumentError("it is not an OpenAPI document: it is not an object with a key 'paths'")
    return cast("dict[str, Any]", value)


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
        for number, event in enumerate(events):
            if number > MOST_VALUES:
                raise ValueError(_TOO_MANY)
            kind = type(event).__name__
            if kind == "ScalarEvent":
                text: str = event.value
                is_plain = event.implicit[0] and event.tag not in _TEXT_TAGS
                value = _plain(text) if is_plain else text
                if event.anchor:
                    self._anchors[event.anchor] = value
                self._add_value(value, text)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                container: Any = {} if kind[0] == "M" else []
                self._add_value(container, "")
                self._stack.append((container, event.anchor or ""))
                self._keys.append(_NO_KEY)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                container, anchor = self._stack.pop()
                self._keys.pop()
                if isinstance(container, dict) and "<<" in container:
                    mapping = cast("dict[str, Any]", container)
                    merged = mapping.pop("<<")
                    for source in cast("list[Any]", merged) if isinstance(merged, list) else [merged]:
                        for key, value in as_mapping(source).items():
                            mapping.setdefault(key, value)
                if anchor:
                    # Registered at the end, so that a value cannot contain itself through an alias.
                    self._anchors[anchor] = container
            elif kind == "AliasEvent":
                self._add_value(self._anchors.get(event.anchor), str(event.anchor))
            elif kind == "DocumentEndEvent":
                break
        return self._root

    def _add_value(self, value: Any, as_key: str) -> None:
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


Node: TypeAlias = Mapping[str, Any]

# Longer chains of references are treated as unresolvable; real ones have two or three.
_MAX_HOPS = 16
_MAX_SHOWN = 120
_NOTHING: Node = {}


@dataclass(eq=False)
class References:
    """References of one document."""

    root: Node
    notes: dict[str, None] = field(default_factory=dict[str, None])  # an ordered set
    _cache: dict[str, Any] = field(default_factory=dict[str, Any])

    def resolve(self, node: Any) -> Node:
        """Return the object that ``node`` is or refers to; else an empty object."""
        return self.follow(node)[0]

    def follow(self, node: Any) -> tuple[Node, tuple[str, ...]]:
        """Return the object that ``node`` is or refers to, and the references in between."""
        current = as_mapping(node)
        trail: list[str] = []
        while isinstance(reference := current.get("$ref"), str) and len(trail) < _MAX_HOPS:
            if reference in trail:
                self.notes[f"$ref {reference[:_MAX_SHOWN]!r} refers to itself"] = None
                return _NOTHING, tuple(trail)
            trail.append(reference)
            siblings = {key: value for key, value in current.items() if key != "$ref"}
            if reference not in self._cache:
                found: Any = self.root if reference.startswith("#/") else None
                for step in reference.split("/")[1:]:
                    key = unquote(step).replace("~1", "/").replace("~0", "~")
                    if isinstance(found, Mapping):
                        found = cast("Node", found).get(key)
                    elif isinstance(found, list):
                        items = cast("list[Any]", found)
                        found = items[int(key)] if key.isdecimal() and len(key) < 6 and int(key) < len(items) else None
                    if found is None:
                        break
                shown = f"$ref {reference[:_MAX_SHOWN]!r}"
                if not reference.startswith("#"):
                    self.notes[f"{shown} refers to another document and is not followed"] = None
                elif not isinstance(found, (Mapping, bool)):
                    self.notes[f"{shown} has no target"] = None
                self._cache[reference] = found
            target = as_mapping(self._cache[reference])
            current = {**target, **siblings} if siblings and target else target
        return current, tuple(trail)


def as_text(value: Any) -> str:
    """Return ``value`` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


_STYLES = {
    "multi": {"style": "form", "explode": True},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
}
_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
_PLACES = frozenset({"path", "query", "header"})
_BESIDE_THE_SCHEMA = frozenset({"name", "in", "description", "required", "collectionFormat", "allowEmptyValue"})


def upgrade(document: Node) -> Node:
    """Return the same API as OpenAPI 3; a document that is not a Swagger 2.0 as it is."""
    if not str(document.get("swagger", "")).startswith("2"):
        return document
    references = References(document)
    paths: dict[str, dict[str, Any]] = {}
    for path, value in as_mapping(document.get("paths")).items():
        item = references.resolve(value)
        shared = as_list(item.get("parameters"))
        paths[str(path)] = {key: part for key, part in item.items() if key != "parameters"}
        for method in _METHODS:
            if isinstance(item.get(method), Mapping):
                paths[str(path)][method] = _operation(as_mapping(item[method]), shared, document, references)
    basic = {"type": "http", "scheme": "basic"}
    definitions = {name: as_mapping(value) for name, value in as_mapping(document.get("securityDefinitions")).items()}
    schemes = {name: basic if value.get("type") == "basic" else value for name, value in definitions.items()}
    components = {"securitySchemes": schemes}
    host, address = as_text(document.get("host")), f"/{as_text(document.get('basePath')).strip('/')}"
    if host:
        protocols = [protocol for protocol in as_list(document.get("schemes")) if protocol in {"http", "https"}]
        address = f"{'https' if 'https' in protocols or not protocols else 'http'}://{host}{address}"
    servers = [{"url": address}]
    return {**document, "openapi": "3.0.0", "servers": servers, "paths": paths, "components": components}


def _operation(operation: Node, shared: Any, document: Node, references: References) -> dict[str, Any]:
    parameters: dict[tuple[str, str], Node] = {}
    for value in (*shared, *as_list(operation.get("parameters"))):
        definition = references.resolve(value)
        parameters[as_text(definition.get("in")), str(definition.get("name", ""))] = definition
    consumes = as_list(operation.get("consumes")) or as_list(document.get("consumes"))
    changed = dict(operation)
    changed_parameters: list[dict[str, Any]] = []
    for (location, _), definition in parameters.items():
        if location in _PLACES:
            common = {key: definition[key] for key in ("name", "in", "description", "required") if key in definition}
            lists = _STYLES.get(as_text(definition.get("collectionFormat")), {"explode": False})
            style = lists if definition.get("type") == "array" else {}
            changed_parameters.append({**common, "schema": _schema(definition), **style})
    changed["parameters"] = changed_parameters
    definitions = [value for (location, _), value in parameters.items() if location in {"body", "formData"}]
    body = next((definition for definition in definitions if definition.get("in") == "body"), None)
    types = [media_type for media_type in consumes if isinstance(media_type, str)]
    if body is not None:
        content = {media_type: {"schema": body.get("schema")} for media_type in types or ["application/json"]}
        stated = {"required": body.get("required"), "description": body.get("description")}
        changed["requestBody"] = {"content": content, **stated}
    elif definitions:
        has_file = any(definition.get("type") == "file" for definition in definitions)
        is_multipart = has_file or (types and all(media_type.startswith("multipart/") for media_type in types))
        properties = {
            str(field.get("name", "")): {**_schema(field), "description": field.get("description")}
            for field in definitions
        }
        required = [definition.get("name") for definition in definitions if definition.get("required") is True]
        schema = {"type": "object", "properties": properties, "required": required}
        form = "multipart/form-data" if is_multipart else "application/x-www-form-urlencoded"
        changed["requestBody"] = {"content": {form: {"schema": schema}}}
    return changed


def _schema(definition: Node) -> dict[str, Any]:
    return {key: value for key, value in definition.items() if key not in _BESIDE_THE_SCHEMA}
