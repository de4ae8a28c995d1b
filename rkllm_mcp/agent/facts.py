"""Answers without tools: from the results of calls that a model repeats, and in words where no call was asked for.

Small models often write the same call again after its result, until a limit ends the answer. Measured with weights of
0.5B and 1.5B, such a model answers when the results are part of a question: a prompt without tools and with one user
turn, the question and the results as facts, in the question's language. They also call a tool where the user only
says thank you; the same prompt without tools makes them answer.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA
from rkllm_mcp.agent.system_text import without_tools
from rkllm_mcp.catalogue import translate
from rkllm_mcp.messages import Conversation, Message, ToolResult, as_list, as_mapping
from rkllm_mcp.text import language_of_text

if TYPE_CHECKING:
    from rkllm_mcp.agent.tool_set import ToolSet

# Objects that are short enough to be read as lines; a longer one is a file's content or a list.
_MOST_JSON_CHARS = 1000
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LIST_NUMBER = re.compile(r"^[^\w\n]*\d+[.)]\s", re.MULTILINE)
_TIME = re.compile(r"(?<![\d:])(\d{1,2}):(\d\d)")
_SAID_TIME = re.compile(r"\d[時分]|\d:\d\d")
_HALF_OF_DAY = re.compile(r"午[前後]|(?<![a-z])[ap]\.?m(?![a-z])")
_GROUPING = re.compile(r"(?<=\d),(?=\d)")
_WORD = re.compile(rf"[{KANJI}]{{2,}}|[{KATAKANA}]{{2,}}|[^\W_{HIRAGANA}{KATAKANA}{KANJI}]{{3,}}")

_KANJI_WORD = re.compile(rf"[{KANJI}]{{2,}}")
_COMPARED_CHARS = 1000


def last_question(conversation: Conversation) -> Message:
    """Return the last message of the user; an empty one without any."""
    questions = (message for message in reversed(conversation.messages) if message.role == "user")
    return next(questions, Message("user"))


def calls_with_results(conversation: Conversation, tool_set: ToolSet) -> frozenset[str]:
    """Return the key, of ``tool_set``, of each call whose result, not an error, is the last message."""
    last = conversation.messages[-1] if conversation.messages else Message("user")
    answered_ids = {result.call_id for result in _successes([last])}
    calls = (call for message in conversation.messages for call in message.calls if call.id in answered_ids)
    return frozenset(tool_set.key(call.name, call.arguments) for call in calls)


def facts_of(conversation: Conversation) -> str:
    """Return the results since the last question; an error is none."""
    messages = conversation.messages
    start = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    arguments = {call.id: call.arguments for message in messages[start:] for call in message.calls}
    facts: list[str] = []
    for result in _successes(messages[start:]):
        text, values = result.text.strip(), list(arguments.get(result.call_id, {}).values())
        # A bare number needs the argument that it belongs to.
        is_bare = any(map(str.isdigit, text)) and not any(map(str.isalpha, text)) and "\n" not in text
        names_it = is_bare and len(values) == 1 and isinstance(values[0], str)
        facts.append(f"{values[0]} = {text}" if names_it else _as_lines(text))
    return "\n".join(dict.fromkeys(facts))


def _as_lines(text: str) -> str:
    """Return a short JSON object as lines of keys and values, which small models misread less; else the text."""
    if len(text) > _MOST_JSON_CHARS or not text.startswith("{"):
        return text
    try:
        content = as_mapping(json.loads(text))
    except ValueError:
        return text
    lines: list[str] = []
    for key, value in content.items():
        entries = as_list(value)
        # A list of objects takes a line for each.
        holds_objects = any(isinstance(entry, dict) for entry in entries)
        lines += map(_inline, entries) if holds_objects else [f"{key}: {_inline(value)}"]
    return "\n".join(lines) or text


def _inline(value: object) -> str:
    if isinstance(value, str):
        return value
    if entries := as_mapping(value):
        return ", ".join(f"{key}: {_inline(entry)}" for key, entry in entries.items())
    if elements := as_list(value):
        return ", ".join(map(_inline, elements))
    return json.dumps(value, ensure_ascii=False)


def may_differ(answer: str, facts: str, question: str) -> bool:
    """Return True if an answer has a number or a time that is not known, nothing of the facts, or our instruction."""
    instruction = translate("model.answer_from_facts", language_of_text(question), facts="").strip().split("\n")[-1]
    copied = SequenceMatcher(None, answer[:_COMPARED_CHARS], instruction, autojunk=False).find_longest_match().size
    if 2 * copied >= len(instruction):
        return True
    answer_text, source_text = plain(_LIST_NUMBER.sub("", answer)), plain(f"{facts}\n{question}")
    times = _TIME.findall(source_text)
    half_days = {str(int(hour) % 12 or 12) for hour, _ in times}
    said, known = ({number.lstrip("0") for number in _NUMBER.findall(text)} for text in (answer_text, source_text))
    if not said <= known | half_days:
        return True
    # The hours of facts that name halves of the day are not counted to 24.
    has_halves = _HALF_OF_DAY.search(source_text) is not None
    if (
        times
        and _SAID_TIME.search(answer_text)
        and not any(_has_time(answer_text, int(hour), minute, has_halves=has_halves) for hour, minute in times)
    ):
        return True
    words, question_words = ({*_WORD.findall(text), *_NUMBER.findall(text)} for text in (plain(facts), plain(question)))
    answer_words = {*_WORD.findall(answer_text), *_NUMBER.findall(answer_text)} - question_words
    are_said = (_is_said(word, answer_words) for word in words - question_words)
    return bool(words - question_words) and not any(are_said)


def _is_said(word: str, answer_words: set[str]) -> bool:
    """Return True if an answer has a word, or kanji with others after it: 大阪府 has 大阪, 東京都 not 京都."""
    if word in answer_words or not _KANJI_WORD.fullmatch(word):
        return word in answer_words
    return any(
        answer_word.startswith(word) or word.startswith(answer_word)
        for answer_word in filter(_KANJI_WORD.fullmatch, answer_words)
    )


def _has_time(text: str, hour: int, minute: str, *, has_halves: bool) -> bool:
    """Return True if a text has a time, of 24 hours or 12, and does not put it into the other half of the day."""
    minutes = {"00": "時(?!\\d)|時0{1,2}分", "30": "時半|時30分"}.get(minute, f"時(?:{minute}|{int(minute)})分")
    before = after = ""
    if not has_halves:
        japanese, english = ("午前", "a") if hour >= 12 else ("午後", "p")
        before, after = rf"(?<!{japanese})(?<!{japanese}\s)", rf"(?!(?::\d\d)?\s?{english}\.?m(?![a-z]))"
    return any(
        re.search(rf"{before}(?<!\d)0?{form}(?::{minute}|{minutes}){after}", text) for form in {hour, hour % 12 or 12}
    )


def plain(text: str) -> str:
    """Return a text in the form in which words of texts are compared."""
    return _GROUPING.sub("", unicodedata.normalize("NFKC", text).casefold())


def last_results(conversation: Conversation) -> list[ToolResult]:
    """Return the results since the last question."""
    messages = conversation.messages
    start = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    return [result for message in messages[start:] for result in message.results]


def hand_over(conversation: Conversation, facts: str) -> None:
    """Let the last question stand with the facts for it, in place of its rounds; they are empty where calls failed.

    The prompts of later questions begin with the same tokens as that of the answer.
    """
    messages = conversation.messages
    index = max(index for index, message in enumerate(messages) if message.role == "user")
    question = messages[index]
    tail = translate("model.answer_from_facts", language_of_text(question.text), facts=facts) if facts else ""
    messages[index] = replace(question, cards=(), facts=tail)


def without_rounds(conversation: Conversation, kind: Literal["facts", "words"]) -> Conversation:
    """Return a conversation without calls and their results, to be answered in place of another round.

    With ``facts`` it hands over the last question alone, with the results that followed it. With ``words`` it has what
    was asked and answered, up to the last question. Calls that failed are texts of the model's turns before the message
    with their mistakes; they are left out too, because a small model copies them. It has the id of ``conversation``,
    whose state in the model it replaces.
    """
    messages = conversation.messages
    if kind == "facts":
        question = last_question(conversation)
        language = language_of_text(question.text)
        tail = translate("model.answer_from_facts", language, facts=facts_of(conversation))
        spoken = [replace(question, text=f"{question.text}{tail}")]
    else:
        end = max((index for index, message in enumerate(messages, 1) if message.role == "user"), default=len(messages))
        spoken = [
            replace(message, calls=())
            for message, following in zip_longest(messages[:end], messages[1:end])
            if message.role == "user"
            or (
                message.role == "assistant"
                and message.text.strip()
                and (message.calls or following is None or following.role != "tool")
            )
        ]
    first = messages[:1]
    system = [replace(first[0], text=without_tools(first[0].text))] if first and first[0].role == "system" else []
    return Conversation(id=conversation.id, messages=[*system, *spoken], tenant=conversation.tenant)


def _successes(messages: Sequence[Message]) -> Iterator[ToolResult]:
    """Yield the results that can be facts: those of calls, without errors and searches that found nothing."""
    for message in messages:
        yield from (
            result for result in message.results if result.call_id and not result.is_error and result.sources != ()
        )
