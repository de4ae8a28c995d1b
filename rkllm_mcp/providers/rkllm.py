"""The model on the NPU: prompt, engine and detector joined into one ``ChatModel``.

conversation ─▶ ConversationPrompt ─▶ token ids ─▶ engine ─▶ tokens ─▶ Detector ─▶ events

Rules: one ledger per conversation, the most recent ones kept; an answer is kept as the ids that came, also when it was
cut short; every run's prefill is compared with what the engine expected, and an excess is said. When the runtime dies
before anybody saw anything of an answer, the same ids are run once more. Where a request ends an answer, by a text of
its own or behind the first call, the run ends there, and its figures are complete. It knows no process and no library:
the engine is the port ``generation.Generator``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from anyio import to_thread

from rkllm_mcp.errors import WorkerDiedError
from rkllm_mcp.events import DetectorEvent, ModelEvent, Status, Text, Thinking, ToolCallDetected, Usage
from rkllm_mcp.generation import GenerationOptions, Generator, RunStats, Sampling, Token
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.prompt.budget import Budget
from rkllm_mcp.prompt.conversation import ConversationPrompt, Prompt, stop_ids
from rkllm_mcp.prompt.ledger import common_prefix
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.vocabulary import Trusted, Vocabulary
from rkllm_mcp.providers import ResponseOptions
from rkllm_mcp.providers.cutting import Cut
from rkllm_mcp.providers.reading import Readings
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
from rkllm_mcp.toolcalls.syntax import marker_texts

# How many tokens more than expected a run may prefill before a line says so: whether the last token of an answer, and
# of a prompt that matches whole, is evaluated again is not the same everywhere (reference: rkllm-runtime 2.6).
SLACK_TOKENS = 2
# Conversations whose ids are kept; an older one is rendered again from its messages when it returns. Whoever holds
# conversations says which are over (``forget``); there is room for all that a service holds (64 open ones, and 64 of
# programs that send everything each time) and those that are just being answered.
LEDGERS_KEPT = 160


@dataclass(frozen=True)
class ModelForm:
    """How one model is spoken to and read.

    Args:
        vocabulary: its tokenizer.
        template: its family's spelling.
        syntaxes: the tool-call syntaxes it may write.
        thinking: how its thinking is recognised; ``off`` for models that never think.
        think: it is asked to think.
        sampling: per-run sampling where the runtime can; None keeps what the model was loaded with.
        max_new_tokens: the longest answer when a request names none.
    """

    vocabulary: Vocabulary
    template: ChatTemplate
    syntaxes: tuple[str, ...]
    thinking: ThinkingMode = "off"
    think: bool = False
    sampling: Sampling | None = None
    max_new_tokens: int = 512

    def thinks(self, wish: bool | None) -> bool:
        """Whether it is asked to think in an answer of which this is wished."""
        return self.think if wish is None or not self._can_think else wish

    def read_as(self, wish: bool | None) -> ThinkingMode:
        """How the thinking of such an answer is recognised."""
        if wish is None or not self._can_think:
            return self.thinking
        return "open" if wish and self.template.open_thinking else "auto"

    @property
    def _can_think(self) -> bool:
        return bool(self.template.no_thinking or self.template.open_thinking)


@dataclass
class _Answer:
    """What comes of one round: the tokens of a run, read by a detector that ``new_detector`` makes."""

    conversation: Conversation
    new_detector: Callable[[], Detector]
    options: ResponseOptions
    ids: list[int] = field(default_factory=list[int])
    text: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    is_finished: bool = False
    is_cut: bool = False

    def __post_init__(self) -> None:
        self.begin_again()

    @property
    def is_over(self) -> bool:
        """It came to an end that the request asked for."""
        return self.cut.is_over

    def begun(self, expected_tokens: int) -> None:
        """The runtime reads its prompt now, of which so much is new."""
        self.conversation.unpaid_tokens = expected_tokens

    def begin_again(self) -> None:
        """Forget tokens of which nothing was certain yet; their run is made once more."""
        self.ids.clear()
        self.detector = self.new_detector()
        self.cut = Cut(self.options.stop, single_call=self.options.single_call)

    def take(self, token_id: int, text: str) -> list[DetectorEvent]:
        """A token came; returns what is certain now."""
        self.ids.append(token_id)
        return [self._kept(event) for event in self.cut.passed(self.detector.feed(text))]

    def finish(self) -> list[DetectorEvent]:
        """There will be no more tokens; returns what was held back, and nothing the second time."""
        if self.is_finished:
            return []
        self.is_finished = True
        last = [*self.cut.passed(self.detector.finish()), *self.cut.rest()]
        return [self._kept(event) for event in last]

    def message(self) -> Message:
        """The assistant's turn."""
        return Message(
            "assistant",
            "".join(self.text),
            calls=tuple(self.calls),
            thinking="".join(self.thinking),
            cut=self.is_cut and not self.is_over,
        )

    def _kept(self, event: DetectorEvent) -> DetectorEvent:
        """The event, kept for the turn; a call gets its id."""
        if isinstance(event, Text):
            self.text.append(event.text)
        elif isinstance(event, Thinking):
            self.thinking.append(event.text)
        elif isinstance(event, ToolCallDetected):
            event = replace(event, id=self.conversation.next_call_id())
            self.calls.append(ToolCall(event.id, event.name, event.arguments, event.raw, event.repaired))
        else:
            self.text.append(event.raw)
        return event


class RkllmModel:
    """A ``ChatModel`` on an engine.

    Args:
        engine: what runs token ids.
        form: how the model is spoken to and read.
        readings: is told which prompts are being read.
    """

    def __init__(self, engine: Generator, form: ModelForm, readings: Readings | None = None) -> None:
        self._engine = engine
        self._form = form
        self._stops = stop_ids(form.vocabulary, form.template)
        self._markers = _special_markers(form)
        self._prompts: OrderedDict[str, ConversationPrompt] = OrderedDict()
        self._readings = readings or Readings()
        # Whose run was announced last, and as what.
        self._announced: tuple[str, list[int]] | None = None

    @property
    def form(self) -> ModelForm:
        """How the model is spoken to and read."""
        return self._form

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions | None = None
    ) -> AsyncGenerator[ModelEvent, None]:
        """See ``ChatModel.respond``."""
        options = options or ResponseOptions()
        conversation_prompt = self._prompt_of(conversation)
        budget = Budget(self._engine.context_tokens, options.max_new_tokens or self._form.max_new_tokens)
        prepare = partial(
            conversation_prompt.prepare,
            forced_tool=options.forced_tool,
            any_tool=options.any_tool,
            thinking=self._form.thinks(options.thinking),
        )
        # Megabytes of text take seconds to become tokens, and everybody else's answers would wait for that.
        prompt = await to_thread.run_sync(prepare, conversation.messages, tools, budget)
        answer = _Answer(conversation, partial(self._detector, tools, options), options)
        try:
            if prompt.notice:
                yield Status(f"[Context: {prompt.notice} to fit {self._engine.context_tokens} tokens]")
            async with aclosing(self._run(prompt, answer)) as events:
                async for event in events:
                    yield event
        finally:
            # Left early or failed, the turn still holds all that came: the next prompt begins with its ids.
            answer.finish()
            message = answer.message()
            conversation_prompt.answered(message, answer.ids)
            conversation.add(message)

    def head(self, conversation: Conversation, lists: Sequence[Sequence[ToolSpec]]) -> list[int]:
        """The ids that the prompts of such a conversation begin with, whichever of these lists of tools it has."""
        prompt = ConversationPrompt(self._form.vocabulary, self._form.template, thinking=self._form.think)
        heads = [prompt.head(conversation.messages, tools) for tools in lists]
        return heads[0][: min(common_prefix(heads[0], head) for head in heads)]

    def over(self, conversation_id: str) -> None:
        """The answer under way in a conversation ended: no run behind a tool call is to be expected any more."""
        if self._announced is not None and self._announced[0] == conversation_id:
            self._engine.revoke(self._announced[1])
            self._announced = None

    def forget(self, conversation_id: str) -> None:
        """Drop what is kept for a conversation that will not return."""
        self.over(conversation_id)
        self._prompts.pop(conversation_id, None)

    def branch(self, conversation_id: str, new_id: str) -> None:
        """See ``LastingModel.branch``."""
        if (prompt := self._prompts.get(conversation_id)) is not None:
            self._keep(new_id, prompt.copied())

    def _detector(self, tools: Sequence[ToolSpec], options: ResponseOptions) -> Detector:
        form = self._form
        callable_tools = () if options.no_calls else (*tools, *options.others)
        if options.forced_tool is None and not options.any_tool:
            return Detector(callable_tools, form.syntaxes, thinking=form.read_as(options.thinking))
        # The prompt ends inside the call; the detector has to know, and nothing of it is output.
        detector = Detector(callable_tools, form.syntaxes)
        written = form.template.tool_form
        forced = options.forced_tool
        detector.feed(written.any_call_text() if forced is None else written.forced_call_text(forced))
        return detector

    async def _run(self, prompt: Prompt, answer: _Answer) -> AsyncGenerator[ModelEvent, None]:
        """A run; once more where the runtime died of it before anything of the answer was seen."""
        is_seen = False
        try:
            async with aclosing(self._run_once(prompt, answer)) as events:
                async for event in events:
                    is_seen = True
                    yield event
            return
        except WorkerDiedError as error:
            if is_seen:
                raise
            death = error
        await self._engine.ready()
        yield Status(f"[NPU: the runtime {_how(death)} and was started again; the question is asked again]")
        answer.begin_again()
        async with aclosing(self._run_once(prompt, answer)) as events:
            async for event in events:
                yield event

    async def _run_once(self, prompt: Prompt, answer: _Answer) -> AsyncGenerator[ModelEvent, None]:
        options = GenerationOptions(
            prompt.max_new_tokens,
            self._stops,
            self._sampling(answer.options),
            enough=lambda: answer.is_over,
            begun=answer.begun,
            owner=answer.conversation.tenant,
        )
        accounts: list[ModelEvent] = []
        uncached = partial(self._engine.uncached, prompt.ids, answer.conversation.tenant)
        self._readings.begin(answer.conversation.id, uncached)
        try:
            async with aclosing(self._engine.generate(prompt.ids, options)) as run:
                async for item in run:
                    if isinstance(item, RunStats):
                        answer.is_cut = item.finish == "length"
                        accounts = _accounts(len(prompt.ids), item)
                        self._readings.measured(item, item.prefilled_tokens or 0)
                        continue
                    self._readings.over(answer.conversation.id)
                    for event in answer.take(item.id, self._visible(item)):
                        yield event
        finally:
            self._readings.over(answer.conversation.id)
        closing = answer.finish()
        if answer.calls:
            # Their results come back in a prompt that goes on from here.
            self._announced = (answer.conversation.id, [*prompt.ids, *answer.ids])
            self._engine.announce(self._announced[1])
        for event in (*closing, *accounts):
            yield event

    def _sampling(self, options: ResponseOptions) -> Sampling | None:
        if options.sampling is None:
            return self._form.sampling
        return options.sampling.over(self._form.sampling or Sampling())

    def _visible(self, token: Token) -> str:
        """The token's part of the answer: a special token has none, unless it is a marker that the detector reads."""
        if token.id in self._markers:
            return self._form.vocabulary.decode([token.id])
        return "" if token.id in self._stops or self._form.vocabulary.is_special(token.id) else token.text

    def _prompt_of(self, conversation: Conversation) -> ConversationPrompt:
        prompt = self._prompts.pop(conversation.id, None)
        if prompt is None:
            prompt = ConversationPrompt(self._form.vocabulary, self._form.template, thinking=self._form.think)
        self._keep(conversation.id, prompt)
        return prompt

    def _keep(self, conversation_id: str, prompt: ConversationPrompt) -> None:
        self._prompts[conversation_id] = prompt
        if len(self._prompts) > LEDGERS_KEPT:
            self._prompts.popitem(last=False)


def _special_markers(form: ModelForm) -> frozenset[int]:
    """Special tokens that nevertheless are part of an answer: some families mark ``<tool_call>`` so.

    Their text is written by the host, because a runtime that leaves special tokens out delivers none.
    """
    texts = (*form.template.answer_markers, *marker_texts(form.syntaxes))
    ids = form.vocabulary.encode([Trusted(text) for text in texts])
    return frozenset(filter(form.vocabulary.is_special, ids))


def _how(death: WorkerDiedError) -> str:
    """How the runtime's process came to its end, as a verb."""
    if death.cause:
        return f"was ended because {death.cause},"
    return f"died ({death.signal_name or f'exit code {death.exit_code_or_signal}'})"


def _accounts(prompt_tokens: int, stats: RunStats) -> list[ModelEvent]:
    """The cost of the round, and a line where the runtime evaluated more than what its cache was not known to hold."""
    expected = prompt_tokens if stats.expected_tokens is None else stats.expected_tokens
    prefilled = expected if stats.prefilled_tokens is None else stats.prefilled_tokens
    if stats.own_tokens is not None:
        # What others left in the cache is reported as evaluated, in every figure, and so paid for.
        evaluated = prompt_tokens - stats.own_tokens
        expected, prefilled = max(expected, evaluated), max(prefilled, evaluated)
    events: list[ModelEvent] = []
    if prefilled > expected + SLACK_TOKENS:
        events.append(Status(f"[NPU: prefilled {prefilled} of {prompt_tokens} tokens where {expected} were expected]"))
    events.append(
        Usage(
            prompt_tokens=prompt_tokens,
            prefilled_tokens=prefilled,
            cached_tokens=max(0, prompt_tokens - prefilled),
            generated_tokens=stats.generated_tokens,
            prefill_ms=round(stats.prefill_ms, 3),
            decode_ms=round(stats.decode_ms, 3),
            time_to_first_token_ms=round(stats.time_to_first_token_ms, 3),
        )
    )
    return events
