"""Find what a person asks to be remembered in their own words, by rules, in English and Japanese.

    message ─▶ without quotations ─▶ sentences ─▶ the request and what it is about ─▶ ``Statement``

A question about the past ("do you remember …?"), a task ("remember to …") and a quotation are not statements.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from rkllm_base.own_words import own_words
from rkllm_mcp.config.secrets import redacted_text
from rkllm_mcp.records import LONGEST_ROW
from rkllm_mcp.text import collapse_whitespace, shorten

# Longer messages may have a pasted page in them, which is not what the person says.
_LONGEST_MESSAGE = 600
_MOST_LINES = 4

_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|『[^』]*』|(?<!\w)'[^']*'(?!\w)|「[^」]*」|`[^`]*`")
_SENTENCE = re.compile(r".+?(?:[。！？!?]+|(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bSt)\.(?=\s|$)|\n|$)", re.DOTALL)

# English: "remember that …", "please keep in mind: …", and "… . Remember that."
_POLITE = (
    r"(?:(?:ok(?:ay)?|hey|hi|hello|also|and|oh|so|well|btw|by the way|from now on|please|pls|just|kindly"
    r"|(?:can|could|would|will) you|i(?:'d| would) like you to|i want you to|you (?:should|must))[\s,]+)*"
)
_KEEP = r"(?:remember|memori[sz]e|keep in mind|(?:don't|do not|never) forget|make a (?:mental )?note)"
_LEADING = re.compile(
    rf"{_POLITE}(?:{_KEEP}|keep (?:this|that|it) in mind)(?:\s+for (?:me|later|next time))?"
    r"(?P<mark>\s*(?:this|the following)?\s*[:,]\s*(?:that\s+)?|\s+that\s+|\s+)(?P<fact>.+)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    rf"{_POLITE}(?:{_KEEP}(?:\s+(?:that|this|it))?|keep (?:this|that|it) in mind)"
    r"(?:\s+for (?:me|later|next time))?(?:[\s,]+(?:please|thanks|thank you|for me|okay|ok))*[\s.!?]*",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    rf"(?P<fact>.+?)\s*[,;–—-]+\s*{_POLITE}(?:{_KEEP}(?:\s+(?:that|this|it))?|keep (?:this|that|it) in mind)"
    r"(?:[\s,]+(?:please|thanks|for me))*[\s.!]*",
    re.IGNORECASE,
)
# What follows "remember" without "that": a clause with a subject, not an object.
_CLAUSE = re.compile(
    r"(?:i|i'm|i've|we|we're|my|our|the|he|she|they|it|\w+'s)\b.*?(?:'s|'m|'re|'ve|\b(?:is|are|am|was|were|has|have|had"
    r"|do|does|don't|doesn't|can|can't|cannot|will|won't|like|love|hate|prefer|need|live|work|play|speak|study|use"
    r"|drive|moved|born|go|goes|likes|lives|works))\b",
    re.IGNORECASE,
)
_NO_FACT = re.compile(r"(?:to|when|what|where|how|who|why|which|if|whether|me|us|that|this|it)\b", re.IGNORECASE)
_ASKS = re.compile(r"\b(?:can|could|would|will) you\b", re.IGNORECASE)

# Japanese: 「…を覚えて」, 「覚えておいて：…」, and 「…。覚えて」.
_JA_KEEP = (
    r"(?:(?:しっかり|ちゃんと|よく|必ず|ぜひ)?(?:覚え|おぼえ|憶え|記憶し)(?:ておいて|とい[てで]|ていて|ておけ|とけ|て)"
    r"|(?:絶対)?忘れないで(?:おいて|いて)?)"
)
_JA_POLITE = (
    r"(?:ください|下さい|ちょうだい|頂戴|くれる|くれます|くれませんか|くれますか|もらえる|もらえます|もらえますか"
    r"|もらえませんか|いただけますか|ほしいです|ほしいんだけど|ほしいな|ほしい|欲しい|お願いします|お願い|[ねよな])*"
)
_JA_END = r"[。．.！!〜～\s]*"
_JA_LEAD = (
    r"(?:(?:お願い|ねえ|あと|それと|ちなみに|あのね|次の(?:こと|内容)|以下|これ|このこと)(?:です|を|は)?[、,，\s]*)*"
)
_JA_ALONE = re.compile(
    rf"{_JA_LEAD}(?:(?:これ|それ|このこと|そのこと|今の)(?:を|は|も)?、?)?{_JA_KEEP}{_JA_POLITE}[？?]?{_JA_END}"
)
_JA_LEADING = re.compile(rf"{_JA_LEAD}{_JA_KEEP}{_JA_POLITE}\s*[:：、,，\s]\s*(?P<fact>.+)", re.DOTALL)
_JA_TRAILING = re.compile(
    r"(?P<fact>.+?)(?P<joint>(?:という|っていう)?(?:の|こと|事)(?:を|は)?|を|と|って"
    r"|(?:だ|です|ます)?(?:から|ので)|なので|んだけど|けど|[、,，\s])"
    rf"(?:[、,，\s]|これ(?:を|は)?|それ(?:を|は)?)*{_JA_KEEP}{_JA_POLITE}[？?]?{_JA_END}"
)
_JA_INTRODUCTION = re.compile(r"(?:ちなみに|あと|それと|お願い|ねえ|あのね|じゃあ?)[、,，\s]*")
# A sentence with a topic, or with a verb or an adjective at its end.
_JA_TOPIC = re.compile(r"[^はがも]+[はがも].+")
_JA_PREDICATE = re.compile(r"(?:[るたい]|だ|です|ます|ません|ない|である)\Z")
_JA_ASKS = re.compile(
    r"(?:何|なに|なん(?!です|だ)|誰|だれ|どこ|いつ(?!も)|どう|どの|どれ|なぜ|いくつ|いくら)|か\Z|っけ\Z"
)
_JA_OTHER_LEARNS = re.compile(r"(?:に|が)[^はがも]*\Z|(?:彼|彼女|さん|子供|子ども)は")
_JAPANESE = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff]")

# A sentence that asks or wants something, and what joins it to a statement before it.
_ASKED = re.compile(
    r"\?\s*\Z|\bplease\b|\b(?:can|could|would|will) you\b"
    r"|\A\s*(?:tell|give|show|write|explain|help|let|make|read|translate|list|find|suggest|recommend|check)\b",
    re.IGNORECASE,
)
_JOINT = re.compile(
    r"(?:\s*[,;–—]\s*(?:(?:so|and|but|then)\b,?\s*)?|\s+(?:so|and|but)\s+)"
    r"(?=(?:what|how|when|where|which|who|why|can|could|should|would|do|does|is|are|may|please)\b)",
    re.IGNORECASE,
)
_NEXT_CLAUSE = re.compile(
    r",\s+(?:and|but|so)\s+(?=(?:i|i'm|i've|we|my|our|the|he|she|they|it|there)\b)", re.IGNORECASE
)
_JA_ASKED = re.compile(
    r"[？?]\s*\Z|(?:[はてか]|ください|下さい|くれる|くれます|ちょうだい|頂戴|お願い(?:します)?|ましょう"
    r"|ほしい(?:です)?|欲しい(?:です)?|たい(?:です|と思います)?)[。．.！!～〜\s]*\Z"
)
_JA_JOINT = re.compile(r"(?:な|だ|です|ます)?(?:ん|の)?(?:です|だ)?(?:けれども|けれど|けど|が|ので|から)[、,，]")
# Words about these days only.
_PASSING = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|right now|just now|at the moment|(?:this|next) (?:morning|afternoon|evening"
    r"|week|weekend|month)|in (?:an?|\w+) (?:minutes?|hours?|days?))\b"
    r"|今日|本日|明日|あした|明後日|あさって|昨日|きのう|昨夜|今朝|今夜|今晩|今から|これから|さっき|先ほど|[今来先]週|あと\d+[分時日]",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(r"\b(?:i|my|mine|me|we|our|ours|us)\b", re.IGNORECASE)

# Names of secrets, which are not kept even where their value looks like a word.
_SECRET_NAME = re.compile(
    r"\b(?:password|passcode|passphrase|pin(?: code| number)?|secret key|api key|access token|private key|cvv|cvc"
    r"|seed phrase|recovery code)\b|パスワード|暗証番号|パスコード|秘密鍵"
    r"|アクセストークン|ＡＰＩキー|APIキー|合言葉|復元コード|セキュリティコード",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\d-])(?:\d[ -]?){12,19}(?![\d-])")
_MY_NUMBER = re.compile(r"マイナンバー|個人番号|social security|\bssn\b|credit card|クレジットカード", re.IGNORECASE)
_CARD_DIGITS = range(13, 20)


@dataclass(frozen=True)
class Statement:
    """What a message asks to be remembered."""

    fact: str  # the row, in the person's own words; longer ones are cut
    rest: str = ""  # what the message says besides; empty if that is all


def is_secret(text: str) -> bool:
    """Return True for a text with a password, a key or the number of a card, which is not to be remembered."""
    if redacted_text(text) != text or _SECRET_NAME.search(text):
        return True
    if _MY_NUMBER.search(text) and any(character.isdigit() for character in text):
        return True
    for match in _DIGITS.finditer(text):
        # The last digit of a card is the check digit of the others (Luhn, ISO/IEC 7812-1).
        digits = [int(character) for character in reversed(match[0]) if character.isdigit()]
        doubled = [digit * (2 if index % 2 else 1) for index, digit in enumerate(digits)]
        if len(digits) in _CARD_DIGITS and sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0:
            return True
    return False


def row_text(text: str) -> str:
    """Return a text as it is stored: on one line, at most ``LONGEST_ROW`` characters."""
    return shorten(collapse_whitespace(text), LONGEST_ROW)


def is_typed(message: str) -> bool:
    """Return True for a message that a person has probably written; a longer one has material in it."""
    text = message.strip()
    return 0 < len(text) <= _LONGEST_MESSAGE and text.count("\n") < _MOST_LINES


def statement_in(message: str) -> Statement | None:
    """Return what a person's message asks to be remembered; None if it asks nothing of the kind."""
    text = message.strip()
    if not is_typed(text):
        return None
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    # As long as the text, so that a match gives places in it.
    masked = _QUOTED.sub(lambda match: "\x00" * len(match[0]), text)
    if not re.search(rf"{_KEEP}|in mind|{_JA_KEEP}", masked, re.IGNORECASE):
        return None
    spans = [match.span() for match in _SENTENCE.finditer(masked) if match[0].strip()]
    for index, (start, end) in enumerate(spans):
        sentence, words = masked[start:end], masked[start:end].strip()
        # A sentence may only ask to remember what is before or after it.
        is_alone = _JA_ALONE.fullmatch(words) is not None
        if _ALONE.fullmatch(words) and words.rstrip(".! ").lower() != "remember":
            is_alone = is_alone or not words.endswith("?") or _ASKS.search(words) is not None
        if (span := _fact_in(sentence)) is not None:
            fact, used = text[start + span[0] : start + span[1]], (start, end)
        elif not is_alone or len(spans) == 1:
            continue
        elif index == 0:
            fact, used = text[end : spans[-1][1]], (start, spans[-1][1])
        else:
            # With a question before it, only the last sentence.
            is_told = not re.search("[?？]", masked[:start])
            begin = spans[0 if is_told else index - 1][0]
            fact, used = text[begin:start], (begin, end)
        if is_fact(fact := _trimmed(fact)):
            remainder = f"{text[: used[0]].strip()} {text[used[1] :].strip()}".strip()
            return Statement(row_text(fact), remainder)
    return None


def _fact_in(sentence: str) -> tuple[int, int] | None:
    """Return the place of the fact in a sentence that asks for it; None if it does not."""
    lead = len(sentence) - len(sentence.lstrip())
    words = sentence.strip()
    is_japanese = bool(_JAPANESE.search(words))
    for pattern in (_JA_LEADING, _JA_TRAILING) if is_japanese else (_LEADING, _TRAILING):
        match = pattern.fullmatch(words)
        if match is None:
            continue
        fact, is_statement = match["fact"], True
        if pattern is _JA_TRAILING:
            # What is before 「覚えて」 may be what a person is to learn.
            joint, has_topic = match["joint"], _JA_TOPIC.fullmatch(fact) is not None
            if joint == "を":
                is_statement = fact.endswith("\x00") or (has_topic and not _JA_OTHER_LEARNS.search(fact))
            elif joint in ("、", ",", "，") or joint.isspace():
                is_statement = has_topic and not re.search(r"(?:こと|名前|誕生日)\Z", fact)
            else:
                is_statement = has_topic or _JA_PREDICATE.search(fact) is not None
            is_statement = is_statement and not _JA_ASKS.search(fact) and not re.search(r"[？?]", fact)
        elif pattern is _LEADING:
            # The sentence may be a question about the past.
            if words.endswith("?") and not _ASKS.search(words):
                is_statement = False
            elif "that" in match["mark"].lower() or ":" in match["mark"]:
                is_statement = len(fact.split()) > 1
            else:
                is_statement = not _NO_FACT.match(fact) and _CLAUSE.match(fact) is not None
        if is_statement:
            return lead + match.start("fact"), lead + match.end("fact")
    return None


def _trimmed(fact: str) -> str:
    fact = _JA_INTRODUCTION.sub("", fact.strip(), count=1) if _JAPANESE.search(fact) else fact.strip()
    fact = fact.strip(" \t\n\u3000。．.！!、,，;；:：…")
    if len(fact) > 1 and fact[0] in '「『“"' and fact[-1] in '」』”"':
        fact = fact[1:-1]
    return re.sub(r"[\s,]+please\Z", "", fact.rstrip("?？"), flags=re.IGNORECASE)


def is_fact(fact: str) -> bool:
    """Return True for a text that tells something, not a question or a single word."""
    if len(fact) < 3 or fact.endswith(("?", "？")):
        return False
    if _JAPANESE.search(fact):
        return not _JA_ASKS.search(fact)
    return len(fact.split()) > 1


def told_in(message: str) -> list[str]:
    """Return what a person's message tells of themselves, in their own words, and not only of these days.

    Of a sentence that asks something it is the part before the question: "I don't eat meat, so what …?".
    """
    if not is_typed(message):
        return []
    text = unicodedata.normalize("NFC", message.strip()).replace("’", "'")
    masked = _QUOTED.sub(lambda match: "\x00" * len(match[0]), text)
    told: list[str] = []
    for match in _SENTENCE.finditer(masked):
        sentence, is_japanese = match[0], bool(_JAPANESE.search(match[0]))
        if asked := (_JA_ASKED if is_japanese else _ASKED).search(sentence):
            joint = (_JA_JOINT if is_japanese else _JOINT).search(sentence)
            if joint is None or joint.start() > asked.start():
                continue
            sentence = sentence[: joint.start()]
        for clause in _NEXT_CLAUSE.split(text[match.start() : match.start() + len(sentence)]):
            fact = _trimmed(clause)
            is_own = (is_japanese or _FIRST_PERSON.search(fact)) and not _PASSING.search(fact)
            if is_own and is_fact(fact) and row_text(fact) == fact and not is_secret(fact):
                told.append(fact)
    return told


def is_said(text: str, question: str) -> bool:
    """Return True if a text has words of its own and each of them is in a question."""
    words, _ = own_words(text)
    question_text = question.casefold()
    return bool(words) and all(
        re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", question_text)
        if word.isascii()
        else word in question_text
        for word in words
    )
