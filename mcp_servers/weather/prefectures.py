"""The 47 prefectures: code, spellings, and the city whose forecast represents the prefecture.

The agency's area table has no prefectures (Hokkaido, Kagoshima and Okinawa are several offices each), but users name
prefectures most often. The codes are those of JIS X 0401, which are also the first two digits of every area code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Prefecture:
    """One prefecture."""

    code: str  # two digits, JIS X 0401
    name: str  # kanji with suffix, 東京都
    kana: str  # hiragana with suffix, とうきょうと
    english: str  # Tokyo
    capital: str  # municipality whose forecast area represents the prefecture, 新宿区

    @property
    def bare_name(self) -> str:
        """The kanji name without suffix: 東京, 大阪; 北海道 unchanged."""
        return self.name if self.name == "北海道" else self.name[:-1]

    @property
    def bare_kana(self) -> str:
        """The hiragana name without suffix."""
        if self.name == "北海道":
            return self.kana
        return self.kana.removesuffix("けん") if self.name.endswith("県") else self.kana[:-1]


# prefectures.tsv has the fields of ``Prefecture`` in order.
PREFECTURES: dict[str, Prefecture] = {
    row.split()[0]: Prefecture(*row.split())
    for row in Path(__file__).with_name("prefectures.tsv").read_text("utf-8").splitlines()
}
