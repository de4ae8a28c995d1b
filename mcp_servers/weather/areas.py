"""The agency's area table (area.json) -> forecast areas and the places in them, and the 47 prefectures.

The table is a tree: office > class10 (forecast areas) > class15 > class20 (municipalities, or parts of one). Forecasts
are published per class10, so each place is read together with the class10 above it. Municipalities merge and split: the
code assumes nothing about which ones exist. Lookup by name is in ``gazetteer``.

The table has no prefectures (Hokkaido, Kagoshima and Okinawa are several offices each), but users name them most often.
Their codes are those of JIS X 0401, which are also the first two digits of every area code.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, takewhile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field


@dataclass(frozen=True)
class Prefecture:
    """One prefecture."""

    code: str  # two digits, JIS X 0401
    name: str  # kanji with suffix, 東京都
    kana: str  # hiragana with suffix, とうきょうと
    english: str  # Tokyo
    capital: str  # municipality whose forecast area represents the prefecture, 新宿区

    bare_name: str = field(init=False)  # kanji without suffix: 東京, 大阪; 北海道 unchanged
    bare_kana: str = field(init=False)  # hiragana without suffix

    def __post_init__(self) -> None:
        name, kana = self.name, self.kana
        if name != "北海道":
            kana = kana.removesuffix("けん") if name.endswith("県") else kana[:-1]
            name = name[:-1]
        object.__setattr__(self, "bare_name", name)
        object.__setattr__(self, "bare_kana", kana)


# prefectures.tsv has the fields of ``Prefecture`` in order.
PREFECTURES: dict[str, Prefecture] = {
    row.split()[0]: Prefecture(*row.split())
    for row in Path(__file__).with_name("prefectures.tsv").read_text("utf-8").splitlines()
}

PlaceKind = Literal["prefecture", "city", "town", "part", "region"]

# Obihiro and Amami are offices in the table but have no forecast file; their areas are in the file of a neighbouring
# office. Source: the agency's forecast files (014100 contains 014030, 460100 contains 460040).
_FORECAST_OFFICE = {"014030": "014100", "460040": "460100"}

MUNICIPAL_KANA = {"市": ("し",), "区": ("く",), "町": ("ちょう", "まち"), "村": ("むら", "そん")}
# 釧路市阿寒 can also be found as 阿寒, but 仙台市東部 not as 東部.
_PART = re.compile(r".+?[市町村](?![東西南北]部|（)(.+)")


class _Entry(BaseModel):
    name: str
    en_name: str = Field(default="", alias="enName")
    kana: str = ""
    parent: str = ""


class _Table(BaseModel):
    offices: dict[str, _Entry]
    class10s: dict[str, _Entry] = Field(min_length=1)
    class15s: dict[str, _Entry]
    class20s: dict[str, _Entry]


@dataclass(frozen=True)
class ForecastArea:
    """One class10: the smallest area with its own forecast."""

    code: str  # class10 code, 130010
    office: str  # office whose forecast file contains it, 130000
    name: str  # with the prefecture where needed: 東京地方, 神奈川県東部
    english: str  # Tokyo Region; Eastern Region, Kanagawa


@dataclass(frozen=True)
class Place:
    """A place with a forecast area: prefecture, municipality, part of one, or region."""

    name: str  # as in the table, 府中市; for a prefecture its own name
    bare: str  # name without 市区町村 or 地方
    kana: str  # hiragana; empty for regions
    english: str  # the agency's English name
    kind: PlaceKind  # rank among places of the same name: prefecture, city, town, region
    prefecture: Prefecture
    area: ForecastArea
    code: str  # the agency's code
    aliases: tuple[str, ...] = ()  # further names, such as the part of a split municipality alone

    full_name: str = field(init=False)  # with its prefecture, unique among places of the same name: 広島県府中市
    full_english: str = field(init=False)  # the English name with its prefecture: Fuchu City, Hiroshima

    def __post_init__(self) -> None:
        names = self.name, self.english
        full_names = names if self.kind == "prefecture" else _within(self.prefecture, *names)
        object.__setattr__(self, "full_name", full_names[0])
        object.__setattr__(self, "full_english", full_names[1])


def read_places(document: object) -> tuple[Place, ...]:
    """Return the prefectures, municipalities (also split ones) and regions of an area table; raise ValidationError."""
    table = _Table.model_validate(document)
    areas: dict[str, ForecastArea] = {}
    for code, entry in table.class10s.items():
        prefecture = PREFECTURES[code[:2]]
        office = _FORECAST_OFFICE.get(entry.parent, entry.parent)
        areas[code] = ForecastArea(code, office, *_within(prefecture, entry.name, entry.en_name or entry.name))

    municipalities: list[Place] = []
    for code, entry in table.class20s.items():
        class15 = table.class15s.get(entry.parent)
        area = areas.get(class15.parent if class15 else entry.parent)
        if area is None:
            continue
        kind: PlaceKind
        if entry.name[-1] in MUNICIPAL_KANA:
            kind, bare = "city" if entry.name[-1] in "市区" else "town", entry.name[:-1]
        else:
            part = _PART.fullmatch(entry.name)
            kind, bare = "part", part[1] if part else entry.name
        municipalities.append(
            Place(entry.name, bare, entry.kana, entry.en_name, kind, PREFECTURES[code[:2]], area, code)
        )
    municipalities += _split_municipalities(table, areas)

    capitals = {(location.prefecture.code, location.name): location.area for location in municipalities}
    first_areas = {area.code[:2]: area for area in reversed(areas.values())}
    prefectures: list[Place] = []
    for prefecture in PREFECTURES.values():
        area = capitals.get((prefecture.code, prefecture.capital), first_areas.get(prefecture.code))
        if area:
            names = (prefecture.name, prefecture.bare_name, prefecture.kana, prefecture.english)
            code, aliases = f"{prefecture.code}0000", (prefecture.bare_kana,)
            prefectures.append(Place(*names, "prefecture", prefecture, area, code, aliases))

    below_office = {entry.parent: areas[code] for code, entry in reversed(table.class10s.items())}
    levels = (
        [(code, entry, areas.get(code)) for code, entry in table.class10s.items()],
        [(code, entry, areas.get(entry.parent)) for code, entry in table.class15s.items()],
        [(code, entry, below_office.get(code)) for code, entry in table.offices.items()],
    )
    regions: list[Place] = []
    for code, entry, area in chain.from_iterable(levels):
        if area and not entry.name.endswith(("都", "府", "県")):
            bare = re.sub(r"(地方|地域|地区)$", "", entry.name)
            regions.append(Place(entry.name, bare, "", entry.en_name, "region", PREFECTURES[code[:2]], area, code))
    return (*prefectures, *municipalities, *regions)


def _within(prefecture: Prefecture, name: str, english: str) -> tuple[str, str]:
    """Return a name in Japanese and English with its prefecture, unless it begins with it and is no municipality."""
    is_whole = name.startswith(prefecture.bare_name) and not name.endswith(("市", "町", "村"))
    is_whole_english = english.startswith(prefecture.english) and not english.endswith(("City", "Town", "Village"))
    return (
        name if is_whole else prefecture.name + name,
        english if is_whole_english else f"{english}, {prefecture.english}",
    )


def _split_municipalities(table: _Table, areas: dict[str, ForecastArea]) -> list[Place]:
    """Return municipalities that the table lists only in parts as one place each.

    Examples are 仙台市東部 and 仙台市西部, and the wards of 広島市. The first part represents the whole: it is the one
    with the city hall.
    """
    groups: defaultdict[str, list[tuple[str, _Entry]]] = defaultdict(list)
    for code, entry in table.class20s.items():
        ward = re.fullmatch(r"(.+市).+区", entry.name)
        if ward:
            groups[code[:2] + ward[1]].append((code, entry))
        elif not code.endswith("00"):
            groups[code[:5]].append((code, entry))
    locations: list[Place] = []
    for members in groups.values():
        code, first = min(members, key=lambda member: member[0])
        class15 = table.class15s.get(first.parent)
        area = areas.get(class15.parent if class15 else first.parent)
        shared = re.match(r".+[市町村]", _common_beginning([entry.name for _, entry in members]))
        if area is None or shared is None or any(entry.name == shared[0] for _, entry in members):
            continue
        name = shared[0]
        endings = "|".join(MUNICIPAL_KANA[name[-1]])
        kana = re.match(f".+(?:{endings})", _common_beginning([entry.kana for _, entry in members]))
        english = re.search(r"([\w-]+) (?:City|Town|Village)", first.en_name)
        names = (name, name[:-1], kana[0] if kana else "", english[0] if english else name)
        kind: PlaceKind = "city" if name.endswith("市") else "town"
        locations.append(Place(*names, kind, PREFECTURES[code[:2]], area, code))
    return locations


def _common_beginning(names: list[str]) -> str:
    shortest = min(names, key=len)
    agreed = takewhile(lambda at: all(name[at] == shortest[at] for name in names), range(len(shortest)))
    return shortest[: len(list(agreed))]
