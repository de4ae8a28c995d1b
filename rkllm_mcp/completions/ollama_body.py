"""The bodies of POST /api/chat and /api/generate, as Ollama describes them; fields that mean nothing here are ignored.

Followed: Ollama's API reference (docs/api.md of its repository) and the fields that its own Python client sends.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rkllm_mcp.completions.openai_body import MOST_MESSAGES, MOST_TOOLS, Body, Integer, Tokens, Tools

Thinking = bool | Literal["low", "medium", "high"]


class OllamaCalled(Body):
    """What a call calls; the arguments are an object, not a text."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


class OllamaCall(Body):
    """A call in an assistant's message."""

    id: str | None = None
    function: OllamaCalled


class OllamaMessage(Body):
    """One message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = ""
    images: list[str] | None = None
    tool_calls: Annotated[list[OllamaCall], Field(max_length=MOST_TOOLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaOptions(Body):
    """How the model answers."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Integer | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    # -1 and -2 mean "no limit" and "as far as the context goes".
    num_predict: Integer | None = None
    stop: str | list[str] | None = None
    repeat_penalty: Annotated[float, Field(gt=0)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class OllamaRequest(Body):
    """What both requests have."""

    model: Annotated[str, Field(min_length=1)]
    stream: bool | None = None
    # "json", or a JSON Schema.
    format: str | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    think: Thinking | None = None
    keep_alive: str | float | None = None

    @property
    def unloads(self) -> bool:
        """The model is to be dropped, when nothing is asked."""
        return str(self.keep_alive).strip() in {"0", "0.0", "0s"}


class OllamaChat(OllamaRequest):
    """POST /api/chat."""

    messages: list[OllamaMessage] = Field(default_factory=list[OllamaMessage], max_length=MOST_MESSAGES)
    tools: Tools | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: Tokens | None = None


class OllamaGenerate(OllamaRequest):
    """POST /api/generate."""

    prompt: str = ""
    system: str | None = None
    suffix: str | None = None
    template: str | None = None
    raw: bool | None = None
    images: list[str] | None = None
