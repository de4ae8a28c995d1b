"""Source code -> one passage per definition, below the names of the enclosing ones.

A definition is a line that looks like one in its language and is indented at most one level; comments and decorators
directly above belong to it. Nothing is parsed, so broken code is split as well.
"""

from __future__ import annotations

import re

from mcp_servers.knowledge.types import MAX_PASSAGES, Passage

_C_LIKE = (
    r"(?:(?:public|private|protected|internal|static|final|abstract|override|virtual|sealed|partial|inline|extern"
    r"|constexpr|suspend|open|data|template\s*<[^>\n]{0,200}>)\s+)*"
    r"(?:(?:class|struct|enum|interface|record|namespace|union|fun|object|trait|def|protocol|extension|func)\b"
    r"|[A-Za-z_][\w:<>,*&\[\]?. \t]{0,150}?[ \t*&]~?[A-Za-z_][\w:]{0,100}[ \t]*\([^;\n]{0,500}$)"
)
# Statements that look like definitions: "return f(x)", "else if (…".
_STATEMENT = re.compile(r"\s*(?:return|else|if|for|while|switch|case|throw|new|await|do|goto|using|delete|catch|try)\b")
_SCRIPT = (
    r"(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?"
    r"(?:function\b|class\b|interface\b|enum\b|namespace\b|type\s+\w+\s*[=<]"
    r"|(?:const|let|var)\s+\w+[^=\n]{0,200}=\s*(?:async\s*)?(?:function\b|\(|\w+\s*=>)"
    r"|(?:(?:static|async|get|set|public|private|protected|readonly)\s+)*[#\w]{1,100}\s*\([^;\n]{0,300}\)[^;=\n]{0,100}\{\s*$)"
)
_DEFINITIONS: dict[str, str] = {
    "python": r"(?:async\s+def|def|class)\s",
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "go": r"(?:func|type)\s",
    "rust": (
        r"(?:pub(?:\([^)\n]*\))?\s+)?(?:(?:async|unsafe|const|default)\s+)*(?:extern\s+\"[^\"\n]*\"\s+)?"
        r"(?:fn|struct|enum|trait|impl|mod|union|macro_rules!)\b"
    ),
    "ruby": r"(?:def|class|module)\s",
    "php": r"(?:(?:abstract|final|public|private|protected|static)\s+)*(?:function|class|interface|trait|enum)\s",
    "shell": r"(?:function\s+[\w-]+|[\w-]+\s*\(\)\s*\{?)",
    "lua": r"(?:local\s+)?function\b",
    "perl": r"(?:sub|package)\s",
    "sql": r"(?i:create|alter|insert|select|with|update|delete|drop)\b",
    "css": r"[^\s@}/][^{\n]{0,200}\{|@[\w-]+",
}
_LEADING = re.compile(r"\s*(?:#|//|/\*|\*|--|@|\[[\w(]|;;|template\s*<)")
_NAME_CHARACTERS = 80
_MAX_LINE = 1_000


def read_source(text: str, language: str) -> list[Passage]:
    """Return the definitions in order; other lines belong to the one before."""
    lines = text.split("\n")
    definition = re.compile(rf"([ \t]*)(?:{_DEFINITIONS.get(language, _C_LIKE)})")
    passages, path, begin = list[Passage](), tuple[str, ...](), 0
    unit = last = count = 0
    for number, line in enumerate(lines):
        match = definition.match(line) if len(line) <= _MAX_LINE else None
        if not match or _STATEMENT.match(line):
            continue
        indent = len(match.group(1).expandtabs(4))
        # The first indented definition sets the width of one level.
        unit = unit or indent
        if indent > unit:
            continue
        # Comments directly above belong to the definition.
        start = number
        while start > last and lines[start - 1].strip() and _LEADING.match(lines[start - 1]):
            start -= 1
        last, count = number + 1, count + 1
        _add(passages, lines[begin:start], path)
        path = (*path[: int(indent > 0)], line.strip().rstrip("{:( \t")[:_NAME_CHARACTERS])
        begin = start
        if count == 2 * MAX_PASSAGES:
            break
    _add(passages, lines[begin:], path)
    return passages


def _add(passages: list[Passage], lines: list[str], path: tuple[str, ...]) -> None:
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    if text.strip():
        passages.append(Passage(text, path, is_atomic=True))
