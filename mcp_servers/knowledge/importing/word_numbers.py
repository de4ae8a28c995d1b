"""Automatic numbers of Word, which stores "第%1条" and a counter, not "第2条"."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.importing.archives import attribute, elements_named, local_name, whole_number

BULLET = "-"
_LEVELS = 9
_DIGITS, _LEGAL = "〇一二三四五六七八九", "零壱弐参四五六七八九"
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"))
_ROMAN_ONES = ((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
_IROHA = "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセス"
_AIUEO = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン"
_MAX_LETTERS, _MAX_CIRCLED, _MAX_KANJI, _MAX_ROMAN = 26 * 9, 20, 10_000, 4000
_FULL_WIDTH = {ord("0") + digit: chr(0xFF10 + digit) for digit in range(10)}
# Value of ``w:lvlText`` for levels above, e.g. "%1.%2".
_PLACES = [f"%{level + 1}" for level in range(_LEVELS)]


class _Level(NamedTuple):
    format: str
    text: str
    start: int
    is_legal: bool  # levels above are written in digits
    restart: int  # level after which it begins again; 0 never


class _List(NamedTuple):
    abstract: str  # lists of one definition count together
    levels: dict[int, _Level]
    starts: dict[int, int]  # of levels that this list begins anew


def _level(element: ET.Element) -> _Level:
    values = {local_name(child): attribute(child, "val") for child in element}
    return _Level(
        values.get("numFmt", "decimal"),
        values.get("lvlText", ""),
        whole_number(values.get("start", ""), 1),
        "isLgl" in values,
        whole_number(values.get("lvlRestart", ""), -1),
    )


def _number_of(element: ET.Element) -> tuple[str, int] | None:
    """Return the list and the level that a paragraph or style names itself."""
    for properties in element:
        if local_name(properties) == "pPr":
            for number in properties:
                if local_name(number) == "numPr":
                    values = {local_name(child): attribute(child, "val") for child in number}
                    return values.get("numId", ""), whole_number(values.get("ilvl", ""), 0)
    return None


class Numbering:
    """Counts the paragraphs of a document in their order; either tree may be missing."""

    def __init__(self, numbering: ET.Element | None, styles: ET.Element | None) -> None:
        abstracts: dict[str, dict[int, _Level]] = {}
        for abstract in elements_named(numbering, "abstractNum") if numbering is not None else ():
            levels = elements_named(abstract, "lvl")
            by_number = {whole_number(attribute(level, "ilvl"), 0): _level(level) for level in levels}
            abstracts[attribute(abstract, "abstractNumId")] = by_number
        self._lists: dict[str, _List] = {}
        for number in elements_named(numbering, "num") if numbering is not None else ():
            abstract = next((attribute(child, "val") for child in number if local_name(child) == "abstractNumId"), "")
            own_levels, starts = dict(abstracts.get(abstract, {})), dict[int, int]()
            for override in elements_named(number, "lvlOverride"):
                at = whole_number(attribute(override, "ilvl"), 0)
                for change in override:
                    if local_name(change) == "lvl":
                        own_levels[at] = _level(change)
                    elif local_name(change) == "startOverride":
                        starts[at] = whole_number(attribute(change, "val"), 1)
            self._lists[attribute(number, "numId")] = _List(abstract, own_levels, starts)
        # Paragraph style -> list and level, also of the style that it is based on.
        self._styles: dict[str, tuple[str, int]] = {}
        own: dict[str, tuple[str, int]] = {}
        based: dict[str, str] = {}
        for style in elements_named(styles, "style") if styles is not None else ():
            name = attribute(style, "styleId")
            based[name] = next((attribute(child, "val") for child in style if local_name(child) == "basedOn"), "")
            if stated := _number_of(style):
                own[name] = stated
        for name in based:
            base, steps = name, 0
            while base and base not in own and steps < _LEVELS:
                base, steps = based.get(base, ""), steps + 1
            if base in own:
                self._styles[name] = own[base]
        self._counters: dict[str, dict[int, int]] = {}
        self._started: set[tuple[str, int]] = set()

    def mark(self, paragraph: ET.Element, style: str) -> str:
        """Count a paragraph with a style; return the number or bullet that it begins with, empty for none."""
        number, of_style = _number_of(paragraph), self._styles.get(style)
        if number and not number[0] and of_style:
            number = (of_style[0], number[1])
        number = number or of_style
        if not number or number[0] not in self._lists:
            return ""
        numbered, at = self._lists[number[0]], min(number[1], _LEVELS - 1)
        counts = self._counters.setdefault(numbered.abstract or number[0], {})
        level = numbered.levels.get(at)
        if level is None:
            return ""
        if at in numbered.starts and number not in self._started:
            counts[at] = numbered.starts[at]
            self._started.add((number[0], at))
        else:
            counts[at] = counts[at] + 1 if at in counts else level.start
        for deeper in [depth for depth in counts if depth > at]:
            restart = numbered.levels[deeper].restart if deeper in numbered.levels else -1
            if restart == -1 or at < restart:
                del counts[deeper]
        if level.format == "bullet":
            return BULLET
        if level.format == "none":
            return ""
        text = level.text
        for above, placeholder in enumerate(_PLACES[: at + 1]):
            shape = numbered.levels.get(above)
            value = counts.get(above, shape.start if shape else 1)
            number_format = "decimal" if level.is_legal else shape.format if shape else "decimal"
            text = text.replace(placeholder, number_text(value, number_format))
        return text.strip()


def number_text(value: int, shape: str) -> str:
    """Return a number in a format of Word (ST_NumberFormat)."""
    digits = str(max(value, 0))
    kanji_digits = "".join(_DIGITS[int(digit)] for digit in digits)
    letter = chr(ord("a") + (value - 1) % 26) * ((value - 1) // 26 + 1) if 0 < value <= _MAX_LETTERS else digits
    circled = chr(0x2460 + value - 1) if 1 <= value <= _MAX_CIRCLED else digits
    kanji = "".join(_DIGITS[int(digit)] for digit in str(abs(value)))
    if 0 < value < _MAX_KANJI:
        kanji, remainder = "", value
        for size, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
            digit, remainder = divmod(remainder, size)
            kanji += (("" if digit == 1 and unit else _DIGITS[digit]) + unit) if digit else ""
    roman = str(value)
    if 0 < value < _MAX_ROMAN:
        roman, remainder = "", value
        for size, letters in (*_ROMAN, *_ROMAN_ONES):
            count, remainder = divmod(remainder, size)
            roman += letters * count
    written = {
        **dict.fromkeys(("none", "bullet"), ""),
        "decimalZero": f"{value:02d}",
        "lowerRoman": roman,
        "upperRoman": roman.upper(),
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
