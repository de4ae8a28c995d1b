"""Environment variables -> who may be asked, where, with which models and limits.

``OPENAI_API_KEY``, ``GEMINI_API_KEY``, ``ANTHROPIC_API_KEY`` switch the tools on. ``…_BASE_URL`` points one at another
address (a service of one's own, a test), ``…_MODEL`` names the models that may be asked, the first of them by default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from urllib.parse import urlsplit

from mcp_servers.cloud.interfaces import INTERFACES, Interface

EXPLANATION = (
    "Environment: OPENAI_API_KEY, GEMINI_API_KEY, ANTHROPIC_API_KEY switch a tool on; OPENAI_BASE_URL and so on ask "
    "another address; OPENAI_MODEL and so on name the models that may be asked, separated by commas; CLOUD_TIMEOUT_S "
    "and CLOUD_MAX_TOKENS limit an answer."
)
NO_KEY = "No key is set, so no tool is offered: set OPENAI_API_KEY, GEMINI_API_KEY or ANTHROPIC_API_KEY."
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,127}")


@dataclass(frozen=True)
class Vendor:
    """A vendor that may be asked.

    Args:
        interface: how.
        key: with which key.
        base_url: at which address, without a slash at the end.
        models: which models; the first when nobody names one.
    """

    interface: Interface
    key: str = field(repr=False)
    base_url: str
    models: tuple[str, ...]

    @property
    def is_own(self) -> bool:
        """The address is the vendor's own."""
        return self.base_url == self.interface.own_url

    @property
    def host(self) -> str:
        """The host, for messages; never with a password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


@dataclass(frozen=True)
class Settings:
    """Who may be asked, and how much.

    Args:
        vendors: those with a key.
        timeout_s: the longest wait for an answer, seconds.
        most_tokens: the longest answer that may be asked for, tokens.
        usual_tokens: the longest answer when nobody says.
        question_chars: the longest question.
        answer_chars: what of an answer is handed on.
        answer_bytes: the largest document that is read.
        connect_timeout_s: for name lookup, connection and TLS; short, so that a closed network is noticed at once.
    """

    vendors: tuple[Vendor, ...] = ()
    timeout_s: float = 60.0
    most_tokens: int = 8192
    usual_tokens: int = 4096
    question_chars: int = 20_000
    answer_chars: int = 12_000
    answer_bytes: int = 2 * 1024 * 1024
    connect_timeout_s: float = 5.0


def version() -> str:
    """The version of the distribution this program came with; 0 when it runs from a bare folder."""
    try:
        return metadata.version("rkllm-mcp")
    except metadata.PackageNotFoundError:
        return "0"


def settings_from(environ: Mapping[str, str]) -> Settings:
    """The settings that the environment asks for.

    Raises:
        ValueError: an address, a model or a limit is none; the sentence names the variable and never a key.
    """
    vendors = (_vendor(interface, environ) for interface in INTERFACES)
    usual = Settings()
    most_tokens = int(_number(environ, "CLOUD_MAX_TOKENS", usual.most_tokens, least=1))
    return Settings(
        vendors=tuple(vendor for vendor in vendors if vendor is not None),
        timeout_s=_number(environ, "CLOUD_TIMEOUT_S", usual.timeout_s, least=0.1),
        most_tokens=most_tokens,
        usual_tokens=min(usual.usual_tokens, most_tokens),
    )


def _vendor(interface: Interface, environ: Mapping[str, str]) -> Vendor | None:
    key = environ.get(f"{interface.variable}_API_KEY", "").strip()
    if not key:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"{interface.variable}_API_KEY is no key: it holds characters that no key has.")
    return Vendor(interface, key, _address(interface, environ), _models(interface, environ))


def _address(interface: Interface, environ: Mapping[str, str]) -> str:
    name = f"{interface.variable}_BASE_URL"
    base_url = environ.get(name, "").strip().rstrip("/") or interface.own_url
    address = urlsplit(base_url)
    if address.scheme not in {"http", "https"} or not address.netloc:
        raise ValueError(f"{name} is {base_url!r}: give an address like {interface.own_url}, or leave it unset.")
    return base_url


def _models(interface: Interface, environ: Mapping[str, str]) -> tuple[str, ...]:
    name = f"{interface.variable}_MODEL"
    models = tuple(filter(None, (model.strip() for model in environ.get(name, "").split(","))))
    wrong = next((model for model in models if not _MODEL.fullmatch(model)), None)
    if wrong is not None:
        raise ValueError(f"{name} holds {wrong!r}: give names of models like {interface.own_model}, with commas.")
    return models or (interface.own_model,)


def _number(environ: Mapping[str, str], name: str, usual: float, *, least: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return usual
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < least:
        raise ValueError(f"{name} is {text!r}: give a number of at least {least:g}, or leave it unset.")
    return number
