"""Message filter of a session: repairs messages that the SDK would reject, redacts secrets, detects the end.

One item with a fault would make the SDK reject the whole list; definitions and results are therefore repaired before
the SDK parses them. Each change is noted; an item that cannot be repaired is dropped.

Follows the checks of mcp 2.3.0 and the specifications 2025-11-25 and 2026-07-28, tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from anyio.abc import AsyncResource

from rkllm_base.json_values import is_long, size_of
from rkllm_mcp.config.header_templates import redact
from rkllm_mcp.events import to_json
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.transports.channel import ChangedStream
from rkllm_mcp.mcp_client.wire_log import Write
from rkllm_mcp.messages import HELPER, QUESTION_ARGUMENT, TEXTS, TUNING, as_list, as_mapping
from rkllm_mcp.tasks import run_costly
from rkllm_mcp.text import shorten
from rkllm_mcp.toolcalls.schemas import arguments_schema
from rkllm_mcp.toolcalls.untrusted_text import without_invisible

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage


_LONG_SECRET_CHARS = 8
_WORDS_CHARS = 4000
# Of a server's list: no model reads a hundredth of it, and every one of its bytes is searched and compared later.
MOST_ITEMS = 1000
MOST_LIST_BYTES = 1024 * 1024
MOST_SCHEMA_BYTES = 64 * 1024
_NAME_CHARS = 500
_TITLE_CHARS = 500
_DESCRIPTION_CHARS = 16_000
_RESULT_FIELDS = ("content", "isError", "structuredContent", "resultType", "_meta")
_TASK_SUPPORT = ("forbidden", "optional", "required")
_CANCELLED = "notifications/cancelled"
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_BLOCK_FIELDS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}


@dataclass(frozen=True)
class MessageListener:
    """Callbacks for the messages of one session."""

    on_end: Callable[[], None]  # called once when the server's stream closes; the SDK has no event for this
    note: Callable[[str], None]  # called with a line about each repaired or dropped item
    wire: Write | None = None  # called with every message
    secrets: tuple[str, ...] = ()  # redacted in every message from the server


@asynccontextmanager
async def filter_messages(transport: Transport, listener: MessageListener) -> AsyncGenerator[TransportStreams]:
    """Open ``transport`` with the filter between it and the SDK."""
    methods: dict[str | int, str] = {}
    async with transport as (read, write):
        filtered = _FilteredWrite(write, methods, listener)
        incoming = _IncomingFilter(read, methods, listener, filtered)
        yield ChangedStream(read, incoming.change, listener.on_end), filtered


@dataclass
class _FilteredWrite(AsyncResource):
    """Records the method of each request, to recognise its response, and the handshake, to repeat it."""

    inner: WriteStream[SessionMessage]
    methods: dict[str | int, str]
    listener: MessageListener
    handshake: types.JSONRPCRequest | None = None

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, sdk.types.JSONRPCRequest) and item.message.method == "initialize":
            self.handshake = item.message
        if isinstance(item.message, sdk.types.JSONRPCRequest) and item.message.method in _REPAIRS:
            self.methods[item.message.id] = item.message.method
        if isinstance(item.message, sdk.types.JSONRPCNotification) and item.message.method == _CANCELLED:
            self.methods.pop((item.message.params or {}).get("requestId", ""), None)
        if self.listener.wire is not None:
            self.listener.wire("sent", item.message.model_dump(by_alias=True, mode="json", exclude_unset=True))
        await self.inner.send(item)

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class _IncomingFilter:
    """Repairs responses."""

    inner: ReadStream[SessionMessage | Exception]
    methods: dict[str | int, str]
    listener: MessageListener
    requests: _FilteredWrite

    async def change(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Return an item of the stream as the SDK gets it.

        The refusal of a revision becomes the answer to a handshake with one that the server names.
        """
        if isinstance(item, Exception):
            return item
        handshake, message = self.requests.handshake, item.message
        if handshake is not None and getattr(message, "id", None) == handshake.id:
            self.requests.handshake = None
            params, revisions = dict(handshake.params or {}), list[str]()
            if isinstance(message, sdk.types.JSONRPCError):
                words = f"{message.error.message} {to_json(message.error.data)}"
                revisions = _REVISION.findall(words[:_WORDS_CHARS])
            spoken = set(revisions) & set(sdk.versions.HANDSHAKE_PROTOCOL_VERSIONS) - {params.get("protocolVersion")}
            if spoken:
                again = handshake.model_copy(update={"params": {**params, "protocolVersion": max(spoken)}})
                await self.requests.send(sdk.message.SessionMessage(again))
                self.requests.handshake = None
                item = await self.inner.receive()
                if isinstance(item, Exception):
                    return item
        notes: list[str] = []
        message = item.message
        if isinstance(message, sdk.types.JSONRPCError):
            payload: Any = [message.error.message, message.error.data]
        else:
            payload = message.result if isinstance(message, sdk.types.JSONRPCResponse) else message.params
        if is_long(payload):
            await run_costly(self._filter, item, notes.append)
        else:
            self._filter(item, notes.append)
        for note in notes:
            self.listener.note(note)
        return item

    def _filter(self, item: SessionMessage, note: Callable[[str], None]) -> None:
        message, secrets = item.message, self.listener.secrets
        # The texts of errors and notifications are for people: they are cut, and what is long in them is left out. Of
        # an error that is redacted only the first line: after it the SDK quotes excerpts of invalid data, which may
        # contain parts of a secret.
        if isinstance(message, sdk.types.JSONRPCError):
            words = shorten(message.error.message, _WORDS_CHARS)
            message.error.message = redact(words.partition("\n")[0], secrets) if secrets else words
            data = None if is_long(message.error.data) else message.error.data
            message.error.data = _hide(data, secrets) if secrets else data
        elif isinstance(message, sdk.types.JSONRPCResponse):
            message.result = _hide(message.result, secrets) if secrets else message.result
        elif message.params:
            params = message.params
            if isinstance(message, sdk.types.JSONRPCNotification):
                cut = {
                    key: shorten(part, _WORDS_CHARS) if isinstance(part, str) else part for key, part in params.items()
                }
                params = {key: part for key, part in cut.items() if not is_long(part)}
            message.params = _hide(params, secrets) if secrets else params
        if self.listener.wire is not None:
            self.listener.wire("received", message.model_dump(by_alias=True, mode="json", exclude_unset=True))
        if isinstance(message, sdk.types.JSONRPCError):
            if message.id is None and len(self.methods) == 1:
                # It can only be about the one request that is open, which would wait for its time limit otherwise.
                message.id = next(iter(self.methods))
            self.methods.pop(message.id or "", None)
        elif isinstance(message, sdk.types.JSONRPCResponse) and (method := self.methods.pop(message.id, "")):
            message.result = _REPAIRS[method](message.result, note)


_REVISION = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def _hide(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list):
        return [_hide(item, secrets) for item in cast("list[Any]", value)]
    if _is_object(value):
        # A short secret may equal an ordinary key such as "id"; only long ones are redacted in keys.
        long = tuple(secret for secret in secrets if len(secret) >= _LONG_SECRET_CHARS)
        return {redact(key, long): _hide(item, secrets) for key, item in value.items()}
    return value


def mend_handshake(result: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Repair an ``initialize`` result: what a server left out of its revision, name and version is filled in.

    A result without any part of a handshake is returned as it is.
    """
    if not ({"serverInfo", "capabilities"} & result.keys() or isinstance(result.get("protocolVersion"), str)):
        return result
    mended = mend_extras({key: value for key, value in result.items() if value is not None})
    if isinstance(instructions := mended.get("instructions", ""), list):
        mended["instructions"] = "\n".join(map(str, cast("list[Any]", instructions)))
    elif not isinstance(instructions, str):
        del mended["instructions"]
    spoken = sdk.versions.HANDSHAKE_PROTOCOL_VERSIONS
    version = mended.get("protocolVersion")
    if not isinstance(version, str):
        mended["protocolVersion"] = min(spoken)
        note(f"the handshake states no protocol version; {min(spoken)} is assumed")
    elif version not in spoken:
        # MCP lets a client end the connection here; the tools of a server with its own date work all the same.
        assumed = max((revision for revision in spoken if revision <= version), default=min(spoken))
        mended["protocolVersion"] = assumed
        note(f"the handshake states the protocol version {shorten(version, 40)}; {assumed} is assumed")
    stated = as_mapping(result.get("serverInfo"))
    known_fields = {key: value for key, value in stated.items() if isinstance(value, str) or key in {"icons", "_meta"}}
    mended["serverInfo"] = {"name": "", "version": "", **_clean_item(known_fields)}
    capabilities: dict[str, Any] = {}
    for name, value in as_mapping(result.get("capabilities")).items():
        # Languages with one type for lists and objects write an empty object as [].
        if _is_object(value):
            capabilities[name] = {key: item for key, item in value.items() if not isinstance(item, (str, type(None)))}
        elif value is not None and value is not False:
            capabilities[name] = {}
    return {**mended, "capabilities": capabilities}


def mend_tool_list(result: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Repair a ``tools/list`` result so that every tool can be parsed; drop tools without a name."""
    # A list in place of the result has become its content.
    tools = result.get("tools", result.get("content"))
    if _is_object(tools):
        # A map of the tools by their names.
        tools = [{"name": name, **as_mapping(tool)} for name, tool in tools.items()]
    if not isinstance(tools, list):
        note("the list of tools is not a list; it is treated as empty")
        tools = []
    mended = {key: value for key, value in result.items() if value is not None}
    mended["tools"] = _limit_items(cast("list[Any]", tools), "tools", partial(_mend_tool, note=note), note)
    if not isinstance(mended.get("nextCursor", ""), str):
        del mended["nextCursor"]
    return mended


_OWN_META = (TEXTS, QUESTION_ARGUMENT, HELPER, TUNING)


def _mend_tool(tool: Any, note: Callable[[str], None]) -> dict[str, Any] | None:
    if not _is_object(tool) or not isinstance(tool.get("name"), str) or not tool["name"]:
        note(f"a tool without a name was dropped: {_short(tool)}")
        return None
    if len(tool["name"]) > _NAME_CHARS:
        note(f"a tool whose name has more than {_NAME_CHARS} characters was dropped: {_short(tool['name'])}")
        return None
    if size_of(tool.get("inputSchema"), MOST_SCHEMA_BYTES + 1) > MOST_SCHEMA_BYTES:
        note(f"tool {tool['name']!r} was dropped: its input schema has more than {MOST_SCHEMA_BYTES // 1024} KiB")
        return None
    good: dict[str, Any] = {"name": tool["name"]}
    good |= {key: shorten(tool[key], most) for key, most in _TEXTS.items() if isinstance(tool.get(key), str)}
    if "title" in good:
        good["title"] = without_invisible(good["title"])[0]
    # The output schema is left out: the SDK would throw away a whole result that does not fit it.
    sent = next((tool[name] for name in ("inputSchema", "input_schema", "parameters") if name in tool), None)
    good["inputSchema"] = arguments_schema(sent, lambda problem: note(f"tool {tool['name']!r}: {problem}"))
    annotations = tool.get("annotations")
    if _is_object(annotations):
        good["annotations"] = {key: annotations[key] for key in _HINTS if isinstance(annotations.get(key), bool)}
        if isinstance(annotations.get("title"), str):
            good["annotations"]["title"] = without_invisible(shorten(annotations["title"], _TITLE_CHARS))[0]
    execution = tool.get("execution")
    if _is_object(execution) and execution.get("taskSupport") in _TASK_SUPPORT:
        good["execution"] = {"taskSupport": execution["taskSupport"]}
    if _is_object(meta := tool.get("_meta")) and (own_meta := {key: meta[key] for key in _OWN_META if key in meta}):
        good["_meta"] = own_meta
    return good


def mend_call_result(result: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Repair a ``tools/call`` result so that its content can be parsed; blocks of unknown types become text."""
    if result.get("resultType", "complete") != "complete":
        return result
    mended = mend_extras({key: value for key, value in result.items() if value is not None})
    content = result.get("content")
    if content is None and mended.get("structuredContent") is None:
        # Of before the first revision, or no MCP at all: the words are there under another name.
        words = mended.get("toolResult", {key: value for key, value in mended.items() if key not in _RESULT_FIELDS})
        if words or isinstance(words, (int, float)):
            note(f"a result has no content: {_short(result)}")
            content = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
    if content is not None and not isinstance(content, list):
        note(f"a result's content is not a list: {_short(content)}")
        content = [content]
    mended["content"] = [_mend_block(block, note) for block in cast("list[Any]", content or [])]
    if not isinstance(is_error := mended.get("isError", False), bool):
        mended["isError"] = is_error not in (0, "") and str(is_error).strip().lower() not in ("false", "no", "0")
    structured = mended.get("structuredContent", {})
    # Since 2026-07-28, whose results have a type, it may be any value.
    if "resultType" not in result and not _is_object(structured):
        note(f"a result's structuredContent is not an object: {_short(structured)}")
        mended["structuredContent"] = {"result": structured}
    return mended


def mend_extras(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item without the parts of its annotations and ``_meta`` that the SDK would refuse the whole for."""
    mended = {key: value for key, value in item.items() if key not in ("annotations", "_meta")}
    if _is_object(item.get("_meta")):
        mended["_meta"] = item["_meta"]
    if _is_object(annotations := item.get("annotations")):
        audience, priority = annotations.get("audience"), annotations.get("priority")
        good = {key: value for key, value in annotations.items() if key not in ("audience", "priority")}
        if isinstance(audience, list):
            good["audience"] = [role for role in cast("list[Any]", audience) if role in ("user", "assistant")]
        if isinstance(priority, (int, float)) and not isinstance(priority, bool) and 0 <= priority <= 1:
            good["priority"] = priority
        if not isinstance(good.get("lastModified", ""), str):
            del good["lastModified"]
        mended["annotations"] = good
    return mended


def _mend_block(block: Any, note: Callable[[str], None]) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if _is_object(block):
        block = mend_extras(block)
        if "type" not in block and isinstance(block.get("text"), str):
            block["type"] = "text"
        if block.get("type") == "text" and not isinstance(block.get("text", ""), (str, type(None))):
            # A number or an object, whose words are its JSON.
            block["text"] = to_json(block["text"])
    kind = block.get("type") if _is_object(block) else None
    if kind == "resource" and _is_object(resource := block.get("resource")):
        block["resource"] = resource = mend_extras(resource)
        text = resource.get("text")
        if isinstance(resource.get("uri"), str) and isinstance(text or resource.get("blob"), str):
            return block
        if isinstance(text, str):
            note(f"a resource in a result has no address: {_short(block)}")
            return {"type": "text", "text": text}
    fields = _BLOCK_FIELDS.get(str(kind))
    if fields is not None and all(isinstance(block.get(field), str) for field in fields):
        return block
    note(f"a result has content of an unknown type: {_short(block)}")
    return {"type": "text", "text": json.dumps(block, ensure_ascii=False)}


# The fields of listed items whose type is known; others are passed on as they are.
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("name", "title", "description", "uri", "uriTemplate", "mimeType"), str),
    **dict.fromkeys(("annotations", "_meta"), dict),
    **dict.fromkeys(("icons", "arguments"), list),
    **dict.fromkeys(("required",), bool),
    **dict.fromkeys(("size",), int),
}


_TEXTS: Mapping[str, int] = {"title": _TITLE_CHARS, "description": _DESCRIPTION_CHARS}


def _clean_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item without fields of a wrong type, its title and description cut."""
    good = {key: value for key, value in item.items() if key not in _TYPES or isinstance(value, _TYPES[key])}
    good |= {key: without_invisible(shorten(good[key], most))[0] for key, most in _TEXTS.items() if key in good}
    return mend_extras(good)


def _limit_items(
    items: Sequence[Any],
    what: str,
    mend: Callable[[Any], dict[str, Any] | None],
    note: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Return the first items, repaired, up to the limits of a list; ``mend`` returns None for one that is dropped."""
    accepted: list[dict[str, Any]] = []
    room = MOST_LIST_BYTES
    for item in items[:MOST_ITEMS]:
        good = mend(item)
        if good is None:
            continue
        room -= size_of(good, room + 1)
        if room < 0:
            note(f"its {what} have more than {MOST_LIST_BYTES // 1024**2} MB; the first {len(accepted)} are used")
            return accepted
        accepted.append(good)
    if len(items) > MOST_ITEMS:
        note(f"it has more than {MOST_ITEMS} {what}; the first are used")
    return accepted


def mend_list(result: dict[str, Any], note: Callable[[str], None], *, key: str, name: str) -> dict[str, Any]:
    """Repair the list ``key``; its items need the field ``name``, which is in for a name that is missing.

    Arguments of prompts without a name are dropped.
    """
    mended: dict[str, Any] = {**result, key: []}
    if not isinstance(mended.get("nextCursor", ""), str):
        del mended["nextCursor"]

    def mend(item: Any) -> dict[str, Any] | None:
        good = _clean_item(item) if _is_object(item) else {}
        if not good.get(name):
            note(f"an item of {key} was dropped: {_short(item)}")
            return None
        if not good.get("name"):
            note(f"an item of {key} has no name: {_short(item)}")
            good["name"] = good[name]
        if key == "prompts":
            arguments = [_clean_item(argument) for argument in as_list(good.get("arguments")) if _is_object(argument)]
            good["arguments"] = [argument for argument in arguments if argument.get("name")]
        return good

    mended[key] = _limit_items(as_list(result.get(key)), key, mend, note)
    return mended


def mend_prompt(result: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Repair a ``prompts/get`` result; contents of unknown types become text."""
    messages: list[dict[str, Any]] = []
    for message in as_list(result.get("messages")):
        table = as_mapping(message)
        role = "assistant" if table.get("role") == "assistant" else "user"
        contents = as_list(table.get("content")) or [table.get("content", message)]
        messages += [{"role": role, "content": _mend_block(block, note)} for block in contents]
    return {**result, "messages": messages}


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _short(value: Any) -> str:
    return "a large value" if is_long(value) else json.dumps(value, ensure_ascii=False)[:120]


_REPAIRS: Mapping[str, Callable[[dict[str, Any], Callable[[str], None]], dict[str, Any]]] = {
    "initialize": mend_handshake,
    "tools/list": mend_tool_list,
    "tools/call": mend_call_result,
    "resources/list": partial(mend_list, key="resources", name="uri"),
    "resources/templates/list": partial(mend_list, key="resourceTemplates", name="uriTemplate"),
    "prompts/list": partial(mend_list, key="prompts", name="name"),
    "prompts/get": mend_prompt,
}
