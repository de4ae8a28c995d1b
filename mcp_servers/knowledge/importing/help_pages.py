"""Help of desktop programs, Mallard pages and DocBook, and FictionBook -> HTML, which ``html`` reads.

References: Mallard 1.1; DocBook 5.1 and, as KDE's and older help has it, 4.x with its own entities; FictionBook 2.
What a file includes is not read with it: those files are documents themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from html.entities import html5
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

# Tags of HTML by those of help; sections; descriptions of the file; elements that are left out; signs between children.
_TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_name("help_elements.json").read_text("utf-8"))
_TAGS: Mapping[str, str] = {name: tag for tag, names in _TABLE["tags"].items() for name in names}
_SECTIONS, _INFORMATION, _LEFT_OUT = (frozenset[str](_TABLE[key]) for key in ("sections", "information", "left_out"))
_SIGNS: Mapping[str, str] = _TABLE["signs"]
_SHOWN_INFORMATION = frozenset({"title", "subtitle", "desc", "title-info", "book-title", "annotation"})
_TITLES = frozenset({"title", "subtitle"})
# The beginning of a Mallard page or DocBook. Chapters that a book includes are not declared; their names tell.
HELP_START = re.compile(
    r"(?:\s|<\?[^>]*>|<!--.*?-->)*<(?:!DOCTYPE\s+)?(?:chapter|appendix|preface|glossary|refentry|sect[1-5])\b"
    r"|.*?(?:<!DOCTYPE\s+\w+\s[^>\[]{0,300}//DTD DocBook"
    r"|<[a-z][\w-]{0,20}\s[^>]{0,500}?xmlns\s*=\s*[\"']http://(?:projectmallard\.org/1|docbook\.org/ns/docbook))",
    re.DOTALL,
)
_PROLOG = re.compile(
    r"(?:\s|<\?[^>]*>|<!--.*?-->)*(?:<!DOCTYPE[^\[>]*(?:\[(?P<declared>.*?)\]\s*)?>)?(?:\s|<\?[^>]*>)*", re.DOTALL
)
# An entity that is another file is empty.
_ENTITY = re.compile(r"<!ENTITY\s+([\w.-]+)\s+(?:\"([^\"]*)\"|'([^']*)'|SYSTEM\b[^>]*)\s*>")
_REFERENCE = re.compile(r"&([A-Za-z_][\w.-]{0,80});")
_OF_XML = frozenset({"amp", "lt", "gt", "quot", "apos"})
_MAX_VALUE, _MAX_ADDED, _NESTED_ENTITIES, _MAX_LEVEL = 2_000, 1_000_000, 3, 6


def help_html(text: str) -> str:
    """Return a help page as HTML with its titles as headings; empty if it is not well-formed or nested too deeply."""
    prolog = _PROLOG.match(text)
    declared, text = (prolog["declared"] or "", text[prolog.end() :]) if prolog else ("", text)
    entities = {name: (one or other)[:_MAX_VALUE] for name, one, other in _ENTITY.findall(declared)}
    for _ in range(_NESTED_ENTITIES):
        entities = {name: _resolve(value, entities)[:_MAX_VALUE] for name, value in entities.items()}
    try:
        # Without its document type, text defines nothing that could grow. A part may be several elements.
        root = ET.fromstring(f"<part>{_resolve(text, entities)}</part>")  # noqa: S314
        return f"<body>{''.join(_contents(root, '', 0))}</body>"
    except (ET.ParseError, RecursionError):
        return ""


def _resolve(text: str, entities: Mapping[str, str]) -> str:
    """Replace references to entities; the name remains of one that another file defines, as ``Ctrl``."""
    room = _MAX_ADDED

    def value(match: re.Match[str]) -> str:
        nonlocal room
        name = match[1]
        if name in _OF_XML:
            return match[0]
        found = entities[name] if name in entities else escape(html5.get(f"{name};", name))
        room -= len(found)
        return found if room > 0 else ""

    return _REFERENCE.sub(value, text)


def _html(node: ET.Element, parent: str, level: int) -> str:
    """Return an element as HTML; ``level`` is the number of sections around it."""
    name = _name(node)
    level += name in _SECTIONS
    if name in _LEFT_OUT:
        return ""
    if name == "math":
        from mcp_servers.knowledge.importing.equations import formula_text

        return escape(formula_text(node))
    if name in _INFORMATION and parent:
        # Titles of a type are those of links to the page.
        fields = (child for child in node if _name(child) in _SHOWN_INFORMATION and "type" not in child.attrib)
        return "".join(_html(child, name, level) for child in fields)
    if name in _SIGNS:
        # The keys of a choice in a menu follow it. A key may be an entity, as ``&Ctrl;``.
        node[:] = sorted(node, key=lambda child: _name(child) == "shortcut")
        return _SIGNS[name].join(filter(None, map(str.strip, _contents(node, name, level))))
    if name in _SECTIONS:
        # A page's description, which comes first, is about what follows, and no passage of its own.
        node[:] = sorted(node, key=lambda child: _name(child) != "title")
    inner = "".join(_contents(node, name, level))
    tag = _TAGS.get(name, "")
    if name == "title" and (parent in _SECTIONS or parent in _INFORMATION):
        tag = f"h{max(1, min(level, _MAX_LEVEL))}"
    elif name == "book-title":
        tag = "h1"
    elif name == "p" and parent in _TITLES:
        # A line of the title, which is one heading.
        return f"{inner} "
    elif name == "listitem" and parent == "varlistentry":
        tag = "dd"
    elif name == "code" and parent not in _SECTIONS:
        tag = ""
    return f"<{tag}>{inner}</{tag}>" if tag else inner


def _contents(node: ET.Element, name: str, level: int) -> Iterator[str]:
    yield escape(node.text or "")
    for child in node:
        yield _html(child, name, level)
        yield escape(child.tail or "")


def _name(node: ET.Element) -> str:
    return node.tag.rpartition("}")[2]
