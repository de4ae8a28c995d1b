"""Every section of the configuration but ``[[servers]]``."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rkllm_base.addresses import is_loopback
from rkllm_mcp.config.sampling import with_sampling
from rkllm_mcp.config.secrets import KEY_ADVICE, SCHEME, is_hashed, problem_off_loopback, redact_config
from rkllm_mcp.config.section import (
    Approve,
    FilePath,
    FilePaths,
    KeepAlive,
    Names,
    NotNegative,
    NotNegativeSeconds,
    Numbers,
    Positive,
    Right,
    Seconds,
    Section,
    combination,
)
from rkllm_mcp.config.servers import ServerConfig, StdioServer, is_own, matches_any
from rkllm_mcp.errors import UsageError
from rkllm_mcp.text import Language, language_of_setting

_SPEECH_ADDRESS = r"^(wyoming://[^/\s#]+/?|https?://[^/\s]+\S*|sherpa:[^#]+(#[A-Za-z-]+)?)$"

Occasion: TypeAlias = Literal["failed", "too_long", "no_answer", "busy"]


class RemoteSection(Section):
    """A remote service that answers over HTTP."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^/\s]+")] | None = None
    """The service's address; OpenAI's or Anthropic's own when not given."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The model's name at the service."""
    api_key: Annotated[str, Field(min_length=1)] | None = None
    """The API key; preferably as ${VAR}."""
    tools: bool = True
    """The model supports tool calls; if the service rejects them, it is called without tools either way."""
    context_tokens: Positive | None = None
    """Its context window; older turns are left out to fit it when given, else the service judges."""
    max_new_tokens: Positive | None = None
    """The longest answer of one round; the service's own limit when not given."""
    connect_timeout_s: Seconds = 10.0
    """Time limit for connecting."""
    timeout_s: Seconds = 120.0
    """Maximum time without data from the service."""
    answer_timeout_s: Seconds = 600.0
    """Time limit for one round of the model."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Number of retries after a temporary rejection by the service."""
    preset: Literal["rk182x"] | None = None
    """A service with habits of its own: rk182x for RKClawServer and rkllm3-server on an RK1820 or RK1828."""

    @model_validator(mode="after")
    def _check_service(self) -> Self:
        # Each section that is a service has its own kind.
        kind: str = getattr(self, "kind", "rkllm")
        if kind == "rkllm" and self.preset is None:
            return self
        if self.preset is not None and (kind != "openai" or self.base_url is None):
            raise combination(
                "preset", f"{self.preset!r} with kind = {kind!r}", "it needs kind = 'openai' and a base_url"
            )
        if self.model is None:
            raise combination("model", "nothing", f"kind = {kind!r} needs the name of a model")
        if self.base_url is None and self.api_key is None:
            allowed = f"give the key for {kind}, or the base_url of a service of your own"
            raise combination("api_key", "nothing", allowed)
        return self


class FallbackSection(RemoteSection):
    """The service that answers if the first model cannot."""

    kind: Literal["openai", "anthropic"]
    """Protocol of the service."""
    when: Annotated[tuple[Occasion, ...], Field(strict=False)] = ()
    """failed: the answer failed; too_long: the question does not fit; no_answer: no text was generated; busy: the first
    model is answering another request. Never when empty.
    """


class ProviderSection(RemoteSection):
    """The answering model."""

    kind: Literal["rkllm", "openai", "anthropic"] = "rkllm"
    """rkllm is the NPU; the others are services."""
    fallback: FallbackSection | None = None
    """A second service for the cases in its rule; none when not given."""


def _checked_key(entry: str) -> str:
    if not entry.strip():
        raise combination("", "an empty key", KEY_ADVICE)
    if entry.startswith(SCHEME) and not is_hashed(entry):
        raise combination("", "a hash that is not whole", KEY_ADVICE)
    return entry


def _checked_zone(name: str) -> str:
    from rkllm_mcp.schedules.rules import read_zone  # few configurations name a zone

    try:
        return read_zone(name).key
    except UsageError:
        raise PydanticCustomError("zone", "the IANA name of a time zone, such as Europe/Berlin or Asia/Tokyo") from None


def _checked_network(entry: str) -> str:
    try:
        ip_network(entry, strict=False)
    except ValueError:
        advice = "write it like 10.0.0.2 or 10.0.0.0/24"
        raise combination("", "it is no address and no network", advice) from None
    return entry


_Key: TypeAlias = Annotated[str, AfterValidator(_checked_key)]
RIGHTS: tuple[Right, ...] = ("chat", "tools", "approve", "write")


class KeySection(Section):
    """A key of the owner for certain purposes; the keys of `api_keys` have all rights."""

    key: Annotated[str, Field(min_length=1), AfterValidator(_checked_key)]
    """The key, as `rkllm-mcp config add-key` writes it, or in plain text."""
    allow: Annotated[tuple[Right, ...], Field(strict=False, min_length=1)] = RIGHTS
    """chat: ask the model, read and delete conversations; tools: use and switch tools, resources and prompts; approve:
    allow calls that need approval; write: add documents to knowledge bases.
    """
    memory: bool = False
    """What the owner wants remembered is recalled for the questions of a program with this key, which sends the whole
    conversation; it is never told to the program, and nothing is kept of what the program sends.
    """


class ServiceSection(Section):
    """The HTTP service of `rkllm-mcp serve`; `rkllm-mcp tools serve --http` uses host, port and api_keys."""

    host: str = "127.0.0.1"
    """The address to listen on; a key is required for any but loopback."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """The port to listen on."""
    api_keys: Annotated[tuple[_Key, ...], Field(strict=False)] = ()
    """Keys of the owner, as `rkllm-mcp config add-key` writes them, or in plain text."""
    keys: Annotated[tuple[KeySection, ...], Field(strict=False)] = ()
    """Further keys of the owner, each for certain purposes."""
    allowed_hosts: Names = ()
    """Host names of the board in addition to localhost and host, such as those of a reverse proxy."""
    trusted_proxies: Annotated[tuple[Annotated[str, AfterValidator(_checked_network)], ...], Field(strict=False)] = ()
    """Addresses or networks of reverse proxies, such as `10.0.0.2`; their connections carry many clients."""
    cors: Names = ()
    """Origins of web pages that may use it, such as `https://chat.example.org`; `*` for all, which needs a key."""
    parallel: Positive = 2
    """Concurrent answers; the NPU generates one at a time, others may wait for a tool or an approval meanwhile."""
    agent_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port at which HAProxy's agent-check learns how many requests this board takes at once: one, and one more for each
    answer that waits for a person. For `agent_port` of `[[boards]]`.
    """
    boards_secret: Annotated[str, Field(min_length=32)] | None = None
    """What boards of one list prove to each other with: that a new list, or a question for their state, is a board's.
    `rkllm-mcp boards invite` makes it, and `boards join` writes it.
    """
    queue: NotNegative = 32
    """Answers that may wait per key, and 32 times as many evaluations; further requests get a Retry-After."""
    body_mb: Positive = 8
    """Size limit of a request, MiB."""
    upload_mb: Positive = 50
    """Size limit of an uploaded file, MiB; the knowledge server has one of its own, `document_mb`."""
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
    registry_url: Annotated[str, Field(pattern=r"^https?://[^\s?#{}]+$")] = "https://registry.modelcontextprotocol.io"
    """The MCP registry in which the page searches for servers when its owner asks it to; nothing is sent before."""
    timezone: Annotated[str, AfterValidator(_checked_zone)] | None = None
    """The zone of schedules that name none, such as `Europe/Berlin`; the system's when not given, but never UTC."""
    history: bool = True
    """Save conversations, also those of the chat in the terminal."""
    titles: bool = True
    """Let the model on the NPU write a short title for each saved conversation while it is idle; otherwise
    the beginning of the first question is the title.
    """
    keep_results: bool = False
    """Save the results of tools with the conversation, for 30 days. Off: saved ones are erased at the next start."""
    history_days: Annotated[float, Field(gt=0)] | None = None
    """Retention of a conversation after its last answer in days; unlimited when not given."""
    history_conversations: Positive | None = None
    """Maximum number of saved conversations; unlimited when not given."""

    def owner_keys(self) -> list[tuple[str, tuple[Right, ...]]]:
        """Return the entries of all keys of the owner with their rights."""
        return [*((entry, RIGHTS) for entry in self.api_keys), *((key.key, key.allow) for key in self.keys)]

    def is_trusted_proxy(self, address: str) -> bool:
        """Return True if an address is one of ``trusted_proxies``."""
        try:
            client = ip_address(address)
        except ValueError:
            return False
        # IPv4 addresses on an IPv6 socket.
        client = getattr(client, "ipv4_mapped", None) or client
        return any(client in ip_network(network, strict=False) for network in self.trusted_proxies)


def web_address(host: str, port: int) -> str:
    """Return the HTTP address of a host and port; an IPv6 address is written in brackets."""
    return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}"


# A service that listens at one of them is reached at every address of its machine.
EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104  # compared, not listened on


def own_web_address(host: str, port: int) -> str:
    """Return the HTTP address of a service as its own machine reaches it."""
    return web_address("127.0.0.1" if host in EVERY_ADDRESS else host, port)


def reached_host(host: str) -> str:
    """Return the host by which other machines reach a service that listens on ``host``.

    Where it listens on every address that is the one in the network, or the machine's name without a network.
    """
    if host not in EVERY_ADDRESS:
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Chooses a route and sends nothing; the address is reserved for documentation.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


class TenantSection(Section):
    """A tenant: a user of the service with a separate key."""

    name: Annotated[str, Field(min_length=1)]
    """The tenant's name."""
    api_key: Annotated[str, Field(min_length=1), AfterValidator(_checked_key)]
    """The tenant's key."""
    servers: Names | None = None
    """The only servers of this tenant; all when not given."""
    tools: Names | None = None
    """The only tools of this tenant, as a server or `mcp__{server}__{tool}` names them; all when not given."""
    system_prompt: str | None = None
    """The system prompt; agent.system_prompt when not given."""
    approve: Approve | None = None
    """If different from security.approve."""
    may_approve: bool | None = None
    """The tenant may approve its own calls; otherwise calls that need approval are refused. `config add-key` writes
    false; true when not given, which will change with the next release.
    """
    may_write: bool = False
    """The tenant may add documents to its knowledge bases, and change and remove those that it added."""
    documents: Literal["own", "shared"] = "shared"
    """What the tenant sees of the knowledge server: `own` its own knowledge bases only, `shared` also those of the
    owner, read-only. `config add-key` writes own.
    """
    mcp: bool | None = None
    """If different from service.mcp."""
    daily_tokens: Positive | None = None
    """Maximum tokens per day."""
    daily_audio_s: Positive | None = None
    """Maximum seconds per day of recordings that are recognised and texts that are spoken."""


class StoreSection(Section):
    """Where conversations are stored."""

    url: Annotated[str, Field(pattern=r"^postgres(ql)?://")] | None = None
    """A PostgreSQL database that several boards share, such as `postgresql://rkllm:${PASSWORD}@db.lan/rkllm`:
    conversations, responses, calls, permissions, what is switched off, linked devices, schedules and daily tokens.
    Needs the extra `postgres`. A file of this board when not given.
    """


_BOARD_ADDRESS = r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}$"
_BoardModel: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:/@+-]+$")]


class BoardSection(Section):
    """A board of several at one address, for `rkllm-mcp boards`, and for the lists of models and boards of each."""

    address: Annotated[str, Field(pattern=_BOARD_ADDRESS)]
    """Host and port of its service, such as `192.168.1.11:8080`."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,32}$")] | None = None
    """Its name; board1, board2, … in the order of the file when not given."""
    models: Annotated[tuple[_BoardModel, ...], Field(strict=False)] = ()
    """The chat models that it answers with. A request for one of them goes to the boards that have it, any other to the
    boards of the first entry's model.
    """
    context_tokens: Positive | None = None
    """The context window of its models; with `fallback`, a request of more than four bytes for each token goes to the
    boards of that model.
    """
    fallback: _BoardModel | None = None
    """The model of other entries that answers requests for its models while no board has one of them, or that are too
    long for them.
    """
    vision: bool = False
    """Its model reads images; requests with images that name no model go to such boards."""
    embeddings: bool = False
    """It embeds and ranks; if any entry says so, such requests go to those boards. An entry without models then
    answers no questions.
    """
    parallel: Positive | None = None
    """The most requests that it is given at a time; one when not given, with `agent_port` what its service takes."""
    agent_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The `agent_port` of its service, which HAProxy asks twice a second how many requests it takes now."""
    url: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$")] | None = None
    """Where the other boards and `boards status` ask it for its models and its state, such as
    `https://board1.example.org:8443` for one that TLS protects; `http://` and the address when not given.
    """
    key: Annotated[str, Field(min_length=1)] | None = None
    """Key with which they ask it, such as one of `rkllm-mcp service keys`. Without it they prove themselves with
    `[service] boards_secret`; without that, too, they pass on the key of the caller, which the program at the address
    learns, over `https://` and on this machine, and ask without a key else.
    """
    ssh: Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9._@:%\[\]-]*$")] | None = None
    """Where `rkllm-mcp boards update` reaches it by ssh, such as `pi@192.168.1.11` or a host of `~/.ssh/config`; the
    host of `address` when not given. No other board gives or changes it.
    """

    @property
    def base_url(self) -> str:
        """Where it is asked for its models and its state."""
        return self.url or f"http://{self.address}"

    @property
    def is_private(self) -> bool:
        """True if nobody on the network reads what is sent to its base_url: it has TLS, or is on this machine."""
        parts = urlsplit(self.base_url)
        return parts.scheme == "https" or is_loopback(parts.hostname or "")

    @property
    def is_embedding_only(self) -> bool:
        """True if it answers no questions."""
        return self.embeddings and not self.models


class RuntimeSection(Section):
    """The runtime library that drives the NPU, and its process."""

    library: Annotated[str, Field(min_length=1)] = "auto"
    """auto, emulator, or the path of a librkllmrt.so; auto takes the emulator for emulated models only."""
    abi: Annotated[str, Field(pattern=r"^(auto|\d+\.\d+\.\d+)$")] = "auto"
    """auto, or the version to assume for the library, such as 1.2.3."""
    worker: Literal["process"] = "process"
    """process, the only value: a process of its own, whose crash does not end the conversation."""
    cpus: Numbers = ()
    """CPU numbers the runtime may use; the runtime's own choice when empty."""
    log_level: Annotated[int, Field(ge=0, le=2)] = 0
    """0 quiet, 1 timing and memory, 2 prompts and tokens as well."""
    start_timeout_s: Seconds = 120.0
    """Time limit for loading a model."""
    check_memory: bool = True
    """Refuse a model that needs more memory than is available, before the runtime runs out of it."""


class ModelChoice(Section):
    """The model, and how it answers."""

    name: Annotated[str, Field(min_length=1)] | None = None
    """A model folder's name; 'rkllm-mcp models list' shows them."""
    path: FilePath | None = None
    """A model folder or a .rkllm file, instead of name."""
    context_tokens: Positive | None = None
    """The context window; the model's own when not given."""
    max_new_tokens: Positive = 512
    """Maximum length of one round's answer."""
    thinking: Literal["off", "auto", "open"] | None = None
    """off: answer at once; auto: the model decides; open: always think."""


class ModelSection(with_sampling(ModelChoice)):
    """The model and its sampling."""

    prompt_cache: bool | None = None
    """Save prefilled system and tool parts in files: true for the next start as well, false never; when not given, for
    models that are loaded in place of another, and long parts that another prompt would replace in the KV cache.
    """
    prompt_cache_mb: Positive = 2048
    """Size limit of all these files together; the least recently used is deleted first."""
    warm_up: bool = True
    """Prefill the system and tool part before the first question."""
    switching: Literal["owner", "request", "off"] = "owner"
    """Who may have another installed model loaded by naming it in a request: the owner's keys, every key, or none."""
    keep_alive: KeepAlive = -1
    """How long the model stays loaded after its last answer: seconds, 5m or 1h30m; 0 unloads it at once, -1 never. It
    is loaded again with the next request. A request of Ollama's API may set it for the model it uses.
    """

    @model_validator(mode="after")
    def _check_one_model(self) -> ModelSection:
        if self.name is not None and self.path is not None:
            raise combination("path", f"both name = {self.name!r} and path = {str(self.path)!r}", "keep one of them")
        return self


class AgentSection(Section):
    """The loop of model and tools."""

    wait_for_servers_s: NotNegativeSeconds = 3.0
    """How long an answer waits for servers that are starting; their tools join the next question. A server whose known
    tools fit the question is waited for up to 8 s.
    """
    max_rounds: Positive = 8
    """Maximum model rounds in one answer; then it must answer in text."""
    system_prompt: str | None = None
    """The system prompt; the project's own when not given."""
    language: str | None = None
    """Language of the answers, such as ja or en; the question's when not given. With ja the chat and the instructions
    for the model are in Japanese.
    """
    memory: bool = True
    """What a person asks to be remembered is kept, and recalled in their other conversations; false for neither."""
    memory_proposals: bool = False
    """While it is idle, the model on the NPU looks for facts that a person has said of themselves, and proposes them;
    nothing is used before the person keeps it. Each person can choose otherwise on the page.
    """
    memory_tools: bool = False
    """The model may remember and recall by itself, with tools that it finds with find_tools; for models of 3B and more.
    Remembering asks for approval, and takes only what the question itself says.
    """
    schedule_tool: bool = False
    """The model may make schedules by itself, with a tool that it finds with find_tools and that always asks for
    approval; for models of 3B and more.
    """
    parallel_tools: bool | Literal["auto"] = "auto"
    """Calls of one round that run in parallel: auto those of read-only tools, true all, false none."""
    repair_rounds: NotNegative = 2
    """Number of times per answer that the model may correct a call that cannot be parsed or run."""
    tool_result_chars: Positive = 4000
    """Longer tool results are truncated for the model."""
    resource_chars: Positive = 4000
    """Size limit of all resources that a message includes in the prompt."""
    sampling_tokens: Positive = 512
    """Maximum length of an answer that a server may request from the model."""
    auto_select: bool | Literal["auto"] = "auto"
    """List only tools that fit the first question: auto when all of them cost more than the budget, true always."""
    tool_budget_tokens: Positive | None = None
    """Size limit of the tool list; a third of the context window when not given."""
    embedding_model: str | None = None
    """A model for semantic tool selection, name or path; keywords only when not given."""
    tool_listing: Literal["json", "compact"] = "json"
    """Format of the tool list: json as the model was trained, or compact with about half the tokens."""

    @property
    def person_language(self) -> Language:
        """Language of our own texts."""
        return language_of_setting(self.language)


class SecuritySection(Section):
    """Permissions of servers and tools."""

    approve: Approve = "writes"
    """Calls that need approval: all that are not known to be read-only; those whose name or hints say that they delete,
    execute, send or change something; all; or none.
    """
    question_timeout_s: Seconds = 300.0
    """Time limit for the user's approval of a call and for a server's form; then the answer continues without."""
    allowed_commands: Names | None = None
    """The only programs that stdio servers may start: names or paths, optionally with arguments; any when not given."""
    install_servers: bool = False
    """Let a key of the owner with all rights add servers over HTTP, as the page does: those of the gallery, and others
    by address.
    """
    sandbox: bool = False
    """Start stdio servers under bubblewrap: without network, and with access only to the folders configured for them.
    """
    history_days: Annotated[float, Field(ge=0)] = 90.0
    """Retention of recorded tool calls in days; 0 records none."""
    history_calls: Positive = 10_000
    """Maximum number of recorded tool calls."""
    log_wire: bool = False
    """Log every message to and from servers in wire.log in the state folder, with secrets redacted."""
    roots: FilePaths = ()
    """Folders announced to servers as roots; none when empty. Relative to the configuration file."""


class SpeechSection(Section):
    """Speech: the programs that make text of recordings and sound of texts."""

    stt: Annotated[str, Field(pattern=_SPEECH_ADDRESS)] | None = None
    """What recognises speech: `sherpa:FOLDER` for a model of sherpa-onnx in a process of its own (`sherpa:FOLDER#ja` if
    only Japanese is spoken), `wyoming://127.0.0.1:10300` for a program, `http://127.0.0.1:8000/v1#MODEL` for one with
    OpenAI's API; none when not given.
    """
    tts: Annotated[str, Field(pattern=_SPEECH_ADDRESS)] | None = None
    """What speaks, with an address like `stt`; none when not given."""
    voice: Annotated[str, Field(min_length=1)] | None = None
    """The voice of answers; the program's own choice when not given."""
    api_key: Annotated[str, Field(min_length=1)] | None = None
    """Key of a program with OpenAI's API; preferably as ${VAR}."""
    timeout_s: Seconds = 60.0
    """Time limit for a recording, and for each sentence that is spoken."""


class Sections(Section):
    """All sections of a configuration file."""

    runtime: RuntimeSection = RuntimeSection()
    model: ModelSection = ModelSection()
    agent: AgentSection = AgentSection()
    security: SecuritySection = SecuritySection()
    service: ServiceSection = ServiceSection()
    provider: ProviderSection = ProviderSection()
    servers: Annotated[tuple[ServerConfig, ...], Field(strict=False)] = ()
    tenants: Annotated[tuple[TenantSection, ...], Field(strict=False)] = ()
    store: StoreSection = StoreSection()
    boards: Annotated[tuple[BoardSection, ...], Field(strict=False)] = ()
    speech: SpeechSection = SpeechSection()

    @model_validator(mode="after")
    def _check_names_and_keys(self) -> Sections:
        entries = {"servers": self.servers, "tenants": self.tenants}
        names_by_key = {key: [entry.name for entry in entries[key]] for key in entries}
        names_by_key["boards"] = [self.board_name(number) for number in range(len(self.boards))]
        for key, names in names_by_key.items():
            for index, name in enumerate(names):
                if name in names[:index]:
                    advice = "another entry has this name; give it one of its own"
                    raise combination(f"{key}[{index}].name", repr(name), advice)
        for index, board in enumerate(self.boards):
            if board.fallback is not None:
                other_models = {model for other in self.boards for model in other.models} - {*board.models}
                if board.fallback not in other_models:
                    has = (
                        f"other entries have {', '.join(sorted(other_models))}"
                        if other_models
                        else "no other entry has models"
                    )
                    raise combination(f"boards[{index}].fallback", repr(board.fallback), has)
        server_names = sorted(server.name for server in self.servers)
        there = f"the servers are {', '.join(server_names)}" if server_names else "no servers are configured"
        for index, tenant in enumerate(self.tenants):
            for name in tenant.servers or ():
                if name not in server_names:
                    raise combination(f"tenants[{index}].servers", repr(name), there)
        key_entries = self.key_entries
        if not is_loopback(self.service.host) and (problem := problem_off_loopback(key_entries)):
            raise combination("service.host", repr(self.service.host), f"{problem}: {KEY_ADVICE}")
        if "*" in self.service.cors and not key_entries:
            sentence = "any page in any browser here could use the board: 'rkllm-mcp config add-key' makes a key"
            raise combination("service.cors", "'*' without a key", sentence)
        for index, tenant in enumerate(self.tenants):
            if key_entries.count(tenant.api_key) > 1:
                duplicate = "a key that is already in use"
                raise combination(f"tenants[{index}].api_key", duplicate, "give each tenant a separate key")
        return self

    def board_name(self, index: int) -> str:
        """Return the name of an entry of ``boards``."""
        return self.boards[index].name or f"board{index + 1}"

    @property
    def key_entries(self) -> list[str]:
        """Every entry for a key of the service, hashed or not."""
        return [*(entry for entry, _ in self.service.owner_keys()), *(tenant.api_key for tenant in self.tenants)]


@dataclass(frozen=True)
class Origin:
    """Facts about a configuration that are not in its sections."""

    source: Path | None = None  # the file it came from
    mcp_enabled: bool = True  # false if ``MCP_ENABLED`` switches tools off
    # Unset variables by server name; those servers cannot be started.
    unset: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    remarks: tuple[str, ...] = ()  # one line for each ignored part of the file
    tenant: str = ""  # name of the tenant; empty for the owner
    locale: str = ""  # the terminal's, such as ja_JP.UTF-8; empty for a program


class Config(Sections):
    """A checked configuration."""

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """Facts that are not in the sections."""
        return self._origin

    @property
    def status_language(self) -> Language:
        """Language of status lines: the configured one, else the terminal's."""
        return language_of_setting(self.agent.language or self.origin.locale)

    def with_origin(self, **changes: Any) -> Config:
        """Return the same configuration with changed fields of ``origin``."""
        config = self.model_copy()
        config._origin = replace(self._origin, **changes)  # noqa: SLF001  # its own class
        return config

    @property
    def active_servers(self) -> tuple[ServerConfig, ...]:
        """The servers to connect: the enabled ones, or none if tools are switched off."""
        return tuple(server for server in self.servers if server.enabled) if self._origin.mcp_enabled else ()

    def resolved_servers(self) -> tuple[ServerConfig, ...]:
        """Return the servers to connect, with the defaults of ``[security]`` where an entry does not differ."""
        security = self.security
        resolved: list[ServerConfig] = []
        for server in self.active_servers:
            roots = security.roots if server.roots is None else server.roots
            changes: dict[str, Any] = {
                "approve": server.approve or security.approve,
                "trusted": is_own(server) if server.trusted is None else server.trusted,
                "roots": tuple(folder.absolute() for folder in roots),
            }
            if isinstance(server, StdioServer):
                changes["sandbox"] = security.sandbox if server.sandbox is None else server.sandbox
            resolved.append(server.model_copy(update=changes))
        return tuple(resolved)

    def problem_of(self, server: ServerConfig) -> str:
        """Return why a server cannot be started whose variables are not set; empty if all are."""
        unset = self._origin.unset.get(server.name, ())
        if not unset:
            return ""
        names = ", ".join(f"${{{name}}}" for name in unset)
        which = "is" if len(unset) == 1 else "are"
        return f"{names} {which} not set in the environment; set {', '.join(unset)}, or write ${{{unset[0]}:-default}}"

    def with_options(self, *, model: str | None = None, library: str | None = None, tools: bool = True) -> Config:
        """Return the configuration with the options of a command line.

        ``model`` is a model's name or path, or its name at a service; ``library`` is auto, emulator or a path. None
        leaves a value unchanged; ``tools=False`` switches tools off.
        """
        changes: dict[str, Any] = {}
        if model is not None and self.provider.kind != "rkllm":
            changes["provider"] = self.provider.model_copy(update={"model": model})
        elif model is not None:
            is_path = "/" in model or model.endswith(".rkllm") or model in {".", ".."}
            path = Path(model).expanduser().absolute() if is_path else None
            changes["model"] = self.model.model_copy(update={"name": None if is_path else model, "path": path})
        if library is not None:
            is_word = library in {"auto", "emulator"}
            where = library if is_word else str(Path(library).expanduser().absolute())
            changes["runtime"] = self.runtime.model_copy(update={"library": where})
        return self.model_copy(update=changes).with_origin(mcp_enabled=self._origin.mcp_enabled and tools)

    def for_tenant(self, tenant: TenantSection | None) -> Config:
        """Return the configuration of one tenant's assistant, or the owner's, without keys and other tenants."""
        service = self.service.model_copy(update={"api_keys": (), "keys": (), "cors": ()})
        changes: dict[str, Any] = {"tenants": (), "service": service}
        if tenant is not None:
            variables = {
                "KNOWLEDGE_TENANT": tenant.name,
                "KNOWLEDGE_TENANT_DOCUMENTS": tenant.documents,
                "KNOWLEDGE_TENANT_ROLE": "write" if tenant.may_write else "read",
            }
            servers: list[ServerConfig] = []
            for server in self.servers:
                if tenant.servers is None or server.name in tenant.servers:
                    own: dict[str, Any] = {}
                    if tenant.tools is not None:
                        names = [name.removeprefix(f"mcp__{server.name}__") for name in tenant.tools]
                        allowed = server.allowed_tools
                        still = tuple(name for name in names if allowed is None or matches_any(name, allowed))
                        own["allowed_tools"] = still
                    if isinstance(server, StdioServer):
                        # The program is told the tenant, as the knowledge server needs it for access.
                        own["env"] = {**server.env, **variables}
                    servers.append(server.model_copy(update=own))
            changes["servers"] = tuple(servers)
            if tenant.system_prompt is not None:
                changes["agent"] = self.agent.model_copy(update={"system_prompt": tenant.system_prompt})
            if tenant.approve is not None:
                changes["security"] = self.security.model_copy(update={"approve": tenant.approve})
        return self.model_copy(update=changes).with_origin(tenant=tenant.name if tenant is not None else "")

    def only_servers(self, names: Collection[str]) -> Config:
        """Return the configuration with only these servers, enabled."""
        chosen = tuple(s.model_copy(update={"enabled": True}) for s in self.servers if s.name in names)
        return self.model_copy(update={"servers": chosen})

    def dump_redacted(self) -> dict[str, Any]:
        """Return all values as JSON, secrets replaced by ``[REDACTED]``."""
        return redact_config(self.model_dump(mode="json"))
