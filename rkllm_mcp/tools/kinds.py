"""Kinds of values in a question, and those that a tool requires: a number, a quantity, a file, a place, a time.

A tool that requires a kind of value which the question has is more likely to be meant, and one that requires a kind
which the question lacks is less likely. Kinds are recognised by form and by lists of the data (units, cities), never by
what people say.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Mapping
from datetime import date

from rkllm_base.days import days_in
from rkllm_base.numbers import with_digits
from rkllm_base.ranges import HIRAGANA, KANJI
from rkllm_mcp.builtin.clock import places_in
from rkllm_mcp.builtin.units import names_conversion
from rkllm_mcp.builtin.worded_sums import expression_of
from rkllm_mcp.messages import ToolSpec, as_list, as_mapping

# Names of parameters by the kind of their value.
_PARAMETERS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(rf"(?:^|[_\W])(?:{words})(?:$|[_\W\d])", re.IGNORECASE)
    for kind, words in (
        ("file", "path|file|filename|filepath|file_path"),
        ("place", "place|city|location|area|region|town|address|time_?zone"),
        ("quantity", "unit|units|from_unit|to_unit|currency"),
        ("arithmetic", "expression|formula"),
        ("time", "time|date|day"),
    )
}
_FILE = re.compile(r"(?<![\w/~.-])[\w/~.-]*[\w-]\.(?:[a-z][a-z0-9]{1,4}|[chr])(?![\w])", re.IGNORECASE | re.ASCII)
# A path; the name of a folder before or after that word.
_PATH = re.compile(r"(?<![\w/~.:-])[~.]?(?:/[\w.-]*[\w-])+/?(?!\w)", re.ASCII)
_ARTICLE = "(?:the|an?|this|that|my|our|your|its|is|are|in|of|which|what|any|and)"
_FOLDER = re.compile(
    rf"\b(?:folder|directory) (?:called |named )?(?!{_ARTICLE}\b)([\w-]+)"
    rf"|(?<![\w/.-])(?!{_ARTICLE}\b)([\w-]+) ?(?:folder\b|directory\b|フォルダ|ディレクトリ)",
    re.IGNORECASE | re.ASCII,
)
_DIGIT = re.compile(r"\d")
_NUMBER_WORDS = (
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty"
    r"|ninety|hundred|thousand|million|half|dozen)\b"
)
_SAID_NUMBER = re.compile(rf"{_NUMBER_WORDS}|[二三四五六七八九十百千万億]", re.IGNORECASE)
# Two numbers with a sign or a word between them, a part of a hundred, a power, a root.
_ARITHMETIC = re.compile(
    r"\d\)* ?(?:[*×÷^+/%-]|x(?= ?\d))|\d ?(?:plus|minus|times|divided|over|to the)\b"
    r"|\d[^\d\n]{0,12}(?:足|引|掛|割|かけ|たす|ひく|わる)|\d ?(?:％|%|パーセント|percent|割)|の ?\d+ ?乗",
    re.IGNORECASE,
)
# A name after "in" that is not that of a month or a day; the name of a Japanese district.
_NAMED = re.compile(r"\b(?:in|at|to|from|for|near|around) ([A-Z][a-z]{2,})")
_CALENDAR = frozenset(filter(None, (*calendar.month_name, *calendar.day_name, *calendar.month_abbr)))
_DISTRICT = re.compile(rf"[{KANJI}]+(?:都|道|府|県|市|区|町|村)(?![{KANJI}])")
# A time of day.
TIME = re.compile(
    r"\d{1,2}:\d\d|\d{1,2} ?(?:am|pm|a\.m\.|p\.m\.|o'clock|(?:in the|at) (?:morning|afternoon|evening|night))"
    r"|(?<![\d.])\d{1,2}時(?!間)",
    re.IGNORECASE,
)
_ANY_DAY = date(2026, 1, 1)
_SHORT_TEXT = 2  # words: "Place name" says the kind of a parameter
_MOST_CHARS = 400  # a longer text is material, whose values say nothing about what is asked


def kinds_in(text: str) -> frozenset[str]:
    """Return the kinds of values that a question has."""
    text = unicodedata.normalize("NFKC", text) if len(text) <= _MOST_CHARS else ""
    kinds: set[str] = set()
    if files_in(text):
        kinds.add("file")
        text = _PATH.sub(" ", _FILE.sub(" ", text))
    if _DIGIT.search(text) or _SAID_NUMBER.search(text):
        kinds.add("number")
    if TIME.search(text) or any(day != _ANY_DAY for day in days_in(text, _ANY_DAY)):
        kinds.add("time")
        text = TIME.sub(" ", text)
    if names_conversion(text):
        kinds.add("quantity")
    elif _ARITHMETIC.search(text) or expression_of(text):
        kinds.add("arithmetic")
    is_named = any(name not in _CALENDAR for name in _NAMED.findall(text)) or _DISTRICT.search(text) is not None
    if is_named or places_in(text):
        kinds.add("place")
    return frozenset(kinds)


def named_places(text: str) -> list[tuple[int, int]]:
    """Return where a text has names of places by their form: after "in", or of a Japanese district."""
    spans = [match.span(1) for match in _NAMED.finditer(text) if match[1] not in _CALENDAR]
    return [*spans, *(match.span() for match in _DISTRICT.finditer(text))]


# The ends of Japanese sentences that say something, and what asks or wants in them; the same of English beginnings.
_SAYS = re.compile(
    r"(?:です|ます|でした|ました|ません|だった|だ|[いたる])?(?:よね|ね|よ|な|わ|です|ます|でした|ました|ありがとう|お疲れ(?:様|さま)?)[\s。．!！〜~ー…]*\Z"
)
_ASKS = re.compile(
    r"[?？]|か[\s。]*\Z|何|なに|なん|いつ|どこ|どれ|どの|どう|いくら|いくつ|誰|だれ|たい|ほしい|欲しい|教え|ください|下さい|願い|ねがい"
    rf"|[{HIRAGANA}]て[\s。]|でしょう|かな|っけ"
)
_SAYS_ENGLISH = re.compile(
    r"(?:i|i'm|im|i've|we|we're|my|our|you|you're|youre|he|she|they|it|it's|its|that's|thats|this|that)"
    r" (?!want|need|would|wish|wonder|forgot|must)\w|(?:thanks|thank you|thx|cheers)\b",
    re.IGNORECASE,
)
_ASKS_ENGLISH = re.compile(
    r"\?|\b(?:what|whats|when|where|who|which|why|how|hows|is it|are you|can|could"
    r"|should|would|please|pls|tell|show|check|want|need)\b",
    re.IGNORECASE,
)


_QUOTED = re.compile(r"(?<!\w)(['\"])[^'\"\n]{2,60}\1(?!\w)|「[^」\n]+」|『[^』\n]+』|“[^”\n]+”|‘[^’\n]{2,60}’")


def is_statement(text: str) -> bool:
    """Return True if a text, by its form, says something and asks or wants nothing, or speaks about quoted words."""
    plain = unicodedata.normalize("NFKC", text.strip())
    if _QUOTED.search(plain):
        return True
    if plain.isascii():
        # "thx for your time, that was everything" says it in its second part.
        is_said = any(map(_SAYS_ENGLISH.match, re.split(r"[,.;!]+ *", plain)))
        return is_said and _ASKS_ENGLISH.search(plain) is None
    return _SAYS.search(plain) is not None and _ASKS.search(plain) is None


def files_in(question: str) -> list[str]:
    """Return the names of files and folders in a question, each once."""
    text = question[:_MOST_CHARS]
    paths = [*_FILE.findall(text), *_PATH.findall(text)]
    folders = [first or second for first, second in _FOLDER.findall(text)] if not paths else []
    return list(dict.fromkeys([*paths, *folders]))


def known_values(tool: ToolSpec, question: str) -> Mapping[str, str]:
    """Return the one required argument of a tool with the only value of its kind in a question; empty for others."""
    required = [str(name) for name in as_list(tool.input_schema.get("required"))]
    if len(required) != 1 or len(question) > _MOST_CHARS:
        return {}
    text = with_digits(question)
    places = [(start, end) for _, start, end in places_in(text)]
    named = (span for span in named_places(text) if not any(span[0] < end and start < span[1] for start, end in places))
    values: Mapping[str, list[str]] = {
        "file": files_in(question),
        "place": [text[start:end] for start, end in [*places, *named]],
        "arithmetic": list(filter(None, [expression_of(question)])),
    }
    said = values.get(next(iter(kinds_of(tool)), ""), [])
    return {required[0]: said[0]} if len(said) == 1 else {}


def takes_words(tool: ToolSpec) -> bool:
    """Return True if a tool takes words of any kind, as a search does; others take values, or nothing."""
    properties = as_mapping(tool.input_schema.get("properties"))
    texts = [name for name, schema in properties.items() if as_mapping(schema).get("type") == "string"]
    return any(not kind_of_name(name) for name in texts)


def kind_of_name(name: str) -> str:
    """Return the kind of value that a parameter takes by its name; empty for none."""
    return next((kind for kind, pattern in _PARAMETERS.items() if pattern.search(f" {name} ")), "")


def kinds_of(tool: ToolSpec, *, optional: bool = False) -> frozenset[str]:
    """Return the kinds of values that a tool requires; with ``optional`` those that it may take next to them."""
    schema = tool.input_schema
    properties, required = as_mapping(schema.get("properties")), as_list(schema.get("required"))
    kinds: set[str] = set()
    for name in (name for name in properties if name not in required) if optional else map(str, required):
        described = str(as_mapping(properties.get(name)).get("description", ""))
        kind = kind_of_name(name) or (kind_of_name(described) if len(described.split()) <= _SHORT_TEXT else "")
        if kind:
            kinds.add(kind)
        elif as_mapping(properties.get(name)).get("type") in ("number", "integer"):
            kinds.add("number")
    return frozenset(kinds)
