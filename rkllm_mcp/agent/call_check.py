"""``CallCheck``: a question against the calls that a model makes of it, as cheap as a search for tools.

Small models call a tool when the user says thank you, with values that they invent. Such a call has nothing to do with
the question, and neither has any tool.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rkllm_base.own_words import with_earlier_words
from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA
from rkllm_mcp.agent.facts import last_question, plain
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec

# Words of a value; signs and single letters say nothing.
_WORD = re.compile(rf"[{KANJI}]{{2,}}|[{KATAKANA}]{{2,}}|[{HIRAGANA}]{{2,}}|[^\W_{HIRAGANA}{KATAKANA}{KANJI}]{{2,}}")
# Of a longer text the beginning is compared.
_COMPARED_CHARS = 20_000
Fitting: TypeAlias = Callable[[str, Sequence[ToolSpec]], Awaitable[Sequence[ToolSpec]]]
"""Returns the tools that have to do with a request."""


@dataclass(eq=False)
class CallCheck:
    """Finds the calls of an answer's first round that its question does not ask for.

    Such a call repeats one of an earlier question, or has values that occur nowhere in the conversation, and no tool
    has to do with the question. A call without values, or of a tool that is not known to be read-only, is never one.

    Args:
        conversation: ends with the question when a call is checked.
        tool_set: the available tools.
        fitting: the search for tools.
        compare_scripts: returns True if two texts have a word in common that one of them writes in Japanese.
        accepts_calls: the first call is not the model's own, or the question a server's; none is doubtful then.
    """

    conversation: Conversation
    tool_set: ToolSet
    fitting: Fitting
    compare_scripts: Callable[[str, str], bool]
    accepts_calls: bool = field(default=False, kw_only=True)

    def is_doubtful(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if only the texts of the tools can show that the question asks for this call."""
        tool = self.tool_set.by_name.get(name)
        values = plain(" ".join(map(str, arguments.values()))[:_COMPARED_CHARS])
        words = set(_WORD.findall(values))
        if self.accepts_calls or tool is None or not tool.read_only or not tool.server or not words:
            return False
        question, before = last_question(self.conversation), self._before_question()
        texts = [question.context, question.text]
        if not self._is_repeated(name, arguments):
            texts += [message.text for message in before if message.role != "system"]
            texts += [result.text for message in before for result in message.results]
        conversation_text = plain("\n".join(texts)[:_COMPARED_CHARS])
        return not any(word in conversation_text for word in words) and not self.compare_scripts(
            conversation_text, values
        )

    async def fits_none(self) -> bool:
        """Return True if no tool has to do with the question or with those before it."""
        if self.accepts_calls:
            return False
        *earlier, question = [message.text for message in self.conversation.messages if message.role == "user"] or [""]
        return not await self.fitting(with_earlier_words(question, earlier), self.tool_set.tools)

    async def are_unasked(self, calls: Sequence[ToolCall]) -> bool:
        """Return True if the question asks for none of these calls."""
        if not calls or not all(self.is_doubtful(call.name, call.arguments) for call in calls):
            return False
        *earlier, question = [message.text for message in self.conversation.messages if message.role == "user"] or [""]
        if not all(self._is_repeated(call.name, call.arguments) for call in calls):
            question = with_earlier_words(question, earlier)
        return not await self.fitting(question, self.tool_set.tools)

    def _is_repeated(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the same call was made before the last question."""
        key = self.tool_set.key(name, arguments)
        calls = (call for message in self._before_question() for call in message.calls)
        return any(call.name == name and self.tool_set.key(name, call.arguments) == key for call in calls)

    def _before_question(self) -> Sequence[Message]:
        messages = self.conversation.messages
        return messages[: max((index for index, message in enumerate(messages) if message.role == "user"), default=0)]
