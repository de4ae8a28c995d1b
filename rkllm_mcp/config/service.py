"""The sections about serving others: the HTTP service and who may use it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rkllm_mcp.config.keys import KEY_ADVICE, problem_of_entry
from rkllm_mcp.config.section import Approve, Names, NotNegative, NotNegativeSeconds, Positive, Section, combination


class ServiceSection(Section):
    """The HTTP service of `rkllm-mcp serve`; `rkllm-mcp tools serve --http` uses host, port and api_keys."""

    host: str = "127.0.0.1"
    """The address to listen on; off loopback a key is required."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """The port to listen on."""
    api_keys: Names = ()
    """Keys that may use the service, as `rkllm-mcp config add-key` writes them, or as they are."""
    allowed_hosts: Names = ()
    """Names under which the board is reached, besides localhost and host: those of a proxy before it."""
    trusted_proxies: Names = ()
    """Addresses or networks of proxies before it, such as `10.0.0.2`; their connections are many clients'."""
    cors: Names = ()
    """Origins whose pages may use it, such as `https://chat.example.org`; `*` for all, which needs a key."""
    parallel: Positive = 2
    """Answers under way at once; the NPU makes one at a time, another may wait for a tool or a person meanwhile."""
    queue: NotNegative = 8
    """Answers that may wait for each key, and 32 times as many evaluations; who comes then is told when to return."""
    body_mb: Positive = 8
    """The longest request, MiB."""
    drain_s: NotNegativeSeconds = 30.0
    """How long answers under way may still take when the service is told to stop."""
    log: Literal["off", "text", "json"] = "off"
    """A line on standard error for each request and for what breaks, with the request's id; off: for what breaks."""
    embedding_model: str | None = None
    """The model that embeds, name or path; the chat model when not given."""
    ranking_model: str | None = None
    """The model that ranks documents, name or path; the chat model when not given."""
    model_aliases: Names = ()
    """Further names that programs may ask for the chat model by, such as those they insist on; `default` is one."""
    mcp: bool = False
    """The tools of the servers are run for a chat request that brings no tools and does not say `mcp` itself."""
    history: bool = True
    """Keep conversations, also those of the chat in the terminal."""
    history_days: Annotated[float, Field(gt=0)] | None = None
    """How long a conversation is kept after its last answer; without end when not given."""
    history_conversations: Positive | None = None
    """How many conversations are kept; without limit when not given."""

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
        """Whether an address is one of ``trusted_proxies``."""
        if not self.trusted_proxies:
            return False
        try:
            found = ip_address(address)
        except ValueError:
            return False
        # How IPv4 looks on a socket of IPv6.
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in ip_network(each, strict=False) for each in self.trusted_proxies)


def _is_network(entry: str) -> bool:
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        # A name that begins with 127. may be anybody's.
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


class TenantSection(Section):
    """Somebody who uses the service with a key of their own."""

    name: Annotated[str, Field(min_length=1)]
    """Their name."""
    api_key: Annotated[str, Field(min_length=1)]
    """Their key."""
    servers: Names | None = None
    """The only servers they may use; all when not given."""
    tools: Names | None = None
    """The only tools they may use, as a server or `mcp__{server}__{tool}` names them; all when not given."""
    system_prompt: str | None = None
    """What the model is told first for them; agent.system_prompt when not given."""
    approve: Approve | None = None
    """Where they differ from security.approve."""
    mcp: bool | None = None
    """Where they differ from service.mcp."""
    daily_tokens: Positive | None = None
    """The most tokens in a day."""

    @model_validator(mode="after")
    def _check_entry(self) -> TenantSection:
        if problem := problem_of_entry(self.api_key):
            raise combination("api_key", problem, KEY_ADVICE)
        return self
