"""Texts of the terminal: around answers, of commands, and ``/help``; ``texts.LANGUAGE.json`` has them by language."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rkllm_mcp.elicitation import ENGLISH as ENGLISH_MISTAKES
from rkllm_mcp.elicitation import FieldKind, Wording
from rkllm_mcp.events import EndReason
from rkllm_mcp.messages import ENDINGS, Ending
from rkllm_mcp.protocols import Decision
from rkllm_mcp.text import Language


@dataclass(frozen=True)
class Phrases:
    """Texts around an answer."""

    reading: str  # {tokens} to prefill, with the {share} of about
    about: str  # expected {seconds} of the prefill
    queued: str  # {position} in the queue
    sources: str  # {places} in documents
    page: str  # behind the name of a document
    endings: Mapping[EndReason, str]  # by end reason, for answers that did not end normally
    failed: str  # an {error}
    nameless: str  # an error without a message
    unreadable: str  # a call that could not be parsed, with the {reason}
    repaired: str  # suffix of a call that was repaired
    waiting: str  # a call that waits for approval elsewhere: {name} and {reason}
    asks: str  # heading of a server's request: {server}, {message}
    decisions: Mapping[Decision, tuple[str, str]]  # decisions about a call: key and meaning
    run_it: str  # prompt for one of the keys
    asks_model: str  # heading of a sampling request
    required: str  # suffix of a required field
    default: str  # meaning of Enter, with {value}
    kinds: Mapping[FieldKind, str]  # valid input, by kind of field
    how: str  # instructions for a form
    send: str  # question before a form is sent
    send_keys: Mapping[str, str]  # answers to it: yes, no, fill in again
    open_page: str  # instruction for an address, with {host}
    is_done: str  # question after it
    more: str  # note that a value was cut, with {count}
    mistakes: Wording  # errors of a form's values
    too_late: str  # the request was withdrawn
    again: str  # the input was not one of the keys


# Words people type as well, in either language.
_WORDS: Mapping[Decision, Sequence[str]] = {
    "once": ("yes", "once", "1", "はい"),
    "conversation": ("conversation", "2"),
    "always": ("always", "3"),
    "deny": ("", "no", "deny", "4", "いいえ"),
    "never": ("never", "5"),
}
SPELLINGS: Mapping[str, Decision] = {word: decision for decision, words in _WORDS.items() for word in words}


@dataclass(frozen=True)
class ChatPhrases:
    """Texts of the chat's commands; the English ones show when each is used."""

    greeting: str
    none_kept_yet: str
    going_on: str
    cut_short: Mapping[Ending, str]  # by end reason, for stored turns that did not end normally
    broken_off: str
    not_broken_off: str
    farewell: str
    no_command: str
    no_tools: str
    no_tool: str
    no_servers: str
    tool_count: str
    switched_off: str
    no_resources: str
    no_prompts: str
    none_kept: str
    no_calls: str
    nothing_said: str
    did_you_mean: str
    no_hint: str
    tools_lists: str
    new_conversation: str
    saved: str
    exists: str
    not_written: str
    cut: str
    attached: str
    already_here: str
    not_kept_yet: str
    renamed: str
    server_on: str
    server_off: str
    tool_on: str
    tool_off: str
    forgotten: str
    forgotten_here: str
    need: Mapping[str, str]  # by command: its missing argument
    stats: Mapping[str, tuple[str, str]]  # by field of Stats: label and value
    model: Mapping[str, str]  # by row of /model: label
    loading: str  # with {name}: another model is being loaded
    loaded: str  # with {name}: it is loaded
    tokens: str


@dataclass(frozen=True)
class Help:
    """Texts of ``/help``."""

    commands: Mapping[str, tuple[str, str]]  # by command: syntax and effect
    keys: str  # keys of the chat


def switched_line(phrases: ChatPhrases, server: str, tool: str | None, *, is_on: bool) -> str:
    """Return the line that confirms a switch of a tool, or of a whole server."""
    if tool is None:
        return (phrases.server_on if is_on else phrases.server_off).format(server=server)
    return (phrases.tool_on if is_on else phrases.tool_off).format(tool=tool, server=server)


def _texts(language: Language) -> dict[str, dict[str, Any]]:
    return json.loads(Path(__file__).with_name(f"texts.{language}.json").read_text("utf-8"))


_TEXTS: Mapping[Language, dict[str, dict[str, Any]]] = {"en": _texts("en"), "ja": _texts("ja")}
_TEXTS["en"]["answers"]["mistakes"] = ENGLISH_MISTAKES
_TEXTS["en"]["chat"]["cut_short"] = ENDINGS

PHRASES: Mapping[Language, Phrases] = {name: Phrases(**texts["answers"]) for name, texts in _TEXTS.items()}
CHAT_PHRASES: Mapping[Language, ChatPhrases] = {name: ChatPhrases(**texts["chat"]) for name, texts in _TEXTS.items()}
HELP: Mapping[Language, Help] = {name: Help(**texts["help"]) for name, texts in _TEXTS.items()}
ENGLISH, CHAT_ENGLISH = PHRASES["en"], CHAT_PHRASES["en"]
