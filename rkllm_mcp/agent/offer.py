"""The tools of one answer: which stand in the list, which may be called besides, and what is told of them when.

Most models see every parameter of every listed tool. The smallest choose better among names: for them the list has
names and what they are for, and a tool's parameters are told in the turn in which it is first called (two steps).
Either way the list, which stands at the front of the prompt, does not change while a conversation lasts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rkllm_mcp.agent.finding import is_host_tool
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.prompt.signatures import signature
from rkllm_mcp.toolcalls.arguments import MismatchError, coerce_arguments

TWO_STEPS_NOTE = (
    "The tools are listed without their parameters. Call the tool that fits with empty arguments; its parameters are "
    "told to you then."
)
# What a tool is for, when only names are listed: one sentence, and no longer than that.
_PURPOSE_CHARS = 120
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")


def named(tool: ToolSpec) -> ToolSpec:
    """``tool`` as a list of names shows it: what it is for, without parameters."""
    purpose = _SENTENCE_END.split(tool.description.strip(), maxsplit=1)[0]
    return replace(tool, description=purpose[:_PURPOSE_CHARS], input_schema={})


class Offer:
    """What one answer may call.

    Args:
        listed: the tools at the front of the prompt, as they are listed there.
        tools: all tools there are now; the listed ones when not given.
        told: the tools whose parameters the conversation told already, by name; grows while the answer is made.
        two_steps: parameters are told when a tool is first called.
    """

    def __init__(
        self,
        listed: Sequence[ToolSpec],
        tools: Sequence[ToolSpec] | None = None,
        told: dict[str, ToolSpec] | None = None,
        *,
        two_steps: bool = False,
    ) -> None:
        self.listed = tuple(listed)
        self._tools = {tool.name: tool for tool in (*listed, *(() if tools is None else tools))}
        self._told: dict[str, ToolSpec] = {} if told is None else told
        self._two_steps = two_steps

    def tool(self, name: str) -> ToolSpec | None:
        """The tool that is called by ``name``."""
        return self._tools.get(name)

    def others(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called and do not stand in the list as they are now."""
        if not self._two_steps:
            return tuple(tool for tool in self._tools.values() if tool not in self.listed)
        known = (tool if self._is_told(tool) else replace(tool, input_schema={}) for tool in self._tools.values())
        return tuple(tool for tool in known if tool not in self.listed)

    def parameters_before(self, call: ToolCall) -> str:
        """What the model has to be told before ``call`` is worth running; empty when it can be run.

        Once told, the same tool is run whatever it is called with.
        """
        tool = self._tools.get(call.name)
        if tool is None or self._is_told(tool) or not self._two_steps or _fits(call.arguments, tool):
            return ""
        self._told[tool.name] = tool
        return f"{signature(tool)}\nCall it again with its arguments."

    def _is_told(self, tool: ToolSpec) -> bool:
        # The host's own tool stands in the list as it is.
        told = is_host_tool(tool) or self._told.get(tool.name) == tool
        return told or not tool.input_schema.get("properties")


def _fits(arguments: Mapping[str, Any], tool: ToolSpec) -> bool:
    """Whether arguments that a model wrote without knowing the parameters happen to be what the tool takes."""
    if not arguments or not arguments.keys() <= tool.input_schema.get("properties", {}).keys():
        return False
    try:
        return not coerce_arguments(arguments, tool.input_schema).repaired
    except MismatchError:
        return False
