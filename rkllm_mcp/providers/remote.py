"""``RemoteModel``: a ``ChatModel`` on a remote service, independent of its interface.

    conversation ─▶ Round ─▶ request ─▶ service ─▶ chunks ─▶ stream parts ─▶ TurnBuilder ─▶ events

One request per round. It is repeated only before any output arrived: by the SDK after a temporary failure, and by this
class without a parameter that the service rejected. Every wait has a limit; leaving closes the connection at once.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio
from anyio import to_thread

from rkllm_mcp.catalogue import status_line
from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.events import Usage
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.budget import Budget, Compaction
from rkllm_mcp.prompt.template import IMAGE_LINE
from rkllm_mcp.protocols import Deadline, EventSink, Turn
from rkllm_mcp.providers.remote_errors import (
    broken_off,
    failure,
    no_stream,
    problem_of,
    rejected_part,
    silent,
    unreachable,
)
from rkllm_mcp.providers.remote_settings import (
    RemoteSettings,
    estimated_message_tokens,
    estimated_tokens,
    estimated_tool_tokens,
)
from rkllm_mcp.providers.stream_parts import CallParts, StreamPart, UsagePart
from rkllm_mcp.providers.turn_builder import TurnBuilder
from rkllm_mcp.providers.wire_messages import WireNames, WireTurn, system_of, turns_of
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.resolve import ToolCatalogue
from rkllm_mcp.toolcalls.untrusted_text import without_markers


@dataclass(frozen=True)
class Round:
    """A request for one round."""

    system: str
    turns: tuple[WireTurn, ...]
    tools: tuple[ToolSpec, ...]  # empty for a model that cannot call tools
    names: WireNames
    options: ModelOptions  # with the configured defaults


def round_of(
    service: RemoteSettings, messages: Sequence[Message], declared: tuple[ToolSpec, ...], options: ModelOptions
) -> Round:
    """Build the request for one round; ``declared`` is empty for a model that cannot call tools."""
    if not service.is_vendors_own:
        # Such a service may render a template and read control tokens out of the whole text, so markers in text from
        # outside are broken. It gets no pictures.
        messages = [
            replace(
                message,
                text=IMAGE_LINE * len(message.pictures)
                + (without_markers(message.text) if message.foreign else message.text),
                context=without_markers(message.context),
                facts=None if message.facts is None else without_markers(message.facts),
                results=tuple(replace(result, text=without_markers(result.text)) for result in message.results),
            )
            for message in messages
        ]
    # Without tools nothing can be chosen.
    choice = options.tool_choice if declared or options.tool_choice == "none" else "auto"
    return Round(
        system=system_of(messages),
        turns=tuple(turns_of(messages, with_calls=bool(declared))),
        tools=declared,
        names=WireNames((*declared, *options.others)),
        options=replace(
            options,
            max_new_tokens=options.max_new_tokens or service.max_new_tokens,
            sampling=options.sampling.on(service.sampling),
            tool_choice=choice,
        ),
    )


CLOSE_S = 1.0  # limit for closing a connection, seconds
VIEWS_KEPT = 64  # number of conversations whose compaction is stored
_ANSWER_TOKENS = 1024  # tokens reserved for an answer without a limit
# Required parameters; max_tokens by Anthropic only.
_REQUIRED = frozenset({"model", "messages", "max_tokens"})
# The SDKs require a key, and would read one from the environment, which must not be sent to another service.
NO_KEY = "none"
# What a service says that will answer in a while, and how often it is asked again.
_NOT_READY = frozenset({429, 503})
_START_POLL_S = 0.5


class Sdk:
    """Client of a service, and the exceptions of its SDK.

    In the middle of a stream the SDK does not translate the exceptions of the HTTP library (httpx or httpx2, which
    depends on the SDK's release and is loaded by now).

    Attributes:
        create: sends a request; returns the stream of chunks when the response begins. It has ``close``, for the
            connection.
        close: closes all connections.
        silent: timeouts.
        connection: failed or broken connections; may include timeouts.
        status_error: errors reported by the service.
    """

    def __init__(
        self,
        module: Any,
        status_error: type[Exception],
        create: Callable[..., Awaitable[Any]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        http: list[Any] = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
        broken = (error for library in http for error in (library.HTTPError, library.StreamError))
        self.create = create
        self.close = close
        self.silent: tuple[type[Exception], ...] = (
            module.APITimeoutError,
            *(library.TimeoutException for library in http),
        )
        self.connection: tuple[type[Exception], ...] = (module.APIConnectionError, *broken, OSError)
        self.status_error = status_error


ReadChunk = Callable[[Mapping[str, Any]], Iterable[StreamPart]]


class RemoteModel(ABC):
    """A ``StatefulModel`` on a remote service."""

    def __init__(self, service: RemoteSettings) -> None:
        self.service = service
        self.name = service.model
        self.is_ready = False  # True once the SDK is loaded
        self._sdk: Sdk | None = None
        self._loading = anyio.Lock()
        self._can_use_tools = service.tools
        self._refused: frozenset[str] = frozenset()
        self._views: OrderedDict[str, Compaction] = OrderedDict()

    async def ready(self) -> Sdk:
        """Load the SDK in a thread, which takes seconds."""
        async with self._loading:
            if self._sdk is None:
                self._sdk = await to_thread.run_sync(self._load, abandon_on_cancel=True)
                self.is_ready = True
            return self._sdk

    async def close(self) -> None:
        """Close the connections."""
        if self._sdk is not None:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._sdk.close()

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, sink: EventSink
    ) -> Turn:
        """See ``ChatModel.respond``."""
        # A service accepts calls of declared tools only, so those that were introduced later are declared, too.
        names = {*conversation.revealed_tools, options.forced_tool}
        introduced = (tool for tool in options.others if tool.name in names)
        declared = tuple({tool.name: tool for tool in (*tools, *introduced)}.values())
        messages, notice = conversation.messages, ""
        if self.service.context_tokens is not None:
            # Of the messages those that fit the context window, and a line about the omitted ones.
            view = self._views[conversation.id] = self._views.pop(conversation.id, None) or Compaction()
            if len(self._views) > VIEWS_KEPT:
                self._views.popitem(last=False)
            head = [message for message in messages if message.role == "system"]
            body = [message for message in messages if message.role != "system"]
            answer_tokens = options.max_new_tokens or self.service.max_new_tokens or _ANSWER_TOKENS
            room = Budget(self.service.context_tokens, answer_tokens).prompt_limit_tokens
            room -= estimated_tokens(system_of(head)) + sum(map(estimated_tool_tokens, declared))
            if sum(map(estimated_message_tokens, view.view(body))) > room:
                notice = view.tighten(body, estimated_message_tokens, room)
            messages = [*head, *view.view(body)]
        may_be_called = () if options.tool_choice == "none" else (*declared, *options.others)
        is_refused, turn = False, TurnBuilder(conversation, Detector((), None, "auto"))
        try:
            if notice:
                sink.feed([status_line("shortened", notice=notice, tokens=self.service.context_tokens)])
            while True:
                model_round = round_of(self.service, messages, declared if self._can_use_tools else (), options)
                callable_now = may_be_called if self._can_use_tools else ()
                parts = CallParts(ToolCatalogue(callable_now), model_round.names) if callable_now else None
                detector = Detector((), None, "auto")
                turn = TurnBuilder(conversation, detector, single_call=options.single_call, call_parts=parts)
                try:
                    return turn.turn(await self._request_turn(conversation, model_round, turn, sink))
                except _AskOtherwiseError as otherwise:
                    part = otherwise.part
                # A line says so if this changes an option that was wished.
                if part == "tools":
                    self._can_use_tools = False
                    sink.feed([status_line("without_tools", name=self.name)])
                    continue
                self._refused |= {part}
                if getattr(model_round.options.sampling, part, None) is not None:
                    sink.feed([status_line("without_option", name=self.name, part=part)])
        except PromptTooLongError:
            is_refused = not turn.has_content
            raise
        finally:
            if not is_refused:
                # Text that was still buffered when the round failed was never shown and is dropped.
                conversation.add(turn.message())

    def over(self, conversation_id: str) -> None:
        """Note that the answer of a conversation has ended."""
        del conversation_id

    def forget(self, conversation_id: str) -> None:
        """Drop the state of a conversation that will not continue."""
        self.over(conversation_id)
        self._views.pop(conversation_id, None)

    def branch(self, conversation_id: str, new_id: str) -> None:
        """Nothing to copy: a new conversation starts without state."""
        del conversation_id, new_id

    @abstractmethod
    def _request(self, model_round: Round, conversation: Conversation) -> tuple[dict[str, Any], ReadChunk]:
        """Return the request body, without what the service rejected, and the parser for the chunks of its answer."""

    @abstractmethod
    def _load(self) -> Sdk:
        """Import the SDK and create its client; called once, in a thread."""

    async def _request_turn(
        self, conversation: Conversation, model_round: Round, turn: TurnBuilder, sink: EventSink
    ) -> Usage:
        """Send one request, feed its events and return the usage; raise _AskOtherwiseError if a part was rejected."""
        request, read = self._request(model_round, conversation)
        started, first, last = anyio.current_time(), None, 0.0
        conversation.unpaid_tokens = _prompt_tokens(model_round)
        try:
            async with aclosing(self._chunks(request, model_round, turn, sink)) as chunks:
                async for chunk in chunks:
                    last = anyio.current_time()
                    first = first or last
                    if events := [event for part in read(chunk) for event in turn.add(part)]:
                        sink.feed(events)
        except Exception:
            # A rejected request costs nothing; one that was cancelled during its answer does.
            conversation.unpaid_tokens *= turn.has_content
            raise
        if turn.finish_part is None:
            raise broken_off(self.service) if first else no_stream(self.service)
        closing = turn.finish()
        # An estimate if the service reports none.
        counted = turn.usage_part or UsagePart(_prompt_tokens(model_round), 0, estimated_message_tokens(turn.message()))
        to_first_ms = round(((first or last) - started) * 1000, 3)
        usage = Usage(
            prompt_tokens=counted.prompt,
            prefilled_tokens=max(0, counted.prompt - counted.cached),
            cached_tokens=counted.cached,
            generated_tokens=counted.generated,
            prefill_ms=to_first_ms,
            decode_ms=round((last - (first or last)) * 1000, 3),
            time_to_first_token_ms=to_first_ms,
        )
        sink.feed([*closing, usage])
        return usage

    async def _open_stream(self, sdk: Sdk, request: dict[str, Any], deadline: Deadline, sink: EventSink) -> Any:
        """Send a request; a service that starts or reloads its model is waited for, where the preset says so."""
        # Every SDK release accepts the required parameters as arguments; the others go into ``extra_body``.
        parameters = {key: value for key, value in request.items() if key in _REQUIRED}
        extra_body = {key: value for key, value in request.items() if key not in _REQUIRED}
        patience = Deadline(min(self.service.preset.start_s, self.service.answer_timeout_s), anyio.current_time)
        is_told = False
        while True:
            try:
                with anyio.fail_after(deadline.left_s):
                    return await sdk.create(**parameters, extra_body=extra_body, stream=True)
            except (*sdk.connection, sdk.status_error) as error:
                is_passing = isinstance(error, sdk.connection) or problem_of(error, self.service).status in _NOT_READY
                if not is_passing or patience.left_s <= 0:
                    raise
            if not is_told:
                is_told = True
                sink.feed([status_line("service_starting", host=self.service.host)])
            await anyio.sleep(min(_START_POLL_S, patience.left_s))

    async def _chunks(
        self, request: dict[str, Any], model_round: Round, answer: TurnBuilder, sink: EventSink
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        sdk = await self.ready()
        deadline = Deadline(self.service.answer_timeout_s, anyio.current_time)
        try:
            stream = await self._open_stream(sdk, request, deadline, sink)
            try:
                while True:
                    with anyio.fail_after(deadline.left_s):
                        chunk = await anext(stream, None)
                    if chunk is None:
                        break
                    # The SDKs do not validate a chunk.
                    to_dict = getattr(chunk, "to_dict", None)
                    yield cast("Mapping[str, Any]", to_dict(warnings=False)) if callable(to_dict) else {}
            finally:
                with anyio.move_on_after(CLOSE_S, shield=True):
                    await stream.close()
        except sdk.silent as error:
            raise silent(self.service, error) from None
        except TimeoutError:
            raise silent(self.service) from None
        except sdk.connection as error:
            has_begun = answer.has_content
            raise (broken_off(self.service, str(error)) if has_begun else unreachable(self.service, error)) from None
        except sdk.status_error as error:
            problem = problem_of(error, self.service)
            part = None if answer.has_content else rejected_part(problem, request)
            if part is not None:
                raise _AskOtherwiseError(part) from None
            raise failure(problem, self.service, _prompt_tokens(model_round)) from None
        except ValueError as error:
            # Invalid JSON or UTF-8.
            raise (broken_off(self.service, str(error)) if answer.has_content else no_stream(self.service)) from None


def client_of(module: Any, client_type: Any, service: RemoteSettings, headers: Mapping[str, Any]) -> Any:
    """Return the client of an SDK for a service, with the names that both SDKs use."""
    timeout = module.Timeout(service.timeout_s, connect=service.connect_timeout_s)
    return client_type(
        api_key=service.api_key or NO_KEY,
        base_url=service.base_url,
        timeout=timeout,
        max_retries=service.retries,
        default_headers=headers,
        # A redirect would send the question, and perhaps the key, to a host that is not configured.
        http_client=module.DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout),
    )


@dataclass(eq=False)
class _AskOtherwiseError(Exception):
    """The service rejected an optional part of the request."""

    part: str


def _prompt_tokens(model_round: Round) -> int:
    """Estimate the length of the prompt."""
    turns = (Message(turn.role, turn.text, calls=turn.calls, results=turn.results) for turn in model_round.turns)
    tokens = estimated_tokens(model_round.system) + sum(map(estimated_message_tokens, turns))
    return tokens + sum(map(estimated_tool_tokens, model_round.tools))
