"""Requests and notifications from servers: elicitation, sampling, roots, logging and list changes.

A callback never raises: an error in one would break the call it belongs to.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from pydantic import FileUrl, ValidationError

from rkllm_base.json_values import size_of
from rkllm_mcp.config.servers import MCPServerConfig
from rkllm_mcp.elicitation import complete_content, field_problems
from rkllm_mcp.errors import RkllmMcpError, ServerRefusedError
from rkllm_mcp.events import Elicitation
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.messages import Message, Picture, as_mapping, picture_type
from rkllm_mcp.protocols import CallContext, ElicitationAnswer, Sampler, SamplingAnswer, SamplingRequest
from rkllm_mcp.text import shorten

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import MCPError
    from mcp.client import session as client_session
    from mcp.client.extension import ClientExtension


# The active call of a task. Inherited by child tasks, such as those in which the SDK runs callbacks of a call.
OWN_CALL: ContextVar[CallContext | None] = ContextVar("active call context", default=None)


def active_call(in_flight: Sequence[CallContext]) -> CallContext | None:
    """Return the call that a request belongs to, of those on its connection, newest last; None without any."""
    call = OWN_CALL.get()
    if call is not None and any(call is context for context in in_flight):
        return call
    return in_flight[-1] if in_flight else None


# Buffer per subscriber; further updates are dropped, because a read is pending anyway.
_WAITING_UPDATES = 64


# Server, URI, and where its changes are sent to.
_Listener: TypeAlias = tuple[str, str, MemoryObjectSendStream[str]]


@dataclass(eq=False)
class ResourceUpdates:
    """Subscribers to resource changes, by server and URI."""

    _listeners: list[_Listener] = field(default_factory=list[_Listener])

    def tell(self, server: str, uri: str) -> None:
        """Notify the subscribers of a resource or of one of its parents."""
        for listening, subscribed, stream in self._listeners:
            if listening == server and (uri == subscribed or uri.startswith(f"{subscribed.rstrip('/')}/")):
                with contextlib.suppress(anyio.WouldBlock):
                    stream.send_nowait(uri)

    @contextmanager
    def listening(self, server: str, uri: str) -> Generator[MemoryObjectReceiveStream[str]]:
        """Yield a stream of the URIs that change, while the block runs."""
        send, receive = anyio.create_memory_object_stream[str](_WAITING_UPDATES)
        listener = (server, uri, send)
        self._listeners.append(listener)
        with send, receive:
            try:
                yield receive
            finally:
                self._listeners.remove(listener)


# Attempts at a form whose content does not fit the schema; bounds a loop with a program as approver.
_ATTEMPTS = 3
_CANCEL = ElicitationAnswer("cancel")
# Of a form that a person is asked to fill in.
MOST_FIELDS = 100
MOST_FORM_BYTES = 64 * 1024
_MESSAGE_CHARS = 4000
_URL_CHARS = 8000


async def _elicit(
    spec: MCPServerConfig,
    in_flight: Sequence[CallContext],
    note: Callable[[str], None],
    context: client_session.ClientRequestContext,
    params: types.ElicitRequestParams,
) -> types.ElicitResult:
    """Handle ``elicitation/create`` of a server whose configuration does not deny it."""
    del context
    try:
        call, is_asked = active_call(in_flight), spec.elicitation != "defaults"
        if params.mode == "url":
            answer = await _show_url(spec.name, params, call) if is_asked else ElicitationAnswer("decline")
        elif is_asked:
            answer = await _fill_form(spec.name, params, call)
        else:
            filled = complete_content(params.requested_schema, {})
            is_wrong = bool(field_problems(params.requested_schema, filled))
            answer = ElicitationAnswer("decline") if is_wrong else ElicitationAnswer("accept", filled)
    except Exception as error:  # noqa: BLE001  (a callback never raises)
        note(f"(its elicitation request failed: {error})")
        answer = _CANCEL
    if answer.action != "accept":
        message = shorten(params.message, _MESSAGE_CHARS)
        note(f"(its elicitation request was not answered: {message})".replace("\n", " "))
    content: Any = dict(answer.content) if answer.action == "accept" and params.mode == "form" else None
    return sdk.types.ElicitResult(action=answer.action, content=content)


async def visit_urls(error: MCPError, spec: MCPServerConfig, context: CallContext) -> bool:
    """Present the URLs of a URLElicitationRequiredError (2025-11-25); True if all were opened: the call is repeated."""
    if error.error.code != sdk.types.URL_ELICITATION_REQUIRED or spec.elicitation != "ask":
        return False
    try:
        requests = sdk.types.ElicitationRequiredErrorData.model_validate(error.error.data).elicitations
    except ValidationError:
        return False
    for request in requests:
        if (await _show_url(spec.name, request, context)).action != "accept":
            return False
    return bool(requests)


async def _show_url(
    server: str, params: types.ElicitRequestURLParams, context: CallContext | None
) -> ElicitationAnswer:
    if context is None or len(params.url) > _URL_CHARS or urlsplit(params.url).scheme not in ("http", "https"):
        return _CANCEL
    question = Elicitation("", server, shorten(params.message, _MESSAGE_CHARS), {}, params.url)
    with context.pause():
        return await context.asker.elicit(question)


async def _fill_form(
    server: str, params: types.ElicitRequestFormParams, context: CallContext | None
) -> ElicitationAnswer:
    if context is None:
        return _CANCEL
    schema = params.requested_schema
    if (
        size_of(schema, MOST_FORM_BYTES + 1) > MOST_FORM_BYTES
        or len(as_mapping(schema.get("properties"))) > MOST_FIELDS
    ):
        problem = f"more than {MOST_FIELDS} fields or {MOST_FORM_BYTES // 1024} KiB; ask for less at once"
        raise ServerRefusedError(f"the form has {problem}")
    question = Elicitation("", server, shorten(params.message, _MESSAGE_CHARS), schema)
    for _ in range(_ATTEMPTS):
        with context.pause():
            answer = await context.asker.elicit(question)
        if answer.action != "accept":
            return answer
        content = complete_content(schema, answer.content)
        wrong = field_problems(schema, content).values()
        if not wrong:
            return ElicitationAnswer("accept", content)
        question = replace(question, message="\n".join((shorten(params.message, _MESSAGE_CHARS), *wrong)))
    return _CANCEL


# A server that needs no approval must not occupy the NPU without limit during one call.
_MOST_PER_CALL = 10
# MCP's example of a rejection by the user; the code has no other meaning.
_REFUSED = -1
_ENDINGS = {"end": "endTurn", "stop": "stopSequence", "length": "maxTokens"}

# Decides about a server's request during a call; asks the call's approver where necessary. Runs outside the time limit.
ApproveSampling: TypeAlias = Callable[[MCPServerConfig, SamplingRequest, CallContext], Awaitable[bool]]


@dataclass(eq=False)
class _SamplingRefusedError(Exception):
    """A sampling request that is refused; code and reason are sent to the server."""

    code: int
    reason: str


@dataclass
class SamplingGate:
    """Sampling callback of one server: checks the request, asks for approval, runs the model.

    While the server asks, the answer that made the call waits for the call and leaves the model free. Without an active
    call a request is refused; so are tools, and content other than text and, for a model that sees, pictures. Follows
    MCP 2025-11-25 (a separate request) and 2026-07-28 (inside the call), client features, sampling.
    """

    spec: MCPServerConfig
    sampler: Sampler
    approve: ApproveSampling
    in_flight: Sequence[CallContext]  # active calls of the connection, whose users are asked
    note: Callable[[str], None]  # receives a line about each refusal
    _counts: list[tuple[CallContext, int]] = field(default_factory=list[tuple[CallContext, int]])

    async def answer(
        self, context: client_session.ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Handle ``sampling/createMessage``; the callback of an ``mcp.Client``."""
        del context
        try:
            answer = await self._generate_answer(params)
        except _SamplingRefusedError as error:
            self.note(f"(its sampling request was refused: {error.reason})")
            return sdk.types.ErrorData(code=error.code, message=error.reason)
        except Exception as error:  # noqa: BLE001  (a callback never raises)
            self.note(f"(its sampling request failed: {error})")
            reason = str(error) if isinstance(error, RkllmMcpError) else "the model could not answer"
            return sdk.types.ErrorData(code=sdk.types.INTERNAL_ERROR, message=reason)
        return sdk.types.CreateMessageResult(
            role="assistant",
            content=sdk.types.TextContent(type="text", text=answer.text),
            model=answer.model,
            stop_reason=_ENDINGS[answer.ending],
        )

    async def _generate_answer(self, params: types.CreateMessageRequestParams) -> SamplingAnswer:
        if params.tools or params.tool_choice:
            raise _SamplingRefusedError(
                sdk.types.INVALID_PARAMS, "this host does not support tools in sampling; ask without tools"
            )
        messages: list[Message] = []
        for sent in params.messages:
            texts: list[str] = []
            pictures: list[Picture] = []
            for block in sent.content_as_list:
                if isinstance(block, sdk.types.TextContent):
                    texts.append(block.text)
                elif self.sampler.sees and isinstance(block, sdk.types.ImageContent) and sent.role == "user":
                    try:
                        decoded = base64.b64decode(block.data, validate=True)
                    except ValueError:
                        decoded = b""
                    if not picture_type(decoded):
                        reason = "a picture is none, or of a format that is not read here, or not in base64"
                        raise _SamplingRefusedError(sdk.types.INVALID_PARAMS, reason)
                    pictures.append(Picture.of(decoded))
                else:
                    reads = "text, and pictures of the user" if self.sampler.sees else "text only"
                    reason = f"this host's model reads {reads}; describe the rest in words"
                    raise _SamplingRefusedError(sdk.types.INVALID_PARAMS, reason)
            messages.append(Message(sent.role, "\n".join(texts), pictures=tuple(pictures)))
        if not messages or params.max_tokens < 1:
            raise _SamplingRefusedError(
                sdk.types.INVALID_PARAMS, "at least one message and max_tokens of at least 1 are required"
            )
        request = SamplingRequest(
            server=self.spec.name,
            messages=tuple(messages),
            system=params.system_prompt or "",
            max_tokens=params.max_tokens,
            stop=tuple(text for text in params.stop_sequences or () if text),
        )
        call = active_call(self.in_flight)
        if call is None:
            raise _SamplingRefusedError(_REFUSED, "the model can only be asked during a call")
        total = 1 + next((count for other, count in self._counts if other is call), 0)
        running = [pair for pair in self._counts if pair[0] is not call and any(pair[0] is c for c in self.in_flight)]
        self._counts = [*running, (call, total)]
        if total > _MOST_PER_CALL:
            raise _SamplingRefusedError(_REFUSED, f"the model can be asked {_MOST_PER_CALL} times during one call")
        with call.pause():
            if not await self.approve(self.spec, request, call):
                raise _SamplingRefusedError(_REFUSED, "the owner of this assistant did not allow it")
            return await self.sampler.sample(request)


@dataclass(frozen=True)
class Callbacks:
    """Callbacks of one connection's ``mcp.Client``; each one that is set declares its capability."""

    sampling: client_session.SamplingFnT | None = None
    elicitation: client_session.ElicitationFnT | None = None
    roots: client_session.ListRootsFnT | None = None
    resource_updated: Callable[[str, str], None] | None = None  # called with the server and the URI of each update
    extensions: Sequence[ClientExtension] = ()


@dataclass(eq=False)
class Answers:
    """Creates the callbacks of a toolbox's servers; ``approve`` decides about each use of ``sampler``, its model."""

    sampler: Sampler | None
    approve: ApproveSampling
    updates: ResourceUpdates = field(default_factory=ResourceUpdates)

    def callbacks_for(
        self, spec: MCPServerConfig, in_flight: Sequence[CallContext], note: Callable[[str], None]
    ) -> Callbacks:
        """Return the callbacks of one server's client; imports the SDK. See ``SamplingGate`` for the parameters."""
        from rkllm_mcp.mcp_client.tasks import Tasks

        sampler = None if spec.sampling == "deny" else self.sampler
        gate = SamplingGate(spec, sampler, self.approve, in_flight, note) if sampler else None

        async def list_roots(context: client_session.ClientRequestContext) -> types.ListRootsResult:
            del context
            paths = [folder.absolute() for folder in spec.roots or ()]
            return sdk.types.ListRootsResult(
                roots=[sdk.types.Root(uri=FileUrl(path.as_uri()), name=path.name or str(path)) for path in paths]
            )

        return Callbacks(
            sampling=gate.answer if gate else None,
            elicitation=None if spec.elicitation == "deny" else partial(_elicit, spec, in_flight, note),
            roots=list_roots if spec.roots else None,
            resource_updated=self.updates.tell,
            extensions=(Tasks(partial(active_call, in_flight), spec.task_timeout_s),),
        )
