"""How long a question waits for the servers that are still starting."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rkllm_mcp.catalogue import status_line
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import EventSink

if TYPE_CHECKING:
    from rkllm_mcp.tools.toolbox import Toolbox

# A server whose tools do not fit a question is waited for this long: then the list of tools is usually complete.
# A server whose known tools fit the question, or that adds to each question, is waited for that long in all.
_FIT_WAIT_S = 8.0
_UNFIT_WAIT_S = 1.0


@dataclass(eq=False)
class ServerWait:
    """Waiting for servers; ``patience_s`` is the time for one of which nothing is known."""

    toolbox: Toolbox
    patience_s: float
    # Servers without which an answer went on.
    _left_out: set[str] = field(default_factory=set[str], init=False)

    async def before_question(self) -> bool:
        """Wait for the servers before the first question is known; return False if one is still starting."""
        return not await self.toolbox.wait({server.spec.name: self.patience_s for server in self.toolbox.connections})

    async def for_question(
        self,
        text: str,
        options: AnswerOptions,
        fitting: Callable[[str, Sequence[ToolSpec]], Awaitable[Iterable[ToolSpec]]],
        sink: EventSink,
    ) -> frozenset[str]:
        """Wait for the servers that are starting as long as a question is worth it.

        ============================================  ======================================
        a server that is starting                     is waited for up to
        ============================================  ======================================
        with a tool that the request names            its ``connect_timeout_s``
        if the asker is not told what is left out     its ``connect_timeout_s``
        whose known tools fit the question            8 s, as one that adds to each question
        whose known tools do not fit it               1 s
        of which nothing is known                     ``agent.wait_for_servers_s``
        that is waited for already                    not again
        ============================================  ======================================

        Args:
            text: the question.
            options: the options of its answer.
            fitting: returns the tools that fit a question.
            sink: receives status lines.

        Returns:
            The names of the servers without which the question is answered.
        """
        starting = [server for server in self.toolbox.connections if server.is_starting]
        if not starting or not options.tools:
            return frozenset()
        toolbox, patience_s = self.toolbox, self.patience_s
        tools = [*toolbox.tools(), *(tool for server in starting for tool in server.remembered_tools)]
        fit = {tool.server for tool in await fitting(text, tools)}
        tool_names = {name for name in (options.model.forced_tool, *(options.allowed_tools or ())) if name}
        tool_names -= {name for name in tool_names if toolbox.resolve(name) is not None}
        needed_by_name: set[str] = set()
        for server in starting:
            names = {name for tool in server.remembered_tools for name in (tool.wire_name, tool.qualified_name)}
            prefix = f"mcp__{server.spec.name}__"
            if options.needs_all_servers or any(name in names or name.startswith(prefix) for name in tool_names):
                needed_by_name.add(server.spec.name)
        if tool_names and not needed_by_name:
            # One of them may have the tool that the request names.
            needed_by_name = {server.spec.name for server in starting if not server.remembered_tools}
        # These add to each question; one that failed in an earlier run is not waited for.
        adding = {
            server.spec.name
            for server in starting
            if server.spec.auto_context_tool is not None and not server.failed_before
        }
        needed = needed_by_name | adding | fit

        limits_s: dict[str, float] = {}
        for server in toolbox.connections:
            name = server.spec.name
            is_patient = name in needed or not server.remembered_tools
            limits_s[name] = patience_s if is_patient else min(patience_s, _UNFIT_WAIT_S)
            if name in self._left_out - needed:
                limits_s[name] = 0.0
        late = await toolbox.wait(limits_s)
        further_s = dict.fromkeys(needed, max(0.0, _FIT_WAIT_S - patience_s)) | dict.fromkeys(needed_by_name, math.inf)
        if hopeful := [server for server in late if further_s.get(server.spec.name)]:
            names = ", ".join(f"'{server.spec.name}'" for server in hopeful)
            sink.feed([status_line("waiting", names=names)])
            late = await toolbox.wait(further_s)
        self._left_out |= {server.spec.name for server in late}
        if late:
            # Also if it was said before: this answer may be another person's.
            names = ", ".join(f"'{server.spec.name}'" for server in late)
            sink.feed([status_line("left_out" if options.is_single else "join_later", names=names)])
        return frozenset(server.spec.name for server in late)
