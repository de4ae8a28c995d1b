"""What the model is told before the conversation: the system text.

It stands at the very front of the KV cache, so it must not change between questions: no clock, no date, nothing of
the moment.
"""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful assistant that runs on a small board. Answer briefly. When a tool can give the answer, call it; "
    "never make up what a tool would say."
)
ANSWER_IN_THE_QUESTIONS_LANGUAGE = "Answer in the language of the question."
LANGUAGE_NAMES: Mapping[str, str] = {"ja": "Japanese", "en": "English"}


def system_text(system_prompt: str | None = None, language: str | None = None) -> str:
    """The system text of a conversation.

    Args:
        system_prompt: the owner's words; the project's own when None. Given, they are used as they are.
        language: the language to answer in, as a code (``ja``) or a name; the question's when None.
    """
    if system_prompt is not None and language is None:
        return system_prompt
    wanted = f"Answer in {LANGUAGE_NAMES.get(language, language)}." if language else ANSWER_IN_THE_QUESTIONS_LANGUAGE
    return f"{DEFAULT_SYSTEM_PROMPT if system_prompt is None else system_prompt} {wanted}"
