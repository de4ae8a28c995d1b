"""Which tools a conversation is shown: all of them, or those that fit its first question.

    tools that fit the budget ─▶ all are listed
    more than that            ─▶ find_tools and those that the first question is likely to need

Rules: the list is made once, at the first question, and stands at the front of every prompt of the conversation. What
comes later (a server that connects, a question about something else, a changed tool) is told in the turn that needs
it. A forced tool is always among them. The tools' costs come from the model they are listed for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rkllm_mcp.agent.finding import Search, find_tools_spec, is_host_tool
from rkllm_mcp.agent.offer import named
from rkllm_mcp.messages import Conversation, ToolSpec
from rkllm_mcp.prompt.signatures import signature

# Small models choose well among a handful (reference: toolcall-formats 6); find_tools reaches the rest.
MOST_CHOSEN = 8
# A later question is told of tools that fit it this well; the best of a good question score 0.4 and more.
_FITS_WELL = 0.3
_TOLD_AT_ONCE = 3


@dataclass(frozen=True)
class SelectionSettings:
    """What decides the list.

    Args:
        budget_tokens: the most that the list may cost.
        auto_select: ``auto`` chooses when the list would cost more; True always chooses, False never.
        two_steps: the list has names only.
    """

    budget_tokens: int
    auto_select: bool | Literal["auto"] = "auto"
    two_steps: bool = False


class Selection:
    """Chooses the tools of conversations.

    Args:
        search: finds tools by what somebody wants.
        cost: tokens of one listed tool.
        settings: what decides.
    """

    def __init__(self, search: Search, cost: Callable[[ToolSpec], int], settings: SelectionSettings) -> None:
        self.search = search
        self.settings = settings
        self._cost = cost

    async def choose(self, request: str, tools: Sequence[ToolSpec], forced: str | None = None) -> tuple[ToolSpec, ...]:
        """The list of a new conversation.

        Args:
            request: its first question.
            tools: all tools there are.
            forced: the name of a tool that has to be in it.
        """
        shown = [self._shown(tool) for tool in tools]
        if not self._has_to_choose(shown):
            return tuple(shown)
        find = find_tools_spec(tools)
        room = self.settings.budget_tokens - self._cost(find)
        chosen: set[str] = set()
        for tool in await self._candidates(request, tools, forced):
            cost = self._cost(self._shown(tool))
            if tool.name == forced or (cost <= room and len(chosen) < MOST_CHOSEN):
                chosen.add(tool.name)
                room -= cost
        return (find, *(tool for tool in shown if tool.name in chosen))

    def beginnings(self, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, ...]]:
        """The list of a new conversation, or lists that between them show what every such list begins with."""
        shown = [self._shown(tool) for tool in tools]
        if not self._has_to_choose(shown):
            return [tuple(shown)]
        find = find_tools_spec(tools)
        return [(find,), (find, shown[0]), (find, shown[-1])]

    async def news(
        self, conversation: Conversation, request: str, tools: Sequence[ToolSpec], forced: str | None = None
    ) -> str:
        """What a later question's turn tells about tools; what it tells is noted in the conversation."""
        listed = {tool.name: tool for tool in conversation.listed_tools or ()}
        known = {**listed, **conversation.told_tools}
        changed = [tool for tool in tools if tool.name in known and self._has_changed(known[tool.name], tool)]
        new = [tool for tool in tools if tool.name not in known]
        told = [*changed, *(tool for tool in new if tool.name == forced)]
        find = self.finder_of(conversation)
        if find is None and self._fits([*known.values(), *map(self._shown, new)]):
            told += [tool for tool in new if tool not in told]
        elif new:
            best = (await self.search.search(request, tools))[:_TOLD_AT_ONCE]
            told += [tool for tool, score in best if score >= _FITS_WELL and tool in new and tool not in told]
            told += [find_tools_spec(tools)] if find is None else []
        conversation.told_tools.update({tool.name: tool for tool in told})
        return "\n".join(["[More tools that you can call:", *map(signature, told)]) + "]" if told else ""

    def finder_of(self, conversation: Conversation) -> ToolSpec | None:
        """``find_tools`` as the conversation knows it; None when it does not."""
        known = (*(conversation.listed_tools or ()), *conversation.told_tools.values())
        return next((tool for tool in known if is_host_tool(tool)), None)

    async def _candidates(self, request: str, tools: Sequence[ToolSpec], forced: str | None) -> list[ToolSpec]:
        """The tools to list, the most wanted first."""
        found = [tool for tool, _ in await self.search.search(request, tools)]
        return [*(tool for tool in tools if tool.name == forced), *(tool for tool in found if tool.name != forced)]

    def _shown(self, tool: ToolSpec) -> ToolSpec:
        return named(tool) if self.settings.two_steps and not is_host_tool(tool) else tool

    def _has_changed(self, known: ToolSpec, tool: ToolSpec) -> bool:
        """Whether the model was told something of a tool that is no longer so."""
        return (known.description, known.input_schema) not in [
            (now.description, now.input_schema) for now in (tool, self._shown(tool))
        ]

    def _has_to_choose(self, shown: Sequence[ToolSpec]) -> bool:
        choice = self.settings.auto_select
        return bool(shown) and (not self._fits(shown) if choice == "auto" else choice)

    def _fits(self, shown: Sequence[ToolSpec]) -> bool:
        return sum(map(self._cost, shown)) <= self.settings.budget_tokens
