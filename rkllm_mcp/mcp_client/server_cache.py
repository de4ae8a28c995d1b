"""Facts about servers that were learnt in earlier runs: protocol revision, transport and tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from rkllm_mcp.config.servers import MCPServerConfig, target_of
from rkllm_mcp.mcp_client.errors import has_hung_up, may_be_an_older_server
from rkllm_mcp.messages import ToolSpec

if TYPE_CHECKING:
    from mcp import Client


LEGACY = "legacy"


class Remembered(Protocol):
    """Persistent storage of ``texts`` by key."""

    texts: dict[str, str]

    def write(self, key: str, text: str) -> None:
        """Store ``text`` under ``key``, replacing the previous text."""
        ...


@dataclass(eq=False)
class Forgetful:
    """Storage in memory, until the program ends."""

    texts: dict[str, str] = field(default_factory=dict[str, str])

    def write(self, key: str, text: str) -> None:
        """Store ``text`` under ``key``."""
        self.texts[key] = text


@dataclass(frozen=True)
class ProtocolRevision:
    """Protocol revision and transport of a server."""

    transport: str = ""  # set if it is not the configured one
    version: str = ""  # a revision without handshake, "legacy" for the others; empty: to be discovered
    discovered: Mapping[str, Any] | None = None  # JSON of the server/discover result
    identity: str = ""  # name and version of a legacy server; another program may speak another revision


UNKNOWN = ProtocolRevision()


def revision_of(client: Client, transport: str) -> ProtocolRevision:
    """Return the protocol revision of a connected server; ``transport`` as in ``ProtocolRevision``."""
    discovered = client.session.discover_result
    if discovered is not None:
        wire = discovered.model_dump(by_alias=True, exclude_none=True, mode="json")
        return ProtocolRevision(transport, str(client.protocol_version), wire)
    info = client.server_info
    return ProtocolRevision(transport, LEGACY, identity=f"{info.name} {info.version}" if info else "")


@dataclass(frozen=True)
class KnownFacts:
    """What is known of a server."""

    era: ProtocolRevision = UNKNOWN
    tools: tuple[ToolSpec, ...] | None = None  # of the previous connection; None if they were never listed
    has_failed: bool = False  # the last attempt to connect, also one of an earlier run


class ServerCache:
    """Cached facts of one server: ``known``."""

    def __init__(self, spec: MCPServerConfig, store: Remembered) -> None:
        facts = [*target_of(spec), spec.allowed_tools, spec.excluded_tools]
        self._key = f"server:{spec.name}:{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"
        self._store = store
        self.known = KnownFacts()
        # A text that is invalid is as good as none, such as after an upgrade of this program.
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            value = json.loads(store.texts.get(self._key, ""))
            tools = value["tools"]
            self.known = KnownFacts(
                ProtocolRevision(**value["era"]),
                None if tools is None else tuple(ToolSpec(**tool) for tool in tools),
                bool(value.get("has_failed", False)),
            )

    def keep(self, era: ProtocolRevision, tools: Sequence[ToolSpec]) -> None:
        """Store the protocol revision and tools of a successful connection."""
        known = self.known.era
        is_other_program = known.version == LEGACY and era.version == LEGACY and known.identity != era.identity
        # Another program may support a newer revision: discover again next time.
        revision = replace(era, version="") if is_other_program and known.identity else era
        self.write(KnownFacts(revision, tuple(tools)))

    def write(self, entry: KnownFacts) -> None:
        """Replace what is known, also in the store."""
        if entry != self.known:
            self.known = entry
            # The fields of a dataclass as they are: copies of a thousand schemas take a second.
            self._store.write(self._key, json.dumps(entry, default=vars, ensure_ascii=False))


def transport_fallback(
    spec: MCPServerConfig, memory: ServerCache, tried: ProtocolRevision, error: Exception | None
) -> ProtocolRevision | None:
    """Return the protocol revision and transport to try next; None if all were tried.

    A cached revision that failed is dropped from ``memory``. ``error`` is None after a timeout.
    """
    if memory.known.era != UNKNOWN:
        memory.write(replace(memory.known, era=UNKNOWN))
        return UNKNOWN
    if error is None or tried.version == LEGACY:
        return None
    if has_hung_up(error) and (spec.transport != "http" or tried.transport):
        return replace(tried, version=LEGACY)
    if tried == UNKNOWN and spec.transport == "http" and may_be_an_older_server(error):
        return ProtocolRevision(transport="sse")
    return None
