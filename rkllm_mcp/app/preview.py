"""The prompt that a first question would get, without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkllm_mcp.app.settings import chosen_model
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.protocols import NO_CONTEXT, CallContext

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import ToolEnvironment
    from rkllm_mcp.prompt.conversation import PromptPart


async def prompt_parts(
    config: Config,
    text: str,
    environment: ToolEnvironment,
    system: str | None = None,
    context: CallContext = NO_CONTEXT,
) -> list[PromptPart]:
    """Return the prompt of ``text`` as a first question, part by part.

    Every ``auto_context_tool`` is called, and every resource read that the text names.

    Raises:
        ModelNotFoundError: the model does not exist, or a file is missing.
        ToolboxError: a resource cannot be read.
        UsageError: a remote service writes the prompt itself.
    """
    from rkllm_mcp.agent.instructions import TurnRequest
    from rkllm_mcp.agent.question import attach
    from rkllm_mcp.agent.system_text import system_text
    from rkllm_mcp.app.assistant import turn_preparation
    from rkllm_mcp.app.model_form import listing, model_form
    from rkllm_mcp.messages import Conversation, Message
    from rkllm_mcp.prompt.conversation import ConversationPrompt

    if config.provider.kind != "rkllm":
        raise UsageError("a service makes the prompt itself; provider.kind = 'rkllm' shows the one that the NPU gets")
    model = chosen_model(config)
    form = model_form(config, model)
    lists_tools = model.card.tools == "listed"
    own_head = system_text(config.agent.system_prompt, config.agent.language, lists_tools=lists_tools)
    head = own_head if system is None else system
    conversation = Conversation(messages=[Message("system", head)] if head else [])
    preparation = turn_preparation(
        config, listing(config, model, form), environment.toolbox, environment.store.calls.list_served
    )
    offerings = environment.toolbox.offerings if "@" in text else None
    question = await attach(text, offerings, config.agent.resource_chars, context)
    prepared = await preparation.prepare(conversation, TurnRequest(question, environment.toolbox.tools()), context)
    cards = prepared.offer.cards if prepared.offer is not None else ()
    conversation.add(Message("user", question.text, context=prepared.context, cards=cards))
    prompt = ConversationPrompt(form.tokenizer, form.template, thinking=form.think)
    return prompt.parts(conversation.messages, prepared.tool_set.listed)
