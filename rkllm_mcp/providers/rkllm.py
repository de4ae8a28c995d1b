"""``RkllmModel``: the model on the NPU as a ``ChatModel``.

    conversation ─▶ ConversationPrompt ─▶ token ids ─▶ engine ─▶ tokens ─▶ Detector ─▶ events

* One token ledger per conversation; an answer is stored as the ids that were generated, also when it was cut short.
* A prefill that is longer than the engine expected is reported.
* If the runtime dies before any event was emitted, the same ids are run once more.
* A stop string, the first call or an answer that repeats itself ends the run early, with complete statistics.
* A held answer or call is several runs of one prompt that grows, where tokens were corrected (``Holding``).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from rkllm_mcp.catalogue import status_line, translate
from rkllm_mcp.errors import ModelFileError, WorkerDiedError
from rkllm_mcp.events import Event, Prefill, Status, Text, Thinking, Usage
from rkllm_mcp.generation import (
    ForcedTool,
    Generation,
    GenerationOptions,
    Generator,
    HeldLimits,
    Input,
    ModelOptions,
    PrefixExchanger,
    RunStats,
    Token,
    Vision,
    common_prefix,
)
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.budget import Budget
from rkllm_mcp.prompt.conversation import ConversationPrompt, Prompt, stop_ids
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer
from rkllm_mcp.protocols import DISCARD_EVENTS, EventSink, Turn
from rkllm_mcp.providers.prefill_progress import PrefillProgress
from rkllm_mcp.providers.sight import Sight, image_input, see, see_to_count
from rkllm_mcp.providers.stream_parts import FinishPart
from rkllm_mcp.providers.turn_builder import TurnBuilder
from rkllm_mcp.sampling import Sampling, SamplingByPurpose, SamplingOverrides
from rkllm_mcp.tasks import run_costly
from rkllm_mcp.text import language_of_text
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
from rkllm_mcp.toolcalls.formats import marker_texts, select_syntaxes
from rkllm_mcp.toolcalls.syntax import RESPONSES, CallFormat

if TYPE_CHECKING:
    from rkllm_mcp.providers.holding import Holding
    from rkllm_mcp.toolcalls.call_grammars import Constraints
    from rkllm_mcp.toolcalls.constraint import Constraint

# Tolerance of the prefill report: releases differ in evaluating the last token of an answer, or of a prompt that
# matches the cache completely, again (reference: rkllm-runtime 2.6).
# From here on a person wants to know how long the prompt takes.
_MANY_TOOLS = 100
_LONG_PREFILL_S = 1.0
SLACK_TOKENS = 2
# Number of stored ledgers; an older conversation is rendered from its messages again. Enough for a service: 64 open
# conversations, 64 of clients that send the whole conversation, and the running answers.
LEDGERS_KEPT = 160
# The same tokens this many times, in a row or at equal distances, are a loop.
LOOP_TOKENS = 30
LOOP_TIMES = 4
# So many tokens with the same text prove the tokenizer; this many with another refute it.
PROVEN_TOKENS = 8
FOREIGN_TOKENS = 3
# Number of tokens that one character may take, four bytes each of its own, and the text before it.
_LONGEST_CHARACTER = 6


@dataclass(frozen=True)
class ModelForm:
    """Tokenizer, template and formats of one model."""

    tokenizer: ModelTokenizer
    template: ChatTemplate
    syntaxes: tuple[str, ...]
    thinking: ThinkingMode = "off"  # how thinking is detected; "off" for models that never think
    think: bool = False  # ask the model to think
    sampling: SamplingByPurpose | None = None  # per run, if the runtime supports it; None: as loaded
    max_new_tokens: int = 512  # default limit of an answer

    @property
    def uncompared_ids(self) -> frozenset[int]:
        """Tokens whose text is not compared with the runtime's: releases differ in delivering control tokens."""
        return self.tokenizer.control_ids | self.tokenizer.special_ids | stop_ids(self.tokenizer, self.template)

    def thinks(self, wish: bool | None) -> bool:
        """Return True if the model is asked to think, given the request's option."""
        return self.think if wish is None or not self.template.can_think else wish

    def read_as(self, wish: bool | None) -> ThinkingMode:
        """Return how thinking is detected, given the request's option."""
        if wish is None or not self.template.can_think:
            return self.thinking
        return "open" if wish and self.template.open_thinking else "auto"


@dataclass(eq=False)
class RepetitionWatch:
    """Follow the tokens of one answer; each costs the same, however long the answer is."""

    _last: list[int] = field(default_factory=list[int])
    _count: int = 0
    # Of each run of ``LOOP_TOKENS``: where it ended last, the distance to the time before, and how often in a row.
    _occurrences: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])

    def add(self, token_id: int) -> bool:
        """Add the next token; return True if the answer has repeated itself ``LOOP_TIMES``."""
        self._last.append(token_id)
        self._count += 1
        if len(self._last) < LOOP_TOKENS:
            return False
        key = hash(tuple(self._last))
        del self._last[0]
        position, distance, times = self._occurrences.get(key, (0, 0, 0))
        apart = self._count - position
        times = 1 if not times else times + 1 if apart == distance else 2
        self._occurrences[key] = (self._count, apart, times)
        # With a shorter period the runs overlap.
        covered = LOOP_TOKENS + (times - 1) * min(apart, LOOP_TOKENS)
        return covered >= LOOP_TOKENS * LOOP_TIMES


@dataclass(eq=False)
class TokenComparison:
    """Comparison of the first tokens of an answer: their text from the runtime, and from ``tokenizer.json``."""

    _tokenizer: ModelTokenizer
    _left_out: frozenset[int]  # tokens that are not evidence
    is_proven: bool = False  # enough tokens had the same text
    _ids: list[int] = field(default_factory=list[int])
    _text: str = ""
    _same: int = 0
    _other: list[tuple[list[int], str, str]] = field(default_factory=list[tuple[list[int], str, str]])

    def add(self, tokens: Iterable[Token]) -> None:
        """Compare the next tokens, and refuse the tokenizer once ``FOREIGN_TOKENS`` differ."""
        for token in tokens:
            if self.is_proven:
                return
            if token.id in self._left_out:
                self._ids, self._text = [], ""
                continue
            self._ids.append(token.id)
            self._text += token.text
            own_text = self._tokenizer.decode(self._ids)
            # The runtime delivers a character that spans tokens with its last one.
            is_whole = bool(self._text) and not own_text.endswith("\ufffd")
            if is_whole or len(self._ids) >= _LONGEST_CHARACTER:
                if self._text.strip() and "\ufffd" not in self._text:
                    if self._text.strip() == own_text.strip():
                        self._same += 1
                        self.is_proven = self._same >= PROVEN_TOKENS
                    else:
                        self._other.append((self._ids, self._text, own_text))
                self._ids, self._text = [], ""
            self.finish(FOREIGN_TOKENS)

    def finish(self, least: int = 1) -> None:
        """Judge what was compared; at the end of a short answer one different token and no equal one are enough.

        Raises:
            ModelFileError: at least ``least`` tokens differ.
        """
        if len(self._other) < least or len(self._other) <= self._same:
            return
        ids, text, own_text = self._other[0]
        raise ModelFileError(
            f"tokenizer.json is not this model's own: token {', '.join(map(str, ids))} is {text!r} for the runtime and "
            f"{own_text!r} in the file, so no prompt says what was meant.",
            "Put the original model's tokenizer.json into the model's folder, which 'rkllm-mcp models show' names.",
        )


@dataclass
class _PromptRun:
    """One run of a prompt and its output."""

    conversation: Conversation
    prompt: Prompt
    turn: TurnBuilder
    sampling: Sampling | None
    sight: Sight
    ids: list[int] = field(default_factory=list[int])
    repetition: RepetitionWatch = field(default_factory=RepetitionWatch)
    is_repeating: bool = False
    is_thinking: bool = False
    thinking_tokens: int = 0
    comparison: TokenComparison | None = None
    holding: Holding | None = None  # None without a held part


class RkllmModel:
    """A ``ChatModel`` on an engine; ``form`` is the model's tokenizer, template and formats.

    ``prefill_progress`` tracks prompts being prefilled; ``vision`` encodes pictures, and where it is None,
    ``blindness`` returns the line about pictures that the model does not see; ``exchange_prefix`` brings long prefixes
    back; ``held`` limits what corrections of held answers and calls may cost, and None holds none.
    """

    def __init__(
        self,
        engine: Generator,
        form: ModelForm,
        prefill_progress: PrefillProgress | None = None,
        vision: Vision | None = None,
        blindness: Callable[[], str] = str,
        exchange_prefix: PrefixExchanger | None = None,
        held: HeldLimits | None = None,
    ) -> None:
        self._engine = engine
        self._held = held
        self.form = form
        self._vision = vision
        self._blindness = blindness
        self._exchange_prefix = exchange_prefix
        self._stops = stop_ids(form.tokenizer, form.template)
        # The special tokens that are part of an answer, such as ``<tool_call>`` in some families. They are decoded
        # here, because a runtime that skips special tokens delivers no text for them.
        responses = (text for marks in RESPONSES.items() for text in marks)
        texts = (*form.template.answer_markers, *marker_texts(form.syntaxes), *responses)
        marker_ids = form.tokenizer.encode([ControlText(text) for text in texts])
        self._markers = form.tokenizer.special_ids.intersection(marker_ids)
        self._special = self._stops | form.tokenizer.special_ids
        # By the conversation's id, of those that are in memory.
        self.prompts: OrderedDict[str, ConversationPrompt] = OrderedDict()
        self._progress = prefill_progress or PrefillProgress()
        # True once the runtime and tokenizer.json agreed about the text of tokens.
        self._is_own_tokenizer = False
        # Conversation and prompt of the run that is expected next.
        self._announced: tuple[str, list[int]] | None = None

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, sink: EventSink
    ) -> Turn:
        """See ``ChatModel.respond``."""
        sight = Sight(conversation.messages)
        if any(message.all_pictures for message in conversation.messages):
            if self._vision is not None:
                sight = await see(conversation.messages, self._vision)
            else:
                last = conversation.messages[-1]
                # A question with pictures; a model without eyes is told about them.
                if last.role == "user" and last.pictures and (line := self._blindness()):
                    sink.feed([Status(line)])
        conversation_prompt = self.prompts.pop(conversation.id, None)
        if conversation_prompt is None:
            tokenizer, template = self.form.tokenizer, self.form.template
            conversation_prompt = ConversationPrompt(tokenizer, template, thinking=self.form.think)
        self._store_prompt(conversation.id, conversation_prompt)
        budget = Budget(self._engine.context_tokens, options.max_new_tokens or self.form.max_new_tokens)
        prepare = partial(
            conversation_prompt.prepare,
            forced_tool=options.forced_tool,
            opens_arguments=options.opens_arguments,
            any_tool=options.tool_choice == "required",
            thinking=self.form.thinks(options.thinking),
            continues=options.continues,
            pictures=sight.text,
        )
        # Megabytes of text take seconds to encode; in a thread they do not block other answers.
        prompt = await run_costly(prepare, sight.messages, tools, budget)
        announced = self._announced
        if announced and announced[0] == conversation.id and prompt.ids[: len(announced[1])] != announced[1]:
            # The round goes another way, and must not wait for the one that was expected.
            self.over(conversation.id)
        if len(tools) > _MANY_TOOLS:
            # What finds their calls is compiled, a millisecond for each name; the run finds it in the cache.
            await run_costly(lambda: self._detector(tools, options).feed("."))
        if self._held is not None and (tools or options.others or options.grammar):
            # Compiling takes milliseconds; the run finds the result in the cache.
            await run_costly(partial(self._compile, tools, options))
        run = self._new_run(conversation, tools, options, prompt, sight)
        try:
            if prompt.notice:
                sink.feed([status_line("shortened", notice=prompt.notice, tokens=self._engine.context_tokens)])
            try:
                return await self._generate(run, sink)
            except WorkerDiedError as death:
                if run.turn.has_content:
                    raise
                await self._engine.ready()
                how = f"died ({death.signal_name or f'exit code {death.exit_code_or_signal}'})"
                if death.cause:
                    how = f"was ended because {death.cause},"
                sink.feed([status_line("restarted", how=how)])
            # Tokens that produced no event are discarded.
            run = self._new_run(conversation, tools, options, prompt, sight)
            return await self._generate(run, sink)
        finally:
            # Also after a cancellation or failure: the next prompt begins with the ids that were generated.
            run.turn.finish()
            message = run.turn.message()
            conversation_prompt.store_answer(message, run.ids)
            if options.continues:
                del conversation.messages[-1]
            conversation.add(message)

    async def see_to_count(self, messages: Sequence[Message]) -> Sight:
        """Return a conversation for a prompt that is counted and not run: its pictures have their tokens."""
        return Sight(messages) if self._vision is None else await see_to_count(messages, self._vision)

    async def aside(
        self,
        conversation: Conversation,
        question: str,
        max_new_tokens: int,
        most_prefilled: int,
        used: Callable[[Usage], object],
    ) -> Turn | None:
        """Ask something about a conversation whose prompt is in the KV cache, without making it part of it.

        The run gives way to any other, and ``used`` receives what it has cost.

        Returns:
            The turn; None if the run gave way, if more than ``most_prefilled`` tokens would have to be prefilled, or if
            ``ConversationPrompt.aside`` has no prompt for it.
        """
        conversation_prompt = self.prompts.get(conversation.id)
        if conversation_prompt is None or not conversation.messages:
            return None
        budget = Budget(self._engine.context_tokens, max_new_tokens)
        prompt = conversation_prompt.aside(Message("user", question), conversation.messages[-1], budget)
        if prompt is None or self._engine.count_uncached(prompt.ids, conversation.tenant) > most_prefilled:
            return None
        scratch = Conversation(tenant=conversation.tenant)
        options = ModelOptions(thinking=False, tool_choice="none", sampling=SamplingOverrides(temperature=0))
        run = self._new_run(scratch, (), options, prompt, Sight(conversation.messages))
        limits = GenerationOptions(
            prompt.max_new_tokens, self._stops, run.sampling, owner=conversation.tenant, gives_way=True
        )
        async with self._engine.generation(prompt.ids, limits) as generation:
            await generation.deliver(partial(self._feed_tokens, run, generation, DISCARD_EVENTS))
            stats = generation.stats()
        if stats.finish == "length":
            run.turn.add(FinishPart("length"))
        run.turn.finish()
        usage = next(event for event in _figures(len(prompt.ids), stats) if isinstance(event, Usage))
        used(usage)
        return None if stats.gave_way else run.turn.turn(usage)

    def head(self, conversation: Conversation, lists: Sequence[Sequence[ToolSpec]]) -> list[int]:
        """Return the common prefix of the prompts of a conversation with each of these tool lists."""
        prompt = ConversationPrompt(self.form.tokenizer, self.form.template, thinking=self.form.think)
        heads = [prompt.head(conversation.messages, tools) for tools in lists]
        return heads[0][: min(common_prefix(heads[0], head) for head in heads)]

    def over(self, conversation_id: str) -> None:
        """Note the end of an answer: cancel the expected run after its tool calls."""
        if self._announced is not None and self._announced[0] == conversation_id:
            self._engine.cancel_expected(self._announced[1])
            self._announced = None

    def forget(self, conversation_id: str) -> None:
        """Drop the state of a conversation that will not continue."""
        self.over(conversation_id)
        self.prompts.pop(conversation_id, None)

    def branch(self, conversation_id: str, new_id: str) -> None:
        """See ``StatefulModel.branch``."""
        if (prompt := self.prompts.get(conversation_id)) is not None:
            self._store_prompt(new_id, prompt.copy())

    def _detector(self, tools: Sequence[ToolSpec], options: ModelOptions) -> Detector:
        form = self.form
        forced = options.forced_tool
        callable_tools = () if options.tool_choice == "none" else (*tools, *options.others)
        if forced is None and options.tool_choice != "required":
            mode = form.read_as(options.thinking)
            # The text that is continued is not thinking.
            mode = "auto" if options.continues and mode == "open" else mode
            return Detector(callable_tools, form.syntaxes, thinking=mode)
        # The prompt ends inside the call, so the detector is fed the beginning of the call and emits nothing for it.
        detector = Detector(callable_tools, form.syntaxes)
        beginning = form.template.tool_form.call_beginning(forced, opens_arguments=options.opens_arguments)
        detector.feed("".join(segment.text for segment in beginning))
        return detector

    def _new_run(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, prompt: Prompt, sight: Sight
    ) -> _PromptRun:
        detector = self._detector(tools, options)
        continued = conversation.messages[-1] if options.continues else None
        turn = TurnBuilder(
            conversation,
            detector,
            stop=options.stop,
            single_call=options.single_call,
            earlier=continued,
            reads_thoughts=partial(self._detector, tools, replace(options, tool_choice="auto", thinking=False))
            if options.tool_choice == "auto"
            else None,
        )
        comparison = None if self._is_own_tokenizer else TokenComparison(self.form.tokenizer, self.form.uncompared_ids)
        by_purpose = self.form.sampling
        may_call = options.tool_choice != "none" and bool(tools or options.others)
        sampling = None if by_purpose is None else by_purpose.tools if may_call else by_purpose.answer
        if by_purpose is not None and self.form.thinks(options.thinking):
            sampling = by_purpose.thinking
        if options.sampling != SamplingOverrides():
            sampling = options.sampling.over(sampling or Sampling())
        run = _PromptRun(conversation, prompt, turn, sampling, sight, comparison=comparison)
        if self._held is not None:
            run.holding = self._holding(run, detector, tools, options, self._held)
        return run

    # What is held

    @cached_property
    def _constraints(self) -> Constraints:
        # Loaded with the first answer that is held: most are free text.
        from rkllm_mcp.toolcalls.call_grammars import Constraints

        return Constraints()

    def _callable(self, tools: Sequence[ToolSpec], options: ModelOptions) -> Sequence[ToolSpec]:
        """Return the tools that a call may name, of a forced call the one."""
        forced = options.forced_tool
        every = () if options.tool_choice == "none" else (*tools, *options.others)
        return [tool for tool in every if forced in (None, tool.name)]

    def _call_constraint(
        self, tools: Sequence[ToolSpec], options: ModelOptions, call_format: CallFormat, body: str = ""
    ) -> Constraint | None:
        # The key of the arguments in a call that is an object.
        is_parameters = '"parameters"' in self.form.template.tool_form.call_style.begin("f")
        key = "parameters" if is_parameters else "arguments"
        # Without a schema the parameters are not known: in two steps they are shown at the first call.
        return self._constraints.of_call(call_format, self._callable(tools, options), key, body)

    def _compile(self, tools: Sequence[ToolSpec], options: ModelOptions) -> None:
        if options.grammar is not None:
            self._constraints.of_answer(options.grammar)
        if self._callable(tools, options):
            self._call_constraint(tools, options, select_syntaxes(self.form.syntaxes).first[0])

    def _holding(
        self,
        run: _PromptRun,
        detector: Detector,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        limits: HeldLimits,
    ) -> Holding | None:
        grammar, form = options.grammar, self.form
        has_calls = bool(self._callable(tools, options))
        # An object without a marker may be a call as well as the answer.
        is_ambiguous = has_calls and any(call_format.bare for call_format in select_syntaxes(form.syntaxes).first)
        answer = None if grammar is None or is_ambiguous else self._constraints.of_answer(grammar)
        if answer is None and not has_calls:
            return None
        from rkllm_mcp.providers.holding import Holding

        is_forced = isinstance(options.tool_choice, ForcedTool) or options.tool_choice == "required"
        holding = Holding(
            form.tokenizer,
            detector,
            answer=None if is_forced else answer,
            calls=partial(self._call_constraint, tools, options) if has_calls else None,
            limits=limits,
            markers=form.template.answer_markers,
            may_call=has_calls,
            can_heat=run.sampling is not None,
        )
        if is_forced:
            # The prompt ends inside the call.
            tool_form = form.template.tool_form
            segments = tool_form.call_beginning(options.forced_tool, opens_arguments=options.opens_arguments)
            beginning, started = "".join(segment.text for segment in segments), None
            for call_format in select_syntaxes(form.syntaxes).first:
                opener = next((text for text in call_format.openers if beginning.startswith(text)), None)
                if opener is not None:
                    started = call_format, beginning[call_format.body_begins(opener, 0) :]
                    break
            holding.begin_call(run.ids, started, writes=True)
        elif not (has_calls or form.thinks(options.thinking)) and form.read_as(options.thinking) != "open":
            earlier = run.conversation.messages[-1].text if options.continues else ""
            holding.begin_answer(run.ids, earlier)
        return holding

    async def _generate(self, run: _PromptRun, sink: EventSink) -> Turn:
        """Run the prompt, again after each correction, and feed the events of the turn to ``sink``."""
        conversation, prompt, turn = run.conversation, run.prompt, run.turn
        options = GenerationOptions(prompt.max_new_tokens, self._stops, run.sampling, owner=conversation.tenant)
        if self._exchange_prefix is not None and not prompt.pictures:
            await self._exchange_prefix(prompt.ids, prompt.prefix_tokens, conversation.tenant)
        conversation.prompt_tokens = len(prompt.ids)
        conversation.uncached_tokens = self._engine.count_uncached(prompt.ids, conversation.tenant)
        self._progress.runs[conversation.id] = partial(self._engine.count_uncached, prompt.ids, conversation.tenant)
        conversation.unpaid_tokens = 0
        parts: list[RunStats] = []
        try:
            while not parts or self._goes_on(run, options.max_new_tokens, parts[-1], sink):
                part = options if run.holding is None else run.holding.run_options(options, len(run.ids))
                run_input: Input | Sequence[int] = [*prompt.ids, *run.ids] if run.ids else prompt.ids
                if self._vision is not None and prompt.pictures:
                    whole = replace(prompt, ids=run_input)
                    run_input = image_input(whole, run.sight, self._vision, self.form.tokenizer)
                async with self._engine.generation(run_input, part) as generation:
                    if not parts:
                        expected = self._progress.of(conversation.id)
                        if expected is not None and (seconds := expected.seconds or 0.0) >= _LONG_PREFILL_S:
                            sink.feed([Prefill(expected.tokens, round(seconds, 1), time.monotonic() + seconds)])
                    try:
                        await generation.deliver(partial(self._feed_tokens, run, generation, sink))
                        parts.append(generation.stats())
                        if run.holding is not None and run.holding.is_corrected and not prompt.pictures:
                            # Another question would replace the tokens that the next run begins with.
                            self._engine.expect([*prompt.ids, *run.ids])
                    finally:
                        # The price of a round without ``Usage``.
                        conversation.unpaid_tokens += generation.expected_prefill
            if run.comparison is not None:
                run.comparison.finish()
        finally:
            self._progress.runs.pop(conversation.id, None)
        stats = join_stats(parts)
        if stats.finish == "length":
            turn.add(FinishPart("length"))
        further = {
            "thinking_tokens": run.thinking_tokens,
            "corrections": 0 if run.holding is None else run.holding.corrections,
            "picture_tokens": sum(run.sight.embeddings[picture.digest].tokens for picture in prompt.pictures),
        }
        figures = [
            replace(event, **further) if isinstance(event, Usage) else event
            for event in _figures(len(prompt.ids), stats, is_exact=not prompt.pictures)
        ]
        self._progress.record_run(stats, stats.prefilled_tokens or 0)
        closing = turn.finish()
        if run.is_repeating and not turn.calls:
            language = language_of_text(self.form.tokenizer.decode(run.ids[-LOOP_TOKENS:])[-200:])
            closing.append(Text(f"\n\n{translate('answer.repeated_itself', language)}"))
        if turn.calls and not prompt.pictures:
            # The prompt with the results will begin with these ids.
            self._announced = (conversation.id, [*prompt.ids, *run.ids])
            self._engine.expect(self._announced[1])
        if events := [*closing, *figures]:
            sink.feed(events)
        return turn.turn(next((event for event in figures if isinstance(event, Usage)), None))

    def _goes_on(self, run: _PromptRun, most: int, last: RunStats, sink: EventSink) -> bool:
        """Return True if the ids so far need another run; text that the host wrote at the end is shown."""
        holding = run.holding
        if holding is None or run.turn.is_over or run.is_repeating or last.gave_way:
            return False
        if last.finish == "stop" and (text := holding.flush(run.ids)) and (events := run.turn.add_text(text)):
            sink.feed(events)
        return not holding.is_over and (holding.is_corrected or holding.is_hot) and len(run.ids) < most

    def _feed_tokens(self, run: _PromptRun, generation: Generation, sink: EventSink, batch: Sequence[Token]) -> None:
        """Feed the events of tokens to ``sink``, up to the end of the turn; called as the tokens arrive."""
        if not run.ids:
            self._progress.runs.pop(run.conversation.id, None)
        if run.comparison is not None:
            run.comparison.add(batch)
            if run.comparison.is_proven:
                self._is_own_tokenizer, run.comparison = True, None
        holding, events, is_over = run.holding, list[Event](), False
        for token in batch:
            run.ids.append(token.id)
            text = token.text
            if token.id in self._special:
                # Of the special tokens, the detector needs the text of the markers.
                text = self.form.tokenizer.decode([token.id]) if token.id in self._markers else ""
            if holding is not None and holding.is_active:
                text = holding.admit(run.ids, text, is_end=token.id in self._stops)
            new = run.turn.add_text(text)
            if new:
                run.is_thinking = isinstance(new[-1], Thinking)
                events += new
            elif holding is not None and not holding.is_active:
                # Text is held back, which may be a call.
                holding.begin_call(run.ids)
            run.thinking_tokens += run.is_thinking
            run.is_repeating = run.repetition.add(token.id)
            is_over = run.turn.is_over or run.is_repeating
            if holding is not None:
                is_over = is_over or holding.is_corrected or holding.is_over
            if is_over:
                break
        if events:
            sink.feed(events)
        if is_over:
            generation.finish_early()

    def _store_prompt(self, conversation_id: str, prompt: ConversationPrompt) -> None:
        self.prompts[conversation_id] = prompt
        if len(self.prompts) > LEDGERS_KEPT:
            self.prompts.popitem(last=False)


def join_stats(parts: Sequence[RunStats]) -> RunStats:
    """Return the statistics of runs that made one response, each after the tokens of those before it."""
    if len(parts) == 1:
        return parts[0]
    first, last = parts[0], parts[-1]
    prefilled = [part.prefilled_tokens for part in parts]
    # A release may evaluate a token again in each run.
    expected = [
        None
        if part.expected_tokens is None
        else max(part.expected_tokens, min(count or 0, part.expected_tokens + SLACK_TOKENS))
        for part, count in zip(parts, prefilled, strict=True)
    ]
    return replace(
        first,
        finish=last.finish,
        prefilled_tokens=None if None in prefilled else sum(count or 0 for count in prefilled),
        expected_tokens=None if None in expected else sum(count or 0 for count in expected),
        prefill_ms=sum(part.prefill_ms for part in parts),
        decode_ms=sum(part.decode_ms for part in parts),
        generated_tokens=sum(part.generated_tokens for part in parts),
        callback_ms=sum(part.callback_ms for part in parts),
        memory_mb=last.memory_mb,
        gave_way=last.gave_way,
    )


def _figures(prompt_tokens: int, stats: RunStats, *, is_exact: bool = True) -> list[Status | Usage]:
    """Return the usage, and a status line if the prefill was longer than expected.

    Next to pictures the runtime cuts up the text itself, so the number of tokens is not exact.
    """
    if not is_exact:
        prompt_tokens = max(prompt_tokens, stats.prefilled_tokens or 0)
    expected = prompt_tokens if stats.expected_tokens is None else stats.expected_tokens
    prefilled = expected if stats.prefilled_tokens is None else stats.prefilled_tokens
    if stats.own_tokens is not None:
        # What others left in the cache is reported as evaluated, in every figure, and so paid for.
        evaluated = prompt_tokens - stats.own_tokens
        expected, prefilled = max(expected, evaluated), max(prefilled, evaluated)
    events: list[Status | Usage] = []
    if prefilled > expected + SLACK_TOKENS:
        events.append(status_line("prefilled", prefilled=prefilled, tokens=prompt_tokens, expected=expected))
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
