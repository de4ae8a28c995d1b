"""The assistant: answers questions in conversations, one answer at a time in each.

    agent ─▶ batches of events ─▶ AnswerStream (usage, saving) ─▶ emit: an HTTP response, or a stream for a generator

An answer is cancelled by its ``CancelScope`` alone; afterwards the NPU is free and the conversation consistent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest, TurnTools, system_text
from rkllm_mcp.agent.loop import LoopSettings, answer
from rkllm_mcp.agent.markup_filter import MarkupFilter
from rkllm_mcp.agent.pending_requests import FormApprover, PendingRequests, StreamApprover
from rkllm_mcp.agent.question import Question, question_from_prompt, question_from_text
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.app.recorder import AnswerRecord, Recorder, restored_turns
from rkllm_mcp.app.settings import starting_lines
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import PromptTooLongError, RkllmMcpError, UsageError
from rkllm_mcp.events import End, Event, Status
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Ending, Message, ToolSpec
from rkllm_mcp.models.cards import ModelFolder
from rkllm_mcp.protocols import (
    Approver,
    CallContext,
    EmitEvents,
    FixedApprover,
)
from rkllm_mcp.providers.prefill_progress import PromptProgress
from rkllm_mcp.records import PastCalls, StoredConversation
from rkllm_mcp.text import Language

if TYPE_CHECKING:
    from rkllm_mcp.agent.sampling import ModelSampler
    from rkllm_mcp.app.environment import ModelHost, ToolEnvironment
    from rkllm_mcp.app.model_form import PromptListing
    from rkllm_mcp.app.models import ModelSwitch
    from rkllm_mcp.app.warmup import WarmUp
    from rkllm_mcp.mcp_client.lifecycle import AnyToolServer
    from rkllm_mcp.runtime.engine import Engine
    from rkllm_mcp.tools.search import Embedder, ToolSearch

logger = logging.getLogger(__name__)

# The list of tools may take this part of the context window; question, results and answer need the rest.
TOOL_SHARE = 3
# Batches that an answer may be ahead of the reader of a generator; a full stream slows the answer and drops nothing.
BATCHES_AHEAD = 256
# A cancelled answer waits at most this long for its reader to take the line about a failed save, seconds.
SAVE_NOTICE_TIMEOUT_S = 1.0


class AnswerStream:
    """One answer: counts usage, saves the answer before its ``End``, and forwards its events.

    ``End`` is forwarded when the answer is over, so a client that received it can ask the next question at once.
    """

    def __init__(self, conversation: Conversation, emit: EmitEvents, usage: UsageCounter) -> None:
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.conversation = conversation
        self._forward = emit
        self._usage = usage
        # Nothing is counted before the answer has begun.
        self._count: Callable[[Event], None] = lambda _: None
        self._record: AnswerRecord | None = None
        self._end: End | None = None

    async def run(self, work: Work, finished: Callable[[], None]) -> None:
        """Make the answer; ``finished`` is called before ``End`` is forwarded, and when the answer is cancelled."""
        with suppress(anyio.BrokenResourceError):  # the reader of a generator has left
            try:
                with self._usage.of(self.conversation) as self._count, self.scope:
                    # It may have been cancelled before it began.
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    await self._make(work)
            finally:
                finished()
                self.done.set()
            await self._forward((self._end or End("cancelled"),))

    async def emit(self, events: Sequence[Event]) -> None:
        """Forward a batch; an ``End`` is held back until the answer is over."""
        for event in events:
            self._count(event)
        if self._record is not None:
            self._record.hear(events)
        last = events[-1]
        if not isinstance(last, End):
            await self._forward(events)
            return
        if len(events) > 1:
            await self._forward(events[:-1])
        # ``cancel`` returned True if it came before this.
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._end = self._end or last
        await self._save(last.reason, is_refused=isinstance(last.cause, PromptTooLongError))

    @property
    def is_ending(self) -> bool:
        """True once its ``End`` is decided, which a cancellation does not change any more."""
        return self._end is not None

    def save_with(self, record: AnswerRecord) -> None:
        """Save the answer with ``record`` when it ends, also if it fails or is cancelled."""
        self._record = record

    async def _make(self, work: Work) -> None:
        try:
            await work(self)
        except RkllmMcpError as error:
            await self.emit((End("failed", str(error), error),))
        except anyio.BrokenResourceError:
            raise
        except Exception as error:
            # A defect costs this answer, not the service and the answers of others.
            logger.exception("an answer failed")
            text = f"internal error: {error!r}; please report it with the output of --debug"
            await self.emit((End("failed", text, error),))
        finally:
            await self._save("cancelled")

    async def _save(self, ending: Ending, *, is_refused: bool = False) -> None:
        record, self._record = self._record, None
        notice = await record.save(ending, is_refused=is_refused) if record is not None else ""
        if not notice:
            return
        with anyio.CancelScope() as telling, suppress(anyio.BrokenResourceError):
            if ending == "cancelled":
                # The client that cancelled it may still read.
                telling.shield, telling.deadline = True, anyio.current_time() + SAVE_NOTICE_TIMEOUT_S
            await self._forward((Status(notice),))


# Makes an answer: emits its events, an ``End`` last.
Work: TypeAlias = Callable[[AnswerStream], Awaitable[None]]


# For the model to pass on when there was no user to ask.
HOW_TO_ALLOW = "It can be allowed with 'rkllm-mcp run --yes', or for good with always_allow in the configuration."

NO_RIGHT = "This key may not approve calls; the owner of the service can allow the tool with always_allow."

# A server whose tools do not fit a question is waited for this long: then the list of tools is usually complete.
_UNFIT_WAIT_S = 1.0


def _names_of(servers: Sequence[AnyToolServer], among: Collection[str] | None = None) -> str:
    names = [server.spec.name for server in servers]
    return ", ".join(f"'{name}'" for name in names if among is None or name in among)


def _is_needed(server: AnyToolServer, fitting: Collection[str], named: Collection[str]) -> bool:
    """Return True if a question needs a server: its tools fit, one is ``named``, or it adds to each question."""
    own = {name for tool in server.remembered_tools for name in (tool.wire_name, tool.qualified_name)}
    is_named = any(name in own or name.startswith(f"mcp__{server.spec.name}__") for name in named)
    adds_context = server.spec.auto_context_tool is not None and not server.failed_before
    return is_named or adds_context or server.spec.name in fitting


# Prepares the question for the loop, once model and servers are ready.
Prepare: TypeAlias = Callable[[EmitEvents, CallContext], Awaitable[Question]]


class Assistant:
    """A running assistant; ``open_app`` makes one.

    Attributes:
        config: the configuration.
        model_host: the model that answers.
        toolbox: the tools of all servers.
        store: the store, with tool calls and conversations.
        tenant: the tenant's name; empty for the owner.
        recorder: saves answers.
        usage: counts the tokens of its answers.
        pending: the approvals and elicitations that wait for a user.
        models: exchanges the model, if it belongs to this assistant alone; None otherwise.
    """

    def __init__(
        self,
        config: Config,
        model_host: ModelHost,
        tools: ToolEnvironment,
        tasks: TaskGroup,
        new_warm_up: Callable[..., WarmUp],
        tenant: str,
        usage: UsageCounter,
        sampler: ModelSampler,
    ) -> None:
        self.config = config
        self.model_host = model_host
        self.toolbox = tools.toolbox
        self.store = tools.store
        self.tenant = tenant
        self.recorder = Recorder(tools.store.conversations, tenant)
        self.usage = usage
        self.models: ModelSwitch | None = None
        self._tools = tools
        self._tasks = tasks
        self._sampler = sampler
        self._new_warm_up = new_warm_up
        self._warm_up: WarmUp | None = None
        self._answers: dict[str, AnswerStream] = {}
        # Servers that were still starting when an answer went on without them.
        self._waited_for: set[str] = set()
        self._idle = anyio.Event()
        self._is_closed = False
        self.pending = PendingRequests(config.security.question_timeout_s)
        self._prepare_turns()
        self._has_announced = False

    @property
    def model(self) -> ModelFolder:
        """The folder and card of the model on the NPU; a UsageError where a remote service answers."""
        return self.model_host.board.model

    @property
    def engine(self) -> Engine:
        """The owner of the NPU; a UsageError where a remote service answers."""
        return self.model_host.board.engine

    def _prepare_turns(self) -> None:
        host = self.model_host
        self._preparation = turn_preparation(self.config, host.listing, self.toolbox, self.store.calls, host.embedder)

    def use(self, model_host: ModelHost, *, warms: bool = True) -> None:
        """Answer with another model from now on, while no answer runs; with ``warms`` its prompt is prepared."""
        if self._warm_up is not None:
            self._warm_up.stop()
            self._warm_up = None
        self.model_host = model_host
        self._sampler.use(model_host.chat_model, model_host.name)
        self._prepare_turns()
        if warms:
            self.warm_up(comes_back=True)

    def warm_up(self, *, comes_back: bool = False) -> None:
        """Prepare the beginning of every prompt once the model is loaded; see ``app.warmup.WarmUp``."""
        if (npu := self.model_host.npu) is not None:
            self._warm_up = self._new_warm_up(npu.model, npu.engine, comes_back=comes_back)
            self._tasks.start_soon(self._warm_up.run, self._ready_to_warm_up, self.prompt_prefix)

    def close(self) -> None:
        """Cancel every answer and take no more; ``open_app`` does this at the end."""
        self._is_closed = True
        for each in self._answers.values():
            each.scope.cancel()
        self._tasks.cancel_scope.cancel()

    def new_conversation(self, system: str | None = None) -> Conversation:
        """Make a conversation that begins with the system text: ``system``, or the configuration's."""
        agent = self.config.agent
        text = system_text(agent.system_prompt, agent.language) if system is None else system
        conversation = Conversation(own_system=system, tenant=self.tenant)
        if text:
            conversation.add(Message("system", text))
        return conversation

    def resume(self, kept: StoredConversation) -> Conversation:
        """Restore a conversation of ``memory.conversations``, with its id; the model reads it again."""
        return restored_turns(kept, self.new_conversation(kept.system))

    async def answer(
        self, conversation: Conversation, text: str, emit: EmitEvents, options: AnswerOptions | None = None
    ) -> None:
        """Answer ``text``; the last event is always an ``End``, unless the caller is cancelled.

        A resource that the text names as ``@server:uri`` is read first; when it cannot be read, the answer ends as
        ``failed`` before the model runs.

        Args:
            conversation: the conversation; one answer at a time.
            text: the user's words.
            emit: takes the events in batches, in order; the answer waits while it does not return.
            options: options of the answer.

        Raises:
            UsageError: the conversation has a running answer, or the assistant is closed.
        """
        await self._run_free(conversation, self._text_work(text, options), emit)

    async def answer_prompt(
        self,
        conversation: Conversation,
        prompt: str,
        arguments: Mapping[str, str],
        emit: EmitEvents,
        options: AnswerOptions | None = None,
    ) -> None:
        """Answer a server's prompt, ``server:name`` or a unique name, with its arguments; else like ``answer``.

        An unknown prompt, or an argument that is missing or unknown, ends the answer as ``failed``.
        """
        await self._run_free(conversation, self._prompt_work(prompt, arguments, options), emit)

    async def run(self, conversation: Conversation, work: Work, emit: EmitEvents) -> None:
        """Run an answer that ``work`` makes once the model is ready; else like ``answer``.

        Args:
            conversation: the conversation; one answer at a time.
            work: emits the events, an ``End`` last; an exception becomes a failed ``End``.
            emit: takes the events in batches, in order.

        Raises:
            UsageError: the conversation has a running answer, or the assistant is closed.
        """

        async def work_when_ready(running: AnswerStream) -> None:
            # The work has tools of its own, if any, so it waits for no server.
            await self._model_ready(running.emit)
            await self._warmed_up()
            await work(running)

        await self._run_free(conversation, work_when_ready, emit)

    def reply(
        self, conversation: Conversation, text: str, options: AnswerOptions | None = None
    ) -> AsyncGenerator[Event, None]:
        """Return the events of ``answer``; consume them under ``aclosing``: leaving early cancels the answer.

        Raises:
            UsageError: the conversation has a running answer, or the assistant is closed.
        """
        return self._stream(conversation, self._text_work(text, options))

    def reply_prompt(
        self,
        conversation: Conversation,
        prompt: str,
        arguments: Mapping[str, str],
        options: AnswerOptions | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Return the events of ``answer_prompt``; else like ``reply``."""
        return self._stream(conversation, self._prompt_work(prompt, arguments, options))

    async def _stream(self, conversation: Conversation, work: Work) -> AsyncGenerator[Event, None]:
        self._check_free(conversation)
        send, receive = anyio.create_memory_object_stream[Sequence[Event]](BATCHES_AHEAD)

        async def forward(events: Sequence[Event]) -> None:
            # ``send`` yields to the event loop first, which costs an iteration.
            try:
                send.send_nowait(events)
            except anyio.WouldBlock:
                await send.send(events)

        running = self._begin(conversation, forward)
        self._tasks.start_soon(self._produce, running, work, send)
        try:
            with receive:
                async for events in receive:
                    for event in events:
                        yield event
                        if isinstance(event, End):
                            return
            # The assistant was closed, which cancelled the task before it could emit an End.
            yield End("cancelled")
        finally:
            running.scope.cancel()
            with anyio.CancelScope(shield=True):
                # Bounded: a run, a tool call and a connection have time limits of their own.
                await running.done.wait()

    def cancel(self, conversation_id: str) -> bool:
        """Cancel a running answer, whose last event is ``End("cancelled")``; False if it has ended."""
        running = self._answers.get(conversation_id)
        if running is None or running.is_ending:
            return False
        running.scope.cancel()
        return True

    async def stopped(self, conversation_id: str) -> None:
        """Cancel the running answer, if any, and wait until it is over and saved."""
        if (running := self._answers.get(conversation_id)) is not None:
            running.scope.cancel()
            await running.done.wait()

    def is_answering(self, conversation_id: str) -> bool:
        """Return True if a conversation has a running answer."""
        return conversation_id in self._answers

    async def idle(self) -> None:
        """Wait until no answer runs; the next one may begin before the caller goes on."""
        while self._answers:
            self._idle = anyio.Event()
            await self._idle.wait()

    def prefill_progress(self, conversation_id: str) -> PromptProgress | None:
        """Return the progress of the prefill for a running answer; None outside of a prefill."""
        npu = self.model_host.npu
        if npu is None:
            return None
        tokens = self._warm_up.prefill_tokens if self._warm_up else 0
        if tokens and conversation_id in self._answers:
            return npu.prefill_progress.estimate(tokens)
        return npu.prefill_progress.of(conversation_id)

    def starting(self) -> tuple[Status, ...]:
        """Return lines about the model and the servers that are starting; empty from the second call on."""
        if self._has_announced:
            return ()
        self._has_announced = True
        lines = starting_lines(self.model_host.name if self.model_host.npu else None, len(self.toolbox.connections))
        return tuple(map(Status, lines))

    async def ready(self) -> None:
        """Wait until the model is loaded and every server is connected or has failed.

        Raises:
            RuntimeUnusableError: the model could not be loaded.
        """
        # Both are starting already; in this order a failed model is reported without waiting for slow servers.
        await self.model_host.ready()
        await self.toolbox.connected()

    async def _ready_to_warm_up(self) -> None:
        await self.model_host.ready()
        await self.toolbox.wait(lambda _: self.config.agent.wait_for_servers_s)

    async def servers_ready(self, text: str, options: AnswerOptions, emit: EmitEvents) -> None:
        """Wait for the servers that are starting as long as a question is worth it; ``emit`` gets status lines.

        ============================================  ======================================
        a server                                      is waited for, at most
        ============================================  ======================================
        whose known tools fit the question            its ``connect_timeout_s``
        whose known tools do not fit it               1 s
        of which nothing is known                     ``agent.wait_for_servers_s``
        that is waited for already                    not again
        ============================================  ======================================

        With ``options.waits_for_servers`` and a question that no tool fits so far, every server that did not fail in
        an earlier run is waited for up to its ``connect_timeout_s``.
        """
        starting = [server for server in self.toolbox.connections if server.is_starting]
        if not starting or not options.tools:
            return
        patience_s, language = self.config.agent.wait_for_servers_s, self._language_of(options)
        known = [*self.toolbox.tools(), *(tool for server in starting for tool in server.remembered_tools)]
        fitting = {tool.server for tool in await self._preparation.fitting(text, known)}
        named = {name for name in (options.model.forced_tool, *(options.allowed_tools or ())) if name}
        named -= {name for name in named if self.toolbox.resolve(name) is not None}
        needed = {server.spec.name for server in starting if _is_needed(server, fitting, named)}
        if named and not needed:
            # One of them may have the tool that the request names.
            needed = {server.spec.name for server in starting if not server.remembered_tools}

        def first_limit_s(server: AnyToolServer) -> float:
            name = server.spec.name
            if name not in needed and name in self._waited_for:
                return 0.0
            return patience_s if name in needed or not server.remembered_tools else min(patience_s, _UNFIT_WAIT_S)

        late = await self.toolbox.wait(first_limit_s)
        if any(server.spec.name in needed for server in late):
            await emit((Status(translate("servers.waiting", language, names=_names_of(late, needed))),))
            late = await self.toolbox.wait(lambda server: math.inf if server.spec.name in needed else 0.0)
        elif options.waits_for_servers:
            late = await self._wait_until_served(text, late, emit, language)
        news = [server for server in late if server.spec.name not in self._waited_for]
        self._waited_for |= {server.spec.name for server in news}
        if news:
            key = "servers.left_out" if options.waits_for_servers else "servers.join_later"
            await emit((Status(translate(key, language, names=_names_of(news))),))

    async def _wait_until_served(
        self, text: str, late: Sequence[AnyToolServer], emit: EmitEvents, language: Language
    ) -> Sequence[AnyToolServer]:
        """Wait until a tool fits the question, or no server is left that did not fail before; return those that start.

        Each server is waited for up to its ``connect_timeout_s``.
        """
        has_told = False
        while hopeful := [server for server in late if not server.failed_before]:
            if await self._preparation.fitting(text, self.toolbox.tools()):
                break
            if not has_told:
                has_told = True
                await emit((Status(translate("servers.waiting", language, names=_names_of(hopeful))),))
            await self.toolbox.next_settled(hopeful)
            late = [server for server in late if server.is_starting]
        return late

    def _language_of(self, options: AnswerOptions) -> Language:
        return options.language or self.config.agent.person_language

    def tools(self, options: AnswerOptions | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools that an answer with these options is shown."""
        options = options or AnswerOptions()
        if not options.tools:
            return ()
        if options.allowed_tools is None:
            return self.toolbox.tools()
        allowed = {spec.name for spec in map(self.toolbox.resolve, options.allowed_tools) if spec is not None}
        return tuple(tool for tool in self.toolbox.tools() if tool.name in allowed)

    def prompt_prefix(self) -> list[int]:
        """Return the token ids that every prompt begins with: system text and current tools."""
        conversation = self.new_conversation()
        lists = self._preparation.beginnings(conversation, self.tools())
        return self.model_host.board.chat_model.head(conversation, lists)

    def _check_free(self, conversation: Conversation) -> None:
        if conversation.id in self._answers:
            raise UsageError("this conversation has an answer under way; wait for it or cancel it")
        if self._is_closed:
            raise UsageError("this assistant is closed; ask while its 'async with open_app(...)' block runs")

    def _begin(self, conversation: Conversation, emit: EmitEvents) -> AnswerStream:
        running = self._answers[conversation.id] = AnswerStream(conversation, emit, self.usage)
        return running

    async def _run_free(self, conversation: Conversation, work: Work, emit: EmitEvents) -> None:
        self._check_free(conversation)
        running = self._begin(conversation, emit)
        await running.run(work, partial(self._remove, running))

    def _remove(self, running: AnswerStream) -> None:
        del self._answers[running.conversation.id]
        if not self._answers:
            self._idle.set()

    async def _produce(self, running: AnswerStream, work: Work, send: MemoryObjectSendStream[Sequence[Event]]) -> None:
        with send:
            await running.run(work, partial(self._remove, running))

    def _text_work(self, text: str, options: AnswerOptions | None) -> Work:
        # Resources load the MCP client, which a question that names none does not need.
        options = options or AnswerOptions()
        offerings = self.toolbox.offerings if "@" in text and options.resources else None
        prepare = partial(question_from_text, text, offerings, self.config.agent.resource_chars)
        return partial(self._answer_question, prepare, options, text)

    def _prompt_work(self, prompt: str, arguments: Mapping[str, str], options: AnswerOptions | None) -> Work:
        prepare = partial(question_from_prompt, prompt, arguments, self.toolbox.offerings)
        return partial(self._answer_question, prepare, options or AnswerOptions(), "")

    async def _answer_question(
        self, prepare: Prepare, options: AnswerOptions, text: str, running: AnswerStream
    ) -> None:
        """Answer the question that ``prepare`` makes; ``text`` is the user's, empty for a prompt."""
        conversation = running.conversation
        markup = MarkupFilter(self.config.agent.person_language)
        if options.save:
            secrets = tuple(options.tokens.values())
            record = AnswerRecord(self.recorder, conversation, text, secrets, markup.words, options.begun)
            running.save_with(record)
            await record.begin()
            self._tasks.start_soon(record.follow, running.scope.cancel)
        await self._model_ready(running.emit)
        await self.servers_ready(text, options, running.emit)
        await self._warmed_up()
        await self._tools.refresh()
        # A server that needs a token of the request is connected, and its tools are known, for this answer.
        async with self.toolbox.attending(options.tokens):
            emit = markup.of(running.emit, has_tools=bool(self.tools(options)))
            await self._answer_with_tools(emit, conversation, prepare, options)

    async def _answer_with_tools(
        self, emit: EmitEvents, conversation: Conversation, prepare: Prepare, options: AnswerOptions
    ) -> None:
        model, model_options, agent = self.model_host.chat_model, self._model_options(options), self.config.agent
        limits = LoopSettings(agent.max_rounds, agent.repair_rounds, agent.parallel_tools)
        with self._asker(options, emit) as asker:
            context = CallContext(
                asker=asker, tokens=options.tokens, conversation_id=conversation.id, language=options.language
            )
            asked = await prepare(emit, context)
            request = TurnRequest(asked, self.tools(options), model_options)
            try:
                await answer(model, self._preparation, conversation, request, limits, emit, context)
            finally:
                model.over(conversation.id)

    @contextmanager
    def _asker(self, options: AnswerOptions, emit: EmitEvents) -> Generator[Approver]:
        if options.approvals in ("grant", "refuse"):
            is_granted = options.approvals == "grant"
            yield FixedApprover("once") if is_granted else FixedApprover("deny", HOW_TO_ALLOW)
            return
        with StreamApprover(self.pending, emit, options.approval_timeout_s) as asker:
            yield asker if options.approvals == "ask" else FormApprover(asker, NO_RIGHT)

    async def _model_ready(self, emit: EmitEvents) -> None:
        self.toolbox.retry()
        if self._warm_up is not None:
            self._warm_up.awaited()
        if not self.model_host.is_ready and (statuses := self.starting()):
            await emit(statuses)
        await self.model_host.ready()

    async def _warmed_up(self) -> None:
        if self._warm_up is not None:
            await self._warm_up.over()

    def _model_options(self, options: AnswerOptions) -> ModelOptions:
        """Return the options of the responses, with the model's name of a forced tool."""
        if (wanted := options.model.forced_tool) is None:
            return options.model
        if not options.tools:
            raise UsageError("a tool cannot be forced while tools are switched off; leave one of the two out")
        spec = self.toolbox.resolve(wanted)
        if spec is None:
            near = self.toolbox.suggest(wanted)
            advice = f"did you mean '{near}'?" if near else "see 'rkllm-mcp tools list'"
            raise UsageError(f"there is no tool '{wanted}'; {advice}")
        return replace(options.model, tool_choice=ForcedTool(spec.name))


def turn_preparation(
    config: Config,
    listing: PromptListing,
    tools: TurnTools,
    past: PastCalls | None = None,
    embedder: Embedder | None = None,
) -> TurnPreparation:
    """Return the preparation of turns: the tools of a conversation and the context of a question.

    ``past`` are the calls that served earlier requests, if they are stored.
    """
    agent = config.agent
    settings = SelectionSettings(
        budget_tokens=agent.tool_budget_tokens or listing.context_tokens // TOOL_SHARE,
        auto_select=agent.auto_select,
        two_steps=listing.two_steps if agent.two_step_tools is None else agent.two_step_tools,
    )

    def open_search() -> ToolSearch:
        from rkllm_mcp.tools.search import ToolSearch

        return ToolSearch(past, embedder)

    return TurnPreparation(tools, ToolSelection(open_search, listing.cost, settings), agent.person_language)
