"""The agent loop: rounds of model and tools until there is an answer.

    model ─▶ text, calls ─▶ tools ─▶ results ─▶ model ─▶ … ─▶ text: the answer

* At most ``max_rounds`` rounds may call tools; then the model must answer in text.
* A call that cannot be parsed, or of an unknown tool, is returned to the model as a line that lets it correct the
call. After ``repair_rounds`` rounds in a row without a new result, the model must answer in text.
* A first round of nothing but calls that cannot be made, where no tool has to do with the question, is answered in
words.
* A round that only repeats calls whose results are there is not continued: the model answers from these results as
facts (``agent.facts``), and the repetition is left out of the conversation. So does a first round whose calls the
question does not ask for: the model answers in words. With ``answers_from`` facts come after every result.
* Calls of a client's own tools are returned to the client and end the answer, as does the limit of repairs.
* A failed tool is a result for the model, and never a fact. Where a second call fails as well, and none has succeeded,
a sentence of the catalogue takes the place of what a model would make of errors alone.
* An answer from passages, or that says something else than its results, is followed by these.
* An exception means that the machine failed: the answer ends as ``failed``.
* However the answer ends, every call in the conversation has a result.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rkllm_mcp.agent.call_check import CallCheck
from rkllm_mcp.agent.facts import (
    calls_with_results,
    facts_of,
    hand_over,
    last_question,
    last_results,
    may_differ,
    without_rounds,
)
from rkllm_mcp.agent.handlers import (
    CALLS_OVER,
    REPEATED,
    CallHandler,
    Parallel,
    RoundOutcome,
    RunCalls,
)
from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest
from rkllm_mcp.agent.tool_set import MOST_REASON_CHARS
from rkllm_mcp.catalogue import read_catalogue, status_line, translate
from rkllm_mcp.errors import GenerationError, PromptTooLongError
from rkllm_mcp.events import End, EndReason, Event, Status, Text
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolResult, ToolSpec
from rkllm_mcp.protocols import CallContext, ChatModel, EventSink, Turn
from rkllm_mcp.text import Language, first_line, language_of_text, shorten

# A longer result is read in its card.
_MOST_RESULT_CHARS = 1000
_MOST_SHOWN_CHARS = 300
_FEW_PASSAGES = 2  # this many, if they are short, are shown after the answer
# Words of a program, which say nothing to a person: errno, names of exceptions, tracebacks.
_OF_A_PROGRAM = re.compile(
    r"\[Errno|\bE[A-Z]{4,}\b|\b\w+(?:Error|Exception)\b|Traceback|\bundefined\b|0x[0-9a-f]{4,}|\{\""
)

AnswersFrom: TypeAlias = Literal["conversation", "facts", "sentences"]
"""What an answer after results is made of: the conversation with its tools, or the question and the results alone; a
sentence of an own tool may be the answer itself."""


@dataclass(frozen=True)
class LoopSettings:
    """Limits of the loop."""

    max_rounds: int = 8  # rounds that may call tools
    repair_rounds: int = 2  # rounds in a row with only failed, unknown or repeated calls before a text answer
    parallel_tools: Parallel = "auto"  # calls of one round that run at the same time
    answers_from: AnswersFrom = "conversation"


def end_of(turn: Turn) -> EndReason:
    """Return the reason for an end at this turn; a limit that only cut the text after a call does not count."""
    return "token_limit" if turn.message.cut and (turn.failures or not turn.calls) else "answered"


class ShownEvents:
    """The sink of one round: passes on what the handler of its calls shows."""

    def __init__(self, calls: CallHandler, sink: EventSink, *, may_call: bool = True) -> None:
        self._calls = calls
        self._sink = sink
        self._may_call = may_call
        self.drain = sink.drain

    def feed(self, batch: Sequence[Event]) -> None:
        """Pass on the events that are shown."""
        visible: list[Event] = []
        for event in batch:
            # Nearly every event is text, which every handler shows.
            if type(event) is Text:
                visible.append(event)
            elif (visible_event := self._calls.shown(event, may_call=self._may_call)) is not None:
                visible.append(visible_event)
        if visible:
            self._sink.feed(visible)


async def run_agent(
    model: ChatModel,
    conversation: Conversation,
    calls: CallHandler,
    options: ModelOptions,
    settings: LoopSettings,
    sink: EventSink,
) -> tuple[EndReason, Turn]:
    """Run rounds until there is an answer; return the reason for its end and its last turn.

    ``conversation`` ends with the message to answer, and the rounds are added to it. A forced tool is that of the first
    round. ``sink`` receives the events, without an ``End``.

    Raises:
        PromptTooLongError: the prompt of a round does not fit.
        GenerationError: a round failed.
    """
    reason: EndReason = "round_limit"
    later = replace(options, continues=False, tool_choice=options.tool_choice if calls.keeps_forced_tool else "auto")
    rounds_left, repairs = settings.max_rounds, 0
    while rounds_left:
        if settings.answers_from != "conversation" and calls_with_results(conversation, calls.tool_set):
            turn = await answer_without_tools("facts", model, conversation, calls, later, sink)
            return end_of(turn), turn
        shown_events = ShownEvents(calls, sink)
        options = replace(options, others=calls.tool_set.others())
        turn = await model.respond(conversation, calls.tool_set.listed, options, shown_events)
        await sink.drain()
        if turn.calls or not turn.message.cut:
            outcome = await calls.resolve(turn)
        else:
            # A call that the host has begun, and that the limit has cut, is no answer.
            is_begun = calls.shows_with_question and isinstance(options.tool_choice, ForcedTool)
            outcome = RoundOutcome(without_tools="failure" if is_begun and not turn.has_text else "")
        if outcome.without_tools:
            turn = await answer_instead(outcome, turn, model, conversation, calls, later, sink)
            return end_of(turn), turn
        if not outcome.results:
            return end_of(turn), turn
        rounds_left -= 1
        repairs = 0 if outcome.has_news else repairs + 1
        if repairs > settings.repair_rounds:
            if not calls.has_last_round and later.tool_choice != "auto":
                return "answered", turn
            if not calls.has_last_round:
                conversation.messages.pop()
                turn = await answer_without_tools("words", model, conversation, calls, later, sink)
                return end_of(turn), turn
            conversation.add(
                Message("tool", translate_for("model.repair_limit", conversation), results=outcome.results)
            )
            reason = "answered"
            break
        notes = outcome.notes if rounds_left else (*outcome.notes, translate_for("model.round_limit", conversation))
        conversation.add(Message("tool", "\n".join(notes), results=outcome.results))
        options = replace(later, tool_choice=outcome.begins or later.tool_choice)
    later = replace(later, others=calls.tool_set.others())
    turn = await model.respond(conversation, calls.tool_set.listed, later, ShownEvents(calls, sink, may_call=False))
    if not turn.has_text and not turn.message.cut:
        conversation.messages.pop()
        kind = "facts" if facts_of(conversation) else "words"
        turn = await answer_without_tools(kind, model, conversation, calls, later, sink)
    return "token_limit" if turn.message.cut else reason, turn


async def answer_with_tools(
    model: ChatModel,
    conversation: Conversation,
    question: Sequence[Message],
    calls: RunCalls,
    options: ModelOptions,
    settings: LoopSettings,
    sink: EventSink,
) -> End:
    """Add a question to a conversation, answer it and return the end of the answer; else like ``run_agent``."""
    start = len(conversation.messages)
    conversation.messages.extend(question)
    reason_for_open_calls = "the user stopped the answer before this call was finished"
    try:
        sentence = await calls.call_known(conversation, options)
        if sentence and settings.answers_from == "sentences":
            hand_over(conversation, "")
            conversation.add(Message("assistant", sentence))
            sink.feed([Text(sentence)])
            return End("answered")
        round_options = options if _has_results(conversation, start) else calls.begun(options)
        reason, turn = await run_agent(model, conversation, calls, round_options, settings, sink)
        if settings.answers_from == "sentences" and turn.has_text and not _has_results(conversation, start):
            # Not in the conversation, where small models copy its form into their next answers.
            sink.feed([Text(passages_behind(calls.passages, conversation))] if calls.passages else [])
        reason_for_open_calls = CALLS_OVER
        return End(reason, stop_string=turn.stop_string)
    except GenerationError as error:
        if isinstance(error, PromptTooLongError) and not _has_results(conversation, start):
            # A question that does not fit is removed, so that the next one can be answered.
            del conversation.messages[start:]
        reason_for_open_calls = "the answer failed before this call was run"
        return End("failed", str(error), error)
    except Exception:
        reason_for_open_calls = "the answer failed before this call was finished"
        raise
    finally:
        calls.close_open_calls(conversation, reason_for_open_calls)


def _has_results(conversation: Conversation, start: int) -> bool:
    return any(message.role == "tool" for message in conversation.messages[start:])


@asynccontextmanager
async def open_turn(
    preparation: TurnPreparation,
    conversation: Conversation,
    request: TurnRequest,
    context: CallContext,
    parallel: Parallel = "auto",
) -> AsyncGenerator[tuple[Sequence[Message], RunCalls], None]:
    """Prepare tools, instructions and context for a question; yield its messages and the handler of its calls.

    With ``options.continues`` the question is already the last user message. If it does not fit, the conversation is
    left unchanged.
    """
    listed_tools, revealed = conversation.listed_tools, dict(conversation.revealed_tools)
    question = request.asked
    person_language = context.language or preparation.language
    context = replace(context, request=question.text, untrusted_texts=conversation.untrusted_texts)
    prepared = await preparation.prepare(conversation, request, context)
    if prepared.offer is not None:
        # A failed call may become the answer, which has the language of the question.
        context = replace(context, language=language_of_text(question.text))
    length = len(conversation.messages)
    user = Message(
        "user",
        question.text,
        context=prepared.context,
        foreign=question.foreign,
        pictures=question.pictures,
        cards=prepared.offer.cards if prepared.offer is not None else (),
    )
    if prepared.offer is not None and (line := prepared.offer.line(person_language)):
        context.sink.feed([Status(line)])
    messages = [] if request.options.continues else [*question.preceding, user]
    try:
        check = CallCheck(
            conversation,
            prepared.tool_set,
            preparation.selection.fitting,
            preparation.have_common_words,
            accepts_calls=bool(request.options.tool_choice != "auto" or question.preceding or question.foreign),
        )
        yield (
            messages,
            RunCalls(
                prepared.caller,
                prepared.tool_set,
                context,
                parallel,
                prepared.instructions,
                check if prepared.offer is None else None,
                prepared.offer,
                prepared.passages,
            ),
        )
    finally:
        if messages and len(conversation.messages) == length:
            # The question was removed, and with it the tools that its turn described.
            conversation.listed_tools, conversation.revealed_tools = listed_tools, revealed


# Answers in place of one more round, for models that repeat calls, call what was not asked for, or cannot call. Repairs
# of single calls are in ``agent.repairs``.


async def answer_instead(
    outcome: RoundOutcome,
    turn: Turn,
    model: ChatModel,
    conversation: Conversation,
    calls: CallHandler,
    options: ModelOptions,
    sink: EventSink,
) -> Turn:
    """Answer in place of continuing a round: by the model without tools, or by the sentence about failed calls."""
    if outcome.without_tools == "failure":
        results = [*last_results(conversation), *outcome.results]
        conversation.add(Message("tool", results=outcome.results))
        # The model reads nothing of the failed calls later.
        hand_over(conversation, "")
        text = failure_sentence(results, calls.tool_set.by_name.get, language_of_text(last_question(conversation).text))
        sink.feed([Text(text)])
        conversation.add(Message("assistant", text))
        return replace(turn, message=conversation.messages[-1], failures=(), has_text=True)
    repeating = conversation.messages.pop()
    # The text of a failed call was not shown.
    started = repeating.text if turn.has_text else ""
    kind = "facts" if outcome.without_tools == "facts" else "words"
    return await answer_without_tools(kind, model, conversation, calls, options, sink, started)


async def answer_without_tools(
    kind: Literal["facts", "words"],
    model: ChatModel,
    conversation: Conversation,
    calls: CallHandler,
    options: ModelOptions,
    sink: EventSink,
    started: str = "",
) -> Turn:
    """Answer the last question from its results, or in words, after the text ``started``.

    Calls are read all the same, so that none is shown as the answer; an answer of nothing else is the results. They
    also follow an answer of the host's own loop that says something else or nothing of them.
    """
    if calls.shows_with_question:
        hand_over(conversation, facts_of(conversation) if kind == "facts" else "")
        reduced = conversation
    else:
        reduced = without_rounds(conversation, kind)
    started = started.strip()
    options = replace(options, tool_choice="auto", others=(*calls.tool_set.listed, *calls.tool_set.others()))
    text = ""
    try:
        sink.feed([status_line(kind), *([Text("\n\n")] if started else [])])
        turn = await model.respond(reduced, (), options, ShownEvents(calls, sink, may_call=False))
        if not turn.has_text and not turn.message.cut:
            facts = shorten(facts_of(conversation), _MOST_RESULT_CHARS)
            key = "answer.only_results" if facts else "answer.no_answer_in_rounds"
            text = translate_for(key, conversation, facts=facts)
            sink.feed([Text(text)])
        elif kind == "facts" and calls.has_last_round:
            # The results are shown after an answer from them that may differ.
            answer, facts = turn.message.text.strip(), facts_of(conversation)
            sources = (source for result in last_results(conversation) for source in result.sources or ())
            passages, more = [source["passage"] for source in sources], ""
            is_data = answer.startswith(("{", "["))
            # Of several values a small model takes another one, which is in the facts too.
            may_be_another = "\n" in facts and facts not in answer
            question = last_question(conversation).text
            if passages and answer:
                more = passages_behind(passages, conversation)
            elif facts and not is_data and (may_be_another or may_differ(answer, facts, question)):
                more = translate_for("answer.result", conversation, facts=shorten(facts, _MOST_SHOWN_CHARS))
            if more:
                # Not in the conversation, where small models copy its form into their next answers.
                sink.feed([Text(more)])
                await sink.drain()
    finally:
        conversation.unpaid_tokens = reduced.unpaid_tokens
        last = reduced.messages[-1] if reduced.messages[-1].role == "assistant" else Message("assistant")
        if reduced is conversation and last is conversation.messages[-1]:
            conversation.messages.pop()
        text = "\n\n".join(filter(None, (started, text or last.text)))
        conversation.add(replace(last, text=text, calls=()))
    return replace(turn, message=conversation.messages[-1], failures=())


def passages_behind(passages: Sequence[str], conversation: Conversation) -> str:
    """Return the best passages for a person: a small model takes the number of another one."""
    first, *further = passages[:_FEW_PASSAGES]
    is_short = sum(map(len, passages[:_FEW_PASSAGES])) <= _MOST_SHOWN_CHARS
    passages_shown = [first, *further] if is_short else [shorten(first, _MOST_SHOWN_CHARS)]
    return translate_for("answer.result", conversation, facts="\n".join(passages_shown))


def translate_for(key: str, conversation: Conversation, **values: str) -> str:
    """Return a sentence in the language of the last question."""
    return translate(key, language_of_text(last_question(conversation).text), **values)


def failure_sentence(
    results: Sequence[ToolResult], tool_of: Callable[[str], ToolSpec | None], language: Language
) -> str:
    """Return the sentence for a person about failed calls: the tool of the last one, and the reason."""
    of_calls = [result for result in results if result.call_id]
    if not of_calls:
        return translate("answer.no_call", language)
    result = of_calls[-1]
    tool = tool_of(result.name)
    if tool is None:
        return translate("answer.no_call", language)
    tool = tool.in_language(language)
    reason = shorten(first_line(result.shown.removeprefix(REPEATED)), MOST_REASON_CHARS)
    if not reason or _OF_A_PROGRAM.search(reason):
        reason = translate("answer.unknown_reason", language)
    reason = read_catalogue(language).phrase(reason)
    return translate("answer.could_not", language, tool=tool.title or tool.name, reason=reason.rstrip(".。"))
