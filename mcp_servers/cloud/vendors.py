"""HTTP APIs of the vendors as data: build a request, read a reply. No IO.

References: OpenAI "Chat Completions", Google "Gemini API: models.generateContent" (v1beta), Anthropic "Messages"
(version 2023-06-01).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import quote


@dataclass(frozen=True)
class ChatRequest:
    """A question in vendor-neutral form."""

    text: str
    model: str  # the vendor's model name
    max_tokens: int  # includes thinking
    system: str = ""  # system text; may be empty


@dataclass(frozen=True)
class HttpRequest:
    """A POST request to a vendor."""

    url: str
    headers: Mapping[str, str] = field(repr=False)  # include the API key
    body: Mapping[str, Any]  # JSON


@dataclass(frozen=True)
class ChatReply:
    """An answer in vendor-neutral form."""

    text: str
    is_cut: bool = False  # the token limit was reached
    refusal: str = ""  # the vendor's reason for not answering; empty if it answered


@dataclass(frozen=True)
class VendorApi:
    """HTTP API of one vendor."""

    name: str  # display name
    variable: Literal["OPENAI", "GEMINI", "ANTHROPIC"]  # prefix of its environment variables
    tool: str  # name of the MCP tool
    default_url: str
    default_model: str

    def request(self, question: ChatRequest, key: str, base_url: str) -> HttpRequest:
        """Return the request that asks a question at an address with an API key."""
        body: dict[str, Any]
        messages = [{"role": "user", "content": question.text}]
        match self.variable:
            case "OPENAI":
                # OpenAI's own models reject the old parameter name; most compatible services know only the old one.
                limit = "max_completion_tokens" if base_url == self.default_url else "max_tokens"
                system = [{"role": "system", "content": question.system}] if question.system else []
                body = {"model": question.model, "messages": [*system, *messages], limit: question.max_tokens}
                return HttpRequest(f"{base_url}/chat/completions", {"Authorization": f"Bearer {key}"}, body)
            case "GEMINI":
                body = {
                    "contents": [{"role": "user", "parts": [{"text": question.text}]}],
                    "generationConfig": {"maxOutputTokens": question.max_tokens},
                }
                if question.system:
                    body["systemInstruction"] = {"parts": [{"text": question.system}]}
                path = f"/v1beta/models/{quote(question.model.removeprefix('models/'), safe='')}:generateContent"
                # The key goes into a header, because URLs are written to logs.
                return HttpRequest(base_url + path, {"x-goog-api-key": key}, body)
            case "ANTHROPIC":
                body = {"model": question.model, "max_tokens": question.max_tokens, "messages": messages}
                if question.system:
                    body["system"] = question.system
                headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
                return HttpRequest(f"{base_url}/v1/messages", headers, body)

    def read(self, document: Mapping[str, Any]) -> ChatReply:
        """Return the answer in a reply; raise ValueError, LookupError or TypeError if it is not one."""
        match self.variable:
            case "OPENAI":
                choice = _first(document["choices"])
                message = _mapping(choice["message"])
                reason = choice.get("finish_reason")
                refusal = str(message.get("refusal") or "")
                refusal = refusal or ("content_filter" if reason == "content_filter" else "")
                return ChatReply(str(message.get("content") or ""), reason == "length", refusal)
            case "GEMINI":
                blocked = _mapping(document.get("promptFeedback") or {}).get("blockReason")
                if blocked:
                    return ChatReply("", refusal=str(blocked))
                candidate = _first(document["candidates"])
                parts = _mapping(candidate.get("content") or {}).get("parts")
                part_mappings = (_mapping(part) for part in cast("list[Any]", parts or []))
                text = "".join(str(part.get("text") or "") for part in part_mappings if not part.get("thought"))
                reason = str(candidate.get("finishReason") or "STOP")
                is_cut = reason == "MAX_TOKENS"
                return ChatReply(text, is_cut, "" if is_cut or reason == "STOP" else reason)
            case "ANTHROPIC":
                blocks = (_mapping(block) for block in document["content"])
                text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
                reason = document.get("stop_reason")
                is_cut = reason in {"max_tokens", "model_context_window_exceeded"}
                return ChatReply(text, is_cut, "refusal" if reason == "refusal" else "")


# Small, fast models of each vendor at the time of writing; the environment can name others.
VENDOR_APIS = (
    VendorApi("OpenAI", "OPENAI", "ask_openai", "https://api.openai.com/v1", "gpt-5.4-mini"),
    VendorApi("Google Gemini", "GEMINI", "ask_gemini", "https://generativelanguage.googleapis.com", "gemini-3.5-flash"),
    VendorApi("Anthropic", "ANTHROPIC", "ask_anthropic", "https://api.anthropic.com", "claude-haiku-5-5"),
)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("an object was expected")
    return cast("Mapping[str, Any]", value)


def _first(values: object) -> Mapping[str, Any]:
    if not isinstance(values, list):
        raise TypeError("a list was expected")
    return _mapping(cast("list[Any]", values)[0])
