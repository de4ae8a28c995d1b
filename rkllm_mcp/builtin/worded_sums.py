"""Sums in a person's words -> arithmetic expressions: 18 percent of 245, 1980円の3割引き, half of 379.

A text is read only if one of the forms below has all of its numbers; any other is left to the model, which writes the
expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rkllm_base.numbers import with_digits

_NUMBER = r"\d+(?:\.\d+)?"
_CURRENCY = re.compile(r"[$€£¥]|(?<=\d) ?(?:円|ドル|ユーロ|yen|dollars?|euros?|pounds|bucks)\b", re.IGNORECASE)
_SPLIT = r"\b(?:split(?:ting)?|shar(?:ed?|ing)|divid(?:e[sd]?|ing))\b|割り勘|[でに](?:割|わ[るっ]|分け)"
# Those who share come first: 4人で17360円を割り勘, 4 of us split 86.40.
_PEOPLE_FIRST = rf"^\D*{_NUMBER} ?(?:人|名|people\b|friends\b|of (?:us|them|you)\b)"
_SUM_OF = r"\b(?:sum|total|add)\b|合計|足し"
_MEAN_OF = r"\b(?:average|mean)\b|平均"
_OFF = r"% ?(?:off\b|discount|引|オフ|off|割引|値引)"
# 税抜で, but not 税抜1280円, which says of which price.
_LESS_TAX = (
    r"(?:税抜|税別)(?!き? ?(?:価格|の)? ?\d)|\b(?:before|without|excluding) (?:the )?tax\b"
    rf"|税込.*(?:税|{_NUMBER}%)を?(?:{_NUMBER}%)?を?(?:抜|引|除)"
)
_WITH_TAX = r"税|\btax\b|\bvat\b"
_PERCENT_FORMS = ((_OFF, "{0}*(1-{1}/100)"), (_LESS_TAX, "{0}/(1+{1}/100)"), (_WITH_TAX, "{0}*(1+{1}/100)"))
# How many percent something is.
WHICH_SHARE = r"何 ?(?:%|割)|\b(?:what|which|how many) ?(?:%|percent|percentage)"
# The 1 of a unit price, as in 30日で割ると1日いくら, does not belong to the sum.
ONE_OF_EACH = re.compile(
    r"(?<!\d)1(?:日|人|個|本|回|枚|[かヶ]月|週間?|年間?)(?=あたり|当たり|につき|いくら|何|なんぼ|だと)"
)
# Which share one number is of the other.
_OF_WHICH = r"うち|中|の ?何|\bof\b|\bout of\b|/"
# A price for a time, and for how long it is paid: 月3980円だと年間いくら, 23.50 an hour for 6 hours, 毎月6800円を2年.
# For each time: how a price is said for it, and how often it is in the longer ones.
_PER = r"(?:an?|per|each|every|/) ?"
_RATES: Sequence[tuple[str, Mapping[str, int]]] = (
    (rf"時給 ?({_NUMBER})|1時間 ?({_NUMBER})|({_NUMBER}) ?{_PER}h(?:ou)?r\b", {"hour": 1}),
    (
        rf"(?:日給|毎日|1日) ?({_NUMBER})|({_NUMBER}) ?{_PER}day\b",
        {"day": 1, "week": 7, "year": 365},
    ),
    (rf"(?:毎週|週に?|週給) ?({_NUMBER})(?!日|回)|({_NUMBER}) ?{_PER}week\b", {"week": 1, "year": 52}),
    (rf"(?:月額?|毎月|月々|月給)に? ?({_NUMBER})(?!日)|({_NUMBER}) ?{_PER}month\b", {"month": 1, "year": 12}),
    (rf"(?:年額|毎年|年に?|年収) ?({_NUMBER})(?!日|月|回)|({_NUMBER}) ?{_PER}year\b", {"year": 1}),
)
_TIMES: Mapping[str, str] = {
    "hour": rf"({_NUMBER})(?: ?h(?:ou)?rs?\b|時間(半)?)",
    "day": rf"({_NUMBER})(?: days?\b|日(?:間|分))",
    "week": rf"({_NUMBER})(?: weeks?\b|週)",
    "month": rf"({_NUMBER})(?: months?\b|[かヶカケ]月)",
    "year": rf"({_NUMBER})(?: years?\b|年(?!前|後))",
}
_YEARLY = r"年間|\b(?:a|per|each|every) year\b|\b(?:yearly|annually)\b"
# Powers are words after a number.
_POWERS: Sequence[tuple[str, str]] = (
    (rf"({_NUMBER})の({_NUMBER})乗", r"(\1**\2)"),
    (rf"({_NUMBER}) squared", r"(\1**2)"),
    (rf"({_NUMBER}) cubed", r"(\1**3)"),
)
# Words between two numbers.
_SIGNS: Sequence[tuple[str, str]] = (
    (r"\bto the power of\b|\bto the\b(?= \d)", "**"),
    (r"\b(?:multiplied by|times)\b|(?<=[\d)]) ?x ?(?=[\d(])|(?:に|を)?(?:かける|掛ける|かけ|掛け)", "*"),
    (r"\b(?:divided by|over)\b|(?:を)?(?:わる|割る)", "/"),
    (r"\bplus\b|(?:に)?(?:足す|たす|プラス)", "+"),
    (r"\bminus\b|\bless\b|(?:から)?(?:引く|ひく|マイナス)", "-"),
)
# Prices of one and how many: 698円が3個, 1パック298円の卵を3パック, 3 coffees 4.20 each, 6 cups at $3, a cake for 5.50.
_COUNTER = "(?:[個つ本枚冊袋箱缶杯台回皿]|人分|パック|ケース|セット)"
_GOODS = re.compile(
    rf"(?P<one>1) ?{_COUNTER}(?=\D{{0,3}}\d)"
    rf"|\b(?:an?|one) (?:[a-z]+ ){{1,2}}(?:for|at) [$€£¥]?(?P<single>{_NUMBER})"
    rf"|(?P<yen>{_NUMBER}) ?(?:円|ドル|ユーロ)|(?P<items>{_NUMBER}) ?{_COUNTER}"
    rf"|(?P<each>{_NUMBER})(?: (?:yen|dollars?|euros?|bucks))? (?:each|apiece|a piece)\b|\bat [$€£¥](?P<at>{_NUMBER})"
    rf"|(?<![\d.])(?P<things>\d+)(?= [a-z]+)",
    re.IGNORECASE,
)
_NOT_BOUGHT = rf"{_SPLIT}|釣|つり|残|\b(?:change|left)\b"
# Each is a pattern of a sum with all of its numbers, and the expression for it.
_FORMS: Sequence[tuple[str, str]] = (
    (rf"({_NUMBER})% (?:\w+ )?(?:of|on) ({_NUMBER})", r"\2*\1/100"),
    (rf"({_NUMBER})の({_NUMBER})%", r"\1*\2/100"),
    (rf"(?:square )?root of ({_NUMBER})|ルート ?({_NUMBER})|({_NUMBER})の平方根", r"sqrt(\1\2\3)"),
    (rf"({_NUMBER})の階乗|factorial of ({_NUMBER})|({_NUMBER}) factorial", r"factorial(\1\2\3)"),
    (rf"half of ({_NUMBER})|({_NUMBER})の半分", r"\1\2/2"),
    (rf"(?:a )?third of ({_NUMBER})", r"\1/3"),
    (rf"(?:a )?quarter of ({_NUMBER})", r"\1/4"),
    (rf"(?:twice|double) ({_NUMBER})|({_NUMBER})の2倍", r"\1\2*2"),
    (rf"({_NUMBER})の({_NUMBER})倍", r"\1*\2"),
    # 24本入りが12箱.
    (rf"({_NUMBER}) ?{_COUNTER}入り\D*({_NUMBER}) ?{_COUNTER}", r"\1*\2"),
)


def expression_of(text: str) -> str:
    """Return the expression that a text asks for, in the calculator's signs; empty if the text does not say it all."""
    if sum_of_prices := _of_prices(with_digits(text)):
        return sum_of_prices
    plain = _CURRENCY.sub("", with_digits(text)).replace("パーセント", "%")
    plain = re.sub(r"(?<=\d) ?(?:percent|per cent)\b", "%", plain, flags=re.IGNORECASE)
    plain = re.sub(rf"({_NUMBER})割({_NUMBER})分", lambda m: f"{float(m[1]) * 10 + float(m[2]):g}%", plain)
    plain = re.sub(rf"({_NUMBER})割(?!り勘)", lambda m: f"{float(m[1]) * 10:g}%", plain)
    plain = re.sub(rf"(?<![\d.])({_NUMBER}) ?%", r"\1%", plain)
    for pattern, form in _POWERS:
        plain = re.sub(pattern, form, plain, flags=re.IGNORECASE)
    plain = ONE_OF_EACH.sub("", plain)
    numbers = re.findall(_NUMBER, plain)
    if found := _of_one_price(plain, numbers) or _of_several(plain, numbers):
        return found
    for pattern, form in _FORMS:
        match = re.search(pattern, plain, re.IGNORECASE)
        if match is not None and len(re.findall(_NUMBER, match[0])) == len(numbers):
            return match.expand(form)
    # Numbers with signs, or words for them, between: what is before and after says nothing.
    for pattern, sign in _SIGNS:
        plain = re.sub(rf"(?<=[\d)%])\s*(?:{pattern})\s*(?=[\d(])", sign, plain, flags=re.IGNORECASE)
    runs = re.findall(r"[\d(][\d\s.()+*/^%×÷√−-]*[\d)%!]", plain)
    if len(runs) != 1 or not len(re.findall(_NUMBER, runs[0])) == len(numbers) > 1:
        return ""
    # A range or a date has bare hyphens between whole numbers.
    if not _has(r"[-+*/^%×÷√−]", runs[0]) or re.fullmatch(r"\d{4}-\d\d?-\d\d?", runs[0].strip()):
        return ""
    return runs[0].strip()


def _of_prices(text: str) -> str:
    """Read prices with their counts, if every number of the text is one of these."""
    goods = [(name, match[name]) for match in _GOODS.finditer(text) if (name := match.lastgroup or "") != "one"]
    if len(re.findall(_NUMBER, text)) != sum(1 for _ in _GOODS.finditer(text)) or _has(_NOT_BOUGHT, text):
        return ""
    terms: list[str] = []
    while goods:
        roles, values = zip(*goods[:2], strict=True)
        if roles[0] == "single":
            terms.append(values[0])
            del goods[0]
        elif set(roles) in ({"yen", "items"}, {"things", "at"}, {"things", "each"}):
            price, count = values if roles[0] in {"yen", "at", "each"} else reversed(values)
            terms.append(f"{price}*{count}")
            del goods[:2]
        else:
            return ""
    return "+".join(terms) if any("*" in term for term in terms) else ""


def _of_one_price(text: str, numbers: Sequence[str]) -> str:
    """Read a price with a discount or tax in percent, or one for a time, such as a month, with how long it is paid.

    It is paid for a year where no length is said.
    """
    percents = re.findall(rf"({_NUMBER})%", text)
    if len(percents) == 1 and len(numbers) == 2:
        remaining = list(numbers)
        remaining.remove(percents[0])
        for pattern, form in _PERCENT_FORMS:
            if _has(pattern, text):
                return form.format(remaining[0], percents[0])
    for rate, counts in _RATES:
        said = re.search(rate, text, re.IGNORECASE)
        if said is None:
            continue
        price = next(filter(None, said.groups()))
        remainder = f"{text[: said.start()]} {text[said.end() :]}"
        durations = [(count, match) for name, count in counts.items() if (match := re.search(_TIMES[name], remainder))]
        if len(durations) == 1 and len(re.findall(_NUMBER, remainder)) == 1:
            count, match = durations[0]
            length = f"{float(match[1]) + 0.5:g}" if match.lastindex == 2 else match[1]
            return f"{price}*{length}" if count == 1 else f"{price}*{count}*{length}".removesuffix("*1")
        if not re.search(_NUMBER, remainder) and "year" in counts and _has(_YEARLY, remainder):
            return f"{price}*{counts['year']}"
    return ""


def _of_several(text: str, numbers: Sequence[str]) -> str:
    if len(numbers) == 2 and _has(WHICH_SHARE, text):
        if not _has(_OF_WHICH, text):
            return ""
        # 120人のうち45人は何%, "36 of 48" but 45は120の何%.
        part, total = reversed(numbers) if _has(r"うち|\bout of .* (?:are|is)\b|^\D*\bof \d", text) else numbers
        return f"{part}/{total}*100"
    if len(numbers) == 2 and _has(_SPLIT, text):
        return "/".join(reversed(numbers) if _has(_PEOPLE_FIRST, text) else numbers)
    is_list = len(numbers) > 1 and re.search(rf"{_NUMBER}\s*[-+*/^(]", text) is None
    if is_list and _has(_MEAN_OF, text):
        return f"({'+'.join(numbers)})/{len(numbers)}"
    if is_list and _has(_SUM_OF, text) and not _has(r"each|ずつ|[個本枚冊袋箱]|パック|ケース|\bboxes\b|%", text):
        return "+".join(numbers)
    return ""


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None
