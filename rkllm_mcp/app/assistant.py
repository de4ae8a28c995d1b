"""The answers under way: each is a task of its own that writes its events into a bounded stream.

So whoever reads them may leave at any moment: leaving cancels the task and waits until it is over, the NPU free again
and the conversation in order. One conversation has one answer at a time. It knows neither models nor tools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from rkllm_mcp.agent.instructions import TurnRequest, system_text
from rkllm_mcp.agent.loop import LoopSettings, answer
from rkllm_mcp.agent.markup_filter import MarkupFilter
from rkllm_mcp.agent.pending_requests import PendingRequest, PendingRequests, StreamApprover
from rkllm_mcp.agent.question import Question, question_from_prompt, question_from_text
from rkllm_mcp.agent.sampling import ModelSampler
from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.app.recorder import Recorder, restored_turns
from rkllm_mcp.app.root import ModelHost, StatusSink, ToolEnvironment, open_model, open_tools
from rkllm_mcp.app.settings import briefing, unsupported_settings
from rkllm_mcp.app.warmup import WarmUp
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.events import End, Event, Status
from rkllm_mcp.generation import SamplingOverrides
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.models.cards import ModelFolder
from rkllm_mcp.protocols import (
    Approver,
    CallContext,
    Decision,
    ElicitationAnswer,
    EmitEvents,
    FixedApprover,
    ResponseOptions,
)
from rkllm_mcp.providers.prefill_progress import PromptProgress
from rkllm_mcp.providers.remote_settings import egress_notices
from rkllm_mcp.records import StoredConversation
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.tools.approvals import language_of
from rkllm_mcp.tools.toolbox import report_slow_servers

logger = logging.getLogger(__name__)

# What an answer consists of: it sends its events, the last one an ``End``.
Work: TypeAlias = Callable[[EmitEvents], Awaitable[None]]

# Events that an answer may be ahead of its reader; a full buffer slows the answer, it never drops anything.
EVENTS_AHEAD = 256


@dataclass
class _Job:
    """One answer under way."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)


class ActiveAnswers:
    """The answers of one assistant.

    Args:
        tasks: where they run.
        bill: counts what they cost.
    """

    def __init__(self, tasks: TaskGroup, bill: UsageCounter) -> None:
        self._tasks = tasks
        self._bill = bill
        self._jobs: dict[str, _Job] = {}
        self._is_closed = False
        self._idle = anyio.Event()

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._jobs

    async def stream(self, conversation: Conversation, work: Work) -> AsyncGenerator[Event, None]:
        """The events of an answer, an ``End`` last; consume it under ``aclosing``.

        Args:
            conversation: what it answers.
            work: sends the events. What it raises becomes a failed ``End``.

        Raises:
            UsageError: the conversation has an answer under way, or there are to be no more.
        """
        if conversation.id in self._jobs:
            raise UsageError("this conversation has an answer under way; wait for it or cancel it")
        if self._is_closed:
            raise UsageError("this assistant is closed; ask while its 'async with open_app(...)' block runs")
        send, receive = anyio.create_memory_object_stream[Event](EVENTS_AHEAD)
        job = self._jobs[conversation.id] = _Job()
        self._tasks.start_soon(self._run, conversation, work, send, job)
        try:
            with receive:
                async for event in receive:
                    yield event
                    if isinstance(event, End):
                        return
            # Stopped: the task that made the answer may not wait for a reader any more, so the reader says it.
            yield End("cancelled")
        finally:
            job.scope.cancel()
            with anyio.CancelScope(shield=True):
                # Bounded: everything that the answer may be in, a run, a tool, a connection, has a limit of its own.
                await job.done.wait()

    def cancel(self, conversation_id: str) -> bool:
        """Stop an answer; its stream closes with ``End("cancelled")``. False when there is none."""
        job = self._jobs.get(conversation_id)
        if job is None:
            return False
        job.scope.cancel()
        return True

    async def stopped(self, conversation_id: str) -> None:
        """Stop an answer and wait until it is over, kept what there was of it; nothing happens when there is none."""
        if (job := self._jobs.get(conversation_id)) is not None:
            job.scope.cancel()
            await job.done.wait()

    async def idle(self) -> None:
        """Wait until there is none; there may be again by the time that the caller runs."""
        while self._jobs:
            self._idle = anyio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """Take no more."""
        self._is_closed = True

    async def _run(
        self, conversation: Conversation, work: Work, send: MemoryObjectSendStream[Event], job: _Job
    ) -> None:
        async def emit(events: Sequence[Event]) -> None:
            for event in events:
                count(event)
                await send.send(event)

        try:
            with self._bill.of(conversation) as count, job.scope:
                await _worked(emit, work)
        except anyio.BrokenResourceError:
            pass  # the reader has left; there is nobody to tell
        finally:
            send.close()
            del self._jobs[conversation.id]
            job.done.set()
            if not self._jobs:
                self._idle.set()


async def _worked(emit: EmitEvents, work: Work) -> None:
    try:
        await work(emit)
    except RkllmMcpError as error:
        await emit([End("failed", str(error), error)])
    except anyio.BrokenResourceError:
        raise
    except Exception as error:
        # A mistake of ours must cost this answer, not the service and everybody else's answers.
        logger.exception("an answer failed")
        await emit([End("failed", f"internal error: {error!r}; please report it with the output of --debug", error)])


# For the model to pass on when nobody could be asked.
HOW_TO_ALLOW = "It can be allowed with 'rkllm-mcp run --yes', or for good with always_allow in the configuration."

# What is asked, made ready for the loop once everything is there.
Prepare: TypeAlias = Callable[[EmitEvents, CallContext], Awaitable[Question]]


@dataclass(frozen=True)
class ReplyOptions:
    """One answer's wishes.

    Args:
        tools: the model is shown tools and may call them.
        max_new_tokens: the longest answer of one round; None for the configuration's.
        force_tool: the answer begins with a call of this tool.
        approvals: what becomes of a call that needs a yes: ``ask`` puts an Approval on the stream and waits for
            ``App.decide``; ``grant`` and ``refuse`` answer beforehand.
        tokens: secrets that ``headers_template`` placeholders are filled with, by name; held for this answer only.
        allowed_tools: the only tools that this answer may use, by any of their names; all when None.
        keep: question and answer are kept before the ``End`` comes; what cannot be kept is told by a ``Status``.
        sampling: how the next token is chosen, as far as this answer differs from the configuration.
        stop: texts that end the answer and are no part of it.
        thinking: the model is to think before it answers, or not; None for the configuration's.
    """

    tools: bool = True
    max_new_tokens: int | None = None
    force_tool: str | None = None
    approvals: Literal["ask", "grant", "refuse"] = "refuse"
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allowed_tools: tuple[str, ...] | None = None
    keep: bool = False
    sampling: SamplingOverrides | None = None
    stop: tuple[str, ...] = ()
    thinking: bool | None = None


class Assistant:
    """A running assistant; ``open_app`` makes one.

    Attributes:
        config: what it was started with.
        core: the model that answers.
        toolbox: every server's tools.
        memory: what is remembered between runs, the calls of tools and the conversations among it.
        tenant: whose assistant it is; empty for the owner.
        keeping: what puts answers into the memory.
        bill: what its answers cost.
    """

    def __init__(
        self,
        config: Config,
        core: ModelHost,
        equipment: ToolEnvironment,
        tasks: TaskGroup,
        head_start: WarmUp | None,
        tenant: str = "",
        bill: UsageCounter | None = None,
    ) -> None:
        self.config = config
        self.core = core
        self.toolbox = equipment.toolbox
        self.memory = equipment.memory
        self.tenant = tenant
        self.keeping = Recorder(equipment.memory.conversations, tenant)
        self._equipment = equipment
        self._tasks = tasks
        self._head_start = head_start
        self.bill = bill or UsageCounter()
        self._under_way = ActiveAnswers(tasks, self.bill)
        self._questions = PendingRequests(config.security.question_timeout_s)
        self._briefing = briefing(config, core.listing, self.toolbox, self.memory.calls, core.embedder)
        self._has_announced = False

    @property
    def model(self) -> ModelFolder:
        """The folder and card of the model on the NPU; a UsageError where a remote service answers."""
        return self.core.board.model

    @property
    def engine(self) -> Engine:
        """The owner of the NPU; a UsageError where a remote service answers."""
        return self.core.board.engine

    def close(self) -> None:
        """Stop every answer and take no more; ``open_app`` does this at the end."""
        self._under_way.close()
        self._tasks.cancel_scope.cancel()

    def new_conversation(self, system: str | None = None) -> Conversation:
        """A conversation that begins with the system text: ``system``, or the configuration's."""
        agent = self.config.agent
        text = system_text(agent.system_prompt, agent.language) if system is None else system
        conversation = Conversation(own_system=system, tenant=self.tenant)
        if text:
            conversation.add(Message("system", text))
        return conversation

    def resume(self, kept: StoredConversation) -> Conversation:
        """A conversation of ``memory.conversations`` to go on with; the model reads it anew, under its own id."""
        return restored_turns(kept, self.new_conversation(kept.system))

    def reply(
        self, conversation: Conversation, text: str, options: ReplyOptions | None = None
    ) -> AsyncGenerator[Event, None]:
        """Answer ``text``; the last event is always an ``End``.

        A resource that the text names as ``@server:uri`` is read first; when it cannot be, the answer ends as
        ``failed`` before the model runs. Consume it under ``aclosing``: leaving early stops the answer.

        Raises:
            UsageError: the conversation has an answer under way, or the assistant is closed.
        """

        async def prepare(emit: EmitEvents, context: CallContext) -> Question:
            limit_chars = self.config.agent.resource_chars
            return await question_from_text(text, self.toolbox.offerings, limit_chars, emit, context)

        return self.stream(conversation, self._reply(conversation, prepare, options or ReplyOptions(), text))

    def reply_prompt(
        self,
        conversation: Conversation,
        prompt: str,
        arguments: Mapping[str, str],
        options: ReplyOptions | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Answer a server's prompt, ``server:name`` or a unique name, with its arguments; else like ``reply``.

        A prompt that there is not, or an argument that is missing or unknown, ends the answer as ``failed``.
        """

        async def prepare(emit: EmitEvents, context: CallContext) -> Question:
            return await question_from_prompt(prompt, arguments, self.toolbox.offerings, emit, context)

        return self.stream(conversation, self._reply(conversation, prepare, options or ReplyOptions()))

    def stream(self, conversation: Conversation, work: Work) -> AsyncGenerator[Event, None]:
        """An answer that ``work`` makes once the model is there: what ``reply`` promises holds for it as well.

        Args:
            conversation: what it answers; one answer at a time.
            work: sends the events, an ``End`` last. What it raises becomes a failed ``End``.

        Raises:
            UsageError: the conversation has an answer under way, or the assistant is closed.
        """

        async def ready_work(emit: EmitEvents) -> None:
            await self._wait_until_ready(emit)
            await work(emit)

        return self._under_way.stream(conversation, ready_work)

    def cancel(self, conversation_id: str) -> bool:
        """Stop the answer under way; its stream closes with ``End("cancelled")``. False when there is none."""
        return self._under_way.cancel(conversation_id)

    async def stopped(self, conversation_id: str) -> None:
        """Stop the answer under way, if there is one, and wait until it is over and kept."""
        await self._under_way.stopped(conversation_id)

    def is_answering(self, conversation_id: str) -> bool:
        """Whether a conversation has an answer under way."""
        return conversation_id in self._under_way

    async def idle(self) -> None:
        """Wait until no answer is under way."""
        await self._under_way.idle()

    def reading(self, conversation_id: str) -> PromptProgress | None:
        """The prompt that the NPU is reading for an answer under way; None when it reads none."""
        npu = self.core.npu
        if npu is None:
            return None
        tokens = self._head_start.reading_tokens if self._head_start else 0
        if tokens and conversation_id in self._under_way:
            return npu.readings.estimate(tokens)
        return npu.readings.of(conversation_id)

    def questions(self) -> tuple[PendingRequest, ...]:
        """What waits for a person: calls for approval and servers' questions, oldest first."""
        return self._questions.open()

    async def settled(self, question_id: str) -> None:
        """Wait until a question does not wait any more; whoever shows it can take it away then."""
        await self._questions.settled(question_id)

    def decide(self, question_id: str, decision: Decision) -> bool:
        """Answer an ``Approval``; False when it does not wait (any more)."""
        return self._questions.decide(question_id, decision)

    def fill(self, question_id: str, answer: ElicitationAnswer) -> bool:
        """Answer an ``Elicitation``; False when it does not wait (any more)."""
        return self._questions.fill(question_id, answer)

    def starting(self) -> tuple[Status, ...]:
        """What is being started, to be shown to whoever waits; empty from the second time on."""
        if self._has_announced:
            return ()
        self._has_announced = True
        lines = [f"[NPU: Loading model '{self.core.name}']"] if self.core.npu else []
        if count := len(self.toolbox.servers()):
            lines.append(f"[MCP: Connecting to {count} server{'s' if count > 1 else ''}]")
        return tuple(map(Status, lines))

    async def ready(self) -> None:
        """Wait until the model is loaded and every server is connected or has failed.

        Raises:
            RuntimeUnusableError: the model could not be loaded.
        """
        # Both are under way already; a model that fails is known at once this way, whatever the servers take.
        await self.core.ready()
        await self.toolbox.connected()

    def tools(self, options: ReplyOptions | None = None) -> tuple[ToolSpec, ...]:
        """The tools that an answer is shown."""
        options = options or ReplyOptions()
        if not options.tools:
            return ()
        if options.allowed_tools is None:
            return self.toolbox.tools()
        allowed = {spec.name for spec in map(self.toolbox.resolve, options.allowed_tools) if spec is not None}
        return tuple(tool for tool in self.toolbox.tools() if tool.name in allowed)

    def head(self) -> list[int]:
        """The ids that every prompt begins with: system text and tools, as they are now."""
        conversation = self.new_conversation()
        lists = self._briefing.beginnings(conversation, self.tools())
        return self.core.board.chat_model.head(conversation, lists)

    def _reply(self, conversation: Conversation, prepare: Prepare, options: ReplyOptions, words: str = "") -> Work:
        """The work of answering what ``prepare`` makes ready; ``words`` are a person's, as they came."""
        hearing = MarkupFilter(language_of(self.config.agent.language))

        async def work(emit: EmitEvents) -> None:
            await self._equipment.refresh()
            # A server that wants a token of the one who asks is there, and its tools are known, for this answer.
            async with self.toolbox.attending(options.tokens):
                heard = hearing.of(emit, has_tools=bool(self.tools(options)))
                await self._answer_with_tools(heard, conversation, prepare, options)

        secrets = options.tokens.values()
        return self.keeping.kept(conversation, words, secrets, work, hearing.words) if options.keep else work

    async def _answer_with_tools(
        self, emit: EmitEvents, conversation: Conversation, prepare: Prepare, options: ReplyOptions
    ) -> None:
        forced = self._forced_tool(options)
        agent = self.config.agent
        limits = LoopSettings(agent.max_rounds, agent.repair_rounds, agent.parallel_tools)
        with self._asker(options, emit) as asker:
            context = CallContext(asker=asker, tokens=options.tokens, conversation_id=conversation.id)
            asked = await prepare(emit, context)
            assignment = TurnRequest(asked, self.tools(options), forced)
            model, wishes = self.core.chat_model, _wishes(options, forced)
            try:
                await answer(model, self._briefing, conversation, assignment, limits, emit, context, wishes)
            finally:
                model.over(conversation.id)

    def _asker(self, options: ReplyOptions, emit: EmitEvents) -> AbstractContextManager[Approver]:
        if options.approvals == "ask":
            return StreamApprover(self._questions, emit)
        is_granted = options.approvals == "grant"
        return nullcontext(FixedApprover("once") if is_granted else FixedApprover("deny", HOW_TO_ALLOW))

    async def _wait_until_ready(self, emit: EmitEvents) -> None:
        if self._head_start is not None:
            self._head_start.awaited()
        if not self.core.is_ready and (statuses := self.starting()):
            await emit(statuses)
        await self.ready()
        if self._head_start is not None:
            await self._head_start.over()

    def _forced_tool(self, options: ReplyOptions) -> str | None:
        if options.force_tool is None:
            return None
        if not options.tools:
            raise UsageError("a tool cannot be forced while tools are switched off; leave one of the two out")
        spec = self.toolbox.resolve(options.force_tool)
        if spec is None:
            near = self.toolbox.suggest(options.force_tool)
            advice = f"did you mean '{near}'?" if near else "see 'rkllm-mcp tools list'"
            raise UsageError(f"there is no tool '{options.force_tool}'; {advice}")
        return spec.name


def _wishes(options: ReplyOptions, forced: str | None) -> ResponseOptions:
    """What an answer's options ask of the model."""
    return ResponseOptions(
        options.max_new_tokens, forced, sampling=options.sampling, stop=options.stop, thinking=options.thinking
    )


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    status: StatusSink | None = None,
    one_shot: bool = False,
    core: ModelHost | None = None,
    tenant: str = "",
) -> AsyncGenerator[Assistant, None]:
    """Start everything that ``config`` names, and stop it at the end.

    The model loads and the servers connect in the background: entering returns at once, ``App.ready`` waits. A server
    that fails is left out and said so; a model that fails is an error of the first answer.

    Args:
        config: the configuration.
        status: is told, one line each, what is connected and what is not.
        one_shot: there will be one question, which comes at once, so nothing is prefilled in advance.
        core: the model that answers, which stays when this assistant ends; one of its own when None.
        tenant: whose assistant it is; what is remembered of one tenant is never seen by another. Empty for the owner.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
    """
    if status is not None and tenant == "":
        for line in (*unsupported_settings(config), *egress_notices(config)):
            status(line)
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        if core is None:
            core = await stack.enter_async_context(open_model(config))
        model, bill = core.chat_model, UsageCounter()
        sampler = ModelSampler(model, core.name, config.agent.sampling_tokens, model.forget, bill, tenant)
        tools = open_tools(config, status=status, sampler=sampler, syntaxes=core.syntaxes, tenant=tenant)
        equipment = await stack.enter_async_context(tools)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        npu = core.npu
        head_start = WarmUp(config, npu.model, npu.engine, status, one_shot=one_shot, tenant=tenant) if npu else None
        app = Assistant(config, core, equipment, tasks, head_start, tenant, bill)
        tasks.start_soon(app.keeping.tidy, status)
        if status is not None:
            tasks.start_soon(report_slow_servers, app.toolbox.connections, status)
        if head_start is not None:
            tasks.start_soon(head_start.run, app.ready, app.head)
        try:
            yield app
        except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
            failure = error
        finally:
            app.close()
    if failure is not None:
        raise failure
