"""``remember`` and ``recall``: the memory as tools, for models that use tools well.

They are not in the list that a model reads; it finds them with ``find_tools``. What is remembered has to be in the
words of the question that the model answers, so a result, a document or a page cannot write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rkllm_mcp.config.servers import BuiltinServer
from rkllm_mcp.errors import StoreError, UsageError
from rkllm_mcp.memory.person import keep_row
from rkllm_mcp.memory.recall import recalled_rows
from rkllm_mcp.memory.statements import is_said
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.text import language_of_text
from rkllm_mcp.toolcalls.results import text_result

if TYPE_CHECKING:
    from rkllm_mcp.store.memories import Memories

# Name, description, and the parameter with its own.
_TOOLS = (
    (
        "remember",
        "Remember something about the user for later conversations.",
        "text",
        "one sentence in the user's own words",
    ),
    ("recall", "Recall what the user wanted remembered in earlier conversations.", "query", "what it is about"),
)
_NOT_SAID = (
    "Not remembered: only what the user says in the question itself is, in the user's own words. "
    "Use these, or ask the user to say it."
)


class MemoryTools:
    """The two tools as a server of this process; writing needs approval."""

    def __init__(self, memories: Memories) -> None:
        self.spec = BuiltinServer(name="memory", tools=(), approve="writes", trusted=True)
        self._memories = memories
        self.tools = tuple(
            ToolSpec(
                name,
                description,
                {
                    "type": "object",
                    "properties": {parameter: {"type": "string", "description": about}},
                    "required": [parameter],
                },
                self.spec.name,
                name,
                read_only=name == "recall",
                destructive=False,
                on_demand=True,
                keywords="memory remember recall know 記憶 覚える 思い出す",
            )
            for name, description, parameter, about in _TOOLS
        )

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """Remember or recall; what cannot be done is an error result."""
        words = str(arguments.get("text" if tool == "remember" else "query", ""))
        try:
            if tool == "recall":
                rows = recalled_rows(words, await self._memories.kept())
                return text_result("\n".join(row.text for row in rows) or "Nothing about this is remembered.")
            if not is_said(words, context.request):
                return text_result(_NOT_SAID, is_error=True)
            language, source = language_of_text(context.request), context.conversation_id
            row, _ = await keep_row(self._memories, words, language, source=source)
        except (UsageError, StoreError) as error:
            return text_result(str(error), is_error=True)
        return text_result(f"Remembered: {row.text}")
