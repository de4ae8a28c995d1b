"""What was learnt of a server the last time: how it is spoken to, and which tools it offered.

A server of 2026-07-28 that is known needs no handshake at all, an older one no question which of the two it is (which
a silent one lets run into the SDK's ten seconds). What is remembered is a guess: a connection that does not come up by
it forgets it and asks. The key names the server and the way to it, so a changed command, address or choice of tools
starts afresh; neither key nor value holds a header, a variable or an argument as it is.

Followed: MCP 2026-07-28, versioning ("cache the era per server"), ``mcp.Client``'s ``prior_discover``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.servers import ServerSpec

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import DiscoverResult

LEGACY = "legacy"


class Remembered(Protocol):
    """A place that keeps texts from one start to the next."""

    def read(self, key: str) -> str | None:
        """What was written under ``key``; None when nothing was."""
        ...

    def write(self, key: str, text: str) -> None:
        """Keep ``text`` under ``key`` in place of what was there."""
        ...


class Forgetful:
    """Remembers until the program ends."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def read(self, key: str) -> str | None:
        """What was written under ``key``."""
        return self._texts.get(key)

    def write(self, key: str, text: str) -> None:
        """Keep ``text`` under ``key``."""
        self._texts[key] = text


@dataclass(frozen=True)
class Era:
    """How a server is spoken to.

    Args:
        transport: the transport that worked, where it is not the configured one; empty otherwise.
        version: a revision without handshake, ``legacy`` for those with one, empty when it must be asked.
        discovered: the JSON of its ``server/discover`` result, for a revision without handshake.
        identity: name and version that a ``legacy`` server gave; with another one it may have become another era's.
    """

    transport: str = ""
    version: str = ""
    discovered: Mapping[str, Any] | None = None
    identity: str = ""

    @property
    def is_modern(self) -> bool:
        """Whether it is taken to be of a revision without handshake."""
        return self.mode() not in ("auto", LEGACY)

    def prior(self) -> DiscoverResult | None:
        """The discovery, as the SDK takes it; None when there is none that can be read."""
        from mcp_types import DiscoverResult
        from pydantic import ValidationError

        if self.discovered is None:
            return None
        try:
            return DiscoverResult.model_validate(self.discovered)
        except ValidationError:
            return None

    def mode(self) -> str:
        """The ``mode`` of an ``mcp.Client``."""
        if self.version == LEGACY:
            return LEGACY
        return self.version if self.version and self.prior() is not None else "auto"


UNKNOWN = Era()


def era_of(client: Client, transport: str) -> Era:
    """How a connected server is spoken to.

    Args:
        client: a connected client.
        transport: see ``Era``.
    """
    discovered = client.session.discover_result
    if discovered is not None:
        wire = discovered.model_dump(by_alias=True, exclude_none=True, mode="json")
        return Era(transport, str(client.protocol_version), wire)
    info = client.server_info
    return Era(transport, LEGACY, identity=f"{info.name} {info.version}" if info else "")


@dataclass(frozen=True)
class _Known:
    era: Era = UNKNOWN
    tools: tuple[ToolSpec, ...] | None = field(default=None)


class Memory:
    """What is remembered of one server.

    Args:
        spec: the server.
        store: where.
    """

    def __init__(self, spec: ServerSpec, store: Remembered) -> None:
        way = [spec.transport, spec.command, spec.args, spec.cwd, spec.url, spec.allowed_tools, spec.excluded_tools]
        self._key = f"server:{spec.name}:{hashlib.sha256(json.dumps(way).encode()).hexdigest()[:16]}"
        self._store = store
        self._known = _parsed(store.read(self._key))

    @property
    def era(self) -> Era:
        """How it is spoken to, as far as is known."""
        return self._known.era

    @property
    def tools(self) -> tuple[ToolSpec, ...] | None:
        """The tools it offered; None when it was never listed."""
        return self._known.tools

    def keep(self, era: Era, tools: Sequence[ToolSpec]) -> None:
        """Remember how it was reached and what it has."""
        has_changed_hands = self.era.version == LEGACY and era.version == LEGACY and self.era.identity != era.identity
        # Another program behind the same name may be of the new era: it is asked next time.
        known = replace(era, version="") if has_changed_hands and self.era.identity else era
        self._write(_Known(known, tuple(tools)))

    def forget_era(self) -> None:
        """What was known does not hold any more; its tools stay."""
        if self.era != UNKNOWN:
            self._write(replace(self._known, era=UNKNOWN))

    def _write(self, known: _Known) -> None:
        if known != self._known:
            self._known = known
            self._store.write(self._key, json.dumps(asdict(known), ensure_ascii=False))


def _parsed(text: str | None) -> _Known:
    """What was written; nothing when it cannot be read, as after a change of this program."""
    if text is None:
        return _Known()
    try:
        value = json.loads(text)
        tools = value["tools"]
        return _Known(
            Era(**value["era"]),
            None if tools is None else tuple(ToolSpec(**tool) for tool in tools),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return _Known()
