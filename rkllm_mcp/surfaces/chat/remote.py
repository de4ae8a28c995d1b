"""The assistant of a running service: ``chat``, ``run`` and ``tools call`` over its HTTP API.

    question ─▶ POST /v1/execute ─▶ records of events ─▶ the same renderer        Ctrl-C ─▶ POST …/cancel
    approval, form on the stream ─▶ the person ─▶ POST /v1/approvals, /v1/elicitations

The service keeps conversation, tools and model; what is stored is read from the store of this user, which both share.
The conversation here is a copy of what was said, for commands that show, save or repeat it. A service that ends takes
its answer with it: that answer fails with one sentence, and the next question goes to the service that runs then.
"""

from __future__ import annotations

import base64
import difflib
import json
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import anyio
import httpx2

from rkllm_mcp.app.answer import EventQueue
from rkllm_mcp.app.assistant import PromptQuestion, begin_conversation
from rkllm_mcp.app.models import ListedModel
from rkllm_mcp.app.stored import open_stored
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.conversations.recorder import restored_turns
from rkllm_mcp.errors import GenerationError, StoreError, ToolboxError, UsageError
from rkllm_mcp.events import (
    EVENT_TYPES,
    Approval,
    Elicitation,
    End,
    Event,
    Prefill,
    QuestionAnswered,
    Status,
    Text,
    Thinking,
    ToolCallDetected,
    ToolFinished,
    event_from_dict,
)
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.memory.person import erase_row
from rkllm_mcp.messages import (
    Conversation,
    Message,
    PromptArgument,
    PromptTemplate,
    Resource,
    ResourceContent,
    ResourceTemplate,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from rkllm_mcp.protocols import CallContext, Decision, ElicitationAnswer
from rkllm_mcp.records import MemoryRow
from rkllm_mcp.store.tables import PERSON
from rkllm_mcp.surfaces.chat.host import AnsweringModel, ListedServer, LocalHost
from rkllm_mcp.surfaces.running_service import RunningService, service_for
from rkllm_mcp.tasks import open_task_group
from rkllm_mcp.text import Language

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.store import Store

# A service sends something at least every five seconds while it answers.
_SILENCE_S = 30.0
_CONNECT_S = 5.0
# A cancelled answer ends within this time, or is left.
_CANCEL_S = 10.0
_RETRY_S = 0.5
_UNAVAILABLE, _NOT_FOUND, _CONFLICT = 503, 404, 409
_KINDS = frozenset(event.kind for event in EVENT_TYPES)


@dataclass(eq=False)
class _RunningAnswer:
    """An answer that the service makes."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    conversation_id: str = ""  # at the service; empty until it is known
    is_cancelled: bool = False
    has_ended: bool = False
    prefill: Prefill | None = None  # of the prompt that the model is reading


class RemoteHost:
    """The assistant of a running service, with the methods of ``LocalHost``; ``open_remote`` makes one."""

    def __init__(
        self, config: Config, service: RunningService, store: Store, about: str, language: Language, tasks: TaskGroup
    ) -> None:
        self.config = config
        self.store = store
        self.tenant = ""
        self.model = AnsweringModel("", 0)
        self._service = service
        self._about = about
        self._language: Language = language
        self._phrases = read_catalogue(language)
        self._tasks = tasks
        self._asked_model: str | None = None
        self.server_names: Sequence[str] = [server.name for server in config.active_servers]
        # By the id that the chat knows, and by that of the service.
        self._answers: dict[str, _RunningAnswer] = {}
        self._questions: dict[str, anyio.Event] = {}
        # What the service knows of conversations that are not stored.
        self._known: dict[str, list[Message]] = {}

    # --- the connection -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _client(self, silence_s: float = _SILENCE_S) -> AsyncGenerator[httpx2.AsyncClient]:
        """Connect to the service that runs now; one that ended may have been started again."""
        if (service := service_for(self.config)) is None:
            raise GenerationError(self._phrases.sentence("attached.over"))
        self._service = service
        headers = {"Authorization": f"Bearer {service.key}", "Accept-Language": self._language}
        timeout = httpx2.Timeout(silence_s, connect=_CONNECT_S)
        try:
            client = httpx2.AsyncClient(base_url=service.address, headers=headers, timeout=timeout, trust_env=False)
            async with client:
                yield client
        except httpx2.TimeoutException:
            raise GenerationError(self._phrases.sentence("attached.silent", seconds=f"{silence_s:.0f}")) from None
        except httpx2.HTTPError:
            raise GenerationError(self._phrases.sentence("attached.lost")) from None

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        silence_s: float = _SILENCE_S,
    ) -> Any:
        """Return what a route answers, None without a body; a refusal is a ToolboxError."""
        async with self._client(silence_s) as client:
            response = await client.request(method, path, json=body, params=query)
        if not response.is_success:
            raise ToolboxError(_message_of(response))
        return response.json() if response.content else None

    async def _stream(
        self, path: str, body: Mapping[str, Any], once: str = ""
    ) -> AsyncGenerator[Event | httpx2.Headers, None]:
        """Yield the headers of a route's answer, then its events; wait while the service loads its model.

        With ``once``, its Idempotency-Key, a request is sent again if the connection breaks before its answer begins.

        Raises:
            GenerationError: the service refused, or ended.
        """
        deadline, has_told, is_repeated = monotonic() + self.config.runtime.start_timeout_s, False, False
        headers = {"Idempotency-Key": once} if once else {}
        while True:
            has_begun = False
            async with self._client() as client:
                try:
                    async with client.stream("POST", path, json=body, headers=headers) as response:
                        if response.is_success:
                            has_begun = True
                            yield response.headers
                            remainder = b""
                            async for piece in response.aiter_bytes():
                                *lines, remainder = (remainder + piece).split(b"\n")
                                for line in lines:
                                    if (event := _event_of(line)) is not None:
                                        yield event
                            return
                        await response.aread()
                except httpx2.TransportError:
                    if has_begun or is_repeated or not once:
                        raise
                    is_repeated = True
                    continue
            is_made = is_repeated and response.status_code == _CONFLICT
            if not (is_made or response.status_code == _UNAVAILABLE) or monotonic() > deadline:
                raise GenerationError(_message_of(response))
            if not (has_told or is_made):
                yield Status(self._phrases.sentence("attached.loading"))
                has_told = True
            await anyio.sleep(_RETRY_S)

    # --- the model ----------------------------------------------------------------------------------------------------

    async def read_model(self) -> None:
        """Read what answers."""
        me = await self._send("GET", "/v1/me")
        description = f"{me.get('description', '')} ({self._service.address})".strip()
        self.model = AnsweringModel(
            me["model"],
            me["context_tokens"],
            description,
            takes_pictures=me.get("sees", False),
            is_emulated=me["emulated"],
            has_weights=me.get("has_weights", False),
        )

    async def models(self) -> Mapping[str, ListedModel]:
        """See ``LocalHost.models``."""
        entries = (await self._send("GET", "/v1/models"))["data"]
        return {
            entry["id"]: ListedModel(
                entry["id"], tuple(entry["capabilities"]), entry["context_tokens"], "", is_loaded=entry["loaded"]
            )
            for entry in entries
        }

    async def load_model(self, name: str) -> None:
        """See ``LocalHost.load_model``."""
        await self._send("POST", "/v1/models:load", {"model": name}, silence_s=self.config.runtime.start_timeout_s)
        self._asked_model = name
        await self.read_model()

    # --- conversations ------------------------------------------------------------------------------------------------

    def new_conversation(self, system: str | None = None) -> Conversation:
        """See ``LocalHost.new_conversation``."""
        return begin_conversation(self.config, self.tenant, system, self._about)

    async def forget_memories(self, rows: Sequence[MemoryRow], conversation: Conversation) -> None:
        """See ``LocalHost.forget_memories``."""
        for row in rows:
            await self._send("DELETE", f"/v1/memory/{row.id}")
            erase_row(conversation, row.text)

    async def change_system(self, conversation: Conversation, text: str) -> None:
        """See ``LocalHost.change_system``."""
        if conversation.kept_turns:
            await self._send("PATCH", f"/v1/conversations/{conversation.id}", {"system": text})
        # One that is not stored goes on under a new id, with what was said.
        self._known.pop(conversation.id, None)
        remaining = [message for message in conversation.messages if message.role != "system"]
        conversation.messages[:] = [Message("system", text), *remaining]
        conversation.own_system = text

    # --- answers ------------------------------------------------------------------------------------------------------

    async def reply(
        self, conversation: Conversation, question: str | PromptQuestion, options: AnswerOptions | None = None
    ) -> AsyncGenerator[Event, None]:
        """See ``LocalHost.reply``."""
        if conversation.id in self._answers:
            raise UsageError("this conversation has an answer under way; wait for it or cancel it")
        queue, answer = EventQueue(), _RunningAnswer()
        self._answers[conversation.id] = answer
        self._tasks.start_soon(self._follow, conversation, question, options or AnswerOptions(), queue, answer)
        try:
            while events := await queue.next_events():
                for event in events:
                    yield event
                    if isinstance(event, End):
                        return
            yield End("cancelled")
        finally:
            queue.close()
            answer.scope.cancel()
            with anyio.CancelScope(shield=True):
                await answer.done.wait()

    async def _follow(
        self,
        conversation: Conversation,
        question: str | PromptQuestion,
        options: AnswerOptions,
        queue: EventQueue,
        answer: _RunningAnswer,
    ) -> None:
        """Feed the events of an answer to ``queue``; the last one is an ``End``."""
        question_message = Message(
            "user", question if isinstance(question, str) else question.name, pictures=options.pictures
        )
        own_id, spoken = conversation.id, _Said(question_message)
        end = End("cancelled")
        try:
            with answer.scope:
                try:
                    body = self._body(conversation, question, options)
                    # What is not stored is not known the second time.
                    once = uuid.uuid4().hex if options.save else ""
                    async with aclosing(self._stream("/v1/execute", body, once)) as events:
                        async for event in events:
                            if isinstance(event, httpx2.Headers):
                                answer.conversation_id = conversation.id = event["X-Conversation-Id"]
                                self._answers[conversation.id] = answer
                                continue
                            answer.prefill = event if isinstance(event, Prefill) else None
                            spoken.note(event)
                            if isinstance(event, (Approval, Elicitation)):
                                self._questions[event.id] = anyio.Event()
                            elif isinstance(event, QuestionAnswered):
                                self._questions.pop(event.id, anyio.Event()).set()
                            if isinstance(event, End):
                                end = event
                                answer.has_ended = True
                            else:
                                queue.feed([event])
                    end = end if answer.has_ended else End("failed", self._phrases.sentence("attached.lost"))
                except (GenerationError, ToolboxError) as error:
                    end = End("cancelled") if answer.is_cancelled else End("failed", str(error))
            with anyio.CancelScope(shield=True), suppress(StoreError):
                if conversation.id in self._answers:
                    # What was said is added to the copy of the conversation; how much of it is stored, the store says.
                    stored = await self.store.conversations.get(self.tenant, conversation.id)
                    conversation.replaces = conversation.draft = None
                    conversation.broken_off = ()
                    if stored is not None and not isinstance(question, str):
                        conversation.messages[:] = restored_turns(stored, self.new_conversation(stored.system)).messages
                    else:
                        conversation.messages += spoken.messages()
                    conversation.kept_turns = len(stored.turns) if stored is not None else 0
                    if stored is not None and stored.turns and stored.turns[-1].ending == "interrupted":
                        conversation.broken_off = tuple(spoken.messages()[:1])
                    if end.reason != "failed":
                        self._known[conversation.id] = list(conversation.messages)
        finally:
            for question_id in spoken.questions:
                self._questions.pop(question_id, anyio.Event()).set()
            for known_id in {own_id, conversation.id}:
                self._answers.pop(known_id, None)
            queue.feed([end])
            queue.close()
            answer.done.set()

    def _body(
        self, conversation: Conversation, question: str | PromptQuestion, options: AnswerOptions
    ) -> dict[str, Any]:
        """Return the body of /v1/execute for a question."""
        model = options.model
        further = {"max_tokens": model.max_new_tokens, "thinking": model.thinking}
        body: dict[str, Any] = {
            "approvals": options.approvals,
            "tokens": dict(options.tokens),
            "resources": options.resources,
            "store": options.save,
            "memory": options.memory,
            "options": {
                **model.sampling.values_by_option(),
                **{name: value for name, value in further.items() if value is not None},
            },
            "model": self._asked_model,
            "force_tool": model.forced_tool,
            "allowed_tools": None if options.tools else [],
        }
        if isinstance(question, str):
            pictures = [base64.b64encode(picture.data).decode() for picture in options.pictures]
            body |= {"message": question, "pictures": pictures}
        else:
            body["prompt"] = {"name": question.name, "arguments": dict(question.arguments)}
        replaces = conversation.replaces if conversation.draft is None else conversation.draft.start
        is_stored = bool(conversation.kept_turns) or replaces is not None
        if is_stored or self._known.get(conversation.id) == conversation.messages:
            return body | {"conversation": conversation.id, "replaces": replaces}
        turns = [message for message in conversation.messages if message.role in ("user", "assistant")]
        history = [
            {
                "role": turn.role,
                "text": turn.text,
                "pictures": [base64.b64encode(picture.data).decode() for picture in turn.pictures],
            }
            for turn in turns
            if turn.text.strip()
        ]
        return body | {"history": history, "system": conversation.own_system}

    def cancel(self, conversation_id: str) -> bool:
        """See ``LocalHost.cancel``; a second time leaves the answer without waiting for its end."""
        answer = self._answers.get(conversation_id)
        if answer is None or answer.has_ended:
            return False
        if answer.is_cancelled or not answer.conversation_id:
            answer.scope.cancel()
        else:
            self._tasks.start_soon(self._cancel, answer)
        answer.is_cancelled = True
        return True

    async def _cancel(self, answer: _RunningAnswer) -> None:
        with anyio.move_on_after(_CANCEL_S):
            try:
                await self._send("POST", f"/v1/conversations/{answer.conversation_id}/cancel")
                await answer.done.wait()
            except (GenerationError, ToolboxError):
                pass
        answer.scope.cancel()

    def prefill_progress(self, conversation_id: str) -> Prefill | None:
        """See ``LocalHost.prefill_progress``."""
        answer = self._answers.get(conversation_id)
        return None if answer is None else answer.prefill

    # --- questions to the person --------------------------------------------------------------------------------------

    async def settle(self, question_id: str, answer: Decision | ElicitationAnswer) -> bool:
        """See ``LocalHost.settle``."""
        path, body = f"/v1/approvals/{question_id}", dict[str, Any](decision=answer)
        if isinstance(answer, ElicitationAnswer):
            path, body = f"/v1/elicitations/{question_id}", {"action": answer.action, "content": dict(answer.content)}
        async with self._client() as client:
            response = await client.post(path, json=body)
        if response.status_code == _NOT_FOUND:
            return False
        if not response.is_success:
            raise ToolboxError(_message_of(response))
        return True

    async def wait_until_settled(self, question_id: str) -> None:
        """See ``LocalHost.wait_until_settled``."""
        if (event := self._questions.get(question_id)) is not None:
            await event.wait()

    # --- tools and servers --------------------------------------------------------------------------------------------

    async def servers(self) -> Sequence[ListedServer]:
        """See ``LocalHost.servers``."""
        entries = (await self._send("GET", "/v1/servers"))["servers"]
        self.server_names = [server["name"] for server in entries]
        return [
            ListedServer(server["name"], server["state"], server["tools"], server["error"], server["enabled"])
            for server in entries
        ]

    async def tools(self, *, disabled: bool = False) -> Sequence[ToolSpec]:
        """See ``LocalHost.tools``."""
        entries = (await self._send("GET", "/v1/tools"))["tools"]
        return [
            ToolSpec(
                tool["name"],
                tool["description"],
                tool["input_schema"],
                tool["server"],
                tool["qualified_name"].removeprefix(f"mcp__{tool['server']}__"),
                tool["read_only"],
                tool["destructive"],
                title=tool["title"],
            )
            for tool in entries
            if tool["enabled"] != disabled
        ]

    async def find_tool(self, name: str) -> ToolSpec | str:
        """See ``LocalHost.find_tool``."""
        tools = [*await self.tools(), *await self.tools(disabled=True)]
        match = next((tool for tool in tools if name in (tool.name, tool.qualified_name)), None)
        close = difflib.get_close_matches(name, [tool.name for tool in tools], n=1)
        return match or (close[0] if close else "")

    async def switch(self, name: str, *, is_on: bool) -> tuple[str, str | None]:
        """See ``LocalHost.switch``."""
        verb = "enable" if is_on else "disable"
        if name in [server.name for server in await self.servers()]:
            await self._send("POST", f"/v1/servers/{quote(name, safe='')}:{verb}")
            return name, None
        switched = await self._send("POST", f"/v1/tools/{quote(name, safe='')}:{verb}")
        tool = await self.find_tool(switched["name"])
        return ("", name) if isinstance(tool, str) else (tool.server, tool.name)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], options: AnswerOptions
    ) -> AsyncGenerator[Event, None]:
        """Call a tool by hand: yield questions for the person, and last the result.

        Raises:
            GenerationError: the service refused, or ended.
        """
        body = {
            "arguments": dict(arguments),
            "tokens": dict(options.tokens),
            "approve": options.approvals == "grant",
            "stream": True,
        }
        async with aclosing(self._stream(f"/v1/tools/{quote(name, safe='')}:call", body)) as events:
            async for event in events:
                if not isinstance(event, httpx2.Headers):
                    yield event

    async def conversation_grants(self, conversation_id: str) -> Sequence[tuple[str, str]]:
        """See ``LocalHost.conversation_grants``."""
        query = {"conversation": conversation_id}
        permissions = (await self._send("GET", "/v1/approvals/lasting", query=query))["permissions"]
        return [
            (permission["server"], permission["tool"])
            for permission in permissions
            if permission["kind"] == "conversation"
        ]

    async def forget_conversation_grant(self, conversation_id: str, server: str, tool: str) -> None:
        """See ``LocalHost.forget_conversation_grant``."""
        query = {"conversation": conversation_id, "server": server, "tool": tool}
        await self._send("DELETE", "/v1/approvals/lasting", query=query)

    # --- resources and prompts ----------------------------------------------------------------------------------------

    async def readable(
        self, server: str | None, context: CallContext
    ) -> tuple[Sequence[Resource], Sequence[ResourceTemplate]]:
        """See ``LocalHost.readable``."""
        del context
        offers = await self._send("GET", "/v1/resources")
        resources = [Resource(**entry) for entry in offers["resources"] if server in (None, entry["server"])]
        templates = [ResourceTemplate(**entry) for entry in offers["templates"] if server in (None, entry["server"])]
        return resources, templates

    async def read_resource(self, reference: str, context: CallContext) -> ResourceContent:
        """See ``LocalHost.read_resource``."""
        del context
        server, colon, uri = reference.partition(":")
        is_named = bool(colon) and server in self.server_names and not uri.startswith("//")
        query = {"uri": uri, "server": server} if is_named else {"uri": reference}
        content = await self._send("GET", "/v1/resources/read", query=query)
        return ResourceContent(content["server"], content["uri"], content["text"], content["truncated"])

    async def prompts(self, server: str | None, context: CallContext) -> Sequence[PromptTemplate]:
        """See ``LocalHost.prompts``."""
        del context
        entries = (await self._send("GET", "/v1/prompts"))["prompts"]
        return [
            PromptTemplate(
                entry["server"],
                entry["name"],
                entry["description"],
                tuple(PromptArgument(**argument) for argument in entry["arguments"]),
            )
            for entry in entries
            if server in (None, entry["server"])
        ]

    async def complete(
        self,
        template: PromptTemplate | ResourceTemplate,
        blank: str,
        value: str,
        arguments: Mapping[str, str],
        context: CallContext,
    ) -> Sequence[str]:
        """See ``LocalHost.complete``; the service passes no suggestions of servers on."""
        del template, blank, value, arguments, context
        return ()


# The assistant as a conversation in a terminal uses it.
ChatHost: TypeAlias = LocalHost | RemoteHost


@dataclass
class _Round:
    """What the model said in one round, and the results of its calls."""

    texts: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    results: list[ToolResult] = field(default_factory=list[ToolResult])


@dataclass
class _Said:
    """The messages of an answer, made of its events."""

    question: Message
    questions: list[str] = field(default_factory=list[str])  # ids of what the person was asked
    _rounds: list[_Round] = field(default_factory=lambda: [_Round()])

    def note(self, event: Event) -> None:
        """Add an event."""
        current = self._rounds[-1]
        if isinstance(event, (Approval, Elicitation)):
            self.questions.append(event.id)
        elif isinstance(event, ToolCallDetected):
            current.calls.append(ToolCall(event.id, event.name, event.arguments, repaired=event.repaired))
        elif isinstance(event, ToolFinished):
            current.results.append(ToolResult(event.id, event.name, event.text, event.is_error, event.seconds))
        elif isinstance(event, (Text, Thinking)):
            if current.results:
                current = _Round()
                self._rounds.append(current)
            (current.texts if isinstance(event, Text) else current.thoughts).append(event.text)

    def messages(self) -> list[Message]:
        """Return the question and the rounds of model and tools."""
        messages = [self.question]
        for round_messages in self._rounds:
            if round_messages.texts or round_messages.calls:
                text, thinking = "".join(round_messages.texts), "".join(round_messages.thoughts)
                messages.append(Message("assistant", text, tuple(round_messages.calls), thinking=thinking))
            if round_messages.results:
                messages.append(Message("tool", results=tuple(round_messages.results)))
        return messages


def _message_of(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


def _event_of(line: bytes) -> Event | None:
    """Return the event in a line of a stream of records, None without one; a GenerationError for a failure."""
    if not line.startswith(b"data: "):
        return None
    record: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    if "error" in record and "kind" not in record:
        raise GenerationError(str(record["error"]["message"]))
    # A newer service may have kinds that are not known here.
    return event_from_dict(record) if record.get("kind") in _KINDS else None


@asynccontextmanager
async def open_remote(
    config: Config, service: RunningService, language: Language, model: str | None = None
) -> AsyncGenerator[RemoteHost]:
    """Open the assistant of a running service; ``model`` is loaded there if it is another.

    Raises:
        RkllmMcpError: the service cannot be used, or the store cannot be read.
    """
    async with open_stored(config) as store, open_task_group(cancel_at_end=True) as tasks:
        about = (await store.texts(PERSON)).texts.get("about", "")
        host = RemoteHost(config, service, store, about, language, tasks)
        await (host.read_model() if model is None else host.load_model(model))
        yield host
