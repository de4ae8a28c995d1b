"""Characters that stand for others: radicals, old and variant kanji, invisible ones.

Text extracted from PDF has radicals (⻑, ⼭) where kanji are meant, names have variants (髙, 邊), and pages have
invisible characters that divide words. ``fold_characters`` makes texts comparable; it is not meant for text that
people read.
"""

from __future__ import annotations

import re
import unicodedata

# CJK Radicals Supplement -> the kanji, in pairs; Unicode normalises only the Kangxi radicals.
_RADICALS = (
    "⺃乙⺅亻⺉刂⺎兀⺒巳⺓幺⺔彑⺖忄⺗心⺘扌⺙攵⺛旡⺜日⺝月⺟母⺠民⺡氵⺢水⺣灬⺤爪⺥爪⺦丬⺧牛⺨犭⺩王⺫目⺬示⺭礻⺮竹⺯糸⺰纟⺱罓⺲罒"
    "⺶羊⺷羊⺸羊⺹耂⺺肀⺼肉⺽臼⺾艹⺿艹⻀艹⻁虎⻂衤⻃覀⻄西⻅见⻆角⻇角⻈讠⻉贝⻊足⻋车⻌辶⻍辶⻎辶⻏阝⻐钅⻑長⻒镸⻓长⻔门⻖阝⻗雨⻘青⻙韦⻚页"
    "⻛风⻜飞⻝食⻞食⻟食⻠饣⻡首⻢马⻣骨⻤鬼⻥鱼⻦鸟⻧卤⻨麦⻩黄⻪黾⻫斉⻬齐⻭歯⻮齿⻯竜⻰龙⻱龜⻲亀⻳龟"
)
# Old or variant kanji -> the usual ones, in pairs.
_VARIANTS = (
    "亞亜惡悪壓圧圍囲爲為醫医壹壱稻稲飮飲隱隠營営榮栄衞衛驛駅圓円鹽塩奧奥應応橫横歐欧毆殴黃黄溫温穩穏假仮價価畫画會会壞壊懷懐繪絵擴拡殼殻"
    "覺覚學学嶽岳樂楽勸勧卷巻寬寛歡歓罐缶觀観關関陷陥巖巌顏顔歸帰氣気僞偽戲戯犧犠舊旧據拠擧挙峽峡挾挟狹狭鄕郷曉暁區区驅駆勳勲薰薫徑径惠恵"
    "溪渓經経繼継莖茎螢蛍輕軽鷄鶏藝芸缺欠儉倹劍剣圈圏檢検權権獻献縣県險険顯顕驗験嚴厳效効廣広恆恒鑛鉱號号國国濟済碎砕齋斎劑剤櫻桜册冊雜雑"
    "參参慘惨棧桟蠶蚕贊賛殘残絲糸齒歯兒児辭辞濕湿實実舍舎寫写釋釈壽寿收収從従澁渋獸獣縱縦肅粛處処敍叙奬奨將将燒焼稱称證証乘乗剩剰壤壌孃嬢"
    "條条淨浄疊畳穰穣讓譲釀醸囑嘱觸触寢寝愼慎眞真盡尽圖図粹粋醉酔隨随髓髄數数樞枢聲声靜静齊斉攝摂竊窃專専戰戦淺浅潛潜纖繊踐践錢銭禪禅雙双"
    "壯壮搜捜插挿爭争總総聰聡莊荘裝装騷騒臟臓藏蔵屬属續続墮堕體体對対帶帯滯滞臺台瀧滝擇択澤沢單単擔担膽胆團団彈弾斷断癡痴遲遅晝昼蟲虫鑄鋳"
    "廳庁聽聴敕勅鎭鎮遞逓鐵鉄轉転點点傳伝黨党盜盗燈灯當当鬪闘德徳獨独讀読屆届繩縄貳弐惱悩腦脳霸覇廢廃拜拝賣売麥麦發発髮髪拔抜蠻蛮祕秘濱浜"
    "甁瓶拂払佛仏變変邊辺邉辺辨弁瓣弁辯弁豐豊寶宝襃褒萬万滿満默黙彌弥藥薬譯訳豫予餘余與与譽誉搖揺樣様謠謡來来賴頼亂乱覽覧龍竜兩両獵猟綠緑"
    "壘塁勵励禮礼靈霊齡齢戀恋爐炉勞労樓楼祿禄錄録灣湾龜亀髙高﨑崎嵜崎嶋島嶌島濵浜冨富桒桑舘館曾曽檜桧瀨瀬增増淸清靑青內内彥彦卽即槇槙遙遥堯尭"
    "凜凛籠篭𠮷吉栁柳館館濹墨埜野峯峰㟢崎薗園條条鬭闘竈竃靭靱躰体逹達"
)
# Soft hyphen, joiners, direction marks, variation selectors and others that show nothing.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e01ef]"
)
_KANGXI = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0x2F00, 0x2FD6)}
_SUPPLEMENT = dict(zip(map(ord, _RADICALS[::2]), _RADICALS[1::2], strict=True))
RADICALS: dict[int, str] = _KANGXI | _SUPPLEMENT
_FOLDED = RADICALS | dict(zip(map(ord, _VARIANTS[::2]), _VARIANTS[1::2], strict=True))
_FOLDABLE = re.compile(f"[{''.join(map(chr, _FOLDED))}]|{_INVISIBLE.pattern}")


def fold_characters(text: str) -> str:
    """Return text without invisible characters and with the usual kanji for radicals and variants."""
    if text.isascii() or not _FOLDABLE.search(text):
        return text
    return _INVISIBLE.sub("", text).translate(_FOLDED)
