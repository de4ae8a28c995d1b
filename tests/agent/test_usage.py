"""What answers cost: by their figures, and by what is known of one that is left before they come."""

from __future__ import annotations

from rkllm_mcp.agent.usage import AnswerUsage, UsageCounter
from rkllm_mcp.events import Text, Thinking, Usage
from rkllm_mcp.messages import Conversation

PIECES = (Text("a"), Thinking("b"), Text("c"))


def usage(prefilled: int, generated: int) -> Usage:
    return Usage(100, prefilled, 100 - prefilled, generated, 1.0, 1.0, 1.0)


def test_an_answer_costs_what_its_rounds_evaluated_and_wrote() -> None:
    bill, conversation = UsageCounter(), Conversation()
    answer = AnswerUsage(conversation, bill)
    for event in (*PIECES, usage(80, 7), *PIECES, usage(3, 5)):
        conversation.unpaid_tokens = 50
        assert answer.feed([event]) == [event]
    answer.close()
    assert bill.settle() == 80 + 7 + 3 + 5
    assert bill.settle() == 0


def test_a_round_without_figures_costs_its_prompt_and_the_pieces_that_came() -> None:
    bill, conversation = UsageCounter(), Conversation()
    answer = AnswerUsage(conversation, bill)
    answer.feed([usage(80, 7)])
    conversation.unpaid_tokens = 40
    answer.feed(PIECES)
    answer.close()
    assert bill.settle() == 80 + 7 + 40 + 3
    AnswerUsage(conversation, bill).close()
    assert bill.settle() == 0


def test_answers_side_by_side_are_counted_together() -> None:
    bill, left, whole = UsageCounter(), Conversation(), Conversation()
    complete, cut = AnswerUsage(whole, bill), AnswerUsage(left, bill)
    left.unpaid_tokens = 30
    cut.feed([Text("a")])
    complete.feed([usage(10, 2)])
    assert bill.settle() == 12
    complete.close()
    cut.close()
    assert bill.settle() == 31
