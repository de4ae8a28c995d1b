"""The sections about serving others: the HTTP service and its tenants."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rkllm_mcp.config.keys import KEY_ADVICE, problem_of_entry
from rkllm_mcp.config.section import Approve, Names, NotNegative, NotNegativeSeconds, Positive, Section, combination


class ServiceSection(Section):
    """The HTTP service of `rkllm-mcp serve`; `rkllm-mcp tools serve --http` uses host, port and api_keys."""

    host: str = "127.0.0.1"
    """The address to listen on; a key is required for any but loopback."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """The port to listen on."""
    api_keys: Names = ()
    """Keys of the owner, as `rkllm-mcp config add-key` writes them, or in plain text."""
    allowed_hosts: Names = ()
    """Host names of the board in addition to localhost and host, such as those of a reverse proxy."""
    trusted_proxies: Names = ()
    """Addresses or networks of reverse proxies, such as `10.0.0.2`; their connections carry many clients."""
    cors: Names = ()
    """Origins of web pages that may use it, such as `https://chat.example.org`; `*` for all, which needs a key."""
    parallel: Positive = 2
    """Concurrent answers; the NPU generates one at a time, others may wait for a tool or an approval meanwhile."""
    queue: NotNegative = 8
    """Answers that may wait per key, and 32 times as many evaluations; further requests get a Retry-After."""
    body_mb: Positive = 8
    """Size limit of a request, MiB."""
    drain_s: NotNegativeSeconds = 30.0
    """Time for running answers to finish when the service is stopped."""
    log: Literal["off", "text", "json"] = "off"
    """Log each request and each failure on standard error, with the request's id; off: failures only."""
    embedding_model: str | None = None
    """The embedding model, name or path; the chat model when not given."""
    ranking_model: str | None = None
    """The reranking model, name or path; the chat model when not given."""
    model_aliases: Names = ()
    """Further names for the chat model, for programs that require a certain name; `default` is always one."""
    mcp: bool = False
    """Run the servers' tools for a chat request without tools, unless it sets `mcp` itself."""
    history: bool = True
    """Save conversations, also those of the chat in the terminal."""
    history_days: Annotated[float, Field(gt=0)] | None = None
    """Retention of a conversation after its last answer in days; unlimited when not given."""
    history_conversations: Positive | None = None
    """Maximum number of saved conversations; unlimited when not given."""

    @model_validator(mode="after")
    def _check_entries(self) -> ServiceSection:
        for index, entry in enumerate(self.api_keys):
            if problem := problem_of_entry(entry):
                raise combination(f"api_keys[{index}]", problem, KEY_ADVICE)
        for index, entry in enumerate(self.trusted_proxies):
            if not _is_network(entry):
                advice = "write it like 10.0.0.2 or 10.0.0.0/24"
                raise combination(f"trusted_proxies[{index}]", "it is no address and no network", advice)
        return self

    def is_trusted_proxy(self, address: str) -> bool:
        """Return True if an address is one of ``trusted_proxies``."""
        if not self.trusted_proxies:
            return False
        try:
            found = ip_address(address)
        except ValueError:
            return False
        # IPv4 addresses on an IPv6 socket.
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in ip_network(each, strict=False) for each in self.trusted_proxies)


def _is_network(entry: str) -> bool:
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True if a name or address refers to this machine only."""
    if host == "localhost":
        return True
    try:
        # A host name can also start with 127. without being a loopback address.
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


class TenantSection(Section):
    """A tenant: a user of the service with a separate key."""

    name: Annotated[str, Field(min_length=1)]
    """The tenant's name."""
    api_key: Annotated[str, Field(min_length=1)]
    """The tenant's key."""
    servers: Names | None = None
    """The only servers of this tenant; all when not given."""
    tools: Names | None = None
    """The only tools of this tenant, as a server or `mcp__{server}__{tool}` names them; all when not given."""
    system_prompt: str | None = None
    """The system prompt; agent.system_prompt when not given."""
    approve: Approve | None = None
    """If different from security.approve."""
    mcp: bool | None = None
    """If different from service.mcp."""
    daily_tokens: Positive | None = None
    """Maximum tokens per day."""

    @model_validator(mode="after")
    def _check_entry(self) -> TenantSection:
        if problem := problem_of_entry(self.api_key):
            raise combination("api_key", problem, KEY_ADVICE)
        return self
