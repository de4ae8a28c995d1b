"""Unit conversion; units by symbol, English or Japanese name.

Each quantity has a table of factors to its base unit; temperature scales also have a zero point.

Source: SI brochure, 9th edition; the traditional Japanese units by the Measurement Act of 1921
(尺 is 10/33 m, 貫 is 3.75 kg, 升 is 2401/1331 L); 畳 is the 1.62 m² of the Fair Competition Code for real estate.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping

from rkllm_mcp.builtin.function import LocalToolError

_SHAKU_M = 10 / 33
_SHO_M3 = 2401 / 1331 / 1000
_DIGITS = ".10g"

# Quantity -> (names separated by blanks, factor to the base unit). Names are matched exactly first, then in lower case,
# so that MB and Mb, MW and mW stay distinct.
_UNITS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "length": (
        ("m meter meters metre metres メートル", 1.0),
        ("km kilometer kilometers kilometre kilometres キロメートル", 1000.0),
        ("cm centimeter centimeters centimetre centimetres センチメートル センチ", 0.01),
        ("mm millimeter millimeters millimetre millimetres ミリメートル ミリ", 0.001),
        ("um µm μm micrometer micrometers マイクロメートル", 1e-6),
        ("nm nanometer nanometers ナノメートル", 1e-9),
        ("in inch inches インチ", 0.0254),
        ("ft foot feet フィート", 0.3048),
        ("yd yard yards ヤード", 0.9144),
        ("mi mile miles マイル", 1609.344),
        ("nmi 海里", 1852.0),
        ("尺 shaku", _SHAKU_M),
        ("寸 sun", _SHAKU_M / 10),
        ("間 ken", _SHAKU_M * 6),
        ("町 cho", _SHAKU_M * 360),
        ("里 ri", _SHAKU_M * 12960),
    ),
    "mass": (
        ("kg kilogram kilograms キログラム キロ", 1.0),
        ("g gram grams グラム", 0.001),
        ("mg milligram milligrams ミリグラム", 1e-6),
        ("t ton tons tonne tonnes トン", 1000.0),
        ("lb lbs pound pounds ポンド", 0.45359237),
        ("oz ounce ounces オンス", 0.028349523125),
        ("貫 kan", 3.75),
        ("匁 momme", 0.00375),
        ("斤 kin", 0.6),
    ),
    "area": (
        ("m2 m² sqm 平方メートル 平米", 1.0),
        ("km2 km² 平方キロメートル", 1e6),
        ("cm2 cm² 平方センチメートル", 1e-4),
        ("ha hectare hectares ヘクタール", 1e4),
        ("a アール", 100.0),
        ("acre acres エーカー", 4046.8564224),
        ("ft2 ft² sqft 平方フィート", 0.09290304),
        ("mi2 mi² 平方マイル", 2589988.110336),
        ("坪 tsubo", (_SHAKU_M * 6) ** 2),
        ("畳 帖 jo", 1.62),
        ("反 tan", (_SHAKU_M * 6) ** 2 * 300),
    ),
    "volume": (
        ("l L liter liters litre litres リットル", 0.001),
        ("ml mL milliliter milliliters millilitre cc ミリリットル", 1e-6),
        ("m3 m³ 立方メートル 立米", 1.0),
        ("cm3 cm³ 立方センチメートル", 1e-6),
        ("gal gallon gallons ガロン", 0.003785411784),
        ("qt quart quarts クォート", 0.000946352946),
        ("pt pint pints パイント", 0.000473176473),
        ("cup cups カップ", 0.0002365882365),
        ("tbsp tablespoon tablespoons 大さじ", 1.5e-5),
        ("tsp teaspoon teaspoons 小さじ", 5e-6),
        ("floz", 2.95735295625e-5),
        ("升 sho", _SHO_M3),
        ("合 go", _SHO_M3 / 10),
        ("斗 to", _SHO_M3 * 10),
        ("石 koku", _SHO_M3 * 100),
    ),
    "speed": (
        ("m/s mps 秒速", 1.0),
        ("km/h kmh kph 時速 キロ毎時", 1 / 3.6),
        ("mph マイル毎時", 0.44704),
        ("kn kt knot knots ノット", 1852 / 3600),
        ("mach マッハ", 340.3),
    ),
    "time": (
        ("s sec second seconds 秒", 1.0),
        ("ms millisecond milliseconds ミリ秒", 0.001),
        ("min minute minutes 分", 60.0),
        ("h hr hour hours 時間", 3600.0),
        ("d day days 日", 86400.0),
        ("week weeks 週 週間", 604800.0),
        ("year years 年", 31557600.0),
    ),
    "data": (
        ("B byte bytes バイト", 1.0),
        ("bit bits ビット", 0.125),
        ("kB KB kilobyte キロバイト", 1e3),
        ("MB megabyte megabytes メガバイト", 1e6),
        ("GB gigabyte gigabytes ギガバイト", 1e9),
        ("TB terabyte terabytes テラバイト", 1e12),
        ("KiB", 1024.0),
        ("MiB", 1024.0**2),
        ("GiB", 1024.0**3),
        ("TiB", 1024.0**4),
        ("kb kbit", 125.0),
        ("Mb Mbit", 125e3),
        ("Gb Gbit", 125e6),
    ),
    "energy": (
        ("J joule joules ジュール", 1.0),
        ("kJ キロジュール", 1e3),
        ("cal カロリー", 4.184),
        ("kcal キロカロリー", 4184.0),
        ("Wh ワット時", 3600.0),
        ("kWh キロワット時", 3.6e6),
        ("eV 電子ボルト", 1.602176634e-19),
    ),
    "power": (
        ("W watt watts ワット", 1.0),
        ("kW キロワット", 1e3),
        ("MW メガワット", 1e6),
        ("mW ミリワット", 1e-3),
        ("hp horsepower", 745.69987158227022),
        ("ps 馬力", 735.49875),
    ),
    "pressure": (
        ("Pa pascal パスカル", 1.0),
        ("hPa ヘクトパスカル", 100.0),
        ("kPa キロパスカル", 1e3),
        ("MPa メガパスカル", 1e6),
        ("bar バール", 1e5),
        ("atm 気圧", 101325.0),
        ("psi", 6894.757293168361),
        ("mmHg torr", 133.322387415),
    ),
    "angle": (
        ("rad radian radians ラジアン", 1.0),
        ("deg ° degree degrees 度", math.pi / 180),
    ),
}
# Names, size of a degree in kelvin, and zero point in kelvin.
_TEMPERATURES: tuple[tuple[str, float, float], ...] = (
    ("K kelvin ケルビン 絶対温度", 1.0, 0.0),
    ("°C C ℃ celsius degc 摂氏 摂氏度 セルシウス", 1.0, 273.15),
    ("°F F ℉ fahrenheit degf 華氏 華氏度 ファーレンハイト", 5 / 9, 459.67 * 5 / 9),
)


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a quantity and return a line such as ``5 km = 5000 m``.

    Raises:
        LocalToolError: a unit is unknown, or the units measure different quantities.
    """
    if not math.isfinite(value):
        raise LocalToolError("The value must be a finite number.")
    source, target = _found(from_unit), _found(to_unit)
    kinds = [kind for kind in source if kind in target]
    if not kinds:
        raise LocalToolError(f"{from_unit} is {_article(source)} and {to_unit} is {_article(target)}.")
    (size, zero), (other_size, other_zero) = source[kinds[0]], target[kinds[0]]
    result = (value * size + zero - other_zero) / other_size
    return f"{value:{_DIGITS}} {from_unit} = {round(result, 12):{_DIGITS}} {to_unit}"


def _found(unit: str) -> dict[str, tuple[float, float]]:
    """Return the meanings of a unit: quantity -> (size in the base unit, zero point)."""
    spelled = unit.strip()
    plain = unicodedata.normalize("NFKC", spelled)
    for wanted in dict.fromkeys((spelled, plain, plain.lower(), plain.replace(" ", "").lower())):
        found = _KINDS.get(wanted)
        if found:
            return found
    raise LocalToolError(
        f"The unit '{unit[:40]}' is not known; write its sign or name, such as km, lb, ℃, kWh, 坪 or キロメートル."
    )


def _article(kinds: Mapping[str, object]) -> str:
    return " or ".join(f"a unit of {kind}" for kind in kinds)


def _kinds() -> dict[str, dict[str, tuple[float, float]]]:
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for kind, rows in _UNITS.items():
        for spellings, size in rows:
            for spelling in spellings.split():
                found.setdefault(unicodedata.normalize("NFKC", spelling), {})[kind] = (size, 0.0)
    for spellings, size, zero in _TEMPERATURES:
        for spelling in spellings.split():
            found.setdefault(unicodedata.normalize("NFKC", spelling), {})["temperature"] = (size, zero)
    for spelling in list(found):
        found.setdefault(spelling.lower(), found[spelling])
    return found


_KINDS = _kinds()
