"""A model behind a service as a ``ChatModel``: what is the same for every kind of service.

    conversation ─▶ Round ─▶ request ─▶ service ─▶ chunks ─▶ pieces ─▶ Answer ─▶ events

Rules: one request for each round; it is repeated only before anything of an answer came, by the SDK where the service
refused for now, and by us without the part that the service refuses to hear of. Every wait is bounded, and leaving
closes the connection at once. It knows no SDK: ``openai`` and ``anthropic`` say how they are opened and read.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import anyio
from anyio import to_thread

from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.events import ModelEvent, Status, Usage
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.budget import Budget, Compaction
from rkllm_mcp.providers import ResponseOptions
from rkllm_mcp.providers.answer import Answer
from rkllm_mcp.providers.failures import (
    broken_off,
    dispensable_in,
    failure,
    is_about_tools,
    no_stream,
    problem_of,
    silent,
    unreachable,
)
from rkllm_mcp.providers.pieces import Counted, Piece
from rkllm_mcp.providers.round import Round, declared_tools, round_of
from rkllm_mcp.providers.service import Service, estimated_message_tokens, estimated_tokens, estimated_tool_tokens
from rkllm_mcp.providers.turns import WireNames, system_of

# Saying goodbye to a service goes over the network; nobody waits long for that.
CLOSE_S = 1.0
# Conversations whose left-out turns are remembered.
VIEWS_KEPT = 64
# What is set aside for an answer of which no length is wished for.
_ANSWER_TOKENS = 1024
# What both interfaces cannot do without; Anthropic's wants the third as well.
_NEVER_LEAVE = frozenset({"model", "messages", "max_tokens"})
_T = TypeVar("_T")


class ChunkStream(Protocol):
    """What an SDK gives for a request: the chunks as they come."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    async def __anext__(self) -> Any: ...

    async def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True)
class SdkErrors:
    """What an SDK raises.

    Args:
        silent: the service did not say anything for too long.
        connection: the connection failed or broke; the silent ones may be among them.
        said: the service said that something is wrong.
    """

    silent: tuple[type[Exception], ...]
    connection: tuple[type[Exception], ...]
    said: tuple[type[Exception], ...]


@dataclass(frozen=True)
class Sdk:
    """A service as its SDK opens it.

    Args:
        create: sends a request; returns once the service begins to answer.
        close: closes the connections.
        errors: what it raises.
    """

    create: Callable[..., Awaitable[ChunkStream]]
    close: Callable[[], Awaitable[None]]
    errors: SdkErrors


ReadChunk = Callable[[Mapping[str, Any]], Iterable[Piece]]


class RemoteModel(ABC):
    """A ``LastingModel`` on a service.

    Args:
        service: which one.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._sdk: Sdk | None = None
        self._loading = anyio.Lock()
        self._can_use_tools = service.tools
        self._refused: frozenset[str] = frozenset()
        self._views: OrderedDict[str, Compaction] = OrderedDict()

    @property
    def name(self) -> str:
        """The service's name of the model."""
        return self.service.model

    @property
    def is_ready(self) -> bool:
        """The SDK is loaded."""
        return self._sdk is not None

    async def ready(self) -> Sdk:
        """Load the SDK, which takes seconds; meanwhile everything else goes on."""
        async with self._loading:
            if self._sdk is None:
                self._sdk = await to_thread.run_sync(self._load, abandon_on_cancel=True)
            return self._sdk

    async def close(self) -> None:
        """Close the connections."""
        if self._sdk is not None:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._sdk.close()

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions | None = None
    ) -> AsyncGenerator[ModelEvent, None]:
        """See ``ChatModel.respond``."""
        options = options or ResponseOptions()
        declared = declared_tools(tools, conversation.told_tools, options)
        messages, notice = self._fitting(conversation, declared, options)
        may_be_called = () if options.no_calls else (*declared, *options.others)
        is_refused, answer = False, Answer(conversation, (), WireNames(()))
        try:
            if notice:
                yield Status(f"[Context: {notice} to fit {self.service.context_tokens} tokens]")
            while True:
                asked = round_of(self.service, messages, declared if self._can_use_tools else (), options)
                callable_now = may_be_called if self._can_use_tools else ()
                answer = Answer(conversation, callable_now, asked.names, single_call=options.single_call)
                try:
                    async with aclosing(self._events(conversation, asked, answer)) as events:
                        async for event in events:
                            yield event
                    return
                except _AskOtherwiseError as otherwise:
                    for status in self._adapted(otherwise, asked):
                        yield status
        except PromptTooLongError:
            is_refused = not answer.has_content
            raise
        finally:
            if not is_refused:
                conversation.add(answer.message())

    def over(self, conversation_id: str) -> None:
        """The answer under way in a conversation ended."""
        del conversation_id

    def forget(self, conversation_id: str) -> None:
        """Drop what is kept for a conversation that will not return."""
        self.over(conversation_id)
        self._views.pop(conversation_id, None)

    def branch(self, conversation_id: str, new_id: str) -> None:
        """A conversation begins as another one did; there is nothing that both could use."""
        del conversation_id, new_id

    @abstractmethod
    def _request(self, asked: Round, conversation: Conversation) -> dict[str, Any]:
        """The request's body."""

    @abstractmethod
    def _load(self) -> Sdk:
        """Import the SDK and make its client; called once, in a thread."""

    @abstractmethod
    def _reader(self, conversation: Conversation) -> ReadChunk:
        """What reads the chunks of one answer."""

    def _answered(self, conversation: Conversation, answer: Answer) -> None:
        """A round came to its end."""
        del conversation, answer

    def _adapted(self, otherwise: _AskOtherwiseError, asked: Round) -> list[Status]:
        """Learn what the service does not want to hear of; what a person has to know of that."""
        part = otherwise.part
        if part == "tools":
            self._can_use_tools = False
            return [Status(f"[Model: '{self.name}' cannot use tools and is asked without them]")]
        self._refused |= {part}
        wished = getattr(asked.sampling, part, None) is not None
        return [Status(f"[Model: '{self.name}' takes no {part} and is asked without it]")] if wished else []

    async def _events(
        self, conversation: Conversation, asked: Round, answer: Answer
    ) -> AsyncGenerator[ModelEvent, None]:
        """One request and all that comes of it.

        Raises:
            _AskOtherwiseError: the service refuses a part of the request that it can do without.
            GenerationError: the round failed.
        """
        request = self._request(asked, conversation)
        begun, first, last = anyio.current_time(), None, 0.0
        read = self._reader(conversation)
        conversation.unpaid_tokens = _prompt_tokens(asked)
        try:
            async with aclosing(self._chunks(request, asked, answer)) as chunks:
                async for chunk in chunks:
                    last = anyio.current_time()
                    first = first or last
                    for piece in read(chunk):
                        for event in answer.take(piece):
                            yield event
        except Exception:
            # A request that was refused has cost nothing; one that was left has.
            conversation.unpaid_tokens *= answer.has_content
            raise
        if answer.stopped is None:
            raise broken_off(self.service) if first else no_stream(self.service)
        for event in answer.finish():
            yield event
        self._answered(conversation, answer)
        counted = answer.counted or _estimate(asked, answer)
        yield _usage(counted, begun, first or last, last)

    async def _chunks(
        self, request: dict[str, Any], asked: Round, answer: Answer
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        sdk = await self.ready()
        deadline = anyio.current_time() + self.service.answer_timeout_s
        try:
            stream = await self._before(deadline, sdk.create(**_arguments(request)))
            try:
                while (chunk := await self._before(deadline, anext(stream, None))) is not None:
                    yield _plain(chunk)
            finally:
                with anyio.move_on_after(CLOSE_S, shield=True):
                    await stream.close()
        except sdk.errors.silent as error:
            raise silent(self.service, error) from None
        except TimeoutError:
            raise silent(self.service) from None
        except sdk.errors.connection as error:
            has_begun = answer.has_content
            raise (broken_off(self.service, str(error)) if has_begun else unreachable(error, self.service)) from None
        except sdk.errors.said as error:
            raise self._error(error, asked, request, answer) from None
        except ValueError as error:
            # JSON that is none, or bytes that are no text.
            raise (broken_off(self.service, str(error)) if answer.has_content else no_stream(self.service)) from None

    def _error(self, error: Exception, asked: Round, request: Mapping[str, Any], answer: Answer) -> Exception:
        """What becomes of what the service said."""
        problem = problem_of(error, self.service)
        if not answer.has_content:
            part = "tools" if asked.tools and is_about_tools(problem) else dispensable_in(problem, request)
            if part is not None:
                return _AskOtherwiseError(part)
        return failure(problem, self.service, _prompt_tokens(asked))

    async def _before(self, deadline: float, waiting: Awaitable[_T]) -> _T:
        """What comes of ``waiting``.

        Raises:
            TimeoutError: it did not come in time.
        """
        with anyio.CancelScope(deadline=deadline):
            return await waiting
        raise TimeoutError

    def _fitting(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions
    ) -> tuple[list[Message], str]:
        """The messages that fit the window, where its size is known, and what was left out of them now.

        Raises:
            PromptTooLongError: the last exchange alone is too long.
        """
        messages = conversation.messages
        if self.service.context_tokens is None:
            return messages, ""
        view = self._views[conversation.id] = self._views.pop(conversation.id, None) or Compaction()
        if len(self._views) > VIEWS_KEPT:
            self._views.popitem(last=False)
        head = [message for message in messages if message.role == "system"]
        body = [message for message in messages if message.role != "system"]
        answer = options.max_new_tokens or self.service.max_new_tokens or _ANSWER_TOKENS
        room = Budget(self.service.context_tokens, answer).prompt_limit_tokens
        room -= estimated_tokens(system_of(head)) + sum(map(estimated_tool_tokens, tools))
        notice = ""
        if sum(map(estimated_message_tokens, view.view(body))) > room:
            notice = view.tighten(body, estimated_message_tokens, room)
        return [*head, *view.view(body)], notice


def transport_errors() -> SdkErrors:
    """What the HTTP library below an SDK raises in the middle of a stream, where the SDK does not translate it.

    Which of the two it is depends on the SDK's release; it is loaded by then.
    """
    modules: list[Any] = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    silent = tuple(module.TimeoutException for module in modules)
    connection = tuple(error for module in modules for error in (module.HTTPError, module.StreamError))
    return SdkErrors(silent, (*connection, OSError), ())


class _AskOtherwiseError(Exception):
    """The service refuses a part of the request that it can do without."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def _arguments(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request as any release of an SDK takes it: what services stop wanting leaves the arguments of its function."""
    named = {key: value for key, value in request.items() if key in _NEVER_LEAVE}
    rest = {key: value for key, value in request.items() if key not in _NEVER_LEAVE}
    return {**named, "extra_body": rest, "stream": True}


def _plain(chunk: Any) -> Mapping[str, Any]:
    """A chunk as plain values; the SDKs check nothing, so it may be anything that JSON can be."""
    to_dict = getattr(chunk, "to_dict", None)
    return cast("Mapping[str, Any]", to_dict(warnings=False)) if callable(to_dict) else {}


def _prompt_tokens(asked: Round) -> int:
    """About how long the prompt is."""
    turns = (Message(turn.role, turn.text, calls=turn.calls, results=turn.results) for turn in asked.turns)
    tokens = estimated_tokens(asked.system) + sum(map(estimated_message_tokens, turns))
    return tokens + sum(map(estimated_tool_tokens, asked.tools))


def _estimate(asked: Round, answer: Answer) -> Counted:
    """The count of a service that tells none."""
    return Counted(_prompt_tokens(asked), 0, estimated_message_tokens(answer.message()))


def _usage(counted: Counted, begun: float, first: float, last: float) -> Usage:
    to_first_ms = round((first - begun) * 1000, 3)
    return Usage(
        prompt_tokens=counted.prompt,
        prefilled_tokens=max(0, counted.prompt - counted.cached),
        cached_tokens=counted.cached,
        generated_tokens=counted.generated,
        prefill_ms=to_first_ms,
        decode_ms=round((last - first) * 1000, 3),
        time_to_first_token_ms=to_first_ms,
    )
