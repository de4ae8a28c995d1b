"""Parser of text that should be JSON: strict first, then the one repair that the text allows.

Cheap and certain readings come first (strict JSON, raw line breaks in strings, single backslashes, Python literals,
missing closing brackets, one missing quote before them). The json-repair library comes last, and counts only if it
changed nothing but punctuation (``guess``). Values are plain JSON: finite numbers, text without broken surrogates,
nested at most ``MAX_DEPTH`` deep.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn, cast

# The library takes about 1.2 µs a character here and four times that on a board: a third of a second at most.
MAX_CHARACTERS = 64 * 1024

# Punctuation that JSON adds around words, in every variant that models use.
_PUNCTUATION = re.compile(r"[\s{}\[\]:,\"'`\\“”„‘’]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[bfnrt])")
_EMPTY = re.compile(r"\"\"|''|“”|\[\s*\]|\{\s*\}")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "“", "`": "`"}
_CLOSING_QUOTES = frozenset(_QUOTES.values())
_STRUCTURE = frozenset("{}[]:,\"'\n")
_MAX_PLACES = 64  # maximum number of occurrences that are examined


def guess(text: str) -> Any:
    """Return the object or list that ``text`` most likely means; None if more than punctuation would have to change.

    json-repair 0.64 (MIT); the checks are our choice.
    """
    # json-repair looks through the rest of the text for each bracket that nothing closes.
    open_brackets = text.count("{") + text.count("[") - text.count("}") - text.count("]")
    if len(text) > MAX_CHARACTERS or open_brackets > MAX_DEPTH:
        return None
    import json_repair  # a start, and most answers, need no repair

    try:
        value = json_repair.repair_json(text, return_objects=True, skip_json_loads=True)
    except (ValueError, RecursionError, TypeError, LookupError, AttributeError):
        return None
    if not isinstance(value, dict if text.startswith("{") else list):
        return None
    parts = list(iter_nested(value))
    empties = sum(part in ("", [], {}) for part in parts)
    words = " ".join(item if isinstance(item, str) else json.dumps(item) for item in _in_order(value))
    unescaped = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else " ", text)
    before, after = (
        _PUNCTUATION.sub("", re.sub(r"\bnone\b", "null", spoken.casefold())) for spoken in (unescaped, words)
    )
    keeps_words = before == after and empties <= len(_EMPTY.findall(text))
    keys = (key for part in parts if isinstance(part, dict) for key in cast("dict[str, Any]", part))
    has_keys = keeps_words and all(re.search(re.escape(key) + r"[\"'”’`]?\s*[:=]", text) for key in keys)
    if not has_keys or not all(_is_text(part, text) for part in parts if isinstance(part, str) and part):
        return None
    return cast("Any", value)


def _in_order(value: Any) -> list[Any]:
    """Return keys and leaves in the order in which they are written."""
    items: list[Any] = []
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            # The last is taken first.
            waiting += [item for pair in cast("dict[str, Any]", part).items() for item in pair][::-1]
        elif isinstance(part, list):
            waiting += cast("list[Any]", part)[::-1]
        else:
            items.append(part)
    return items


def iter_nested(value: Any) -> Iterator[Any]:
    """Yield a value of JSON and every value in it."""
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Mapping):
            waiting += cast("Mapping[str, Any]", part).values()
        elif isinstance(part, (list, tuple)):
            waiting += cast("list[Any]", part)


def _is_text(leaf: str, text: str) -> bool:
    """Return True if ``leaf`` occurs between two quotes, or without quotes and without structural characters."""
    position = text.find(leaf)
    if position < 0:
        return True  # It was written with escapes; the words were compared.
    for _ in range(_MAX_PLACES):
        before, after = text[position - 1 : position], text[position + len(leaf) : position + len(leaf) + 1]
        if _QUOTES.get(before) == after and before:
            return True
        if before not in _QUOTES and after not in _CLOSING_QUOTES and _STRUCTURE.isdisjoint(leaf):
            return True
        position = text.find(leaf, position + 1)
        if position < 0:
            break
    return False


MAX_DEPTH = 64  # no tool takes a deeper value, and json and ast fail by recursion slightly above it
_MAX_PYTHON_CHARACTERS = 64 * 1024  # ast needs a hundred times a text's size in memory

_BRACKETS = {"{": "}", "[": "]"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_ANY_STRING = re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING.pattern + r"|[{}\[\]]", re.DOTALL)
_BACKSLASH = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
# Escapes that are neither JSON's nor Python's make ast complain on stderr; those texts are left to other readings.
_ESCAPE_UNKNOWN_TO_PYTHON = re.compile(r"\\[^\\'\"abfnrtvxuUN\n]")
_WORD = re.compile(r"[^\W\d_]+")
_PYTHON_WORDS = frozenset({"True", "False", "None", "e", "E"})


class UnreadableError(Exception):
    """A text that is not a value; ``str()`` is the broken rule, in a few words."""


class SourceFloat(float):
    """A number with its text as written, so that the version 1.10 can become the text "1.10"."""

    text: str

    def __new__(cls, text: str) -> SourceFloat:
        """Return the number written as ``text``."""
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass(frozen=True)
class ParsedValue:
    """A value, if the text had to be repaired, and if the ends of strings had to be guessed."""

    value: Any
    repaired: bool
    guessed: bool = False


@dataclass(frozen=True)
class ParsedCall:
    """A call as it was written."""

    name: str  # as written, without white space around it
    arguments: Any  # the value given for them; an object, or another value if the model made a mistake
    # Other keys next to name and arguments; models that forget the nesting write the arguments there.
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    repaired: bool = False  # the text was not valid as written
    guessed: bool = False  # the ends of its strings had to be guessed
    as_text: bool = False  # the values are text whose types only the schema defines
    positional: tuple[Any, ...] = ()  # values without a name
    # Names of arguments, where it is not certain which of them are text in a value: the call's own and those mentioned.
    mentions: tuple[str, ...] = ()
    inline: tuple[str, ...] = ()  # names of arguments that begin in the middle of a line


def read_value(text: str) -> ParsedValue:
    """Parse the one JSON value in ``text``, which may have white space, a byte order mark or a code fence around it.

    Raises:
        UnreadableError: no value was found, or more than one repair is possible.

    The order is our choice, after the repairs of json-repair 0.64, vLLM and Ollama.
    """
    text = text.strip().strip("\ufeff").strip()
    if text.startswith("```"):
        text = text.removesuffix("```").lstrip("`").strip().removeprefix("json").strip()
    for reader in _READERS:
        try:
            value = plain(reader(text), 0)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        return ParsedValue(value, repaired=reader is not _strict)
    try:
        value = plain(guess(text), 0)
    except ValueError:
        value = None
    if value is None:
        raise UnreadableError("not valid JSON")
    return ParsedValue(value, repaired=True, guessed=True)


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which the json module reads."""
    raise ValueError(f"{name} is not JSON")


_strict = partial(json.loads, parse_constant=no_constant, parse_float=SourceFloat)
_with_raw_controls = partial(_strict, strict=False)


_STRING_AND_SEPARATOR = re.compile(r'("(?:[^"\\]|\\.)*")(\s*(?:=|\.(?=\s*[{\[]))\s*)?', re.DOTALL)


def _with_colons(text: str) -> Any:
    """Read an equals sign or a dot after a key, as in ``"key"="value"`` and ``"arguments".{…}``, as a colon."""
    return _with_raw_controls(_STRING_AND_SEPARATOR.sub(lambda match: match[1] + (":" if match[2] else ""), text))


def _with_lone_backslashes(text: str) -> Any:
    """Read backslashes of a pattern or a Windows path that are written once instead of twice."""
    return _with_raw_controls(_STRING.sub(_double_backslashes, text))


def _double_backslashes(string: re.Match[str]) -> str:
    escapes = list(_BACKSLASH.finditer(string.group()))
    if all(escape.group(1) for escape in escapes):
        return string.group()
    # In C:\\Users\\new the second backslash may be literal or begin a line break: ambiguous.
    if any((escape.group(1) or " ")[0] in "bfnrtu" for escape in escapes):
        raise UnreadableError("a backslash in a string is not doubled")
    return _BACKSLASH.sub(lambda escape: escape.group() if escape.group(1) else r"\\", string.group())


def _as_python(text: str) -> Any:
    """Read Python literals: single quotes, True, None, an extra comma."""
    if len(text) > _MAX_PYTHON_CHARACTERS or _ESCAPE_UNKNOWN_TO_PYTHON.search(text):
        raise ValueError("too long, or an escape that Python does not know")
    if not _PYTHON_WORDS.issuperset(_WORD.findall(_ANY_STRING.sub("", text))):
        raise ValueError("words outside strings that are no Python constants")
    strings = list(_ANY_STRING.finditer(text))
    if any(text[first.end() : second.start()].strip() == "" for first, second in pairwise(strings)):
        raise ValueError("quotes inside a string, which Python would take for two strings to join")
    return ast.literal_eval(text)


def _with_closed_brackets(text: str) -> Any:
    """Add the brackets that are missing at the end; strings must be complete."""
    missing: list[str] = []
    for match in _STRING_OR_BRACKET.finditer(text):
        token = match.group()
        if token[0] == '"':
            continue
        if token in _BRACKETS:
            missing.append(_BRACKETS[token])
        elif not missing or missing.pop() != token:
            raise ValueError("brackets cross")
    return _with_raw_controls(text + "".join(reversed(missing)))


def _with_doubled_braces(text: str) -> Any:
    """Read ``{{…}}``, which models learn from escaped braces of a template."""
    if not (text.startswith("{{") and text.endswith("}}")):
        raise ValueError("braces are not doubled")
    return _with_raw_controls(text[1:-1])


def _with_closed_quote(text: str) -> Any:
    """Close the last string before the closing brackets, if exactly one position gives a value."""
    body = text.rstrip("}] \t\r\n")
    if len(text) - len(body) > MAX_DEPTH or body.endswith(r"\""):
        raise ValueError("too many places for the missing quote")
    values: list[Any] = []
    for position in range(len(body), len(text) + 1):
        if position < len(text) and text[position].isspace():
            continue
        try:
            values.append(_with_raw_controls(text[:position] + '"' + text[position:]))
        except ValueError:
            continue
    if len(values) != 1:
        raise ValueError("not one place for the missing quote")
    return values[0]


# From certain to likely readings. All but the first are repairs.
_READERS: tuple[Callable[[str], Any], ...] = (
    _strict,
    _with_raw_controls,
    _with_lone_backslashes,
    _with_colons,
    _as_python,
    _with_closed_brackets,
    _with_doubled_braces,
    _with_closed_quote,
)


def plain(value: Any, depth: int) -> Any:
    """Return the value as plain JSON: tuples as lists, surrogates joined, numbers finite, keys as text."""
    if depth > MAX_DEPTH:
        raise UnreadableError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        return _whole_text(value)
    if isinstance(value, dict):
        table: dict[str, Any] = {}
        for key, item in cast("dict[Any, Any]", value).items():
            if not isinstance(key, str):
                raise ValueError("a key is not text")  # noqa: TRY004 - a wrong text, not a wrong program
            name = _whole_text(key)
            table[name] = plain(item, depth + 1)
        return table
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in cast("list[Any]", value)]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError("not a JSON value")


def _whole_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair cannot be encoded as UTF-8; pairs written as two escapes become their character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
