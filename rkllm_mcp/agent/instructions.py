"""What the model is told beside the conversation: the system text, and what the servers' owner wants said.

The system text stands at the very front of the KV cache, so it must not change between questions: no clock, no date,
nothing of the moment. The ``system_instruction`` of every server that is there belongs to it; one whose server comes
later is said in the turn of that moment. A ``response_instruction`` is said after a tool of its server has answered,
once in an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rkllm_mcp.messages import Conversation, Message, ToolSpec

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


def instruct(conversation: Conversation, instructions: Sequence[str]) -> str:
    """Tell a conversation what it was not told yet: in its system text before its first question, else by the result.

    Args:
        conversation: whose first message, the system text, may grow.
        instructions: what has to be known, in the order of the servers.

    Returns:
        what has to go into the turn that comes next; usually nothing.
    """
    messages = conversation.messages
    said = [message.text if message.role == "system" else message.context for message in messages]
    new = [instruction for instruction in instructions if not any(instruction in text for text in said)]
    if not new or any(message.role != "system" for message in messages):
        return "\n".join(new)
    system = Message("system", "\n\n".join([*(message.text for message in messages), *new]))
    conversation.replace([system])
    return ""


class ResponseInstructions:
    """What has to be said after tools have answered: each server's instruction once.

    Args:
        of_tool: the ``response_instruction`` that belongs to a tool, by its name; empty when there is none.
    """

    def __init__(self, of_tool: Callable[[str], str] = lambda _: "") -> None:
        self._of_tool = of_tool
        self._said: set[str] = set()

    def after(self, tools: Iterable[ToolSpec]) -> list[str]:
        """The instructions of these tools' servers that were not said yet."""
        new: list[str] = []
        for tool in tools:
            instruction = self._of_tool(tool.name)
            if instruction and tool.server not in self._said:
                self._said.add(tool.server)
                new.append(instruction)
        return new
