"""The 47 prefectures: code, spellings, and the city whose forecast represents the prefecture.

The agency's area table has no prefectures (Hokkaido, Kagoshima and Okinawa are several offices each), but users name
prefectures most often. The codes are those of JIS X 0401, which are also the first two digits of every area code.
"""

from __future__ import annotations

from dataclasses import dataclass


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


_TABLE = """
01 北海道 ほっかいどう Hokkaido 札幌市
02 青森県 あおもりけん Aomori 青森市
03 岩手県 いわてけん Iwate 盛岡市
04 宮城県 みやぎけん Miyagi 仙台市
05 秋田県 あきたけん Akita 秋田市
06 山形県 やまがたけん Yamagata 山形市
07 福島県 ふくしまけん Fukushima 福島市
08 茨城県 いばらきけん Ibaraki 水戸市
09 栃木県 とちぎけん Tochigi 宇都宮市
10 群馬県 ぐんまけん Gunma 前橋市
11 埼玉県 さいたまけん Saitama さいたま市
12 千葉県 ちばけん Chiba 千葉市
13 東京都 とうきょうと Tokyo 新宿区
14 神奈川県 かながわけん Kanagawa 横浜市
15 新潟県 にいがたけん Niigata 新潟市
16 富山県 とやまけん Toyama 富山市
17 石川県 いしかわけん Ishikawa 金沢市
18 福井県 ふくいけん Fukui 福井市
19 山梨県 やまなしけん Yamanashi 甲府市
20 長野県 ながのけん Nagano 長野市
21 岐阜県 ぎふけん Gifu 岐阜市
22 静岡県 しずおかけん Shizuoka 静岡市
23 愛知県 あいちけん Aichi 名古屋市
24 三重県 みえけん Mie 津市
25 滋賀県 しがけん Shiga 大津市
26 京都府 きょうとふ Kyoto 京都市
27 大阪府 おおさかふ Osaka 大阪市
28 兵庫県 ひょうごけん Hyogo 神戸市
29 奈良県 ならけん Nara 奈良市
30 和歌山県 わかやまけん Wakayama 和歌山市
31 鳥取県 とっとりけん Tottori 鳥取市
32 島根県 しまねけん Shimane 松江市
33 岡山県 おかやまけん Okayama 岡山市
34 広島県 ひろしまけん Hiroshima 広島市
35 山口県 やまぐちけん Yamaguchi 山口市
36 徳島県 とくしまけん Tokushima 徳島市
37 香川県 かがわけん Kagawa 高松市
38 愛媛県 えひめけん Ehime 松山市
39 高知県 こうちけん Kochi 高知市
40 福岡県 ふくおかけん Fukuoka 福岡市
41 佐賀県 さがけん Saga 佐賀市
42 長崎県 ながさきけん Nagasaki 長崎市
43 熊本県 くまもとけん Kumamoto 熊本市
44 大分県 おおいたけん Oita 大分市
45 宮崎県 みやざきけん Miyazaki 宮崎市
46 鹿児島県 かごしまけん Kagoshima 鹿児島市
47 沖縄県 おきなわけん Okinawa 那覇市
"""

PREFECTURES: dict[str, Prefecture] = {row.split()[0]: Prefecture(*row.split()) for row in _TABLE.strip().splitlines()}
