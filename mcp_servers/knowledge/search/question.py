"""Understanding of a question: its words without request phrases, and other words for the same things.

    "ホテル代はいくらまで？" -> terms of "ホテル代", and the concept ホテル代 with 宿泊費, 宿代, …

A concept is a word of the question that has synonyms. The re-rank counts an alternative of a concept below its exact
words, and a concept only once.

``synonyms.txt`` is our own; ``sudachi_synonyms.txt`` is made from SudachiDict (notice at its head).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from mcp_servers.knowledge.text_analysis import Analysis, analyze, analyze_query, unify_letters
from rkllm_base.ranges import KANJI, KATAKANA

_REQUEST = (
    "(?:詳しく|簡単に)?(?:教えて|説明して|調べて|まとめて|知りたい|聞きたい|探して)"
    "(?:ください|下さい|欲しい|くれ|もらえますか|です|[。!?]|$)"
)
_COUNTED = "日|時|分|回|個|人|円|歳|才|月|年|曜日|枚|冊|本|階|泊|か月|ヶ月|カ月|番|度|週|キロ|メートル"
# Phrases that ask and do not describe: 教えてください, 何日まで, 誰, the time of a condition.
_ASKING = re.compile(
    rf"(?:について|に関して|を|が)?{_REQUEST}|について|に関して|に関する"
    rf"|何(?:{_COUNTED})?(?:間|前|後|目)?(?:まで|から)?|誰|幾ら|下さい|(?:でき|出来)ますか"
    r"|いつ(?:まで|から|ごろ)?|いくら|どこ|だれ|どれ|どんな|どう|なぜ|(?<=[\u3041-\u3096])(?:場合|時|とき)(?=[はにのも、]|$)|(?:して|ても|たら)?(?:良い|よい|いい)(?:ですか|の)?$"
)
_HIRAGANA = "\u3041-\u3096"
_WORD = re.compile(f"[{KANJI}]+|[{KATAKANA}]{{2,}}|[^\\W_{KANJI}{KATAKANA}{_HIRAGANA}]{{2,}}")
_ONLY_HIRAGANA = re.compile(f"[{_HIRAGANA}]+")
_OKURIGANA = re.compile("[\u3005\u4e00-\u9fff](?:[いきしちひみりぎじびえけせねめれげぜべっわ]{1,2}[\u4e00-\u9fff])+")
# The concepts of a question of up to 10,000 characters need memory for each.
_LONGEST_WORD, _MAX_ALTERNATIVES, _MAX_CONCEPTS = 12, 32, 40
_INSIDE_RUN = re.compile("[ァ-ヺー]{2}|[a-z0-9]{2}")
# A verb or adjective of the synonyms, in its dictionary form: 消す, 取り除く, 遅い.
_INFLECTED = re.compile(rf"(?P<stem>[{KANJI}][{KANJI}{_HIRAGANA}]*?)(?P<end>[うくぐすつぬぶむるい])")
# Its other endings: 消した, 消さない. A verb in いる or える may have no ending: 壊れた.
_ENDINGS = {
    "う": "わいえおっ", "く": "かきけこい", "ぐ": "がぎげごい", "す": "さしせそ", "つ": "たちてとっ",
    "ぬ": "なにねのん", "ぶ": "ばびべぼん", "む": "まみめもん", "る": "らりれろっ", "い": "くけか",
}  # fmt: skip
_WITHOUT_ENDING = re.compile("[いきぎしじちにひびみりえけげせぜてでねへべめれ]る")
# After other letters than these, a verb or hiragana are the end of another word: 出し in 引き出し, たす in 重たすぎる.
_BEFORE_WORD = re.compile(f"[^{KANJI}{_HIRAGANA}]|[をがはにでともへのく]")


# Words that point to the question before: それを消すには？ And how do I undo that?
_POINTER = re.compile(
    rf"(?<![{_HIRAGANA}])(?:そ|こ|あ)(?:の|れ|こ|ちら|っち)|(?<![{_HIRAGANA}])(?:そう|じゃあ|では)|同じ|上記|さっき|先ほど"
    r"|\b(?:it|its|they|them|their|this|that(?=[?.!]*$)|these|those|there|then|same|one|ones|else|more|also|again|and)\b"
)
# Words that say something of a subject; a single kanji is one, because 鍵 is. Hiragana after kanji are its ending.
_CONTENT = re.compile(
    rf"[{KANJI}]+[{_HIRAGANA}]*|[\u30a1-\u30fa\u30fc]{{2,}}|[{_HIRAGANA}]{{3,}}|[a-z0-9][a-z0-9._+-]+"
)
_EMPTY = re.compile(
    "(?:です|ます|でしょう|します|ました|ください|たい|ない|いい|よい|とき|ときは|には|のは|たら|する|なる|どう|どの)+[かねよはの]*"
)
_MIN_CONTENT_WORDS, _MIN_ENGLISH_WORDS, _MIN_WITH_POINTER = 3, 4, 5
# A longer question has its own subject, and the words of a longer one before would drown those of this one.
_MAX_FOLLOW_UP, MAX_PREVIOUS = 200, 500


_word_analysis = lru_cache(maxsize=8_192)(analyze)


@dataclass(frozen=True)
class Alternative:
    """Terms that together mean a word."""

    terms: tuple[str, ...]
    kanji: tuple[str, ...] = ()  # of a word of one kanji


@dataclass(frozen=True)
class Concept:
    """A word of the question that has alternatives."""

    own: Analysis
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class UnderstoodQuery:
    """Terms to search with, and the concepts among them."""

    analysis: Analysis
    concepts: tuple[Concept, ...] = ()
    words: tuple[Analysis, ...] = ()  # runs of kanji or katakana, and words of other scripts


def understand(text: str) -> UnderstoodQuery:
    """Return the terms and concepts of a question; a question of request phrases alone keeps them."""
    plain = unify_letters(text)
    bare = _ASKING.sub(" ", plain)
    analysis = analyze_query(bare)
    if not analysis.terms:
        bare, analysis = plain, analyze_query(plain)
    words = tuple(_word_analysis(word) for word in islice(dict.fromkeys(_WORD.findall(bare)), _MAX_CONCEPTS))
    return UnderstoodQuery(analysis, tuple(islice(_concepts(bare), _MAX_CONCEPTS)), words)


def is_follow_up(text: str) -> bool:
    """Return True for a question that may continue the one before: it points back, or has few words of its own."""
    if len(text) > _MAX_FOLLOW_UP:
        return False
    plain = unify_letters(text)
    words = _CONTENT.findall(_ASKING.sub(" ", plain))
    meaningful = [word for word in words if not _EMPTY.fullmatch(word) and (not word.isascii() or analyze(word).terms)]
    least = _MIN_ENGLISH_WORDS if plain.isascii() else _MIN_CONTENT_WORDS
    return len(meaningful) < (_MIN_WITH_POINTER if _POINTER.search(plain) else least)


@dataclass(frozen=True)
class FollowUp:
    """A question that continues the one before."""

    joined: str  # both as one text to search with
    question: UnderstoodQuery
    previous: UnderstoodQuery


def _concepts(text: str) -> Iterator[Concept]:
    groups, forms, lengths = _synonyms().groups, _synonyms().forms, _synonyms().lengths
    end_of_last = 0
    for start, letter in enumerate(text):
        for end in (start + length for length in lengths.get(letter, ())):
            word = text[start:end]
            synonyms = groups.get(word)
            # A word inside the previous one adds nothing: 有給 in 有給休暇.
            is_new = bool(synonyms) and end_of_last < end <= len(text)
            # A verb form or a word of hiragana may be the end of another word: 出し in 引き出し.
            is_part = is_new and start > 0 and bool(word in forms or _ONLY_HIRAGANA.fullmatch(word))
            is_part = is_part and not _BEFORE_WORD.fullmatch(text[start - 1])
            if synonyms and is_new and not is_part and not _cuts_run(text, start) and not _cuts_run(text, end):
                end_of_last = end
                words = [other for group in synonyms for other in group if other != word]
                alternatives = [_alternative(other) for other in dict.fromkeys(words)]
                if _ONLY_HIRAGANA.fullmatch(word):
                    # Its bigrams are not among the terms of the query.
                    alternatives.insert(0, _alternative(word))
                # Those of function words alone have no terms.
                usable = [alternative for alternative in alternatives if alternative.terms or alternative.kanji]
                analysis = analyze(word)
                if analysis.terms or not word.isascii():
                    yield Concept(analysis, tuple(usable[:_MAX_ALTERNATIVES]))
                break


def _cuts_run(text: str, at: int) -> bool:
    """Return True if a word that begins or ends at ``at`` cuts a run of katakana or Latin letters."""
    return bool(_INSIDE_RUN.fullmatch(text[max(at - 1, 0) : at + 1]))


@lru_cache(maxsize=8_192)
def _alternative(word: str) -> Alternative:
    """Return the bigrams or words of an alternative; whole runs depend on their neighbours."""
    skeleton = [re.sub(f"[{_HIRAGANA}]", "", match.group()) for match in _OKURIGANA.finditer(word)]
    analysis = analyze(skeleton[0] if skeleton else word)
    if len(word) == 1:
        return Alternative((), tuple(analysis.kanji))
    return Alternative(tuple(term for term in analysis.terms if len(term) == 2 or term.isascii()))


@dataclass(frozen=True)
class _Synonyms:
    groups: Mapping[str, Sequence[tuple[str, ...]]]  # of each word
    forms: frozenset[str]  # of verbs and adjectives, in addition to their dictionary forms
    lengths: Mapping[str, Sequence[int]]  # of the words that begin with a letter, longest first


@lru_cache(maxsize=1)
def _synonyms() -> _Synonyms:
    """Read the files, at the first question."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for name in ("synonyms.txt", "sudachi_synonyms.txt"):
        for line in unify_letters(Path(__file__).with_name(name).read_text("utf-8")).splitlines():
            words = () if line.startswith("#") else tuple(dict.fromkeys(line.split()))
            for word in words:
                groups.setdefault(word, []).append(words)
    forms: dict[str, list[tuple[str, ...]]] = {}
    for word, synonyms in groups.items():
        if match := _INFLECTED.fullmatch(word):
            stem = match["stem"]
            inflected = [stem + ending for ending in _ENDINGS[match["end"]]]
            if len(stem) > 1 and _WITHOUT_ENDING.fullmatch(word[-2:]):
                inflected.append(stem)
            for form in inflected:
                if form not in groups:
                    forms.setdefault(form, []).extend(synonyms)
    lengths: dict[str, set[int]] = {}
    for word in (*groups, *forms):
        if len(word) <= _LONGEST_WORD:
            lengths.setdefault(word[0], set()).add(len(word))
    longest_first = {letter: sorted(ends, reverse=True) for letter, ends in lengths.items()}
    return _Synonyms({**groups, **forms}, frozenset(forms), longest_first)
