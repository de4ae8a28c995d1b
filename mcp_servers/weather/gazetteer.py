"""A question for a place, in whatever spelling -> the places it can mean.

Every place is entered under the keys of its names (see ``spelling``). A question is read in several ways, from the
literal to the loose: as it stands, with a prefecture before or after the name, without county, house number or 駅.
The first reading that finds anything wins. Among namesakes a prefecture comes before a city, a city before a town, a
town before a region; what is then still several places in several forecast areas is ambiguous, and that is the
answer.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mcp_servers.weather.areas import ForecastArea, Place, PlaceKind, read_places
from mcp_servers.weather.prefectures import Prefecture
from mcp_servers.weather.spelling import fold, romaji_key

_RANK: dict[PlaceKind, int] = {"prefecture": 0, "city": 1, "town": 2, "part": 2, "region": 3}
_KANA_SUFFIXES = {"市": ("し",), "区": ("く",), "町": ("ちょう", "まち"), "村": ("むら", "そん")}
_ENGLISH_SUFFIX = re.compile(r" (City|Town|Village|Ward|Region|Area|District|Islands?|Prefecture)$")
_ENGLISH_WORDS = {"市": ("city",), "区": ("city", "ward"), "町": ("town",), "村": ("village",)}

_SEPARATORS = re.compile(r"[,、，;/()（）「」『』\[\]\n]+")
_COUNTRY = re.compile(r"(?i:japan|jp)|日本|にほん")
# What a model leaves around the name: 東京の天気, 今日の東京, weather in Tokyo, Osaka Prefecture.
_AROUND = re.compile(
    r"(?i)^(?:the )?(?:weather|forecast) (?:in|for|of) |\b(?:prefecture|pref\b\.?|metropolis)"
    r"|^(?:今日|明日|今週)の|の?(?:今日|明日|現在|週間)?の?(?:天気|気温|予報).*$"
)
_ENDINGS = re.compile(
    r"(?:23区|駅|空港|島|周辺|付近|方面|エリア|[市県都府道区町村]内|都心|あたり|辺り)$"
    r"|(?i:\s+(?:city|area|region|station|airport|downtown))$"
)
_SUGGESTIONS = 3
# Below these two names look alike only by chance (found by trying misspellings against the table of 2026).
_LIKENESS_KANJI, _LIKENESS_SOUND = 0.7, 0.75


@dataclass(frozen=True)
class Finding:
    """What a question can mean.

    Args:
        places: the places of the best reading, best first; empty when there is none.
        suggestions: when empty, places whose names look or sound alike.
    """

    places: tuple[Place, ...]
    suggestions: tuple[Place, ...] = ()

    def areas(self) -> dict[str, ForecastArea]:
        """The forecast areas the places lie in, by code; several mean that the question is ambiguous."""
        return {place.area.code: place.area for place in self.places}


class Gazetteer:
    """All places of one area table, under every key they are looked up by."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = tuple(places)
        self._by_name: defaultdict[str, list[Place]] = defaultdict(list)
        self._by_sound: defaultdict[str, list[Place]] = defaultdict(list)
        self._prefectures: dict[str, Prefecture] = {}
        for place in self.places:
            names, sounds = _keys(place)
            for key in names:
                self._by_name[key].append(place)
            for key in sounds:
                self._by_sound[key].append(place)
            if place.kind == "prefecture":
                self._prefectures.update(dict.fromkeys(names | sounds, place.prefecture))

    @classmethod
    def read(cls, document: object) -> Gazetteer:
        """The gazetteer of a parsed area.json; raises ValueError or LookupError when it is not one."""
        return cls(read_places(document))

    def find(self, question: str, *, namesakes: bool = False) -> Finding:
        """The places a question can mean.

        Args:
            question: a name in kanji, kana or Latin letters, with or without suffix and prefecture.
            namesakes: also lesser places of the same name (府中町 beside 府中市).
        """
        readings = list(self._readings(question))
        said_first = sorted(readings, key=lambda reading: reading[1] is None)
        for loosen in (_as_it_stands, _without_county, _municipality_of_an_address, _without_ending):
            for name, prefecture in readings if loosen is _as_it_stands else said_first:
                for candidate in loosen(name):
                    places = self._look_up(candidate, prefecture, namesakes=namesakes)
                    if places:
                        return Finding(places)
        return Finding((), tuple(self._similar(question)))

    def _look_up(self, name: str, prefecture: Prefecture | None, *, namesakes: bool) -> tuple[Place, ...]:
        for index, key in ((self._by_name, fold(name)), (self._by_sound, romaji_key(name))):
            found = {
                place.full_name: place
                for place in sorted(index.get(key, ()), key=lambda place: -_RANK[place.kind])
                if prefecture in {None, place.prefecture}
            }
            if found:
                ranked = sorted(found.values(), key=lambda place: (_RANK[place.kind], place.code))
                best = _RANK[ranked[0].kind]
                return tuple(place for place in ranked if namesakes or _RANK[place.kind] == best)
        return ()

    def _readings(self, question: str) -> Iterator[tuple[str, Prefecture | None]]:
        """A name and the prefecture said with it, in every way the question may be meant, the likeliest first."""
        tidy = _AROUND.sub("", unicodedata.normalize("NFKC", question).strip()).strip()
        parts = [part.strip() for part in _SEPARATORS.split(tidy)]
        parts = [part for part in parts if part and not _COUNTRY.fullmatch(part)]
        if len(parts) > 1:
            # Some names have brackets themselves: 佐世保市（宇久地域）.
            yield tidy, None
            yield from self._with_prefecture_before(tidy)
            yield from self._divided(parts)
        for part in parts:
            yield part, None
            yield from self._with_prefecture_before(part)
            if len(part.split()) > 1:
                yield from self._divided(part.split())

    def _divided(self, parts: list[str]) -> Iterator[tuple[str, Prefecture | None]]:
        """``Fuchu, Hiroshima`` and ``広島県 府中市``: one part is the prefecture, the others are the name."""
        for at in (len(parts) - 1, 0):
            prefecture = self._prefecture(parts[at])
            if prefecture:
                rest = parts[:at] + parts[at + 1 :]
                yield " ".join(rest), prefecture
                if len(rest) > 1:
                    yield from ((name, prefecture) for name in rest)

    def _with_prefecture_before(self, text: str) -> Iterator[tuple[str, Prefecture | None]]:
        """``広島県府中市`` and ``ひろしまけんふちゅうし``; the longest spelling first, so 京都府 before 京都."""
        folded = fold(text)
        for length in range(min(len(folded) - 1, 8), 1, -1):
            prefecture = self._prefectures.get(folded[:length])
            if prefecture:
                yield folded[length:], prefecture

    def _prefecture(self, text: str) -> Prefecture | None:
        return self._prefectures.get(fold(text)) or self._prefectures.get(romaji_key(text))

    def _similar(self, question: str) -> Iterator[Place]:
        sound = romaji_key(question)
        key, index, likeness = (
            (sound, self._by_sound, _LIKENESS_SOUND) if sound else (fold(question), self._by_name, _LIKENESS_KANJI)
        )
        longer = sorted((name for name in index if len(key) > 1 and name.startswith(key)), key=len)
        near = difflib.get_close_matches(key, index, n=_SUGGESTIONS, cutoff=likeness)
        best = (min(index[name], key=lambda place: _RANK[place.kind]) for name in (*longer, *near))
        return iter(list(dict.fromkeys(best))[:_SUGGESTIONS])


def _keys(place: Place) -> tuple[set[str], set[str]]:
    """The name keys and the sound keys of a place; with and without suffix."""
    kana = {place.kana, *place.aliases, *_bare_kana(place)} - {""}
    names = {fold(name) for name in (place.name, place.bare, place.code, *kana)}
    base = _ENGLISH_SUFFIX.sub("", place.english)
    words = _ENGLISH_WORDS.get(place.name[-1], ()) if place.kind != "region" else ()
    spoken = kana | {place.english, base} | {f"{base} {word}" for word in words}
    return names, {romaji_key(name) for name in spoken} - {""}


def _bare_kana(place: Place) -> Iterator[str]:
    for ending in _KANA_SUFFIXES.get(place.name[-1], ()):
        if place.kind != "region" and place.kana.endswith(ending):
            yield place.kana.removesuffix(ending)


def _as_it_stands(name: str) -> Iterator[str]:
    yield name


def _without_county(name: str) -> Iterator[str]:
    """中川郡池田町 -> 池田町."""
    if "郡" in name:
        yield name.rpartition("郡")[2]


def _municipality_of_an_address(name: str) -> Iterator[str]:
    """横浜市港北区日吉 -> 横浜市: the longest beginning that is a municipality."""
    ends = [match.end() for match in re.finditer(r"[市区町村]", name)]
    yield from (name[:end] for end in reversed(ends) if end > 1)


def _without_ending(name: str) -> Iterator[str]:
    """京都駅 -> 京都, Sapporo area -> Sapporo."""
    shorter = _ENDINGS.sub("", name)
    if shorter != name:
        yield shorter
