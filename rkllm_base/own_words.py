"""The words of a question that say what it is about, and follow-ups, which leave these out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA

# Words that point to earlier messages: その条件は？ What about part-timers?
_POINTER = re.compile(
    r"(?:そ|こ|あ)(?:の|れ|こ|ちら)(?:ら|とき|時|場合|ほか|他|うち|ため)?|そう(?:いう|した)|同じ|同様|上記|前述|先ほど|さっき|場合|ほか|他|じゃあ?|では|もっと|詳し[いく]"
    r"|\b(?:it|its|they|them|their|this|that|these|those|there|then|same|else|more|also|(?:what|how) about|and)\b"
)
# Words that say nothing without a subject: asking, polite and general ones.
_WITHOUT_SUBJECT = re.compile(
    r"(?:条件|金額|期限|期間|締め?切り?|日数|回数|人数|方法|手順|手続き?|対象者?|理由|場所|時間|費用|料金|値段|上限|下限|例外|担当者?|連絡先?|詳細|続き|内容|意味|必要|書類"
    r"|何[日時分回個人円歳年月度本枚]?間?|誰|幾ら|具体的|教えて|ください|下さい|お願い|説明|して|しま[すし]|でしょう|です|ます|ました|いつ|どこ|どう|どの|どんな|どれ|だれ|なに|なぜ|なんで|いくら|いくつ"
    r"|くらい|ぐらい|まで|から|について|とは|という|ある|あり|ない|なる|なり|できる?|する|すれば|したら|たら|よい|いい|もう|また|それで|^(?:はい|ええ)|私|わたし|僕|ぼく|俺|うちの|もら[えう]る?|例えば|例|[はがをにでともやのかへねよ])"
    r"|\b(?:(?:what|when|where|who|why|how)s?|which|much|many|long|often|far|am|is|are|was|were|do|does|did|can|could|may|must|should|will|would|have|has|be|to|of|in|on|at|for|from|by|with"
    r"|the|an?|any|some|or|but|so|if|i(?:'(?:m|ve|d|ll))?|me|my|mine|myself|we(?:'(?:re|ve|d|ll))?|us|ours?|you|your|one|ones|please|tell|explain|give|show|say|yes|no|ok|okay|thanks|thx|u|ur|r|im|ive|pls|plz|btw|rn|condition|amount|deadline|limit|price|cost|reason|details?|examples?"
    r"|exceptions?|requirements?|conditions)\b"
)
_OWN_WORD = re.compile(rf"[{KANJI}]+|[{KATAKANA}]+|[{HIRAGANA}]{{2,}}|[^\W{HIRAGANA}{KATAKANA}{KANJI}]+")


def own_words(text: str) -> tuple[list[str], bool]:
    """Return the words of a text that say what it is about, and True if others point to earlier messages."""
    plain = unicodedata.normalize("NFKC", text).lower()
    without_pointers = _POINTER.sub(" ", plain)
    return _OWN_WORD.findall(_WITHOUT_SUBJECT.sub(" ", without_pointers)), without_pointers != plain


# Own words of a question that points back, such as 課長の場合は？
_MOST_OWN_WORDS = 2
_MOST_EARLIER = 5
_EARLIER_CHARS = 500
_LONGEST_FOLLOW_UP_CHARS = 1000  # a longer text has a subject, and matching megabytes would block the event loop


def with_earlier_words(text: str, earlier: Sequence[str]) -> str:
    """Return the words to search with: those of a follow-up question come after the question that it continues.

    ``earlier`` are the previous questions, oldest first. A follow-up has no word of its own that says what it is about,
    or points back and has few.
    """
    if not _is_follow_up(text):
        return text
    recent = [question for question in reversed(earlier) if question.strip()][:_MOST_EARLIER]
    subject = next((question for question in recent if not _is_follow_up(question)), recent[-1] if recent else "")
    return f"{subject[:_EARLIER_CHARS]}\n{text}" if subject else text


# The end of a question: 大阪は？ じゃあ大阪は And in Osaka?
_ASKING = re.compile(r"(?:[?？]|は|か|の|って|では|だと)[\s。…]*\Z")


def asks_on(text: str) -> bool:
    """Return True if a text asks what was asked before about something else: it points back and has its own word.

    "And tomorrow?" does, "And what else?" and "What can you do?" do not.
    """
    if len(text) > _LONGEST_FOLLOW_UP_CHARS:
        return False
    words, points_back = own_words(text)
    return 0 < len(words) <= _MOST_OWN_WORDS and points_back and _ASKING.search(text) is not None


def _is_follow_up(text: str) -> bool:
    if len(text) > _LONGEST_FOLLOW_UP_CHARS:
        return False
    words, points_back = own_words(text)
    return not words or (len(words) <= _MOST_OWN_WORDS and points_back)
