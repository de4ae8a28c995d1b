"""A toolbox as the agent sees it, with canned words, for tests of what is settled before the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rkllm_mcp.messages import ToolSpec
from tests.support.scripted_model import ScriptedTools


def takes(
    tool: str, description: str = "", server: str = "", *, read_only: bool | None = None, **kinds: str
) -> ToolSpec:
    """A tool whose parameters have the given JSON types; all are required."""
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
        "required": [*kinds],
    }
    return ToolSpec(tool, description, schema, server or "desk", tool, read_only=read_only)


@dataclass
class ScriptedToolbox(ScriptedTools):
    """Tools that say canned words, on servers with instructions.

    Args:
        specs: the tools there are.
        standing: each server's ``system_instruction``, in order.
        after: each server's ``response_instruction``.
        automatic: the names of the tools that are called with every question.
    """

    texts: dict[str, str] = field(default_factory=dict[str, str])
    specs: Sequence[ToolSpec] = ()
    standing: Sequence[str] = ()
    after: Mapping[str, str] = field(default_factory=dict[str, str])
    automatic: Sequence[str] = ()

    def tools(self) -> Sequence[ToolSpec]:
        return self.specs

    def system_instructions(self) -> Sequence[str]:
        return self.standing

    def response_instruction(self, name: str) -> str:
        return next((self.after.get(tool.server, "") for tool in self.specs if tool.name == name), "")

    async def shares_in_data(self, question: str) -> Mapping[str, float]:
        """See ``TurnTools``: these tools have no data."""
        del question
        return {}

    def auto_context_tools(self) -> Sequence[ToolSpec]:
        return [tool for tool in self.specs if tool.name in self.automatic]
