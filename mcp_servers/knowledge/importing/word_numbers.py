"""Automatic numbers of Word: the number that a style or list gives a paragraph becomes part of its text.

Word stores "第%1条" and a counter, not "第2条". A bullet stays a list item of the library that reads the document.
"""

from __future__ import annotations

import zipfile
from typing import NamedTuple
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.importing.archives import attribute, local_name, named, parse_part, relations, whole_number

_LEVELS = 9
_DIGITS, _LEGAL = "〇一二三四五六七八九", "零壱弐参四五六七八九"
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"))
_ROMAN_ONES = ((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
_IROHA = "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセス"
_AIUEO = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン"
_MAX_LETTERS, _MAX_CIRCLED = 26 * 9, 20
_FULL_WIDTH = {ord("0") + digit: chr(0xFF10 + digit) for digit in range(10)}
# Value of ``w:lvlText`` for levels above, e.g. "%1.%2".
_PLACES = [f"%{level + 1}" for level in range(_LEVELS)]


class _Level(NamedTuple):
    format: str
    text: str
    start: int
    is_legal: bool  # levels above are written in digits
    restart: int  # level after which it begins again; 0 never


def with_numbers(archive: zipfile.ZipFile, part: str, content: bytes) -> bytes:
    """Return the XML of a document's main part with its automatic numbers written into the paragraphs."""
    targets = {kind: name for kind, name in relations(archive, part).values() if name in archive.namelist()}
    if "numbering" not in targets:
        return content
    lists = _lists(parse_part(archive, targets["numbering"]))
    styles = _style_numbers(parse_part(archive, targets["styles"])) if "styles" in targets else {}
    root = ET.fromstring(content)  # noqa: S314  # checked by the caller
    if _write_numbers(root, lists, styles):
        return ET.tostring(root, encoding="utf-8")
    return content


class _List(NamedTuple):
    abstract: str  # lists of one definition count together
    levels: dict[int, _Level]
    starts: dict[int, int]  # of levels that this list begins anew


def _lists(numbering: ET.Element) -> dict[str, _List]:
    abstracts: dict[str, dict[int, _Level]] = {}
    for abstract in named(numbering, "abstractNum"):
        levels = {whole_number(attribute(level, "ilvl"), 0): _level(level) for level in named(abstract, "lvl")}
        abstracts[attribute(abstract, "abstractNumId")] = levels
    lists: dict[str, _List] = {}
    for number in named(numbering, "num"):
        abstract = next((attribute(child, "val") for child in number if local_name(child) == "abstractNumId"), "")
        levels, starts = dict(abstracts.get(abstract, {})), dict[int, int]()
        for override in named(number, "lvlOverride"):
            at = whole_number(attribute(override, "ilvl"), 0)
            for change in override:
                if local_name(change) == "lvl":
                    levels[at] = _level(change)
                elif local_name(change) == "startOverride":
                    starts[at] = whole_number(attribute(change, "val"), 1)
        lists[attribute(number, "numId")] = _List(abstract, levels, starts)
    return lists


def _level(element: ET.Element) -> _Level:
    values = {local_name(child): attribute(child, "val") for child in element}
    return _Level(
        values.get("numFmt", "decimal"),
        values.get("lvlText", ""),
        whole_number(values.get("start", ""), 1),
        "isLgl" in values,
        whole_number(values.get("lvlRestart", ""), -1),
    )


def _style_numbers(styles: ET.Element) -> dict[str, tuple[str, int]]:
    """Return paragraph style -> list and level, also of the style that it is based on."""
    numbers: dict[str, tuple[str, int]] = {}
    based: dict[str, str] = {}
    for style in named(styles, "style"):
        name = attribute(style, "styleId")
        based[name] = next((attribute(child, "val") for child in style if local_name(child) == "basedOn"), "")
        number = _number_of(style)
        if number:
            numbers[name] = number
    inherited: dict[str, tuple[str, int]] = {}
    for name in based:
        at, steps = name, 0
        while at and at not in numbers and steps < _LEVELS:
            at, steps = based.get(at, ""), steps + 1
        if at in numbers:
            inherited[name] = numbers[at]
    return inherited


def _number_of(element: ET.Element) -> tuple[str, int] | None:
    """Return the list and the level that a paragraph or style names itself."""
    for properties in element:
        if local_name(properties) == "pPr":
            for number in properties:
                if local_name(number) == "numPr":
                    values = {local_name(child): attribute(child, "val") for child in number}
                    return values.get("numId", ""), whole_number(values.get("ilvl", ""), 0)
    return None


def _write_numbers(root: ET.Element, lists: dict[str, _List], styles: dict[str, tuple[str, int]]) -> bool:
    counters: dict[str, dict[int, int]] = {}
    started: set[tuple[str, int]] = set()
    is_changed = False
    for paragraph in list(named(root, "p")):
        properties = next((child for child in paragraph if local_name(child) == "pPr"), None)
        if properties is None or not paragraph.tag.startswith("{"):
            continue
        style = next((attribute(child, "val") for child in properties if local_name(child) == "pStyle"), "")
        of_style = styles.get(style)
        direct_number = _number_of(paragraph)
        number = (
            direct_number
            if direct_number and direct_number[0]
            else (of_style[0], direct_number[1])
            if direct_number and of_style
            else of_style
        )
        if not number or number[0] not in lists:
            continue
        text = _next_number(lists[number[0]], number, counters, started)
        if text:
            _insert(paragraph, properties, text)
            is_changed = True
    return is_changed


def _next_number(
    numbered: _List, number: tuple[str, int], counters: dict[str, dict[int, int]], started: set[tuple[str, int]]
) -> str:
    """Count a paragraph; return its number as text, empty for a bullet."""
    at = min(number[1], _LEVELS - 1)
    counts = counters.setdefault(numbered.abstract or number[0], {})
    level = numbered.levels.get(at)
    if level is None:
        return ""
    if at in numbered.starts and number not in started:
        counts[at] = numbered.starts[at]
        started.add((number[0], at))
    else:
        counts[at] = counts[at] + 1 if at in counts else level.start
    for deeper in [depth for depth in counts if depth > at]:
        restart = numbered.levels[deeper].restart if deeper in numbered.levels else -1
        if restart == -1 or at < restart:
            del counts[deeper]
    if level.format in {"bullet", "none"} or not level.text:
        return ""
    text = level.text
    for above, placeholder in enumerate(_PLACES[: at + 1]):
        shape = numbered.levels.get(above)
        value = counts.get(above, shape.start if shape else 1)
        number_format = "decimal" if level.is_legal else shape.format if shape else "decimal"
        text = text.replace(placeholder, number_text(value, number_format))
    return text.strip()


def _insert(paragraph: ET.Element, properties: ET.Element, text: str) -> None:
    """Write a number as the first run, and take the paragraph out of its list."""
    space = paragraph.tag.rpartition("}")[0] + "}"
    for number in [child for child in properties if local_name(child) == "numPr"]:
        properties.remove(number)
    run = ET.Element(f"{space}r")
    written = ET.SubElement(run, f"{space}t", {"{http://www.w3.org/XML/1998/namespace}space": "preserve"})
    written.text = f"{text} "
    paragraph.insert(list(paragraph).index(properties) + 1, run)


def number_text(value: int, shape: str) -> str:
    """Return a number in a format of Word (ST_NumberFormat)."""
    digits = str(max(value, 0))
    kanji_digits = "".join(_DIGITS[int(digit)] for digit in digits)
    letter = chr(ord("a") + (value - 1) % 26) * ((value - 1) // 26 + 1) if 0 < value <= _MAX_LETTERS else digits
    circled = chr(0x2460 + value - 1) if 1 <= value <= _MAX_CIRCLED else digits
    kanji = kanji_number(value)
    written = {
        **dict.fromkeys(("none", "bullet"), ""),
        "decimalZero": f"{value:02d}",
        "lowerRoman": _roman(value),
        "upperRoman": _roman(value).upper(),
        "lowerLetter": letter,
        "upperLetter": letter.upper(),
        "japaneseLegal": kanji.translate(str.maketrans(_DIGITS[1:4], _LEGAL[1:4])),
        **dict.fromkeys(("decimalEnclosedCircle", "decimalEnclosedCircleChinese"), circled),
        **dict.fromkeys(("japaneseCounting", "chineseCounting", "chineseCountingThousand"), kanji),
        "taiwaneseCountingThousand": kanji,
        **dict.fromkeys(("ideographDigital", "japaneseDigitalTenThousand", "taiwaneseDigital"), kanji_digits),
        **dict.fromkeys(("decimalFullWidth", "decimalFullWidth2"), digits.translate(_FULL_WIDTH)),
        **dict.fromkeys(("iroha", "irohaFullWidth"), _IROHA[value - 1 : value] or digits),
        **dict.fromkeys(("aiueo", "aiueoFullWidth"), _AIUEO[value - 1 : value] or digits),
    }
    return written.get(shape, digits)


def kanji_number(value: int) -> str:
    """Return a number below ten thousand in kanji: 二十三."""
    if not 0 < value < 10_000:
        return "".join(_DIGITS[int(digit)] for digit in str(abs(value)))
    text = ""
    for size, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, size)
        text += (("" if digit == 1 and unit else _DIGITS[digit]) + unit) if digit else ""
    return text


def _roman(value: int) -> str:
    if not 0 < value < 4000:
        return str(value)
    text = ""
    for size, letters in (*_ROMAN, *_ROMAN_ONES):
        count, value = divmod(value, size)
        text += letters * count
    return text
