"""How each vendor is asked and its answer is read. No IO: a question becomes a request, a document an answer.

Followed: OpenAI "Chat Completions", Google "Gemini API: models.generateContent" (v1beta), Anthropic "Messages"
(version 2023-06-01).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote


@dataclass(frozen=True)
class Question:
    """What is asked.

    Args:
        text: the question.
        model: the vendor's name of the model.
        max_tokens: the longest answer, thinking included.
        system: how to answer; empty for no wish.
    """

    text: str
    model: str
    max_tokens: int
    system: str = ""


@dataclass(frozen=True)
class Asked:
    """A request.

    Args:
        path: behind the vendor's address.
        headers: with the key.
        body: JSON.
    """

    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Answered:
    """An answer.

    Args:
        text: the words.
        is_cut: it ended at its limit.
        withheld: why the vendor does not answer; empty when it does.
    """

    text: str
    is_cut: bool = False
    withheld: str = ""


@dataclass(frozen=True)
class Interface:
    """One vendor.

    Args:
        name: the vendor's, for people.
        variable: what its environment variables begin with.
        tool: the name of the tool that asks it.
        own_url: its address.
        own_model: the model that is asked when nobody names one.
        request: makes the request of a question and a key; told whether the address is the vendor's own.
        read: reads the answer; raises ValueError, LookupError or TypeError where it is none.
    """

    name: str
    variable: str
    tool: str
    own_url: str
    own_model: str
    request: Callable[[Question, str, bool], Asked]
    read: Callable[[Mapping[str, Any]], Answered]


def _to_openai(question: Question, key: str, is_own: bool) -> Asked:
    system = [{"role": "system", "content": question.system}] if question.system else []
    # OpenAI's models refuse the old name of the limit, most services that speak like it know no other.
    limit = "max_completion_tokens" if is_own else "max_tokens"
    messages = [*system, {"role": "user", "content": question.text}]
    body = {"model": question.model, "messages": messages, limit: question.max_tokens}
    return Asked("/chat/completions", {"Authorization": f"Bearer {key}"}, body)


def _of_openai(document: Mapping[str, Any]) -> Answered:
    choice = _first(document["choices"])
    message = _mapping(choice["message"])
    reason = choice.get("finish_reason")
    refusal = str(message.get("refusal") or "")
    withheld = refusal or ("content_filter" if reason == "content_filter" else "")
    return Answered(str(message.get("content") or ""), reason == "length", withheld)


def _to_gemini(question: Question, key: str, is_own: bool) -> Asked:
    del is_own
    body: dict[str, Any] = {
        "contents": [{"role": "user", "parts": [{"text": question.text}]}],
        "generationConfig": {"maxOutputTokens": question.max_tokens},
    }
    if question.system:
        body["systemInstruction"] = {"parts": [{"text": question.system}]}
    # In a header: what stands in an address is written into logs.
    path = f"/v1beta/models/{quote(question.model.removeprefix('models/'), safe='')}:generateContent"
    return Asked(path, {"x-goog-api-key": key}, body)


def _of_gemini(document: Mapping[str, Any]) -> Answered:
    blocked = _mapping(document.get("promptFeedback") or {}).get("blockReason")
    if blocked:
        return Answered("", withheld=str(blocked))
    candidate = _first(document["candidates"])
    parts = _mapping(candidate.get("content") or {}).get("parts")
    shown = (_mapping(part) for part in cast("list[Any]", parts or []))
    text = "".join(str(part.get("text") or "") for part in shown if not part.get("thought"))
    reason = str(candidate.get("finishReason") or "STOP")
    is_cut = reason == "MAX_TOKENS"
    return Answered(text, is_cut, "" if is_cut or reason == "STOP" else reason)


def _to_anthropic(question: Question, key: str, is_own: bool) -> Asked:
    del is_own
    body: dict[str, Any] = {
        "model": question.model,
        "max_tokens": question.max_tokens,
        "messages": [{"role": "user", "content": question.text}],
    }
    if question.system:
        body["system"] = question.system
    return Asked("/v1/messages", {"x-api-key": key, "anthropic-version": "2023-06-01"}, body)


def _of_anthropic(document: Mapping[str, Any]) -> Answered:
    blocks = (_mapping(block) for block in document["content"])
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    reason = document.get("stop_reason")
    is_cut = reason in {"max_tokens", "model_context_window_exceeded"}
    return Answered(text, is_cut, "refusal" if reason == "refusal" else "")


# The models are small and quick ones of their vendors when this was written; the environment names others.
OPENAI = Interface(
    "OpenAI", "OPENAI", "ask_openai", "https://api.openai.com/v1", "gpt-5.4-mini", _to_openai, _of_openai
)
GEMINI = Interface(
    "Google Gemini",
    "GEMINI",
    "ask_gemini",
    "https://generativelanguage.googleapis.com",
    "gemini-3.5-flash",
    _to_gemini,
    _of_gemini,
)
ANTHROPIC = Interface(
    "Anthropic",
    "ANTHROPIC",
    "ask_anthropic",
    "https://api.anthropic.com",
    "claude-haiku-5-5",
    _to_anthropic,
    _of_anthropic,
)
INTERFACES = (OPENAI, GEMINI, ANTHROPIC)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("an object was expected")
    return cast("Mapping[str, Any]", value)


def _first(values: object) -> Mapping[str, Any]:
    if not isinstance(values, list):
        raise TypeError("a list was expected")
    return _mapping(cast("list[Any]", values)[0])
