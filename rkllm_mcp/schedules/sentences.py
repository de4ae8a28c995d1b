"""Sentences of people -> schedules, by rules in English and Japanese, without a model.

    "every weekday at 7:30 tell me the weather"   weekdays 07:30, "tell me the weather"
    "3時間後に洗濯物"                                once …, "洗濯物", a reminder

A sentence is taken apart into its times and the rest. It is a schedule only if the rest is something to do at a time:
a request, a question after the time, or something to be reminded of. Statements and questions about times are none.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from rkllm_base.days import day_spans
from rkllm_base.numbers import with_digits
from rkllm_mcp.schedules.rules import WEEKDAYS, Rule
from rkllm_mcp.text import language_of_text

_LONGEST = 300


@dataclass(frozen=True)
class SaidSchedule:
    """A schedule that a sentence holds."""

    rule: Rule
    prompt: str  # what is asked of the model, or the text of the reminder
    is_reminder: bool = False  # no model is asked


def read_sentence(text: str, now: datetime) -> SaidSchedule | None:
    """Return the schedule in a sentence; None if it holds none.

    Args:
        text: the sentence.
        now: the present on the clocks of the person's zone.
    """
    plain = unicodedata.normalize("NFKC", text).strip()
    if not plain or len(plain) > _LONGEST or "\n" in plain:
        return None
    is_japanese = language_of_text(plain) == "ja"
    return (_JapaneseReader if is_japanese else _EnglishReader)(plain, now).read()


# Without a time of day: what "every morning" means until the person changes it.
_PARTS_OF_DAY = {"day": 8, "morning": 7, "noon": 12, "afternoon": 15, "evening": 18, "night": 21}
_NOON = 12
_LATE = frozenset({"afternoon", "evening", "night"})
# Of an hour without am or pm, those from 1 on mean the afternoon.
_EARLIEST = 7


@dataclass(eq=False)
class _Reader:
    """What both languages have in common: parts of a text that are taken out of it, and what they mean together."""

    text: str
    now: datetime
    part: str = ""  # of the day
    rule: Rule | None = None  # of what repeats, with no time yet
    delay: timedelta | None = None
    day: date | None = None
    hour: int | None = None
    minute: int = 0
    is_exact: bool = False  # am, pm or 24 hours were said
    is_led: bool = False  # the sentence begins with its time

    def take(self, pattern: str) -> re.Match[str] | None:
        """Take the first match of a pattern out of the text."""
        match = re.search(pattern, self.text, re.IGNORECASE)
        if match is not None:
            self.is_led = self.is_led or not self.text[: match.start()].strip(" ,、")
            # The mark keeps the two sides apart.
            self.text = f"{self.text[: match.start()]}\x00{self.text[match.end() :]}"
        return match

    def take_day(self, joints: str, *, is_anywhere: bool) -> None:
        """Take a day that is named: tomorrow, on Friday, 4 July, 来週の月曜日.

        If it may not be anywhere, there is nothing but ``joints`` and marks before it.
        """
        # The search replaces numbers by digits, which must not move what follows.
        masked = re.sub(r"[〇一二三四五六七八九十百千万億兆]", "□", self.text)
        masked = re.sub(_NUMBER_WORD, lambda match: "_" * len(match[0]), masked, flags=re.IGNORECASE)
        if len(with_digits(masked)) != len(masked):
            return
        for begin, end, day in day_spans(masked, self.now.date()):
            if day < self.now.date() or (not is_anywhere and self.text[:begin].strip(f"{joints}\x00")):
                continue
            self.is_led = self.is_led or not self.text[:begin].strip(" ,、\x00")
            # The search leaves 日 of 月曜日.
            following = self.text[end:].removeprefix("日") if self.text[:end].endswith("曜") else self.text[end:]
            self.text, self.day = f"{self.text[:begin]}\x00{following}", day
            return

    def final_rule(self) -> Rule | None:
        """Return the rule of all that was taken; None if it is not a time that can come."""
        if self.delay is not None:
            moment = self.now + self.delay
            return Rule("once", time(moment.hour, moment.minute), day=moment.date())
        if self.rule is not None and self.rule.every_s:
            return self.rule if self.hour is None else None
        if self.hour is None and not (self.rule is not None or (self.part and self.day)):
            return None
        hour = _PARTS_OF_DAY[self.part or "day"] if self.hour is None else self.hour
        if self.hour is not None and not self.is_exact:
            if self.part in _LATE and hour < _NOON:
                hour += _NOON
            elif self.part == "night" and hour == _NOON:
                hour = 0
            elif not self.part and hour < _EARLIEST and (self.rule is not None or self.day is not None):
                hour += _NOON
            elif not self.part and self.rule is None and self.day is None and hour <= _NOON:
                # The next time that a clock with twelve hours shows this hour.
                minutes_now = self.now.hour * 60 + self.now.minute
                candidates = (hour % _NOON, hour % _NOON + _NOON)
                coming = (candidate for candidate in candidates if candidate * 60 + self.minute > minutes_now)
                hour = next(coming, hour % _NOON)
        if hour > 24 or self.minute >= 60:
            return None
        at = time(hour % 24, 0 if self.hour is None else self.minute)
        if self.rule is None and self.day is not None:
            return Rule("once", at, day=self.day)
        today = self.now.date()
        first = today if at > self.now.time().replace(tzinfo=None) else today + timedelta(days=1)
        if self.rule is None:
            return Rule("once", at, day=first)
        begin = first if self.rule.every_days else None
        return Rule(self.rule.kind, at, self.rule.days, begin, every_days=self.rule.every_days)


_DAY = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_NUMBER_WORD = (
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty)"
    r"(?:[ -](?:one|two|three|four|five|six|seven|eight|nine))?\b"
)
_EVERY = r"(?:every|each)(?: single)?"
_UNIT = r"(minute|min|hour|day|week)s?"
_REMIND = (
    r"^(?:remind|wake|alert|notify|ping|nudge) me\b(?: up\b)?(?: to\b| that\b| about\b| of\b| for\b)?"
    r"|^(?:don't|do not) let me forget(?: to\b| about\b)?|^set (?:a|an) (?:reminder|alarm)(?: to\b| for\b| about\b)?"
)
_POLITE = (
    r"^(?:please|kindly|and|then|can you|could you|would you|will you|i want you to|i'd like you to"
    r"|i would like you to)\b,? ?"
)
_REQUEST = re.compile(
    r"(?:tell|give|show|send|read|say|list|check|look|find|search|summari[sz]e|get|fetch|write|report|compare|count"
    r"|suggest|recommend|ask|let me know|update me|translate|calculate|make|draft|print|post|play|turn|set|run|plan"
    r"|create|explain|describe|brief|forecast|quiz|wish|greet|sum up|pick|choose|prepare|warn|inform|email|message)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"(?:what|what's|which|who|how|is|are|will|do|does|should|where|when|any|can|has|have)\b", re.IGNORECASE
)
_ABOUT_WRITING = re.compile(r"(?:write|draft|make) (?:me )?(?:an? |the )?\w+ about\b", re.IGNORECASE)


class _EnglishReader(_Reader):
    def read(self) -> SaidSchedule | None:
        original = self.text
        self.text = re.sub(
            rf"{_NUMBER_WORD}(?= (?:minute|min|hour|day|week|o'clock|am|pm))|(?<=\bat ){_NUMBER_WORD}",
            lambda match: with_digits(match[0]),
            self.text,
            flags=re.IGNORECASE,
        )
        if re.match(_REMIND.replace("^", r"^(?:please |can you |could you )?"), self.text, re.IGNORECASE) is None and (
            _ABOUT_WRITING.match(self.text)
        ):
            return None
        if re.match(r"(?:set|start) (?:a |an |the )?(?:\d+ ?\w+ )?timer\b", self.text, re.IGNORECASE):
            if (match := re.search(rf"\b(\d+) ?{_UNIT}\b", self.text, re.IGNORECASE)) is None:
                return None
            self.delay = _span(int(match[1]), match[2])
            rule = self.final_rule()
            return SaidSchedule(rule, original.rstrip("."), is_reminder=True) if rule is not None else None
        self._take_times()
        rule = self.final_rule()
        return self._said(rule) if rule is not None else None

    def _take_times(self) -> None:
        self._take_repetition()
        if self.rule is None and (match := self.take(rf"\bin (?:(an?)|half an|(\d+)) {_UNIT}(?: from now| time)?\b")):
            count = int(match[2] or 1)
            self.delay = _span(count, match[3]) if match[1] or match[2] else timedelta(minutes=30)
            return
        if self.rule is not None and self.rule.every_s:
            return
        if match := self.take(r"\b(?:at )?(noon|midnight|midday)\b"):
            self.hour, self.is_exact = (0 if match[1].lower() == "midnight" else _NOON), True
        elif match := self.take(r"\b(?:at )?(half past|quarter past|quarter to) (\d{1,2})\b"):
            self.minute = {"half past": 30, "quarter past": 15, "quarter to": 45}[match[1].lower()]
            self.hour = int(match[2]) - (match[1].lower() == "quarter to")
        elif match := self.take(
            r"\b(?:at|by|around) (\d{1,2})(?:[:.](\d{2}))?(?: ?([ap])\.?m\b\.?| o'?clock| ?h\b)?(?![\d:%])"
            r"|\b(\d{1,2})(?::(\d{2}))? ?([ap])\.?m\b\.?|\b(\d{1,2}):(\d{2})\b"
        ):
            hour, minute, half = (
                match[1] or match[4] or match[7],
                match[2] or match[5] or match[8],
                match[3] or match[6],
            )
            self.hour, self.minute = int(hour), int(minute or 0)
            if half:
                self.is_exact = True
                self.hour = self.hour % _NOON + (_NOON if half.lower() == "p" else 0)
            elif self.hour > _NOON or hour.startswith("0"):
                self.is_exact = True
        if match := self.take(
            r"\b(?:in the (morning|afternoon|evening)|(?:at|to)(night)|this (morning|afternoon|evening))\b"
        ):
            self.part = (match[1] or match[2] or match[3]).lower()
            if match[2] and self.rule is None:
                self.day = self.now.date()
        if self.rule is None:
            # Without an hour, a day in what is asked for ("the weather tomorrow") is not its time.
            self.take_day(" ,", is_anywhere=self.hour is not None)
            if self.day is not None and (match := self.take(r"(?<=\x00) ?(morning|afternoon|evening|night)\b")):
                self.part = match[1].lower()

    def _take_repetition(self) -> None:
        part = r"(?: (morning|afternoon|evening|night))?"
        if self.take(
            rf"\b(?:on )?(?:{_EVERY} (?:week ?|working |work ?|business )day|weekday)s?\b(?! hours?)"
        ) or self.take(r"\b(?:every |from )?mon(?:day)? ?(?:to|through|-|–) ?fri(?:day)?\b"):
            self.rule = Rule("weekdays")
        elif self.take(r"\b(?:every|each|on|at) (?:the )?weekends?\b"):
            self.rule = Rule("weekly", days=(5, 6))
        elif match := self.take(
            r"\b(?:on )?the (?:(\d{1,2})(?:st|nd|rd|th)?|(last))(?: day)? of (?:every|each|the) month\b"
            rf"|\b(?:{_EVERY} month|monthly) on the (?:(\d{{1,2}})(?:st|nd|rd|th)?|(last) day)\b"
        ):
            day = 31 if match[2] or match[4] else int(match[1] or match[3])
            self.rule = Rule("monthly", days=(day,)) if 1 <= day <= 31 else None
        elif match := self.take(rf"\b{_EVERY} (?:(other) day|(\d+) days)\b"):
            self.rule = Rule("every", every_days=2 if match[1] else max(1, int(match[2])))
        elif match := self.take(rf"\b{_EVERY} (?:(half)[ -](?:an )?hour|(\d+)? ?(minute|min|hour)s?)\b|\b(hourly)\b"):
            unit = (match[3] or "hour").lower()
            seconds = 1800 if match[1] else int(match[2] or 1) * (3600 if unit == "hour" else 60)
            self.rule = Rule("every", every_s=seconds) if seconds else None
        elif match := self.take(
            rf"\b(?:(?:{_EVERY}(?: week on)?|on) )?((?:{_DAY})s?(?:(?:, and|, ?| and | & | or )(?:{_DAY})s?)*){part}\b"
            rf"(?<=s)|\b{_EVERY} (?:week on )?((?:{_DAY})(?:(?:, and|, ?| and | & )(?:{_DAY}))*){part}\b"
        ):
            name = (match[1] or match[3]).lower()
            days = sorted({WEEKDAYS.index(day[:3]) for day in re.findall(_DAY, name)})
            self.rule, self.part = Rule("weekly", days=tuple(days)), (match[2] or match[4] or "").lower()
        elif match := self.take(rf"\b{_EVERY} (day|morning|noon|afternoon|evening|night)\b|\b(daily)\b|\b(nightly)\b"):
            part = (match[1] or ("night" if match[3] else "day")).lower()
            self.rule, self.part = Rule("daily"), "" if part == "day" else part

    def _said(self, rule: Rule) -> SaidSchedule | None:
        parts = [part.strip(" ,:;-–") for part in self.text.split("\x00")]
        parts = [re.sub(r"^(?:on|at|then|,)$", "", part, flags=re.IGNORECASE) for part in parts]
        words = " ".join(part for part in parts if part)
        words = re.sub(r"\s+([,.?!])", r"\1", words).strip(" ,:")
        before = None
        while before != words:
            before = words
            words, count = re.subn(_POLITE, "", words, flags=re.IGNORECASE)
            # "Could you …?" asks for it as "…" does.
            words = words.strip(" ,?" if count else " ,")
        if match := re.match(_REMIND, words, re.IGNORECASE):
            task = re.sub(r"^(?:to|that|about|for) ", "", words[match.end() :].strip(" ,.!"), flags=re.IGNORECASE)
            task = re.sub(r"^(?:please)$", "", task, flags=re.IGNORECASE)
            return SaidSchedule(rule, task or words[: match.end()].strip(), is_reminder=True)
        if _REQUEST.match(words):
            return SaidSchedule(rule, words.rstrip(".") if not words.endswith("...") else words)
        if self.is_led and rule.kind != "once" and _QUESTION.match(words):
            return SaidSchedule(rule, words)
        return None


def _span(count: int, unit: str) -> timedelta:
    name = unit.lower()
    seconds = {"minute": 60, "min": 60, "hour": 3600, "day": 86400, "week": 604800}[name]
    return timedelta(seconds=min(count, 10_000) * seconds)


_KANJI = "〇一二三四五六七八九十"
_PARTS_JA = {
    "午前": "",
    "早朝": "morning",
    "朝": "morning",
    "昼": "noon",
    "午後": "afternoon",
    "夕方": "evening",
    "夕": "evening",
    "夜中": "midnight",
    "夜": "night",
    "晩": "night",
    "深夜": "midnight",
}
_PART_JA = "午前|早朝|朝|昼|午後|夕方|夜中|夜|晩|深夜"
_WEEK_JA = "月火水木金土日"
_UNITS_JA = {"分": "minute", "時間": "hour", "日": "day", "週間": "week"}
# A reminder, with the particle before it. "…と知らせて" repeats the words, "…を教えて" asks for something.
_REMIND_JA = re.compile(
    r"(?:(?:する)?(?:の|こと|よう|時間)?(?:を|に|だ|だと|って|と)?(?:アラームで|通知で)?)"
    r"(?:思い出させて|リマインド(?:して)?|通知して|アラーム(?:を鳴らして)?|タイマー(?:を?(?:かけて|セットして))?)"
    r"(?:ください|下さい|くれ(?:る|ますか)?|ほしい|欲しい|ね|お願い(?:します)?)*[。!]?$"
    r"|(?:の|こと|よう|時間)?(?:を|に|だ|だと|って|と|だって)?(?:知らせて|起こして)"
    r"(?:ください|下さい|くれ(?:る|ますか)?|ほしい|欲しい|ね|お願い(?:します)?)*[。!]?$"
)
_REQUEST_JA = re.compile(
    r"(?:教えて|見せて|調べて|まとめて|読んで|読み上げて|要約して|送って|確認して|チェックして|言って|伝えて|表示して"
    r"|検索して|探して|報告して|提案して|書いて|作って|出して|選んで|計算して|比べて|翻訳して|話して|聞かせて|して)"
    r"(?:ください|下さい|くれ(?:る|ますか|ませんか)?|もらえ(?:る|ますか|ませんか)|ほしい|欲しい|ね|お願い(?:します)?)*"
    r"[。!?]?$|(?:お願い(?:します)?|頼む|頼みます|よろしく)[。!]?$"
)
# What follows the verb of a clause that describes a habit, not a wish.
_HABIT_JA = re.compile(
    r"^[^、。]{0,12}[うくすつぬぶむるぐ](?:コツ|方法|やり方|理由|人|ため|習慣|生活|意味|場合|とき|時|電車|バス|便|仕事|店|必要|べき"
    r"|のは|のが|には|と(?:いい|よい)|予定)"
)
# A predicate: something is said, not asked for.
_SAID_JA = re.compile(
    r"(?:ます|ました|です|でした|ません|だ|だった|った|した|いた|んだ|いる|ある|ない|です?か|ますか|いい|のか|かな|なの)[。!?]*$|[??]$|は[。]?$"
)


class _JapaneseReader(_Reader):
    def read(self) -> SaidSchedule | None:
        original = self.text
        self.text = re.sub(
            rf"[{_KANJI}]+(?=時|分|日(?:おき|ごと|後|の)|週間|か月|ヶ月|日[のに]?\d|日[のに]?[朝夜])",
            lambda match: with_digits(match[0]),
            self.text,
        )
        if re.search(r"毎月[〇一二三四五六七八九十]+日", self.text):
            self.text = re.sub(r"(?<=毎月)[〇一二三四五六七八九十]+", lambda match: with_digits(match[0]), self.text)
        self._take_times()
        rule = self.final_rule()
        return None if rule is None else self._said(rule, original)

    def _take_times(self) -> None:
        self._take_repetition()
        if self.rule is None and (
            match := self.take(r"(\d+)(分|時間|日|週間)(半)?(?:後|したら|経ったら|たったら)(?=[に、\s]|\x00|.)")
        ):
            self.delay = _span(int(match[1]), _UNITS_JA[match[2]])
            self.delay += timedelta(minutes=30) if match[3] and match[2] == "時間" else timedelta()
            return
        if self.rule is not None and self.rule.every_s:
            return
        if self.take(r"(?:お昼の)?正午"):
            self.hour, self.is_exact = _NOON, True
        elif match := self.take(
            rf"(?:({_PART_JA})の?)?(\d{{1,2}})(?:時(?!間)(?:(\d{{1,2}})分|(半))?|:(\d{{2}}))(?:頃|ごろ|ちょうど)?"
        ):
            self.hour, self.minute = int(match[2]), 30 if match[4] else int(match[3] or match[5] or 0)
            self._set_part(match[1])
            self.is_exact = self.is_exact or self.hour > _NOON or (match[5] is not None and match[2].startswith("0"))
        elif match := self.take(rf"(?<=\x00)の?({_PART_JA})(?=[に、は])"):
            self._set_part(match[1])
        if self.rule is None:
            self.take_day(" 、", is_anywhere=False)
            if (
                self.day is not None
                and not self.part
                and (match := self.take(rf"(?<=\x00)の?({_PART_JA})(?=[に、は\x00])"))
            ):
                self._set_part(match[1])

    def _set_part(self, word: str | None) -> None:
        if word is None:
            return
        if word == "午前" or _PARTS_JA[word] == "midnight":
            self.is_exact = self.hour is not None
            if self.hour == _NOON:
                self.hour = 0
            elif _PARTS_JA[word] == "midnight" and self.hour is not None and self.hour > 6:
                self.hour += _NOON if self.hour < _NOON else 0
            return
        self.part = _PARTS_JA[word]
        if word == "昼" and self.hour is not None and self.hour < _EARLIEST:
            self.hour, self.is_exact = self.hour + _NOON, True

    def _take_repetition(self) -> None:
        part = r"(?:の?毎?(朝|昼|夕方|晩|夜))?"
        if match := self.take(
            rf"(?:毎週)?(?:平日|月曜?日?(?:から|~|〜|-)金曜?日?)(?:は?毎日)?{part}(?=[のには、\d\s]|午|正|朝|夜|夕|昼)"
        ):
            self.rule = Rule("weekdays")
            self._set_part(match[1])
        elif match := self.take(rf"(?:毎週末|週末){part}"):
            self.rule = Rule("weekly", days=(5, 6))
            self._set_part(match[1])
        elif match := self.take(
            rf"毎週の?((?:[{_WEEK_JA}](?:曜日?)?(?:と|、|・|,|および)?)+)(?<=[曜日{_WEEK_JA}])(?:の?(朝|昼|夕方|晩|夜)(?!\d))?"
        ):
            # 日曜日 has two characters that name a day.
            days = re.findall(rf"([{_WEEK_JA}])(?:曜日?)?", match[1])
            self.rule = Rule("weekly", days=tuple(sorted({_WEEK_JA.index(name) for name in days})))
            self._set_part(match[2])
        elif match := self.take(r"毎月の?(?:(\d{1,2})日|(末日?|最終日))|月末(?=の?\d|に)"):
            day = 31 if match[1] is None else int(match[1])
            self.rule = Rule("monthly", days=(day,)) if 1 <= day <= 31 else None
        elif match := self.take(r"(\d+)(分|時間|日)(ごと|毎|おき)|毎(時)間?"):
            if match[4]:
                self.rule = Rule("every", every_s=3600)
            else:
                count = int(match[1])
                if match[2] == "日":
                    # "1日おき" leaves one day out.
                    self.rule = Rule("every", every_days=max(1, count + (match[3] == "おき")))
                elif count:
                    self.rule = Rule("every", every_s=count * (60 if match[2] == "分" else 3600))
        elif match := self.take(r"毎(朝|日|昼|夕|晩|夜)"):
            self.rule = Rule("daily")
            self._set_part({"日": None}.get(match[1], match[1]))

    def _said(self, rule: Rule, original: str) -> SaidSchedule | None:
        *before, task = self.text.split("\x00")
        head = "".join(re.sub(r"[のにはも、。\s]", "", part) for part in before)
        particle = re.match(r"\s*(には|に|は|の|、|も|から)?", task)
        if head and not re.sub(r"[。、に\s]", "", task):
            task, particle = head, None
        elif head:
            return None
        particle_word = particle[1] if particle is not None else None
        words = task[particle.end() :] if particle is not None else task
        words = words.strip(" 、。")
        if self.delay is not None and particle_word == "の":
            return None
        if _HABIT_JA.match(words):
            return None
        if match := _REMIND_JA.search(words):
            task = words[: match.start()]
            task = f"{task}する" if words[match.start() :].startswith("する") else task
            return SaidSchedule(rule, task or words.rstrip("。"), is_reminder=True)
        if _REQUEST_JA.search(words):
            is_asked = particle_word != "の" or rule.kind != "once"
            is_timed = self.hour is not None or bool(self.part) or rule.every_s > 0 or self.delay is not None
            # A repetition may only describe the topic, as in 平日の営業時間を教えて.
            says_when = self.hour is not None or self.delay is not None or (self.rule is not None and self.rule.every_s)
            says_when = says_when or re.search(r"\x00\s*(?:、|に|は)", self.text) is not None
            says_when = says_when or original.startswith(("毎朝", "毎晩"))
            return SaidSchedule(rule, words) if is_asked and (is_timed or particle_word != "の") and says_when else None
        if _SAID_JA.search(words) or not words or particle_word in ("の", "は"):
            return None
        if self.hour is None and self.delay is None and not rule.every_s:
            return None
        # Words without a verb: what one wants to know again and again, or to be reminded of once.
        return SaidSchedule(rule, words, is_reminder=rule.kind == "once")
