"""Conversations, tools, calls and results, resources and prompt templates; parts of JSON values."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from rkllm_mcp.events import EndReason, Source

if TYPE_CHECKING:
    from rkllm_mcp.text import Language

Role = Literal["system", "user", "assistant", "tool"]
# free: no approval needed; remembered: by a stored "always"; granted and refused: by a fixed decision; off: the tool is
# disabled; stopped: the call was cancelled; the others are the user's decision.
ApprovalOutcome: TypeAlias = Literal[
    "free", "remembered", "granted", "once", "conversation", "always", "deny", "never", "refused", "off", "stopped"
]
# How a stored answer ended; empty for a question. interrupted is also stored while the answer runs.
Ending: TypeAlias = EndReason | Literal[""]


# Key of ``_meta`` under which a server has the texts of a tool, or of a result, by language (docs/start.md).
TEXTS = "rkllm-mcp/texts"
# Key of ``_meta`` under which a server names the argument of a tool that takes the user's own words.
QUESTION_ARGUMENT = "rkllm-mcp/question"
# Key of ``_meta`` with which a server says that a tool only prepares calls of its other tools.
HELPER = "rkllm-mcp/helper"
# Key of ``_meta`` under which a server names the optional arguments of a tool that are for programs, not for a model.
TUNING = "rkllm-mcp/tuning"
# Key of ``_meta`` with which a server says of a result that its text answers the question as it is.
ANSWER = "rkllm-mcp/answer"
# Key of ``_meta`` of an error of our own servers: kind, the value that cannot be used, and values that can.
ERROR = "rkllm-mcp/error"

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")


@dataclass(frozen=True)
class ToolSpec:
    """A tool as shown to a model."""

    name: str  # the name shown to the model: the server's own if it is unique, ``mcp__server__tool`` otherwise
    description: str = ""  # the server's description
    # JSON Schema of the arguments; its ``type`` is ``object``.
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    server: str = ""  # the server's name in the configuration; empty for tools without a server
    wire_name: str = ""  # the server's name of the tool; ``name`` if empty
    read_only: bool | None = None  # the server's readOnlyHint; None if not given
    destructive: bool | None = None  # the server's destructiveHint; None if not given
    as_task: bool = False  # the tool requires a task, which is polled for its result
    keywords: str = ""  # further words by which a search finds the tool; not shown to the model
    target: str = ""  # method and address of a REST API's operation, for which an approval is valid; else empty
    title: str = ""  # the server's name of the tool for people; not shown to the model
    # By language: ``title``, ``description``, and ``parameters``, the descriptions of arguments by name.
    texts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    on_demand: bool = False  # not in the list that a model reads: it finds the tool with find_tools

    # The argument that takes the user's own words, from which the tool finds its values; empty for none. A schema need
    # not list it.
    question_argument: str = ""
    is_helper: bool = False  # it only prepares calls of other tools: no question is offered it
    tuning: tuple[str, ...] = ()  # optional arguments that programs may give and a model does not read

    @property
    def shown_schema(self) -> Mapping[str, Any]:
        """The schema of the arguments as a model reads it, without those that are for programs."""
        if not self.tuning:
            return self.input_schema
        properties = as_mapping(self.input_schema.get("properties"))
        shown = {name: schema for name, schema in properties.items() if name not in self.tuning}
        return {**self.input_schema, "properties": shown}

    @property
    def original_name(self) -> str:
        """The name that the tool has on its server."""
        return self.wire_name or self.name

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return _SENTENCE_END.split(self.description.strip(), maxsplit=1)[0]

    @property
    def qualified_name(self) -> str:
        """``mcp__{server}__{tool}``, the unique name inside the host."""
        return f"mcp__{self.server}__{self.original_name}" if self.server else self.name

    def in_language(self, language: Language) -> ToolSpec:
        """Return the tool with the texts that its server has in ``language``; as it is without any."""
        texts = self.texts.get(language)
        if not texts:
            return self
        properties = dict(self.input_schema.get("properties") or {})
        for name, description in texts.get("parameters", {}).items():
            if isinstance(properties.get(name), Mapping):
                properties[name] = {**properties[name], "description": description}
        schema = {**self.input_schema, **({"properties": properties} if properties else {})}
        title, description = texts.get("title") or self.title, texts.get("description") or self.description
        return replace(self, title=title, description=description, input_schema=schema)


@dataclass(frozen=True)
class ToolCall:
    """A tool call made by a model."""

    id: str  # unique in its conversation: call_1, call_2, …
    name: str  # as shown to the model
    arguments: Mapping[str, Any]  # parsed, repaired and coerced to the tool's schema
    raw: str = ""  # generated text of the call, with markers
    repaired: bool = False  # the text was not valid as generated


@dataclass(frozen=True)
class Picture:
    """A picture as it was received; pictures with equal bytes are equal."""

    digest: str  # SHA-256 of ``data``
    data: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(cls, data: bytes) -> Picture:
        """Return the picture of these bytes."""
        return cls(hashlib.sha256(data).hexdigest(), data)


# Media types of the formats that are read as pictures, by their first bytes; WebP is a RIFF file, and AVIF and HEIC are
# ISO media files, whose brand follows the size and type of the first box.
_BRANDS: Mapping[bytes, str] = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "image/heic"),
}
_PICTURE_STARTS: Mapping[bytes, str] = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
# Lengths of the second header of BMP files; a text may begin with BM as well.
_BMP_HEADERS = frozenset({12, 40, 52, 56, 64, 108, 124})
PICTURE_FORMATS = "JPEG, PNG, WebP, AVIF, GIF or BMP"
# First bytes of pictures in other formats.
UNREAD_PICTURES: Mapping[bytes, str] = {
    **dict.fromkeys((b"II*\0", b"MM\0*"), "a TIFF picture"),
    **dict.fromkeys((b"\0\0\0\x0cJXL ", b"\xff\n"), "a JPEG XL picture"),
    b"\0\0\0\x0cjP  ": "a JPEG 2000 picture",
    b"8BPS": "a Photoshop picture",
}


def picture_type(data: bytes) -> str:
    """Return the media type of a picture in a format that is read, by its first bytes; empty for anything else."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "")
    if data.startswith(b"BM"):
        return "image/bmp" if int.from_bytes(data[14:18], "little") in _BMP_HEADERS else ""
    return next((media for start, media in _PICTURE_STARTS.items() if data.startswith(start)), "")


@dataclass(frozen=True)
class ToolResult:
    """Result of a call. A failure is a result too, for the model to read."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    seconds: float = 0.0
    truncated: bool = False
    ruling: ApprovalOutcome | Literal[""] = ""  # approval outcome; empty if no decision was needed
    pictures: tuple[Picture, ...] = ()  # shown to the model after the results of the round
    notice: str = ""  # what people are shown where the text addresses the model
    sources: tuple[Source, ...] | None = None  # passages of a search; empty if it found none; None for other tools
    is_answer: bool = False  # the text, of an own server, answers the question as it is

    @property
    def shown(self) -> str:
        """The text for people."""
        return self.notice or self.text


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str = ""  # without tool calls and thinking
    calls: tuple[ToolCall, ...] = ()  # of an assistant message
    results: tuple[ToolResult, ...] = ()  # of a tool message: the results of one round
    thinking: str = ""  # of an assistant message; rendered again only if the template does
    cut: bool = False  # the assistant message ended at a token limit
    # Text that the host puts before the user's for the model only: resources, results of automatic tools, instructions,
    # recalled rows. Of a system message: what is said about the person, after the tools.
    context: str = ""
    pictures: tuple[Picture, ...] = ()  # of a user message; the model sees them in front of the text
    cards: tuple[ToolSpec, ...] = ()  # tools that the model reads in front of the user's text
    # The results of the calls for a user message, which the model reads after its text and in place of the rounds with
    # these calls; empty if they failed, None where the model reads the rounds.
    facts: str | None = None
    foreign: bool = field(default=False, compare=False)  # the text comes, or may come, from a server's prompt

    @property
    def all_pictures(self) -> tuple[Picture, ...]:
        """The pictures of the message and of its results, in the order in which the model sees them."""
        return (*self.pictures, *(picture for result in self.results for picture in result.pictures))


def as_read(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that a model reads: without the rounds whose results are with their question."""
    read: list[Message] = []
    is_handed_over = False
    for message in messages:
        if message.role == "user":
            is_handed_over = message.facts is not None
        if not (is_handed_over and (message.calls or message.role == "tool")):
            read.append(message)
    return read


@dataclass(frozen=True)
class StoredTurn:
    """One stored turn: a question, or its final answer."""

    role: Literal["user", "assistant"]
    text: str  # of an incomplete answer: the text so far
    thinking: str = ""
    context: str = ""  # text that the host put before the user's
    ending: Ending = ""
    at: float = 0.0  # time of the question, or of the end of the answer, seconds since 1970
    # JSON list of the events that the reader of an answer received, without its end; empty if they are unknown.
    events: str = field(default="", compare=False)
    pictures: tuple[Picture, ...] = ()  # of a question


@dataclass
class Conversation:
    """A growing list of messages. A system prompt is the first message; ``id`` is the key in stores and caches."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    messages: list[Message] = field(default_factory=list[Message])
    calls_made: int = 0  # number of call ids in use
    # Tool list of the prompt; None before the first question. Constant, because a change would invalidate the KV cache.
    listed_tools: tuple[ToolSpec, ...] | None = None
    knows_person: bool = False  # the rows that are always known are in the system message, for as long as it is open
    known_rows: tuple[str, ...] = ()  # of them, those that had room there
    revealed_tools: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])  # described later, in a turn
    own_system: str | None = None  # overrides the configured system prompt
    kept_turns: int = 0  # turns in the store, without the draft
    kept_until: float = field(default=0.0, compare=False)  # time of the last of them
    draft: range | None = None  # positions in the store of an exchange that is not over, replaced by the next save
    answer_number: int = 0  # of the draft, among the answers of the boards that share the store
    draft_at: float = field(default=0.0, compare=False)  # time of the draft's question, by which its row is known
    # The question that is being asked and its time, from before its draft is written: a disk may end that late.
    asked: tuple[str, float] = field(default=("", 0.0), compare=False)
    replaces: int | None = None  # position in the store of the question of which the next exchange is a new version
    settings: str = ""  # options of its questions, as the surface that stores them encodes them
    # The last question in the store and the text of its answer, if any, if that was broken off with its process.
    broken_off: tuple[Message, ...] = ()
    unkept: list[StoredTurn] = field(default_factory=list[StoredTurn])  # finished turns that are not in the store yet
    prompt_tokens: int = 0  # tokens of the prompt of the latest run, and those of it that are not in the KV cache
    uncached_tokens: int = 0
    unpaid_tokens: int = 0  # prompt tokens of a run whose statistics have not arrived (also after a cancellation)
    tenant: str = ""  # empty for the owner of the service

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)

    def untrusted_texts(self) -> Iterator[str]:
        """Yield the texts from outside that the model has read: tool results, contexts and servers' prompts."""
        for message in self.messages:
            if message.role == "system":
                continue
            # Results without a call are sentences of the host.
            yield from (result.text for result in message.results if result.call_id)
            yield from filter(None, (message.context, message.text if message.foreign else "", message.facts))

    def next_call_id(self) -> str:
        """Return the id of the next call: ``call_1``, ``call_2``, …."""
        self.calls_made += 1
        return f"call_{self.calls_made}"


@dataclass(frozen=True)
class Resource:
    """A resource of a server."""

    server: str
    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None  # bytes

    @property
    def reference(self) -> str:
        """``server:uri``, the form used after ``@`` in a message."""
        return f"{self.server}:{self.uri}"


@dataclass(frozen=True)
class ResourceTemplate:
    """A family of resources with a URI template such as ``docs://{page}`` (RFC 6570)."""

    server: str
    uri_template: str
    name: str = ""
    description: str = ""
    mime_type: str = ""


@dataclass(frozen=True)
class ResourceContent:
    """Content of a resource at the time of reading."""

    server: str
    uri: str
    text: str  # for the model; other content is described in one line
    truncated: bool = False
    contents: tuple[Mapping[str, Any], ...] = ()  # as received: uri, and text or blob (base64)


@dataclass(frozen=True)
class PromptArgument:
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt of a server, with arguments."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = field(default=())

    @property
    def reference(self) -> str:
        """``server:name``, which is unique."""
        return f"{self.server}:{self.name}"


@dataclass(frozen=True)
class FilledPrompt:
    """A prompt with its arguments filled in: user and assistant messages, in order."""

    template: PromptTemplate
    messages: tuple[Message, ...]


MAX_NAME_CHARS = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_MARK_CHARS = 8


def safe_name(name: str) -> str:
    """Replace unsupported characters with ``_``; add a hash if the name is too long or nothing is left."""
    safe = _UNSAFE.sub("_", name)
    if not safe.strip("_-"):
        return _with_mark("tool", name)
    return safe if len(safe) <= MAX_NAME_CHARS else _with_mark(safe, name)


def long_name(server: str, tool: str) -> str:
    """Return ``mcp__{server}__{tool}`` as a safe name."""
    name = f"mcp__{safe_name(server)}__{safe_name(tool)}"
    return name if len(name) <= MAX_NAME_CHARS else _with_mark(name, f"{server}\n{tool}")


def shown_names(tools: Sequence[tuple[str, str]]) -> list[str]:
    """Return one unique name for each (server, wire name) pair; pairs must be unique."""
    shorts = Counter(safe_name(tool) for _, tool in tools)
    longs = Counter(long_name(server, tool) for server, tool in tools)
    # A short name that equals another tool's long name would shadow that tool.
    shorts.update(longs.keys() & shorts.keys())
    names: list[str] = []
    used: set[str] = set()
    for server, tool in tools:
        short, long = safe_name(tool), long_name(server, tool)
        # If neither the short nor the long name is unique, append a hash of server and tool.
        candidates = [name for name, count in ((short, shorts[short]), (long, longs[long])) if count == 1]
        name = next((name for name in candidates if name not in used), _with_mark(long, f"{server}\n{tool}"))
        names.append(name)
        used.add(name)
    return names


def _with_mark(name: str, identity: str) -> str:
    mark = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:_MARK_CHARS]
    return f"{name[: MAX_NAME_CHARS - _MARK_CHARS - 1]}_{mark}"


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value of JSON that should be an object; empty if it is not one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a value of JSON that should be a list; empty if it is not one."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def resolved_reference(root: Mapping[str, Any], reference: str) -> object:
    """Return the part of ``root`` that a local reference points to; an empty schema otherwise."""
    target: object = root if reference.startswith("#") else {}
    for step in filter(None, reference.removeprefix("#").split("/")):
        target = as_mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
    return target
