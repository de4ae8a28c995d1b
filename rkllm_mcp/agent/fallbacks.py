"""Answers in place of one more round, for models that repeat calls, call what nobody asked for, or cannot call.

| when | what |
|---|---|
| a round only repeats calls whose results are there | ``answer_without_tools("facts")``: from question and results |
| nothing but calls that nobody asked for, or that cannot be read | ``answer_without_tools("words")``: without results |
| a second failure, and nothing has succeeded | the sentence of the catalogue with the reason, without the model |
| an answer from passages, or that says something else than its results | these, after it (``passages_behind``) |

Repairs of single calls are in ``agent.repairs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rkllm_mcp.agent.facts import (
    facts_conversation,
    facts_of,
    hand_over,
    last_question,
    last_results,
    may_differ,
    words_conversation,
)
from rkllm_mcp.agent.failures import failure_sentence
from rkllm_mcp.agent.rounds import CallHandler, RoundOutcome, ShownEvents
from rkllm_mcp.catalogue import status_line, translate
from rkllm_mcp.events import Text
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import ChatModel, EventSink, Turn
from rkllm_mcp.text import language_of_text, shorten

# A longer result is read in its card.
_MOST_RESULT_CHARS = 1000
_MOST_SHOWN_CHARS = 300
_FEW_PASSAGES = 2  # this many, if they are short, are shown after the answer


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
        return _answer_with_failure(conversation, turn, outcome, calls, sink)
    repeating = conversation.messages.pop()
    # The text of a failed call was not shown.
    begun = repeating.text if turn.has_text else ""
    kind = "facts" if outcome.without_tools == "facts" else "words"
    return await answer_without_tools(kind, model, conversation, calls, options, sink, begun)


async def answer_without_tools(
    kind: Literal["facts", "words"],
    model: ChatModel,
    conversation: Conversation,
    calls: CallHandler,
    options: ModelOptions,
    sink: EventSink,
    begun: str = "",
) -> Turn:
    """Answer the last question from its results, or in words, after the text ``begun``.

    Calls are read all the same, so that none is shown as the answer; an answer of nothing else is the results. They
    also follow an answer of the host's own loop that says something else or nothing of them.
    """
    if calls.shows_with_question:
        hand_over(conversation, facts_of(conversation) if kind == "facts" else "")
        reduced = conversation
    else:
        reduced = facts_conversation(conversation) if kind == "facts" else words_conversation(conversation)
    begun = begun.strip()
    options = replace(options, tool_choice="auto", others=(*calls.tool_set.listed, *calls.tool_set.others()))
    text = ""
    try:
        sink.feed([status_line(kind), *([Text("\n\n")] if begun else [])])
        turn = await model.respond(reduced, (), options, ShownEvents(calls, sink, may_call=False))
        if not turn.has_text and not turn.is_cut:
            facts = shorten(facts_of(conversation), _MOST_RESULT_CHARS)
            key = "answer.only_results" if facts else "answer.no_answer_in_rounds"
            text = translate_for(key, conversation, facts=facts)
            sink.feed([Text(text)])
        elif kind == "facts" and calls.has_last_round and (more := _results_behind(turn, conversation)):
            # Not in the conversation, where small models copy its form into their next answers.
            sink.feed([Text(more)])
            await sink.drain()
    finally:
        conversation.unpaid_tokens = reduced.unpaid_tokens
        last = reduced.messages[-1] if reduced.messages[-1].role == "assistant" else Message("assistant")
        if reduced is conversation and last is conversation.messages[-1]:
            conversation.messages.pop()
        text = "\n\n".join(filter(None, (begun, text or last.text)))
        conversation.add(replace(last, text=text, calls=()))
    return replace(turn, message=conversation.messages[-1], failures=())


def _answer_with_failure(
    conversation: Conversation, turn: Turn, outcome: RoundOutcome, calls: CallHandler, sink: EventSink
) -> Turn:
    """Answer with the reason why no tool could; the model reads nothing of the failed calls later."""
    results = [*last_results(conversation), *outcome.results]
    conversation.add(Message("tool", results=outcome.results))
    hand_over(conversation, "")
    text = failure_sentence(results, calls.tool_set.tool, language_of_text(last_question(conversation).text))
    sink.feed([Text(text)])
    conversation.add(Message("assistant", text))
    return replace(turn, message=conversation.messages[-1], failures=(), has_text=True)


def _results_behind(turn: Turn, conversation: Conversation) -> str:
    """Return the results to show after an answer from them that may differ; empty if it does not."""
    answer, facts = turn.message.text.strip(), facts_of(conversation)
    passages = [source["passage"] for result in last_results(conversation) for source in result.sources or ()]
    if passages and answer:
        return passages_behind(passages, conversation)
    is_data = answer.startswith(("{", "["))
    # Of several values a small model takes another one, which is in the facts too.
    may_be_another = "\n" in facts and facts not in answer
    if is_data or not facts or not (may_be_another or may_differ(answer, facts, last_question(conversation).text)):
        return ""
    return translate_for("answer.result", conversation, facts=shorten(facts, _MOST_SHOWN_CHARS))


def passages_behind(passages: Sequence[str], conversation: Conversation) -> str:
    """Return the best passages for a person: a small model takes the number of another one."""
    first, *further = passages[:_FEW_PASSAGES]
    is_short = sum(map(len, passages[:_FEW_PASSAGES])) <= _MOST_SHOWN_CHARS
    passages_shown = [first, *further] if is_short else [shorten(first, _MOST_SHOWN_CHARS)]
    return translate_for("answer.result", conversation, facts="\n".join(passages_shown))


def translate_for(key: str, conversation: Conversation, **values: str) -> str:
    """Return a sentence in the language of the last question."""
    return translate(key, language_of_text(last_question(conversation).text), **values)
