"""The composition root: a configuration becomes a running assistant.

``open_app`` starts the engine and the servers side by side, owns every task, and takes all down again. An answer is
made by a task of its own, so that whoever reads its events may leave at any moment: leaving cancels that task, waits
until the NPU is free again, and leaves the conversation ready for the next question. It knows every layer below and no
surface.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from rkllm_mcp.agent.instructions import system_text
from rkllm_mcp.agent.loop import Emit, Loop, LoopSettings
from rkllm_mcp.agent.questions import OnStream, Question, Questions
from rkllm_mcp.assembly import chosen_model, engine_settings, model_form, server_specs
from rkllm_mcp.availability import ineffective, refuse_unprotected
from rkllm_mcp.calling import Asker, CallContext, Decision, ElicitationAnswer, Standing
from rkllm_mcp.config import Config
from rkllm_mcp.config.models import ModelFolder
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.events import End, Event, Status
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.conversation import PromptPart
from rkllm_mcp.providers import ResponseOptions
from rkllm_mcp.providers.rkllm import RkllmModel
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.tools.toolbox import Toolbox, open_toolbox

logger = logging.getLogger(__name__)

StatusSink = Callable[[str], None]

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
        engine: the owner of the NPU.
        toolbox: every server's tools.
    """

    def __init__(
        self,
        config: Config,
        model: ModelFolder,
        chat_model: RkllmModel,
        engine: Engine,
        toolbox: Toolbox,
        tasks: TaskGroup,
    ) -> None:
        self.config = config
        self.model = model
        self.engine = engine
        self.toolbox = toolbox
        self._tasks = tasks
        self._chat_model = chat_model
        self._jobs: dict[str, _Job] = {}
        self._questions = Questions()
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

    async def reply(
        self, conversation: Conversation, text: str, options: ReplyOptions | None = None
    ) -> AsyncGenerator[Event, None]:
        """Answer ``text``; the last event is always an ``End``.

        Consume it under ``aclosing``: leaving early stops the answer.

        Raises:
            UsageError: the conversation has an answer under way, or the assistant is closed.
        """
        if conversation.id in self._jobs:
            raise UsageError("this conversation has an answer under way; wait for it or cancel it")
        if self._is_closed:
            raise UsageError("this assistant is closed; ask while its 'async with open_app(...)' block runs")
        send, receive = anyio.create_memory_object_stream[Event](EVENTS_AHEAD)
        job = self._jobs[conversation.id] = _Job()
        self._tasks.start_soon(self._answer, conversation, text, options or ReplyOptions(), send, job)
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

    def questions(self) -> tuple[Question, ...]:
        """What waits for a person: calls for approval and servers' questions, oldest first."""
        return self._questions.open()

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

    def preview(self, text: str, options: ReplyOptions | None = None) -> list[PromptPart]:
        """The prompt that ``text`` would get as a first question, part by part."""
        conversation = self.new_conversation()
        conversation.add(Message("user", text))
        return self._chat_model.preview(conversation, self.tools(options))

    async def _answer(
        self,
        conversation: Conversation,
        text: str,
        options: ReplyOptions,
        send: MemoryObjectSendStream[Event],
        job: _Job,
    ) -> None:
        async def emit(event: Event) -> None:
            await send.send(event)

        try:
            with job.scope:
                await self._answer_to(emit, conversation, text, options)
        except anyio.BrokenResourceError:
            pass  # the reader has left; there is nobody to tell
        finally:
            send.close()
            del self._jobs[conversation.id]
            job.done.set()

    async def _answer_to(self, emit: Emit, conversation: Conversation, text: str, options: ReplyOptions) -> None:
        try:
            await self._wait_until_ready(emit)
            forced = self._forced_tool(options)
            agent = self.config.agent
            limits = LoopSettings(agent.max_rounds, agent.repair_rounds, agent.parallel_tools)
            context = CallContext(
                asker=self._asker(options, emit), tokens=options.tokens, conversation_id=conversation.id
            )
            loop = Loop(self._chat_model, self.toolbox, self.tools(options), limits, emit, context)
            await loop.run(conversation, text, ResponseOptions(options.max_new_tokens, forced))
        except RkllmMcpError as error:
            await emit(End("failed", str(error)))
        except anyio.BrokenResourceError:
            raise
        except Exception as error:
            # A mistake of ours must cost this answer, not the service and everybody else's answers.
            logger.exception("an answer failed")
            await emit(End("failed", f"internal error: {error!r}; please report it with the output of --debug"))

    def _asker(self, options: ReplyOptions, emit: Emit) -> Asker:
        if options.approvals == "ask":
            return OnStream(self._questions, emit)
        return Standing("once" if options.approvals == "grant" else "deny")

    async def _wait_until_ready(self, emit: Emit) -> None:
        if not self.engine.is_ready:
            for status in self.starting():
                await emit(status)
        await self.ready()

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
async def open_app(config: Config, *, status: StatusSink | None = None) -> AsyncGenerator[App, None]:
    """Start everything that ``config`` names, and stop it at the end.

    The model loads and the servers connect in the background: entering returns at once, ``App.ready`` waits. A server
    that fails is left out and said so; a model that fails is an error of the first answer.

    Args:
        config: the configuration.
        status: is told, one line each, what is connected and what is not.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
        ConfigError: the configuration wants a protection that this version does not have.
    """
    refuse_unprotected(config)
    for line in ineffective(config):
        if status is not None:
            status(line)
    model = chosen_model(config)
    settings = engine_settings(config, model)
    # The engine comes first: its process loads the model while this one imports what servers need.
    async with (
        open_engine(settings) as engine,
        open_toolbox(server_specs(config), result_chars=config.agent.tool_result_chars, on_status=status) as toolbox,
    ):
        chat_model = RkllmModel(engine, model_form(config, model))
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            app = App(config, model, chat_model, engine, toolbox, tasks)
            try:
                yield app
            except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
                failure = error
            finally:
                app.close()
        if failure is not None:
            raise failure
