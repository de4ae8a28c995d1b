"""Place name in any spelling -> the places that it can mean.

Places are indexed under two kinds of keys. ``fold`` is for Japanese script and ignores width, case, spaces, katakana
versus hiragana and some variant characters. ``romaji_key`` is for pronunciation: kana and every common romanisation
(Hepburn with or without macrons, Kunrei, ``oh``/``ou`` for a long o) of a name give the same key.

A query is interpreted from the literal to the loose: without words for the time (今夜の大阪), with a prefecture
before or after the name, as a landmark (羽田空港), without county, house number or 駅. The first interpretation with
a match is used. Among places of the same name a prefecture precedes a city, a city a town, a town a region. Remaining
places in several forecast areas make the query ambiguous.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_servers.weather.areas import MUNICIPAL_KANA, ForecastArea, Place, PlaceKind, Prefecture, read_places
from rkllm_base.ranges import HIRAGANA

_RANK: dict[PlaceKind, int] = {"prefecture": 0, "city": 1, "town": 2, "part": 2, "region": 3}
_ENGLISH_SUFFIX = re.compile(r" (City|Town|Village|Ward|Region|Area|District|Islands?|Prefecture)$")
_ENGLISH_WORDS = {"市": ("city",), "区": ("city", "ward"), "町": ("town",), "村": ("village",)}

_SEPARATORS = re.compile(r"[,、，;/()（）「」『』\[\]\n]+")
_COUNTRY = re.compile(r"(?i:japan|jp)|日本|にほん")
# Words that models put around the name: 東京の天気, weather in Tokyo, Osaka Prefecture.
_AROUND = re.compile(
    r"(?i)^(?:the )?(?:weather|forecast) (?:in|for|of) |\b(?:prefecture|pref\b\.?|metropolis)"
    r"|の?(?:週間)?の?(?:天気|気温|予報|最高気温|最低気温|降水確率).*$|(?:の|は|で)(?:雨|雪|風|台風|傘|気候).*$"
)
# Words for a time, which are before or after the name: 今夜の大阪, 東京の週末, Kyoto tomorrow.
_TIME = (
    "(?:今日|本日|明日|明後日|明々後日|昨日|今夜|今晩|今朝|明朝|明晩|今週末|来週末|週末|今週|来週"
    "|(?:今度の|次の|今週の|来週の)?[月火水木金土日]曜日?|(?:土日|連休)|平日|祝日|現在|今後|これから|しばらく|この後|このあと"
    r"|\d{1,2}月\d{1,2}日|\d{1,2}日後?|午前中?|午後|夕方|深夜|未明|明け方|正午|日中|\d{1,2}時(?:頃|ごろ)?)"
)
# These are also parts of names.
_SHORT_TIME = "(?:今|朝|昼|夜|晩|昼間|夜間|きょう|あした|あす|あさって|しあさって|きのう)"
_LEADING_TIME = re.compile(rf"^(?:{_TIME}|{_SHORT_TIME})(?:頃|ごろ)?(?:の|は|、|\s)+")
_TRAILING_TIME = re.compile(
    rf"(?:の|は|、|\s)*{_TIME}(?:の?{_SHORT_TIME})?(?:頃|ごろ)?(?:の|は|に|、)*$|の{_SHORT_TIME}$"
)
# What the weather may be, after a time or particle: 大阪は明日晴れ.
_CONDITION = re.compile(
    rf"(?:(?:の|は|で|に|、)+|(?:の|は|で|、)*{_TIME}(?:の|は|に|、)*)(?:晴れ|雨|雪|曇り|くもり|降る|降ります|暑い|寒い|風|台風).*$"
)
_ENGLISH_TIME = (
    r"(?:today|tomorrow|tonight|now|right now|currently|later|weather|forecast"
    r"|(?:this |next |in the |the |at )?(?:weekend|week|month|morning|afternoon|evening|night|noon)"
    r"|(?:on |this |next )?(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
)
_ENGLISH_TIME_AROUND = re.compile(
    rf"(?i)^{_ENGLISH_TIME},? (?:in |at |for |of )?|,? (?:for |at |on |in )?(?:the )?{_ENGLISH_TIME}\??$"
)
_MAX_TIME_WORDS = 5
# Where the person is, or a postcode: they name no place that could be guessed.
_NO_NAME = re.compile(
    r"(?i)[〒\d\s‐-―ー−-]*|outside|nearby|current location|(?:right |over |around )?(?:here|there)"
    r"|(?:near |at |around )?(?:me|home|my (?:location|place|house|home|area|city|town))"
    r"|(?:ここ|そこ|こちら|こっち|この辺り?|このあたり|うち|家|自宅|実家|外|近所|近く|現在地|現在位置|今いる(?:場所|所|ところ))"
)
# landmarks.tsv: names of regions, stations, airports, islands and sights, and the municipality whose forecast is meant,
# or the places of which one must be chosen.
_LANDMARKS: dict[str, list[str]] = {
    name: targets.split(",")
    for names, targets in (
        line.split("\t") for line in Path(__file__).with_name("landmarks.tsv").read_text("utf-8").splitlines()
    )
    for name in names.split(",")
}
_ENDINGS = re.compile(
    r"(?:23区|駅|空港|島|周辺|付近|方面|エリア|[市県都府道区町村]内|都心|あたり|辺り)$"
    r"|(?i:\s+(?:city|area|region|station|airport|downtown))$"
)
# The readings of a name, which are tried in this order.
_LOOSENING = ("unchanged", "landmark", "county", "address", "ending", "landmark with ending")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
_LEAST_LETTERS = 4
_SUGGESTIONS, _MAX_CONTAINED = 3, 10
# Below these ratios, similarity is accidental (measured with misspellings against the table of 2026).
_MIN_SIMILARITY_KANJI, _MIN_SIMILARITY_SOUND = 0.7, 0.75


@dataclass(frozen=True)
class PlaceMatch:
    """Places that match a query."""

    places: tuple[Place, ...]  # best first; empty if none matches
    suggestions: tuple[Place, ...] = ()  # places with similar spelling or pronunciation, if none matches

    def areas(self) -> dict[str, ForecastArea]:
        """Return the forecast areas of the places by code; several mean that the query is ambiguous."""
        return {location.area.code: location.area for location in self.places}


class Gazetteer:
    """Index of all places of one area table."""

    def __init__(self, document: object) -> None:
        """Build the gazetteer from a decoded area.json; raise ValueError or LookupError if it is invalid."""
        self.places = read_places(document)
        self._by_name: defaultdict[str, list[Place]] = defaultdict(list)
        self._by_sound: defaultdict[str, list[Place]] = defaultdict(list)
        self._prefectures: dict[str, Prefecture] = {}
        for location in self.places:
            # The script keys and the pronunciation keys of a place, with and without suffix.
            endings = MUNICIPAL_KANA.get(location.name[-1], ())
            bare_kana = (location.kana.removesuffix(ending) for ending in endings if location.kana.endswith(ending))
            kana = {location.kana, *location.aliases, *bare_kana} - {""}
            names = {fold(name) for name in (location.name, location.bare, location.code, *kana)}
            base = _ENGLISH_SUFFIX.sub("", location.english)
            words = _ENGLISH_WORDS.get(location.name[-1], ()) if location.kind != "region" else ()
            spoken = kana | {location.english, base} | {f"{base} {word}" for word in words}
            sounds = {romaji_key(name) for name in spoken} - {""}
            for key in names:
                self._by_name[key].append(location)
            for key in sounds:
                self._by_sound[key].append(location)
            if location.kind == "prefecture":
                self._prefectures.update(dict.fromkeys(names | sounds, location.prefecture))
        by_full_name = {
            location.full_name: location for location in self.places if location.kind in {"prefecture", "city", "town"}
        }
        self._landmarks: dict[str, tuple[Place, ...]] = {
            key: tuple(by_full_name[target] for target in targets if target in by_full_name)
            for name, targets in _LANDMARKS.items()
            for key in (fold(name), romaji_key(name))
            if key and targets[0] in by_full_name
        }

    def find(self, query: str, *, namesakes: bool = False) -> PlaceMatch:
        """Return the places that a query can mean.

        The query is a name in kanji, kana or Latin letters, with or without suffix and prefecture. With ``namesakes``
        the result includes lower-ranked places of the same name (府中町 after 府中市).
        """
        interpretations = list(self._interpretations(query))
        for name, prefecture in interpretations:
            # 東北 is not the town of this name in Aomori.
            region = self._targets(name)
            if len(region) > 1 and prefecture is None:
                return PlaceMatch(region)
        explicit_prefecture_first = sorted(interpretations, key=lambda interpretation: interpretation[1] is None)
        for step in _LOOSENING:
            for name, prefecture in interpretations if step == "unchanged" else explicit_prefecture_first:
                for candidate in self._loosened(name, step):
                    locations = self._look_up(candidate, prefecture, namesakes=namesakes)
                    if locations:
                        return PlaceMatch(locations)
        if all(_NO_NAME.fullmatch(name) for name, _ in interpretations):
            return PlaceMatch(())
        # Places with similar spelling or pronunciation, or whose name the query contains.
        key, index, cutoff = romaji_key(query), self._by_sound, _MIN_SIMILARITY_SOUND
        if not key:
            key, index, cutoff = fold(query), self._by_name, _MIN_SIMILARITY_KANJI
        longer = sorted((name for name in index if len(key) > 1 and name.startswith(key)), key=len)
        near = difflib.get_close_matches(key, index, n=_SUGGESTIONS, cutoff=cutoff)
        best = [min(index[name], key=lambda location: _RANK[location.kind]) for name in (*longer, *near)]
        best = best or [
            location for name in self._contained_names(fold(query)) for location in self._by_name.get(fold(name), ())
        ]
        return PlaceMatch((), tuple(dict.fromkeys(best))[:_SUGGESTIONS])

    def find_in(self, text: str) -> PlaceMatch:
        """Return the place that a question names somewhere; none if it names none."""
        names = self._contained_names(fold(text))
        words = [
            word for word in _LATIN_WORD.findall(unicodedata.normalize("NFKC", text)) if len(word) >= _LEAST_LETTERS
        ]
        # A place is after a preposition, or is at least written as a name.
        spoken = sorted(words, key=lambda word: (not re.search(rf"\b(?:in|at|for|of) {word}\b", text), word.islower()))
        for name in (*names, *spoken):
            match = self.find(name)
            if match.places:
                return match
        return PlaceMatch(())

    def _loosened(self, name: str, step: str) -> Sequence[str]:
        """Return the names to look up for a name at one step of ``_LOOSENING``."""
        match step:
            case "landmark":
                # 博多 -> the code of 福岡市.
                return [target.code for target in self._targets(name)[:1]]
            case "county":
                # 中川郡池田町 -> 池田町.
                return [name.rpartition("郡")[2]] if "郡" in name else []
            case "address":
                # 横浜市港北区日吉 -> 横浜市: the longest prefix that is a municipality.
                ends = [suffix.end() for suffix in re.finditer(r"[市区町村]", name)]
                return [name[:end] for end in reversed(ends) if end > 1]
            case "ending":
                # 京都駅 -> 京都, Sapporo area -> Sapporo.
                shorter = _ENDINGS.sub("", name)
                return [shorter] if shorter != name else []
            case "landmark with ending":
                # 博多駅 -> 博多 -> the code of 福岡市.
                shorter = _ENDINGS.sub("", name)
                return self._loosened(shorter, "landmark") if shorter != name else []
            case _:
                return [name]

    def _targets(self, name: str) -> tuple[Place, ...]:
        return self._landmarks.get(fold(name)) or self._landmarks.get(romaji_key(name)) or ()

    def _look_up(self, name: str, prefecture: Prefecture | None, *, namesakes: bool) -> tuple[Place, ...]:
        for index, key in ((self._by_name, fold(name)), (self._by_sound, romaji_key(name))):
            matches = {
                location.full_name: location
                for location in sorted(index.get(key, ()), key=lambda location: -_RANK[location.kind])
                if prefecture in {None, location.prefecture}
            }
            if matches:
                ranked = sorted(matches.values(), key=lambda location: (_RANK[location.kind], location.code))
                best = _RANK[ranked[0].kind]
                return tuple(location for location in ranked if namesakes or _RANK[location.kind] == best)
        return ()

    def _interpretations(self, query: str) -> Iterator[tuple[str, Prefecture | None]]:
        """Yield pairs of a name and the prefecture named with it, or None, the most likely first."""
        text = _AROUND.sub("", unicodedata.normalize("NFKC", query).strip()).strip()
        # The words for a time are around the name.
        for _ in range(_MAX_TIME_WORDS):
            shorter = text
            for pattern in (_CONDITION, _LEADING_TIME, _TRAILING_TIME, _ENGLISH_TIME_AROUND):
                shorter = pattern.sub("", shorter).strip() or shorter
            if shorter == text:
                break
            text = shorter
        parts = [part.strip() for part in _SEPARATORS.split(text)]
        parts = [part for part in parts if part and not _COUNTRY.fullmatch(part)]
        if len(parts) > 1:
            # Some names contain brackets themselves: 佐世保市（宇久地域）.
            yield text, None
            yield from self._with_prefecture_before(text)
            yield from self._split_prefecture(parts)
        for part in parts:
            yield part, None
            yield from self._with_prefecture_before(part)
            if len(part.split()) > 1:
                yield from self._split_prefecture(part.split())

    def _split_prefecture(self, parts: list[str]) -> Iterator[tuple[str, Prefecture | None]]:
        """Split ``Fuchu, Hiroshima`` or ``広島県 府中市`` into prefecture and name."""
        for at in (len(parts) - 1, 0):
            part = parts[at]
            prefecture = self._prefectures.get(fold(part)) or self._prefectures.get(romaji_key(part))
            if prefecture:
                other_parts = parts[:at] + parts[at + 1 :]
                yield " ".join(other_parts), prefecture
                if len(other_parts) > 1:
                    yield from ((name, prefecture) for name in other_parts)

    def _with_prefecture_before(self, text: str) -> Iterator[tuple[str, Prefecture | None]]:
        """Split ``広島県府中市``; the longest spelling of a prefecture first, so 京都府 before 京都."""
        folded = fold(text)
        for length in range(min(len(folded) - 1, 8), 1, -1):
            prefecture = self._prefectures.get(folded[:length])
            if prefecture:
                yield folded[length:], prefecture
                # 北海道の旭川, but のの in ののいち is a part of the name.
                if folded[length] == "の" and length + 1 < len(folded):
                    yield folded[length + 1 :], prefecture

    def _contained_names(self, key: str) -> Iterator[str]:
        """Yield the names of places and regions that a query contains, the longest first."""
        for length in range(min(len(key) - 1, _MAX_CONTAINED), 1, -1):
            for start in range(len(key) - length + 1):
                part = key[start : start + length]
                if _KANA.fullmatch(part) or part.isascii():
                    continue
                if len(self._landmarks.get(part, ())) > 1:
                    yield part
                elif part in self._by_name:
                    yield min(self._by_name[part], key=lambda location: _RANK[location.kind]).name


_KANA = re.compile(f"[{HIRAGANA}ー]+")
_KATAKANA_TO_HIRAGANA = {code: code - 0x60 for code in range(0x30A1, 0x30F7)}
# 鎌ヶ谷 and 鎌ケ谷, 龍ケ崎 and 竜ヶ崎 are the same towns; the small ke is already hiragana here.
_VARIANTS = str.maketrans(
    {"ゖ": "け", "龍": "竜", "檜": "桧", "曾": "曽", "澤": "沢", "濱": "浜", "嶋": "島", "條": "条"}
)
_IGNORED = re.compile(r"[\s\-‐‑‒–—'’`.・･_]+")

# syllables.txt: hiragana and their Hepburn spelling.
_SYLLABLES = Path(__file__).with_name("syllables.txt").read_text("utf-8")
_ROMAN: dict[str, str] = dict(re.findall(r"(\S+) (\S+)", _SYLLABLES))

# romaji.tsv: common or older spellings and what replaces them, applied in this order to Latin letters.
_ROMAJI_LINES = Path(__file__).with_name("romaji.tsv").read_text("utf-8").splitlines()
_ROMAJI_RULES = [
    (re.compile(pattern), replacement) for pattern, replacement in (line.split("\t") for line in _ROMAJI_LINES)
]


def fold(text: str) -> str:
    """Return the script key of a name: width, case, kana script, spaces and some variant characters removed."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _IGNORED.sub("", plain).translate(_KATAKANA_TO_HIRAGANA).translate(_VARIANTS)


def romaji_key(text: str) -> str:
    """Return the pronunciation key of a name in kana or Latin letters; empty for others, such as kanji."""
    folded = fold(text)
    if _KANA.fullmatch(folded):
        # A small tsu doubles the next consonant, a long mark repeats the vowel before it.
        spelled: list[str] = []
        doubled = False
        at = 0
        while at < len(folded):
            piece = folded[at : at + 2] if folded[at : at + 2] in _ROMAN else folded[at]
            at += len(piece)
            if piece == "っ":
                doubled = True
                continue
            sound = spelled[-1][-1] if piece == "ー" and spelled else _ROMAN.get(piece, "")
            spelled.append(sound[:1] + sound if doubled else sound)
            doubled = False
        latin = "".join(spelled)
    else:
        plain = unicodedata.normalize("NFKD", text)
        letters = [char for char in plain if char.isalpha()]
        if not letters or not all(char.isascii() for char in letters):
            return ""
        latin = plain.casefold()
    for pattern, replacement in _ROMAJI_RULES:
        latin = pattern.sub(replacement, latin)
    return latin
