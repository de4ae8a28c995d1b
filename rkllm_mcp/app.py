"""The composition root: a configuration becomes a running assistant.

``open_app`` starts the engine and the servers side by side, owns every task, and takes all down again. An answer is
made by a task of its own, so that whoever reads its events may leave at any moment: leaving cancels that task, waits
until the NPU is free again, and leaves the conversation ready for the next question. It knows every layer below and no
surface.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from rkllm_mcp.agent.answer import answer
from rkllm_mcp.agent.asking import Asked, ask_by_prompt, ask_in_words
from rkllm_mcp.agent.briefing import Assignment
from rkllm_mcp.agent.instructions import system_text
from rkllm_mcp.agent.loop import LoopSettings
from rkllm_mcp.agent.questions import Emit, OnStream, Question, Questions
from rkllm_mcp.agent.sampling import ModelSampler
from rkllm_mcp.assembly import briefing, chosen_model, engine_settings, model_form
from rkllm_mcp.availability import ineffective
from rkllm_mcp.calling import Asker, CallContext, Decision, ElicitationAnswer, Standing
from rkllm_mcp.config import Config
from rkllm_mcp.config.models import ModelFolder
from rkllm_mcp.equipment import Equipment, open_equipment
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.events import End, Event, Status
from rkllm_mcp.head_start import HeadStart
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.providers.reading import Reading, Readings
from rkllm_mcp.providers.rkllm import RkllmModel
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.specialists import Specialist, open_specialists
from rkllm_mcp.tools.latecomers import tell_latecomers

logger = logging.getLogger(__name__)

StatusSink = Callable[[str], None]
# For the model to pass on when nobody could be asked.
HOW_TO_ALLOW = "It can be allowed with 'rkllm-mcp run --yes', or for good with always_allow in the configuration."

# What is asked, made ready for the loop once everything is there.
Prepare: TypeAlias = Callable[[Emit, CallContext], Awaitable[Asked]]

# Events that an answer may be ahead of its reader; a full buffer slows the answer, it never drops anything.
EVENTS_AHEAD = 256


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
    """

    tools: bool = True
    max_new_tokens: int | None = None
    force_tool: str | None = None
    approvals: Literal["ask", "grant", "refuse"] = "refuse"
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass
class _Job:
    """One answer under way."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)


class App:
    """A running assistant; ``open_app`` makes one.

    Attributes:
        config: what it was started with.
        model: the model's folder and card.
        form: how the model is spoken to.
        engine: the owner of the NPU.
        toolbox: every server's tools.
        memory: what is remembered between runs, the calls of tools among it.
    """

    def __init__(
        self,
        config: Config,
        model: ModelFolder,
        chat_model: RkllmModel,
        engine: Engine,
        equipment: Equipment,
        tasks: TaskGroup,
        readings: Readings,
        head_start: HeadStart,
        embedder: Specialist | None,
    ) -> None:
        self.config = config
        self.model = model
        self.engine = engine
        self.toolbox = equipment.toolbox
        self.memory = equipment.memory
        self._equipment = equipment
        self._tasks = tasks
        self._readings = readings
        self._head_start = head_start
        self._chat_model = chat_model
        self.form = chat_model.form
        self._jobs: dict[str, _Job] = {}
        self._questions = Questions()
        self._briefing = briefing(config, model, chat_model.form, self.toolbox, self.memory.calls, embedder)
        self._has_announced = False
        self._is_closed = False

    def close(self) -> None:
        """Stop every answer and take no more; ``open_app`` does this at the end."""
        self._is_closed = True
        self._tasks.cancel_scope.cancel()

    def new_conversation(self, system: str | None = None) -> Conversation:
        """A conversation that begins with the system text: ``system``, or the configuration's."""
        agent = self.config.agent
        text = system_text(agent.system_prompt, agent.language) if system is None else system
        conversation = Conversation()
        if text:
            conversation.add(Message("system", text))
        return conversation

    def reply(
        self, conversation: Conversation, text: str, options: ReplyOptions | None = None
    ) -> AsyncGenerator[Event, None]:
        """Answer ``text``; the last event is always an ``End``.

        A resource that the text names as ``@server:uri`` is read first; when it cannot be, the answer ends as
        ``failed`` before the model runs. Consume it under ``aclosing``: leaving early stops the answer.

        Raises:
            UsageError: the conversation has an answer under way, or the assistant is closed.
        """
        limit_chars = self.config.agent.resource_chars

        async def prepare(emit: Emit, context: CallContext) -> Asked:
            return await ask_in_words(text, self.toolbox.offerings, limit_chars, emit, context)

        return self._stream(conversation, prepare, options or ReplyOptions())

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

        async def prepare(emit: Emit, context: CallContext) -> Asked:
            return await ask_by_prompt(prompt, arguments, self.toolbox.offerings, emit, context)

        return self._stream(conversation, prepare, options or ReplyOptions())

    async def _stream(
        self, conversation: Conversation, prepare: Prepare, options: ReplyOptions
    ) -> AsyncGenerator[Event, None]:
        if conversation.id in self._jobs:
            raise UsageError("this conversation has an answer under way; wait for it or cancel it")
        if self._is_closed:
            raise UsageError("this assistant is closed; ask while its 'async with open_app(...)' block runs")
        send, receive = anyio.create_memory_object_stream[Event](EVENTS_AHEAD)
        job = self._jobs[conversation.id] = _Job()
        self._tasks.start_soon(self._answer, conversation, prepare, options, send, job)
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
        """Stop the answer under way; its stream closes with ``End("cancelled")``. False when there is none."""
        job = self._jobs.get(conversation_id)
        if job is None:
            return False
        job.scope.cancel()
        return True

    def reading(self, conversation_id: str) -> Reading | None:
        """The prompt that the NPU is reading for an answer under way; None when it reads none."""
        tokens = self._head_start.reading_tokens
        if tokens and conversation_id in self._jobs:
            return self._readings.estimate(tokens)
        return self._readings.of(conversation_id)

    def questions(self) -> tuple[Question, ...]:
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
        lines = [f"[NPU: Loading model '{self.model.name}']"]
        if count := len(self.toolbox.servers()):
            lines.append(f"[MCP: Connecting to {count} server{'s' if count > 1 else ''}]")
        return tuple(map(Status, lines))

    async def ready(self) -> None:
        """Wait until the model is loaded and every server is connected or has failed.

        Raises:
            RuntimeUnusableError: the model could not be loaded.
        """
        # Both are under way already; a model that fails is known at once this way, whatever the servers take.
        await self.engine.ready()
        await self.toolbox.connected()

    def tools(self, options: ReplyOptions | None = None) -> tuple[ToolSpec, ...]:
        """The tools that an answer is shown."""
        return self.toolbox.tools() if options is None or options.tools else ()

    def head(self) -> list[int]:
        """The ids that every prompt begins with: system text and tools, as they are now."""
        conversation = self.new_conversation()
        return self._chat_model.head(conversation, self._briefing.beginnings(conversation, self.tools()))

    async def _answer(
        self,
        conversation: Conversation,
        prepare: Prepare,
        options: ReplyOptions,
        send: MemoryObjectSendStream[Event],
        job: _Job,
    ) -> None:
        async def emit(event: Event) -> None:
            await send.send(event)

        try:
            with job.scope:
                await self._answer_to(emit, conversation, prepare, options)
        except anyio.BrokenResourceError:
            pass  # the reader has left; there is nobody to tell
        finally:
            send.close()
            del self._jobs[conversation.id]
            job.done.set()

    async def _answer_to(self, emit: Emit, conversation: Conversation, prepare: Prepare, options: ReplyOptions) -> None:
        try:
            await self._wait_until_ready(emit)
            await self._equipment.refresh()
            # A server that wants a token of the one who asks is there, and its tools are known, for this answer.
            async with self.toolbox.attending(options.tokens):
                await self._answer_with_tools(emit, conversation, prepare, options)
        except RkllmMcpError as error:
            await emit(End("failed", str(error)))
        except anyio.BrokenResourceError:
            raise
        except Exception as error:
            # A mistake of ours must cost this answer, not the service and everybody else's answers.
            logger.exception("an answer failed")
            await emit(End("failed", f"internal error: {error!r}; please report it with the output of --debug"))

    async def _answer_with_tools(
        self, emit: Emit, conversation: Conversation, prepare: Prepare, options: ReplyOptions
    ) -> None:
        forced = self._forced_tool(options)
        agent = self.config.agent
        limits = LoopSettings(agent.max_rounds, agent.repair_rounds, agent.parallel_tools)
        context = CallContext(asker=self._asker(options, emit), tokens=options.tokens, conversation_id=conversation.id)
        asked = await prepare(emit, context)
        assignment = Assignment(asked, self.tools(options), forced)
        model, wish = self._chat_model, options.max_new_tokens
        try:
            await answer(model, self._briefing, conversation, assignment, limits, emit, context, wish)
        finally:
            model.over(conversation.id)

    def _asker(self, options: ReplyOptions, emit: Emit) -> Asker:
        if options.approvals == "ask":
            return OnStream(self._questions, emit)
        return Standing("once") if options.approvals == "grant" else Standing("deny", HOW_TO_ALLOW)

    async def _wait_until_ready(self, emit: Emit) -> None:
        self._head_start.awaited()
        if not self.engine.is_ready:
            for status in self.starting():
                await emit(status)
        await self.ready()
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


@asynccontextmanager
async def open_app(
    config: Config, *, status: StatusSink | None = None, one_shot: bool = False
) -> AsyncGenerator[App, None]:
    """Start everything that ``config`` names, and stop it at the end.

    The model loads and the servers connect in the background: entering returns at once, ``App.ready`` waits. A server
    that fails is left out and said so; a model that fails is an error of the first answer.

    Args:
        config: the configuration.
        status: is told, one line each, what is connected and what is not.
        one_shot: there will be one question, which comes at once, so nothing is prefilled in advance.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
    """
    for line in ineffective(config):
        if status is not None:
            status(line)
    model = chosen_model(config)
    settings = engine_settings(config, model)
    # The engine comes first: its process loads the model while this one imports what servers need.
    named = config.agent.embedding_model if config.active_servers else None
    async with open_engine(settings) as engine, open_specialists(config, [named] if named else []) as specialists:
        form = model_form(config, model)
        readings = Readings(settings.profile.prefill_s if settings.profile else None)
        chat_model = RkllmModel(engine, form, readings)
        sampler = ModelSampler(chat_model, model.name, config.agent.sampling_tokens, chat_model.forget)
        tools = open_equipment(config, status=status, sampler=sampler, syntaxes=form.syntaxes)
        failure: Exception | None = None
        async with tools as equipment, anyio.create_task_group() as tasks:
            head_start = HeadStart(config, model, engine, status, one_shot=one_shot)
            app = App(
                config, model, chat_model, engine, equipment, tasks, readings, head_start, specialists.get(named or "")
            )
            if status is not None:
                tasks.start_soon(tell_latecomers, app.toolbox.connections, status)
            tasks.start_soon(head_start.run, app.ready, app.head)
            try:
                yield app
            except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
                failure = error
            finally:
                app.close()
        if failure is not None:
            raise failure
