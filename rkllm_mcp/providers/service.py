"""A service that answers over HTTP, as far as it is the same for all of them: where it is, and what bounds it.

The settings come from the configuration alone; what an SDK would pick from the environment (keys, addresses) is not
used, because it may belong to somebody else's host. Nothing here opens a connection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from rkllm_mcp.config.provider import RemoteSection
from rkllm_mcp.config.sections import Config, ModelSection
from rkllm_mcp.messages import Message, ToolSpec

Kind = Literal["openai", "anthropic"]
OWN_URLS: Mapping[Kind, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}
# The window that tools are chosen for where the owner does not say how large it is: what current small models have.
ASSUMED_CONTEXT_TOKENS = 32_768
# A turn's role and separators, whatever the service's template writes for them.
_TURN_TOKENS = 4
# English and JSON have about four characters a token, other scripts about one; both err on the side of too many.
_ASCII_CHARS_A_TOKEN = 3.5


@dataclass(frozen=True)
class Service:
    """One model of one service.

    Args:
        kind: how it is spoken to.
        base_url: its address, without a slash at the end.
        model: its name of the model.
        api_key: the key; None where it needs none.
        tools: the model can call tools.
        context_tokens: its context window; None where only the service knows.
        max_new_tokens: the longest answer of a round; None for the service's own limit.
        connect_timeout_s: the longest that connecting may take.
        timeout_s: the longest silence.
        answer_timeout_s: the longest that one round may take.
        retries: how often a request is repeated that was refused for now.
        temperature: where the owner wishes one.
        top_p: where the owner wishes one.
        section: where it stands in the configuration, for sentences that say what to change.
    """

    kind: Kind
    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    tools: bool = True
    context_tokens: int | None = None
    max_new_tokens: int | None = None
    connect_timeout_s: float = 10.0
    timeout_s: float = 120.0
    answer_timeout_s: float = 600.0
    retries: int = 2
    temperature: float | None = None
    top_p: float | None = None
    section: str = "provider"

    @property
    def host(self) -> str:
        """The host, for people; never with a password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def is_vendors_own(self) -> bool:
        """It is the service of the SDK's maker, not one that speaks like it."""
        return self.base_url == OWN_URLS[self.kind]


def services_of(config: Config) -> dict[str, Service]:
    """The services that answer: the one under ``model``, and under ``fallback`` the one that takes over by rule."""
    provider, services = config.provider, dict[str, Service]()
    if provider.kind != "rkllm":
        services["model"] = service_of(provider.kind, provider, config.model)
    fallback = provider.fallback
    # Without a rule of the owner's nobody takes over.
    if fallback is not None and fallback.when:
        second = service_of(fallback.kind, fallback, config.model)
        services["fallback"] = replace(second, section="provider.fallback")
    return services


def service_of(kind: Kind, section: RemoteSection, wish: ModelSection) -> Service:
    """The service that a section of the configuration names.

    Args:
        kind: how it is spoken to.
        section: the owner's words about it.
        wish: the owner's wishes for whichever model answers.
    """
    return Service(
        kind=kind,
        base_url=(section.base_url or OWN_URLS[kind]).rstrip("/"),
        model=section.model or "",
        api_key=section.api_key,
        tools=section.tools,
        context_tokens=section.context_tokens,
        max_new_tokens=section.max_new_tokens,
        connect_timeout_s=section.connect_timeout_s,
        timeout_s=section.timeout_s,
        answer_timeout_s=section.answer_timeout_s,
        retries=section.retries,
        temperature=wish.temperature,
        top_p=wish.top_p,
    )


def estimated_tokens(text: str) -> int:
    """How many tokens a text has, about, where no tokenizer is at hand."""
    plain = len(text.encode("ascii", "ignore"))
    return round(plain / _ASCII_CHARS_A_TOKEN) + len(text) - plain


def estimated_message_tokens(message: Message) -> int:
    """The same for a turn."""
    calls = (f"{call.name}{json.dumps(call.arguments, ensure_ascii=False)}" for call in message.calls)
    texts = (message.context, message.text, *calls, *(result.text for result in message.results))
    return _TURN_TOKENS + sum(map(estimated_tokens, texts))


def estimated_tool_tokens(tool: ToolSpec) -> int:
    """The same for a tool in the list."""
    schema = json.dumps(tool.input_schema, ensure_ascii=False)
    return _TURN_TOKENS + sum(map(estimated_tokens, (tool.name, tool.description, schema)))
