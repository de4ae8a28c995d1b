"""Addresses and limits of remote services, token estimates, and the data-egress notices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from rkllm_mcp.config.sections import Config, ModelSection, RemoteSection
from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.sampling import SamplingOverrides, overrides_of

Kind = Literal["openai", "anthropic"]
OWN_URLS: Mapping[Kind, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
# Context window assumed for the selection of tools if none is configured; typical of current small models.
ASSUMED_CONTEXT_TOKENS = 32_768
_TURN_TOKENS = 4  # estimate for a turn's role and separators
# English and JSON have about four characters per token, other scripts about one; the estimate is on the high side.
_ASCII_CHARS_A_TOKEN = 3.5


@dataclass(frozen=True)
class Preset:
    """Habits of a service that its interface does not say.

    Args:
        takes_sampling: it samples as a request says.
        switches_thinking: it takes ``chat_template_kwargs.enable_thinking``.
        start_s: how long it is waited for, seconds, while it refuses connections or says that it is not ready.
    """

    takes_sampling: bool = True
    switches_thinking: bool = False
    start_s: float = 0.0


PRESETS: Mapping[str, Preset] = {
    # It listens only after it has loaded its model, says 503 service_reloading while it loads another one, and 429 when
    # 32 requests wait. Its maker advises against sampling fields.
    "rk182x": Preset(takes_sampling=False, switches_thinking=True, start_s=120.0),
}


@dataclass(frozen=True)
class RemoteSettings:
    """One model of one remote service."""

    kind: Kind
    base_url: str  # without a trailing slash
    model: str
    api_key: str | None = field(default=None, repr=False)
    tools: bool = True  # the model supports tool calls
    context_tokens: int | None = None  # None: unknown
    max_new_tokens: int | None = None  # None: the service's own limit
    connect_timeout_s: float = 10.0
    timeout_s: float = 120.0  # between two chunks
    answer_timeout_s: float = 600.0  # one whole round
    retries: int = 2
    sampling: SamplingOverrides = field(default_factory=SamplingOverrides)  # of requests without their own
    thinking: bool | None = None  # of requests that do not say; None for the service's own
    preset: Preset = field(default_factory=Preset)
    section: str = "provider"  # section of the configuration, for error messages

    @property
    def host(self) -> str:
        """The host for messages, without credentials."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def is_vendors_own(self) -> bool:
        """True for the service of the SDK's vendor, False for compatible ones."""
        return self.base_url == OWN_URLS[self.kind]


def services_of(config: Config) -> dict[str, RemoteSettings]:
    """Return the remote services in use: ``model`` and ``fallback``."""
    provider, services = config.provider, dict[str, RemoteSettings]()
    if provider.kind != "rkllm":
        services["model"] = service_of(provider.kind, provider, config.model)
    fallback = provider.fallback
    # Without a rule the fallback is not used.
    if fallback is not None and fallback.when:
        second = service_of(fallback.kind, fallback, config.model)
        services["fallback"] = replace(second, section="provider.fallback")
    return services


def service_of(kind: Kind, section: RemoteSection, model: ModelSection) -> RemoteSettings:
    """Return the service that a section of the configuration describes."""
    same = section.model_dump(include={*RemoteSection.model_fields} - {"base_url", "model", "preset"})
    base_url = (section.base_url or OWN_URLS[kind]).rstrip("/")
    return RemoteSettings(
        kind,
        base_url,
        section.model or "",
        sampling=overrides_of(model),
        thinking={"off": False, "open": True}.get(model.thinking or ""),
        preset=PRESETS.get(section.preset or "", Preset()),
        **same,
    )


def estimated_tokens(text: str) -> int:
    """Estimate the number of tokens of a text, without a tokenizer."""
    plain = len(text.encode("ascii", "ignore"))
    return round(plain / _ASCII_CHARS_A_TOKEN) + len(text) - plain


def estimated_message_tokens(message: Message) -> int:
    """Estimate the number of tokens of a message."""
    calls = (f"{call.name}{json.dumps(call.arguments, ensure_ascii=False)}" for call in message.calls)
    texts = (message.context, message.text, *calls, *(result.text for result in message.results))
    return _TURN_TOKENS + sum(map(estimated_tokens, texts))


def estimated_tool_tokens(tool: ToolSpec) -> int:
    """Estimate the number of tokens of a tool in the list."""
    schema = json.dumps(tool.input_schema, ensure_ascii=False)
    return _TURN_TOKENS + sum(map(estimated_tokens, (tool.name, tool.description, schema)))


_DATA = "questions, conversations, tool lists and tool results"
_OCCASIONS = {
    "failed": "an answer fails",
    "too_long": "a question does not fit",
    "no_answer": "the first model gives no answer",
    "busy": "the first model is busy",
}


def egress_notices(config: Config) -> list[str]:
    """Return one line per remote service that receives data."""
    lines: list[str] = []
    for name, service in services_of(config).items():
        fallback, when = config.provider.fallback, ""
        if name == "fallback" and fallback is not None:
            when = f" when {', '.join(_OCCASIONS[occasion] for occasion in fallback.when)}"
        lines.append(f"[Model: {_DATA} go to {service.host} (model '{service.model}'){when}]")
    return lines
