"""Tools available in one answer: listed in the prompt, found by search, or by name with parameters at a first call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

from rkllm_mcp.agent.repairs import usable_arguments
from rkllm_mcp.catalogue import status_line
from rkllm_mcp.events import Status
from rkllm_mcp.messages import Conversation, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.tool_list import signature
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, ToolEvidence
from rkllm_mcp.tasks import run_costly
from rkllm_mcp.text import first_line, shorten
from rkllm_mcp.toolcalls.arguments import MismatchError, coerce_arguments

FOUND_TOOLS = 5  # what one search tells; more costs more prefill than another search
# Further matches, of which it tells the names.
_ALTERNATIVES = 5
_NAMES = ("find_tools", "find_more_tools", "host_find_tools")
_SERVERS_NAMED = 12  # a list of servers says what there may be to find; a long one says nothing more
# Length of the reason of a failed call in a status line, or in the sentence for a person.
MOST_REASON_CHARS = 200


class Search(Protocol):
    """Port to the search for tools.

    Attributes:
        kinds: the kinds of values in a text.
        is_statement: returns True if a text says something and asks nothing.
        continue_question: the question before with the values of a text; empty if the text does not continue it.
        continue_value: a text that lacks a number, with that of the answers before; empty if it lacks none.
        have_common_words: returns True if two texts have a word in common that one of them writes in Japanese.
    """

    kinds: Callable[[str], frozenset[str]]
    is_statement: Callable[[str], bool]
    continue_question: Callable[[str, str], str]
    continue_value: Callable[[Sequence[str], str], str]
    have_common_words: Callable[[str, str], bool]

    async def search(self, request: str, tools: Sequence[ToolSpec]) -> Sequence[tuple[ToolSpec, float]]:
        """The tools that have anything to do with ``request``, the best first, with a score between 0 and about 1."""
        ...

    async def evidence(
        self, request: str, tools: Sequence[ToolSpec], shares: Mapping[str, float]
    ) -> Sequence[ToolEvidence]:
        """What a request shows about each of the tools; ``shares`` are those of its words in the data of tools."""
        ...


class ToolCaller(Protocol):
    """Port that runs calls."""

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        """Run a call; a failing tool is a result, never an exception."""
        ...


def outcome(result: ToolResult, call_id: str = "") -> Status:
    """Return the status line of a call that has ended; ``call_id`` is empty for one that the model did not make."""
    if not result.is_error:
        return status_line("found_nothing" if result.sources == () else "completed", name=result.name, call=call_id)
    about = "failed" if call_id else "failed_context"
    reason = shorten(first_line(result.shown), MOST_REASON_CHARS)
    return status_line(about, name=result.name, reason=reason, call=call_id)


def find_tools_spec(tools: Sequence[ToolSpec]) -> ToolSpec:
    """Return the specification of ``find_tools``, which names the number of tools and their servers."""
    names = {tool.name for tool in tools}
    name = next(name for name in (*_NAMES, "mcp__host__find_tools") if name not in names)
    servers = list(dict.fromkeys(tool.server for tool in tools if tool.server))
    server_names = ", ".join(servers[:_SERVERS_NAMED]) + (", …" if len(servers) > _SERVERS_NAMED else "")
    return ToolSpec(
        name,
        f"Find more tools when no listed one fits. There are {len(tools)} tools, of: {server_names}.",
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "what the tool should do"}},
            "required": ["query"],
        },
        read_only=True,
    )


@dataclass(eq=False)
class ToolFinder:
    """A ``ToolCaller`` that answers ``find_tools`` itself and passes all other calls to ``inner``.

    ``find`` is the specification of ``find_tools`` in the prompt. The ``tools`` that it finds join those whose
    parameters were revealed in the conversation.
    """

    inner: ToolCaller
    search: Search
    find: ToolSpec
    tools: Sequence[ToolSpec]
    told: dict[str, ToolSpec]

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        """Answer ``find_tools`` with a line for each of the best tools and further names; pass every other call on."""
        if call.name != self.find.name:
            return await self.inner.call(call, context)
        context.announce()
        query = str(call.arguments.get("query", ""))
        matching = [tool for tool, _ in await self.search.search(query, self.tools)]
        best = matching[:FOUND_TOOLS]
        if not best:
            return ToolResult(call.id, call.name, f"No tool fits '{query}'. Try other words, or answer without a tool.")
        self.told.update({tool.name: tool for tool in best})
        lines = "\n".join(map(signature, best))
        alternatives = ", ".join(tool.name for tool in matching[FOUND_TOOLS : FOUND_TOOLS + _ALTERNATIVES])
        further = f" Others, to be found by name: {alternatives}." if alternatives else ""
        return ToolResult(call.id, call.name, f"{lines}\nCall one of these if it helps.{further}")


# What a tool is for, when only names are listed: one sentence, and no longer than that.
_PURPOSE_CHARS = 120


def without_parameters(tool: ToolSpec) -> ToolSpec:
    """Return ``tool`` as it is in a list of names: with its purpose, without parameters."""
    return replace(tool, description=tool.summary[:_PURPOSE_CHARS], input_schema={})


class ToolSet:
    """The tools of one answer: the ``listed`` ones as they are in the prompt, and all current ``tools``.

    With ``revealed`` the list has names only: each tool's parameters are revealed at its first call in the
    conversation, and the tool is added to ``revealed``.
    """

    def __init__(
        self,
        listed_tools: Sequence[ToolSpec],
        tools: Sequence[ToolSpec] | None = None,
        revealed: dict[str, ToolSpec] | None = None,
    ) -> None:
        self.listed = tuple(listed_tools)
        self.by_name = {tool.name: tool for tool in (*listed_tools, *(tools or ()))}
        self.tools = tuple(self.by_name.values())  # all current tools
        self.revealed = revealed  # None where the list has the parameters

    def key(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the identity of a call: a text that is equal for calls of a tool with the same usable arguments."""
        usable = usable_arguments(arguments, self.by_name.get(name))
        return json.dumps([name, usable], sort_keys=True, ensure_ascii=False, default=str)

    def others(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called and do not are in the list as they are now."""
        if self.revealed is None:
            return tuple(tool for tool in self.tools if tool not in self.listed)
        forms = (tool if self._is_revealed(tool) else replace(tool, input_schema={}) for tool in self.tools)
        return tuple(tool for tool in forms if tool not in self.listed)

    def parameters_before(self, call: ToolCall) -> str:
        """Return the parameters to reveal before ``call`` can be run; empty if it can be run now.

        Once they are revealed, the tool is run with any arguments.
        """
        tool = self.by_name.get(call.name)
        if tool is None or self.revealed is None or self._is_revealed(tool):
            return ""
        # Arguments that were written without knowing the parameters may match them.
        if call.arguments and call.arguments.keys() <= tool.input_schema.get("properties", {}).keys():
            with suppress(MismatchError):
                if not coerce_arguments(call.arguments, tool.input_schema).repaired:
                    return ""
        self.revealed[tool.name] = tool
        return f"{signature(tool)}\nCall it again with its arguments."

    def _is_revealed(self, tool: ToolSpec) -> bool:
        return (self.revealed or {}).get(tool.name) == tool or not tool.input_schema.get("properties")


# Small models choose well among a handful (reference: toolcall-formats 6); find_tools reaches the rest.
MOST_CHOSEN = 8
_MOST_CONSIDERED = 200  # of the best, each of which has its tokens counted
# Tools that fit a later question this well are described with it; the best of a good question score 0.4 and more.
_FITS_WELL = 0.3
_TOLD_AT_ONCE = 3
# "What time is it?" scores 0.06 for a tool that tells the time, "Hello" nothing for any.
_HAS_TO_DO = 0.04
_NEAR_THE_BEST = 0.5


@dataclass(frozen=True)
class SelectionSettings:
    """Settings of the tool selection."""

    budget_tokens: int  # limit of the list
    auto_select: bool | Literal["auto"] = "auto"  # auto selects if the list would cost more; True always, False never
    with_question: bool = False  # there is no list; a question is shown with the tools that it may need


@dataclass(eq=False)
class ToolSelection:
    """Select the tools of conversations.

    ``open_search`` creates the search when there are too many to list; ``cost`` returns the tokens of a listed tool.
    """

    open_search: Callable[[], Search]
    cost: Callable[[ToolSpec], int]
    settings: SelectionSettings

    @cached_property
    def search(self) -> Search:
        """The search for tools."""
        return self.open_search()

    async def choose(self, request: str, tools: Sequence[ToolSpec], forced: str | None = None) -> tuple[ToolSpec, ...]:
        """Return the tool list of a new conversation that begins with ``request``; it contains the ``forced`` tool."""
        permanent = self._standing(tools, forced)
        if (whole := self._whole_list(tools, permanent)) is not None:
            return whole
        find = find_tools_spec(tools)
        room = self.settings.budget_tokens - self.cost(find)
        chosen: set[str] = set()
        ranked = [tool for tool, _ in await self.search.search(request, permanent)]
        unforced = (tool for tool in ranked if tool.name != forced)
        candidates = [*(tool for tool in permanent if tool.name == forced), *unforced][:_MOST_CONSIDERED]
        costs = await run_costly(lambda: [self.cost(tool) for tool in candidates])
        for tool, cost in zip(candidates, costs, strict=True):
            if tool.name == forced or (cost <= room and len(chosen) < MOST_CHOSEN):
                chosen.add(tool.name)
                room -= cost
        return (find, *(tool for tool in permanent if tool.name in chosen))

    def beginnings(self, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, ...]]:
        """The list of a new conversation, or lists that between them show what every such list begins with."""
        permanent = self._standing(tools)
        if (whole := self._whole_list(tools, permanent)) is not None:
            return [whole]
        find = find_tools_spec(tools)
        return [(find,), (find, permanent[0]), (find, permanent[-1])]

    async def news(
        self, conversation: Conversation, request: str, tools: Sequence[ToolSpec], forced: str | None = None
    ) -> str:
        """Return the note about new and changed tools for a later turn, and record it in the conversation."""
        listed_tools = {tool.name: tool for tool in conversation.listed_tools or ()}
        known_tools = {**listed_tools, **conversation.revealed_tools}
        # The model knows these in an outdated form.
        changed = [
            tool
            for tool in tools
            if (form := known_tools.get(tool.name)) is not None
            and (form.description, form.input_schema) != (tool.description, tool.input_schema)
        ]
        new = [tool for tool in tools if tool.name not in known_tools]
        revealed = [*changed, *(tool for tool in new if tool.name == forced)]
        find = self.finder_of(conversation)
        permanent = self._standing(new)
        if find is None and self._fits([*known_tools.values(), *permanent]):
            revealed += [tool for tool in permanent if tool not in revealed]
            revealed += [find_tools_spec(tools)] if len(permanent) < len(new) else []
        elif new:
            best = (await self.search.search(request, tools))[:_TOLD_AT_ONCE]
            revealed += [tool for tool, score in best if score >= _FITS_WELL and tool in new and tool not in revealed]
            revealed += [find_tools_spec(tools)] if find is None else []
        conversation.revealed_tools.update({tool.name: tool for tool in revealed})
        return "\n".join(["[More tools that you can call:", *map(signature, revealed)]) + "]" if revealed else ""

    async def fitting(self, request: str, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that fit a request best, if any has to do with it."""
        scored = await self.search.search(request, tools) if tools and request.strip() else ()
        least = max((score for _, score in scored), default=0.0) * _NEAR_THE_BEST
        return tuple(tool for tool, score in scored if score >= max(least, _HAS_TO_DO))

    def finder_of(self, conversation: Conversation) -> ToolSpec | None:
        """``find_tools`` as the conversation knows it; None when it does not."""
        known_tools = (*(conversation.listed_tools or ()), *conversation.revealed_tools.values())
        return next((tool for tool in known_tools if not tool.server), None)

    def _standing(self, tools: Sequence[ToolSpec], forced: str | None = None) -> list[ToolSpec]:
        """The tools that a list may have; the others are found with ``find_tools``, unless nothing is selected."""
        all_stand = self.settings.auto_select is False
        return [tool for tool in tools if all_stand or not tool.on_demand or tool.name == forced]

    def _whole_list(self, tools: Sequence[ToolSpec], permanent: Sequence[ToolSpec]) -> tuple[ToolSpec, ...] | None:
        """Return the list with all ``permanent`` tools, after ``find_tools`` for others; None if it has to be chosen.

        Tools that are shown with a question have no list.
        """
        if self.settings.with_question:
            return ()
        choice = self.settings.auto_select
        if permanent and (not self._fits(permanent) if choice == "auto" else choice):
            return None
        find = (find_tools_spec(tools),) if len(permanent) < len(tools) else ()
        return (*find, *permanent)

    def _fits(self, listings: Sequence[ToolSpec]) -> bool:
        # No more tokens are counted than fit: a server may have a thousand tools.
        total = 0
        return all((total := total + self.cost(listing)) <= self.settings.budget_tokens for listing in listings)
