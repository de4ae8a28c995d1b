"""One answer, from the user's words to the end: the briefing, then the loop."""

from __future__ import annotations

from dataclasses import replace

from rkllm_mcp.agent.briefing import Assignment, Briefing
from rkllm_mcp.agent.loop import Loop, LoopSettings
from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.calling import CallContext
from rkllm_mcp.messages import Conversation
from rkllm_mcp.providers import ChatModel, ResponseOptions


async def answer(
    model: ChatModel,
    briefing: Briefing,
    conversation: Conversation,
    assignment: Assignment,
    settings: LoopSettings,
    emit: Emit,
    context: CallContext,
    wishes: ResponseOptions | None = None,
) -> None:
    """Answer what is asked; the last event is always an ``End``, except when the caller cancels or ``emit`` raises.

    Args:
        model: who answers.
        briefing: settles tools, instructions and context.
        conversation: gets the question and all that comes of it; as it was when the question does not fit.
        assignment: what is asked, and with which tools.
        settings: the limits of the loop.
        emit: takes the events in order.
        context: what accompanies every call.
        wishes: what is asked of the model's responses, the tool that it begins with among it.
    """
    listed, told = conversation.listed_tools, dict(conversation.told_tools)
    asked = assignment.asked
    context = replace(context, request=asked.text)
    brief = await briefing.prepare(conversation, assignment, context, emit)
    length = len(conversation.messages)
    loop = Loop(model, brief.caller, brief.offer, settings, emit, context, brief.instructions)
    options = wishes or ResponseOptions(forced_tool=assignment.forced)
    try:
        await loop.run(conversation, asked.text, options, told_with_it=brief.context, preceding=asked.preceding)
    finally:
        if len(conversation.messages) == length:
            # The question was taken back, and with it what its turn told.
            conversation.listed_tools, conversation.told_tools = listed, told
