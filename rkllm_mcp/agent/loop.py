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
* A failed tool is a result for the model. An exception means that the machine failed: the answer ends as ``failed``.
* However the answer ends, every call in the conversation has a result.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from rkllm_mcp.agent.call_check import CallCheck
from rkllm_mcp.agent.facts import (
    calls_with_results,
    facts_of,
    hand_over,
)
from rkllm_mcp.agent.fallbacks import answer_instead, answer_without_tools, passages_behind, translate_for
from rkllm_mcp.agent.handlers import CALLS_OVER, RunCalls
from rkllm_mcp.agent.instructions import TurnPreparation, TurnRequest
from rkllm_mcp.agent.rounds import CallHandler, LoopSettings, RoundCounter, RoundOutcome, ShownEvents, end_of
from rkllm_mcp.agent.tool_runner import Parallel
from rkllm_mcp.errors import GenerationError, PromptTooLongError
from rkllm_mcp.events import End, EndReason, Status, Text
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import CallContext, ChatModel, EventSink, Turn
from rkllm_mcp.text import language_of_text


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
    counter = RoundCounter(settings)
    while counter.left:
        if settings.answers_from != "conversation" and calls_with_results(conversation, calls.tool_set.tool):
            turn = await answer_without_tools("facts", model, conversation, calls, later, sink)
            return end_of(turn), turn
        shown_events = ShownEvents(calls, sink)
        options = replace(options, others=calls.tool_set.others())
        turn = await model.respond(conversation, calls.tool_set.listed, options, shown_events)
        await sink.drain()
        if turn.calls or not turn.is_cut:
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
        counter.count(outcome)
        if counter.is_repair_limit:
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
        notes = outcome.notes if counter.left else (*outcome.notes, translate_for("model.round_limit", conversation))
        conversation.add(Message("tool", "\n".join(notes), results=outcome.results))
        options = replace(later, tool_choice=outcome.begins or later.tool_choice)
    later = replace(later, others=calls.tool_set.others())
    turn = await model.respond(conversation, calls.tool_set.listed, later, ShownEvents(calls, sink, may_call=False))
    if not turn.has_text and not turn.is_cut:
        conversation.messages.pop()
        kind = "facts" if facts_of(conversation) else "words"
        turn = await answer_without_tools(kind, model, conversation, calls, later, sink)
    return "token_limit" if turn.is_cut else reason, turn


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
            conversation.replace(conversation.messages[:start])
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
            preparation.fitting,
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
