"""The model on the NPU: prompt, engine and detector joined into one ``ChatModel``.

conversation ─▶ ConversationPrompt ─▶ token ids ─▶ engine ─▶ tokens ─▶ Detector ─▶ events

Rules: one ledger per conversation, the most recent ones kept; an answer is kept as the ids that came, also when it was
cut short; every run's prefill is compared with what the ledger expected, and an excess is said. It knows no
process and no library: the engine is the port ``generation.Generator``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from rkllm_mcp.events import DetectorEvent, ModelEvent, Status, Text, Thinking, ToolCallDetected, Usage
from rkllm_mcp.generation import GenerationOptions, Generator, RunStats, Sampling, Token
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.prompt.budget import Budget
from rkllm_mcp.prompt.conversation import ConversationPrompt, Prompt, PromptPart, stop_ids
from rkllm_mcp.prompt.ledger import CacheExpectation
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.vocabulary import Vocabulary
from rkllm_mcp.providers import ResponseOptions
from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode

# Conversations whose ids are kept; an older one is rendered again from its messages when it returns.
LEDGERS_KEPT = 64


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


@dataclass
class _Answer:
    """What came of one round."""

    ids: list[int] = field(default_factory=list[int])
    text: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    cut: bool = False

    def noted(self, event: DetectorEvent, conversation: Conversation) -> DetectorEvent:
        """The event, kept for the assistant's turn; a call gets its id."""
        if isinstance(event, Text):
            self.text.append(event.text)
        elif isinstance(event, Thinking):
            self.thinking.append(event.text)
        elif isinstance(event, ToolCallDetected):
            event = replace(event, id=conversation.next_call_id())
            self.calls.append(ToolCall(event.id, event.name, event.arguments, event.raw, event.repaired))
        else:
            self.text.append(event.raw)
        return event

    def message(self) -> Message:
        return Message(
            "assistant",
            "".join(self.text),
            calls=tuple(self.calls),
            thinking="".join(self.thinking),
            cut=self.cut,
        )


class RkllmModel:
    """A ``ChatModel`` on an engine.

    Args:
        engine: what runs token ids.
        form: how the model is spoken to and read.
    """

    def __init__(self, engine: Generator, form: ModelForm) -> None:
        self._engine = engine
        self._form = form
        self._stops = stop_ids(form.vocabulary, form.template)
        self._prompts: OrderedDict[str, ConversationPrompt] = OrderedDict()
        self._cache = CacheExpectation()

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions | None = None
    ) -> AsyncGenerator[ModelEvent, None]:
        """See ``ChatModel.respond``."""
        options = options or ResponseOptions()
        conversation_prompt = self._prompt_of(conversation)
        budget = Budget(self._engine.context_tokens, options.max_new_tokens or self._form.max_new_tokens)
        prompt = conversation_prompt.prepare(conversation.messages, tools, budget, forced_tool=options.forced_tool)
        answer = _Answer()
        try:
            if prompt.notice:
                yield Status(f"[Context: {prompt.notice} to fit {self._engine.context_tokens} tokens]")
            detector = Detector(tools, self._form.syntaxes, thinking=self._form.thinking)
            if options.forced_tool is not None:
                self._begin_forced(detector, options.forced_tool)
            async with aclosing(self._run(prompt, detector, answer, conversation)) as events:
                async for event in events:
                    yield event
        finally:
            message = answer.message()
            conversation_prompt.answered(message, answer.ids)
            conversation.add(message)

    def preview(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> list[PromptPart]:
        """The prompt that ``conversation`` would get, part by part; nothing is run or kept."""
        prompt = ConversationPrompt(self._form.vocabulary, self._form.template, thinking=self._form.think)
        return prompt.parts(conversation.messages, tools)

    def forget(self, conversation_id: str) -> None:
        """Drop what is kept for a conversation that will not return."""
        self._prompts.pop(conversation_id, None)

    def _begin_forced(self, detector: Detector, name: str) -> None:
        # The prompt ends inside the call; the detector has to know, and nothing of it is output.
        detector.feed(self._form.template.tool_form.forced_call_text(name))

    async def _run(
        self, prompt: Prompt, detector: Detector, answer: _Answer, conversation: Conversation
    ) -> AsyncGenerator[ModelEvent, None]:
        expected = self._cache.prefill_of(prompt.ids)
        options = GenerationOptions(prompt.max_new_tokens, self._stops, self._form.sampling)
        stats: RunStats | None = None
        # Until a token has come, nothing is known about the cache.
        self._cache.lost()
        try:
            async with aclosing(self._engine.generate(prompt.ids, options)) as run:
                async for item in run:
                    if isinstance(item, RunStats):
                        stats = item
                        continue
                    answer.ids.append(item.id)
                    for event in detector.feed(self._visible(item)):
                        yield answer.noted(event, conversation)
        finally:
            if answer.ids:
                self._cache.ran(prompt.ids, answer.ids)
        for event in detector.finish():
            yield answer.noted(event, conversation)
        if stats is not None:
            answer.cut = stats.finish == "length"
            for event in _accounts(len(prompt.ids), expected, stats):
                yield event

    def _visible(self, token: Token) -> str:
        return "" if token.id in self._stops or self._form.vocabulary.is_special(token.id) else token.text

    def _prompt_of(self, conversation: Conversation) -> ConversationPrompt:
        prompt = self._prompts.pop(conversation.id, None)
        if prompt is None:
            prompt = ConversationPrompt(self._form.vocabulary, self._form.template, thinking=self._form.think)
        self._prompts[conversation.id] = prompt
        if len(self._prompts) > LEDGERS_KEPT:
            self._prompts.popitem(last=False)
        return prompt


def _accounts(prompt_tokens: int, expected: int, stats: RunStats) -> list[ModelEvent]:
    """The cost of the round, and a line where the runtime evaluated something else than the ledger expected."""
    if stats.cold:
        expected = prompt_tokens
    prefilled = expected if stats.prefilled_tokens is None else stats.prefilled_tokens
    events: list[ModelEvent] = []
    if prefilled > expected:
        events.append(Status(f"[NPU: prefilled {prefilled} of {prompt_tokens} tokens where {expected} were expected]"))
    events.append(
        Usage(
            prompt_tokens=prompt_tokens,
            prefilled_tokens=prefilled,
            cached_tokens=max(0, prompt_tokens - prefilled),
            generated_tokens=stats.generated_tokens,
            prefill_ms=stats.prefill_ms,
            decode_ms=stats.decode_ms,
            time_to_first_token_ms=stats.time_to_first_token_ms,
        )
    )
    return events
