"""The assistant: answers questions in conversations, one answer at a time in each.

question ─▶ model and servers ready ─▶ turn ─▶ rounds of model and tools ─▶ ``Answer`` (app.answer) ─▶ sink
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from rkllm_mcp.agent.handlers import finished_event
from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest, TurnTools
from rkllm_mcp.agent.loop import LoopSettings, answer_with_tools, open_turn
from rkllm_mcp.agent.markup_filter import MarkupFilter
from rkllm_mcp.agent.pending_requests import FormApprover, PendingRequests, StreamApprover
from rkllm_mcp.agent.question import Question, attach, question_from_prompt
from rkllm_mcp.agent.system_text import system_text
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.app.answer import Answer, EventQueue, OpenAnswers
from rkllm_mcp.app.idle_requests import IdleRequests, answers_asides
from rkllm_mcp.app.server_wait import ServerWait
from rkllm_mcp.app.settings import starting_lines
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.sections import Config
from rkllm_mcp.conversations.recorder import AnswerRecord, Recorder, restored_turns
from rkllm_mcp.conversations.titles import Titles
from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import End, Event, Status, Text, ToolProgress
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.memory.person import event_of, forget_erased, keep_said, know_person, recall
from rkllm_mcp.memory.proposals import Proposals
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.protocols import (
    Approver,
    CallContext,
    EventSink,
    FixedApprover,
    Step,
)
from rkllm_mcp.providers.prefill_progress import PromptProgress
from rkllm_mcp.records import PastCalls, StoredConversation, recalled_block
from rkllm_mcp.text import language_of_setting, language_of_text

if TYPE_CHECKING:
    from rkllm_mcp.agent.sampling import ModelSampler
    from rkllm_mcp.app.environment import ModelHost, ToolEnvironment
    from rkllm_mcp.app.model_form import PromptListing
    from rkllm_mcp.app.models import ModelSwitch
    from rkllm_mcp.app.warmup import WarmUp
    from rkllm_mcp.store.tables import KeyValue
    from rkllm_mcp.tools.search import Embedder, ToolSearch

# The list of tools may take this part of the context window; question, results and answer need the rest.
TOOL_SHARE = 3
# For the model to pass on when there was no user to ask.
HOW_TO_ALLOW = "It can be allowed with 'rkllm-mcp run --yes', or for good with always_allow in the configuration."

NO_RIGHT = "This key may not approve calls; the owner of the service can allow the tool with always_allow."


@dataclass(frozen=True)
class PromptQuestion:
    """A server's prompt as a question: its name, or ``server:name``, and its arguments."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])


class App:
    """A running application; ``open_app`` makes one.

    Attributes:
        config: the configuration.
        model_host: the model that answers.
        toolbox: the tools of all servers.
        store: the store, with tool calls and conversations.
        answers: the answers that are being made.
        tenant: the tenant's name; empty for the owner.
        recorder: saves answers.
        usage: counts the tokens of its answers.
        pending: the approvals and elicitations that wait for a user.
        models: exchanges the model, if it belongs to this assistant alone; None otherwise.
        person: what the person has set: the text ``about`` them, and ``page``, their choices on the page as JSON.
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
        person: KeyValue,
        *,
        writes_titles: bool = False,
    ) -> None:
        self.config = config
        self.person = person
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
        self.answers = OpenAnswers()
        self._titles = Titles(tools.store.conversations, tenant, usage, is_on=writes_titles)
        self._proposals = Proposals(tools.store.memories, usage, lambda: self.wants_proposals)
        requests = (self._titles.write, self._proposals.propose)
        self._idle_requests = IdleRequests(tasks, lambda: not self.answers, requests, self.renew_beginning)
        self._server_wait = ServerWait(tools.toolbox, config.agent.wait_for_servers_s)
        self.pending = PendingRequests(config.security.question_timeout_s, tools.store.leases, tenant)
        self._preparation = turn_preparation(
            config, model_host.listing, tools.toolbox, tools.store.calls.list_served, model_host.embedder
        )
        self._has_announced = False

    def use(self, model_host: ModelHost, *, warms: bool = True) -> None:
        """Answer with another model from now on, while no answer runs; with ``warms`` its prompt is prepared."""
        if self._warm_up is not None:
            self._warm_up.scope.cancel()
            self._warm_up = None
        self.model_host = model_host
        sampler = self._sampler
        sampler.model, sampler.name, sampler.sees = model_host.chat_model, model_host.name, model_host.takes_pictures
        self._preparation = turn_preparation(
            self.config, model_host.listing, self.toolbox, self.store.calls.list_served, model_host.embedder
        )
        if warms:
            self.warm_up(comes_back=True)

    def warm_up(self, *, comes_back: bool = False) -> None:
        """Prepare the beginning of every prompt once the model is loaded; see ``app.warmup.WarmUp``."""
        if (npu := self.model_host.npu) is not None:
            self._warm_up = self._new_warm_up(npu.model, npu.engine, comes_back=comes_back)
            servers = self._server_wait.before_question, self.toolbox.wait_until_connected
            self._tasks.start_soon(self._warm_up.run, self.model_host.ready, *servers, self.prompt_prefix)

    async def renew_beginning(self) -> None:
        """Save what prompts begin with now for the next start, if the tools have changed since this one.

        Not while a server is starting, without whose tools the next start would find the file useless.
        """
        if self._warm_up is not None and not any(server.is_starting for server in self.toolbox.connections):
            await self._warm_up.renew(self.prompt_prefix())

    def close(self) -> None:
        """Cancel every answer and take no more; ``open_app`` does this at the end."""
        self.answers.close()
        self._tasks.cancel_scope.cancel()

    @property
    def writes_titles(self) -> bool:
        """True if the model writes the titles of saved conversations while it is idle."""
        return self._titles.is_on and answers_asides(self.model_host)

    @property
    def makes_proposals(self) -> bool:
        """True if the model is one that can propose what to remember."""
        return self.config.agent.memory and self.config.service.history and answers_asides(self.model_host)

    @property
    def wants_proposals(self) -> bool:
        """True if the person wants the model to propose what to remember: as chosen on the page, or configured."""
        chosen = self.page_settings.get("proposals")
        return self.config.agent.memory and (chosen == "on" if chosen else self.config.agent.memory_proposals)

    @property
    def about(self) -> str:
        """What the person says about themselves, for every conversation; empty without it."""
        return self.person.texts.get("about", "")

    @property
    def page_settings(self) -> Mapping[str, str]:
        """What the person has chosen on the page, by name."""
        return json.loads(self.person.texts.get("page") or "{}")

    def new_conversation(self, system: str | None = None, *, with_person: bool = True) -> Conversation:
        """Make a conversation that begins with the system text: ``system``, or the configuration's.

        The text about the person follows after it and after the tools, unless ``with_person`` is False, so that the
        beginning of the prompt, which is prefilled in advance and kept on disk, is the same without it.
        """
        lists_tools = not self.model_host.listing.with_question
        about = self.about if with_person else ""
        return begin_conversation(self.config, self.tenant, system, about, lists_tools=lists_tools)

    def resume(self, stored: StoredConversation) -> Conversation:
        """Restore a conversation of ``memory.conversations``, with its id; the model reads it again."""
        return restored_turns(stored, self.new_conversation(stored.system))

    def answer(
        self,
        conversation: Conversation,
        question: str | PromptQuestion,
        sink: EventSink,
        options: AnswerOptions | None = None,
        steps: Sequence[Step] = (),
    ) -> Coroutine[Any, Any, None]:
        """Answer a question; the last event is always an ``End``, unless the caller is cancelled.

        A resource that the text names as ``@server:uri`` is read first; when it cannot be read, the answer ends as
        ``failed`` before the model runs. So does an unknown prompt, or one with a missing or unknown argument.

        Args:
            conversation: the conversation; one answer at a time.
            question: the user's words, or a server's prompt.
            sink: receives the events.
            options: options of the answer.
            steps: further steps before the sink.

        Raises:
            UsageError: the conversation has a running answer, or the assistant is closed.
        """
        options = options or AnswerOptions()
        return self._make_answer(self._open_answer(conversation, question, sink, options, steps), question, options)

    @asynccontextmanager
    async def answering(
        self, conversation: Conversation, sink: EventSink, steps: Sequence[Step] = ()
    ) -> AsyncGenerator[Answer, None]:
        """Yield an answer to be made in the block, which begins with ``model_ready``; see ``Answer.making``.

        Raises:
            UsageError: the conversation has a running answer, or the assistant is closed.
        """
        self.answers.check_free(conversation)
        answer = Answer(conversation, sink, self.usage, partial(self.answers.remove, conversation.id), steps)
        self.answers.add(answer)
        async with answer.making():
            yield answer

    async def reply(
        self, conversation: Conversation, question: str | PromptQuestion, options: AnswerOptions | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of ``answer``; consume them under ``aclosing``: leaving early cancels the answer.

        Raises:
            UsageError: the conversation has a running answer, or the assistant is closed.
        """
        queue, options = EventQueue(), options or AnswerOptions()
        answer = self._open_answer(conversation, question, queue, options)
        answer.on_close = queue.close
        self._tasks.start_soon(self._make_answer, answer, question, options)
        try:
            while events := await queue.next_events():
                for event in events:
                    yield event
                    if isinstance(event, End):
                        return
            # The assistant was closed, which cancelled the task before it could feed an End.
            yield End("interrupted")
        finally:
            queue.close()
            answer.scope.cancel()
            with anyio.CancelScope(shield=True):
                # Bounded: a run, a tool call and a connection have time limits of their own.
                await answer.done.wait()

    async def call_tool(
        self, tool: ToolSpec, arguments: Mapping[str, Any], sink: EventSink, options: AnswerOptions
    ) -> None:
        """Call a tool by hand; ``sink`` receives requests for approval and progress, and last the result."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            sink.feed([ToolProgress("call_1", progress, total, message)])
            await sink.drain()

        with self._asker(options, sink) as asker:
            context = CallContext(on_progress, sink, asker, options.tokens, language=options.language)
            result = await self.toolbox.call(ToolCall("call_1", tool.name, arguments), context)
        sink.feed([finished_event(result)])

    def prefill_progress(self, conversation_id: str) -> PromptProgress | None:
        """Return the progress of the prefill for a running answer; None outside of a prefill."""
        npu = self.model_host.npu
        if npu is None:
            return None
        tokens = self._warm_up.prefill_tokens if self._warm_up else 0
        if tokens and self.answers.is_making(conversation_id):
            return npu.prefill_progress.estimate(tokens)
        return npu.prefill_progress.of(conversation_id)

    def starting(self) -> tuple[Event, ...]:
        """Return lines about the model and the servers that are starting; empty from the second call on."""
        if self._has_announced:
            return ()
        self._has_announced = True
        model, language = self.model_host.name if self.model_host.npu else None, self.config.status_language
        return starting_lines(model, len(self.toolbox.connections), language)

    async def ready(self) -> None:
        """Wait until the model is loaded and every server is connected or has failed.

        Raises:
            RuntimeUnusableError: the model could not be loaded.
        """
        # Both are starting already; in this order a failed model is reported without waiting for slow servers.
        await self.model_host.ready()
        await self.toolbox.wait_until_connected()

    async def servers_ready(self, text: str, options: AnswerOptions, sink: EventSink) -> frozenset[str]:
        """Wait for the servers that are starting; return the names of those left out, see ``ServerWait``."""
        return await self._server_wait.for_question(text, options, self._preparation.selection.fitting, sink)

    def tools(self, options: AnswerOptions | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools that an answer with these options is shown."""
        options = options or AnswerOptions()
        if not options.tools:
            return ()
        if options.allowed_tools is None:
            return self.toolbox.tools()
        allowed = {spec.name for spec in map(self.toolbox.resolve, options.allowed_tools) if spec is not None}
        return tuple(tool for tool in self.toolbox.tools() if tool.name in allowed)

    def prompt_prefix(self, *, is_remembered: bool = False) -> list[int]:
        """Return the token ids that every prompt begins with: system text and current tools.

        With ``is_remembered`` a server that is starting has the tools of its last time.
        """
        conversation = self.new_conversation()
        tools = self.toolbox.remembered_tools() if is_remembered else self.tools()
        lists = self._preparation.beginnings(conversation, tools)
        return self.model_host.board.chat_model.head(conversation, lists)

    def _open_answer(
        self,
        conversation: Conversation,
        question: str | PromptQuestion,
        sink: EventSink,
        options: AnswerOptions,
        steps: Sequence[Step] = (),
    ) -> Answer:
        """Return the answer that ``_make_answer`` makes; from now on the conversation has a running answer."""
        self.answers.check_free(conversation)
        markup = MarkupFilter(self.config.agent.person_language)
        record: AnswerRecord | None = None
        if options.save:
            text, secrets = question if isinstance(question, str) else "", tuple(options.tokens.values())
            pictures = options.pictures
            record = AnswerRecord(self.recorder, conversation, text, secrets, markup.words, options.begun, pictures)
        on_end = partial(self.answers.remove, conversation.id)
        language = options.language or self.config.agent.person_language
        answer = Answer(conversation, sink, self.usage, on_end, steps, markup, record, language)
        self.answers.add(answer)
        return answer

    async def _make_answer(self, answer: Answer, question: str | PromptQuestion, options: AnswerOptions) -> None:
        """Answer the question with the model and the servers' tools."""
        conversation, agent = answer.conversation, self.config.agent
        if answer.record is not None and conversation.kept_turns == 0:
            self._titles.begin(conversation)
        async with answer.making():
            await anyio.lowlevel.checkpoint_if_cancelled()
            if answer.record is not None:
                await answer.record.begin()
                self._tasks.start_soon(answer.record.follow, answer.scope.cancel)
            has_words = isinstance(question, str) and not options.model.continues
            uses_memory = options.memory and agent.memory and has_words
            if uses_memory and await self._keep_said(answer, str(question), options):
                return
            if uses_memory and answer.record is not None and options.resources and options.unattended_tools is None:
                self._proposals.note(conversation, str(question))
            await self.model_ready(answer)
            late = await self.servers_ready(question if isinstance(question, str) else "", options, answer)
            await self.warmed_up()
            await self._tools.refresh()
            # A server that needs a token of the request is connected, and its tools are known, for this answer.
            async with self.toolbox.attending(options.tokens):
                tools, model = self.tools(options), self.model_host.chat_model
                if answer.markup is not None:
                    answer.markup.has_tools = bool(tools)
                model_options = self._model_options(options)
                limits = LoopSettings(
                    agent.max_rounds,
                    agent.repair_rounds,
                    agent.parallel_tools,
                    answers_from=self.model_host.answers_from,
                )
                with self._asker(options, answer) as asker:
                    context = CallContext(
                        sink=answer,
                        asker=asker,
                        tokens=options.tokens,
                        conversation_id=conversation.id,
                        is_unattended=options.unattended_tools is not None,
                        language=options.language,
                    )
                    prepared = await self._prepare_question(question, options, context)
                    if uses_memory:
                        memories, count = self.store.memories, self.model_host.count_tokens
                        await forget_erased(memories, conversation)
                        await know_person(memories, conversation, agent.person_language, count)
                        if rows := await recall(memories, prepared.text, conversation, count):
                            # The model reads them right before the words of the question.
                            answer.feed([event_of(rows)])
                            block = recalled_block(rows, language_of_text(prepared.text))
                            prepared = replace(prepared, recalled=block)
                    # Also without the tools of a server that became ready after people read that it is left out.
                    tools = tuple(tool for tool in self.tools(options) if tool.server not in late)
                    request = TurnRequest(prepared, tools, model_options)
                    turn = open_turn(self._preparation, conversation, request, context, limits.parallel_tools)
                    try:
                        async with turn as (messages, calls):
                            answer.end = await answer_with_tools(
                                model, conversation, messages, calls, model_options, limits, answer
                            )
                    finally:
                        model.over(conversation.id)
        has_answered = answer.is_ending and answer.end.reason == "answered"
        if answer.record is not None and has_answered:
            self._idle_requests.on_answer(conversation, self.model_host)

    async def _keep_said(self, answer: Answer, question: str, options: AnswerOptions) -> bool:
        """Keep what a question asks to be remembered; return True if the answer says so and nothing else is asked."""
        memories, conversation = self.store.memories, answer.conversation
        remembered = await keep_said(memories, question, conversation) if options.resources else None
        if remembered is None:
            return False
        if remembered.event is not None:
            answer.feed([remembered.event])
        if not remembered.is_all or options.pictures or options.model.forced_tool:
            if remembered.event is None:
                answer.feed([Status(f"[{remembered.sentence}]")])
            return False
        conversation.add(Message("user", question))
        conversation.add(Message("assistant", remembered.sentence))
        answer.feed([Text(remembered.sentence)])
        answer.end = End("answered")
        return True

    async def recalled_context(self, question: Message, conversation: Conversation) -> str:
        """Return the rows of the memory that a question is about, as the model reads them; empty without any."""
        if not self.config.agent.memory:
            return ""
        rows = await recall(self.store.memories, question.text, conversation, self.model_host.count_tokens)
        return recalled_block(rows, language_of_text(question.text)) if rows else ""

    async def _prepare_question(
        self, question: str | PromptQuestion, options: AnswerOptions, context: CallContext
    ) -> Question:
        """Return the question with the resources that it names, or with the messages of its prompt."""
        if isinstance(question, PromptQuestion):
            filled = await self.toolbox.offerings.fill_prompt(question.name, question.arguments, context)
            return question_from_prompt(filled, context.sink)
        # Resources load the MCP client, which a question that names none does not need.
        offerings = self.toolbox.offerings if "@" in question and options.resources else None
        prepared = await attach(question, offerings, self.config.agent.resource_chars, context)
        context_before = "\n\n".join(filter(None, (prepared.context, options.context)))
        return replace(prepared, pictures=options.pictures, context=context_before)

    @contextmanager
    def _asker(self, options: AnswerOptions, sink: EventSink) -> Generator[Approver]:
        if options.unattended_tools is not None:
            tools = map(self.toolbox.resolve, options.unattended_tools)
            advice = translate("model.scheduled_refusal", self.config.agent.person_language)
            allowed = frozenset(tool.name for tool in tools if tool is not None)
            yield FixedApprover("deny", advice, allowed)
            return
        if options.approvals in ("grant", "refuse"):
            is_granted = options.approvals == "grant"
            yield FixedApprover("once") if is_granted else FixedApprover("deny", HOW_TO_ALLOW)
            return
        with StreamApprover(self.pending, sink, options.approval_timeout_s, options.id_prefix) as asker:
            yield asker if options.approvals == "ask" else FormApprover(asker, NO_RIGHT)

    async def model_ready(self, sink: EventSink) -> None:
        """Wait for the model, but for no server; ``sink`` receives lines about what is starting."""
        self.toolbox.retry()
        if self._warm_up is not None:
            self._warm_up.give_way()
        if not self.model_host.is_ready and (statuses := self.starting()):
            sink.feed(statuses)
        await self.model_host.ready()

    async def warmed_up(self) -> None:
        """Wait until all that is prefilled in advance is; bounded, as loading and every run are."""
        if self._warm_up is not None:
            await self._warm_up.is_over.wait()

    def _model_options(self, options: AnswerOptions) -> ModelOptions:
        """Return the options of the responses, with the model's name of a forced tool."""
        if (forced := options.model.forced_tool) is None:
            return options.model
        if not options.tools:
            raise UsageError("a tool cannot be forced while tools are switched off; leave one of the two out")
        spec = self.toolbox.resolve(forced)
        if spec is None:
            near = self.toolbox.suggest(forced)
            advice = f"did you mean '{near}'?" if near else "see 'rkllm-mcp tools list'"
            raise UsageError(f"there is no tool '{forced}'; {advice}")
        return replace(options.model, tool_choice=ForcedTool(spec.name))


def begin_conversation(
    config: Config, tenant: str, system: str | None, about: str, *, lists_tools: bool = True
) -> Conversation:
    """Return a conversation that begins with the system text: ``system``, or the configuration's; ``about`` is apart.

    ``lists_tools`` is False where the tools are with the questions.
    """
    agent = config.agent
    text = system_text(agent.system_prompt, agent.language, lists_tools=lists_tools) if system is None else system
    person = translate("model.about", language_of_setting(agent.language), about=about) if about else ""
    conversation = Conversation(own_system=system, tenant=tenant)
    if text or person:
        conversation.add(Message("system", text, context=person))
    return conversation


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
        with_question=listing.with_question,
    )

    def open_search() -> ToolSearch:
        from rkllm_mcp.tools.search import ToolSearch

        return ToolSearch(past, embedder)

    return TurnPreparation(tools, ToolSelection(open_search, listing.cost, settings), agent.person_language)
