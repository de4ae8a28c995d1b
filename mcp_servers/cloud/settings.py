"""Settings from environment variables: vendors, addresses, models and limits.

``OPENAI_API_KEY``, ``GEMINI_API_KEY`` and ``ANTHROPIC_API_KEY`` each enable a tool. ``…_BASE_URL`` selects another
address (a self-hosted service, a test), ``…_MODEL`` lists the allowed models, the first being the default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from mcp_servers.cloud.vendors import VENDOR_APIS, VendorApi
from mcp_servers.program import http_address

ENVIRONMENT_HELP = (
    "Environment: OPENAI_API_KEY, GEMINI_API_KEY, ANTHROPIC_API_KEY each enable a tool; OPENAI_BASE_URL and so on "
    "select another address; OPENAI_MODEL and so on list the allowed models, separated by commas; CLOUD_TIMEOUT_S and "
    "CLOUD_MAX_TOKENS limit an answer."
)
NO_KEY = "No key is set, so no tool is offered: set OPENAI_API_KEY, GEMINI_API_KEY or ANTHROPIC_API_KEY."
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,127}")


@dataclass(frozen=True)
class Vendor:
    """A vendor with an API key."""

    api: VendorApi
    key: str = field(repr=False)
    base_url: str  # without a trailing slash
    host: str  # for messages, without user name and password
    models: tuple[str, ...]  # allowed models; the first is the default


@dataclass(frozen=True)
class Settings:
    """Configured vendors and limits."""

    vendors: tuple[Vendor, ...] = ()  # those with a key
    timeout_s: float = 60.0  # for one question
    max_tokens_limit: int = 8192  # largest max_tokens a caller may request
    default_tokens: int = 4096  # max_tokens when the caller gives none
    max_question_chars: int = 20_000  # question and system text together
    max_answer_chars: int = 12_000  # longer answers are truncated
    max_reply_bytes: int = 2 * 1024 * 1024  # larger HTTP bodies are rejected
    # name lookup, connection and TLS; short, so that a missing network is reported quickly
    connect_timeout_s: float = 5.0


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings from the environment; raise ValueError, which names the variable and no key."""
    default = Settings()
    max_tokens_limit = int(_number(environ, "CLOUD_MAX_TOKENS", default.max_tokens_limit, minimum=1))
    vendors: list[Vendor] = []
    for api in VENDOR_APIS:
        key = environ.get(f"{api.variable}_API_KEY", "").strip()
        if not key:
            continue
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError(f"{api.variable}_API_KEY is not an API key: it contains characters that keys do not have.")
        base_url = http_address(environ, f"{api.variable}_BASE_URL", api.default_url)
        name = f"{api.variable}_MODEL"
        models = tuple(filter(None, (model.strip() for model in environ.get(name, "").split(","))))
        wrong = next((model for model in models if not _MODEL.fullmatch(model)), None)
        if wrong is not None:
            example = api.default_model
            raise ValueError(f"{name} contains {wrong!r}: give model names like {example}, separated by commas.")
        host = urlsplit(base_url).netloc.rpartition("@")[2]
        vendors.append(Vendor(api, key, base_url, host, models or (api.default_model,)))
    return Settings(
        vendors=tuple(vendors),
        timeout_s=_number(environ, "CLOUD_TIMEOUT_S", default.timeout_s, minimum=0.1),
        max_tokens_limit=max_tokens_limit,
        default_tokens=min(default.default_tokens, max_tokens_limit),
    )


def _number(environ: Mapping[str, str], name: str, default: float, *, minimum: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < minimum:
        raise ValueError(f"{name} is {text!r}: give a number of at least {minimum:g}, or leave it unset.")
    return number
