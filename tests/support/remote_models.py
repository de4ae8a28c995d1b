"""Models of a ``ChatService``, asked in a test: settings without patience, one round at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from rkllm_mcp.app.models import open_remote
from rkllm_mcp.events import ModelEvent, Text, Thinking
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import ChatModel
from rkllm_mcp.providers.remote import RemoteModel
from rkllm_mcp.providers.remote_settings import Kind, RemoteSettings
from tests.support.chat_service import ChatService
from tests.support.turn_events import events_of

WEATHER = ToolSpec(
    "get_weather",
    "Today's weather",
    {
        "type": "object",
        "properties": {"location": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["location"],
    },
)
KEY = "sk-this-is-the-very-secret-key"


def settings(service: ChatService, kind: Kind = "openai") -> RemoteSettings:
    """The service as a configuration would name it, without retries."""
    base_url = f"{service.url}/v1" if kind == "openai" else service.url
    return RemoteSettings(kind, base_url, "model-x", KEY, timeout_s=5.0, answer_timeout_s=10.0, retries=0)


@asynccontextmanager
async def asked(service: ChatService, kind: Kind = "openai", **changes: object) -> AsyncGenerator[RemoteModel, None]:
    """A model on the service."""
    async with open_remote(replace(settings(service, kind), **changes)) as model:  # pyright: ignore[reportArgumentType]
        yield model


def question(text: str = "How is the weather?", system: str = "Be brief.") -> Conversation:
    """A conversation that ends in a question."""
    head = [Message("system", system)] if system else []
    return Conversation(messages=[*head, Message("user", text)])


async def round_of(
    model: ChatModel,
    conversation: Conversation,
    tools: Sequence[ToolSpec] = (),
    options: ModelOptions | None = None,
) -> list[ModelEvent]:
    """The events of a round, pieces of text and of thinking in a row merged."""
    merged: list[ModelEvent] = []
    async with aclosing(events_of(model, conversation, tools, options)) as events:
        async for event in events:
            last = merged[-1] if merged else None
            if isinstance(event, Text) and isinstance(last, Text):
                merged[-1] = Text(last.text + event.text)
            elif isinstance(event, Thinking) and isinstance(last, Thinking):
                merged[-1] = Thinking(last.text + event.text)
            else:
                merged.append(event)
    return merged


def without_usage(events: Sequence[ModelEvent]) -> list[ModelEvent]:
    """The events that do not depend on a clock."""
    return [event for event in events if event.kind != "usage"]
