"""What the program does, as checked values: nothing here is read from anywhere, and nothing secret is ever shown."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal

TextForm = Literal["json", "passages"]


class SettingsError(ValueError):
    """A setting that cannot be used; the sentence names it and what to give."""


@dataclass(frozen=True)
class Watch:
    """A folder that is kept in agreement with a knowledge base.

    Args:
        folder: watched with everything below.
        base: the knowledge base's id or name; one of that name is made when there is none.
    """

    folder: Path
    base: str


@dataclass(frozen=True)
class TokenSettings:
    """What a token has to be signed with, and say.

    Args:
        secret: for HS256; empty for none.
        jwks: a file of public keys for RS256; None for none.
        audience: who a token has to be meant for; a token that names one is refused when empty.
        issuer: who it has to come from; anybody when empty.
    """

    secret: str = field(default="", repr=False)
    jwks: Path | None = None
    audience: str = ""
    issuer: str = ""

    @property
    def is_configured(self) -> bool:
        """Whether tokens are wanted at all."""
        return bool(self.secret or self.jwks)


@dataclass(frozen=True)
class HttpSettings:
    """Where to listen.

    Args:
        host: an address of this machine.
        port: 0 for any that is free.
        tokens: who is let in.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    tokens: TokenSettings = field(default_factory=TokenSettings)


@dataclass(frozen=True)
class ModelSettings:
    """The models at hand, in the forms of ``embedding.choice``; addresses are ``http://HOST/v1#MODEL``.

    Args:
        embedder: makes vectors.
        embedder_key: sent to its service.
        previous_embedder: searched while another one's vectors are made.
        reranker: the cross-encoder.
        reranker_key: sent to its service.
        llm: judges what the rules of ``normalize_ocr_text`` are unsure of, where the host has no model for it.
        llm_key: sent to its service.
        sampling: ask the host's model first, where there is one.
        strict: a model that does not answer is an error instead of a stage that is left out.
    """

    embedder: str = "none"
    embedder_key: str = field(default="", repr=False)
    previous_embedder: str = "none"
    reranker: str = "none"
    reranker_key: str = field(default="", repr=False)
    llm: str = ""
    llm_key: str = field(default="", repr=False)
    sampling: bool = True
    strict: bool = False


@dataclass(frozen=True)
class Settings:
    """What the program does.

    Args:
        folder: where everything is kept.
        models: the models at hand.
        watch: folders that are kept in agreement with a knowledge base.
        default_base: the knowledge base, by id or name, of a call that names none.
        default_results: how many results a search gives that does not say.
        text: how search results are written for who reads text: as JSON, or as passages with their sources.
        import_from: the only folders files are added from; empty for every one, which nobody with a token gets.
        allow_networks: private networks that web pages may be added from, e.g. 192.168.0.0/16.
        http: where to listen; None for standard input and output.
        log_level: of what goes to standard error.
    """

    folder: Path
    models: ModelSettings = field(default_factory=ModelSettings)
    watch: tuple[Watch, ...] = ()
    default_base: str = ""
    default_results: int = 10
    text: TextForm = "json"
    import_from: tuple[Path, ...] = ()
    allow_networks: tuple[str, ...] = ()
    http: HttpSettings | None = None
    log_level: str = "WARNING"


def version() -> str:
    """The version of the distribution this program came with; 0 when it runs from a bare folder."""
    try:
        return metadata.version("rkllm-mcp")
    except metadata.PackageNotFoundError:
        return "0"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address; a name that merely looks like one is none."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
