"""System text of a conversation, with and without what it says about tools."""

from __future__ import annotations

from rkllm_mcp.catalogue import translate
from rkllm_mcp.text import LANGUAGES, language_of_setting


def system_text(system_prompt: str | None = None, language: str | None = None, *, lists_tools: bool = True) -> str:
    """Return the system text of a conversation.

    Args:
        system_prompt: the configured text, used unchanged; None for the default.
        language: the language of answers and instructions, as a code (``ja``) or a name; None for answers in that of
            the question.
        lists_tools: the prompt lists tools after it, so that it says when to call one.
    """
    if system_prompt is not None and language is None:
        return system_prompt
    code = language_of_setting(language)
    is_own = code == "ja" or language == "en"
    name = translate("model.own_language", code) if is_own else language or translate("model.any_language")
    instruction = translate("model.answer_in", code, answer_language=name)
    if system_prompt is None:
        tools = translate("model.call_tools", code) if lists_tools else ""
        return translate("model.system_prompt", code, tools=tools, instruction=instruction)
    return f"{system_prompt} {instruction}"


def without_tools(text: str) -> str:
    """Return a system text without our own sentences about tools, for an answer that is made without any."""
    for language in LANGUAGES:
        text = text.replace(translate("model.call_tools", language), "")
    return text.strip()
