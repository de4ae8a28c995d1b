"""The toolbox with everything around it: what is remembered between runs, the safeguards, the host's own files.

Both roots, ``app`` with a model and ``inspection`` without one, open their toolbox here.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rkllm_mcp.assembly import server_specs
from rkllm_mcp.calling import Sampler
from rkllm_mcp.config import Config
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.store.conversations import HistoryLimits
from rkllm_mcp.store.history import Retention
from rkllm_mcp.store.location import state_file
from rkllm_mcp.store.memory import Memory, open_memory
from rkllm_mcp.toolcalls.neutral import neutralised, without_markers
from rkllm_mcp.tools.login.signin import BrowserConsent, Nobody, ShowAddress
from rkllm_mcp.tools.session.host import open_host
from rkllm_mcp.tools.toolbox import Toolbox, open_toolbox
from rkllm_mcp.tools.trust.approval import Approvals
from rkllm_mcp.tools.trust.reasons import language_of
from rkllm_mcp.tools.trust.safeguards import Safeguards
from rkllm_mcp.tools.trust.switches import Switches

# What connections keep of servers; see tools.session.eras.
_SERVERS = "servers"


@dataclass(frozen=True)
class Equipment:
    """An open toolbox and what is remembered about it."""

    toolbox: Toolbox
    memory: Memory

    async def refresh(self) -> None:
        """Take over what other processes have switched off or on since."""
        switches = await self.memory.switches.all()
        # What cannot be read or kept changes nothing here: a tool that is off must not come on by that.
        if switches is not None:
            self.toolbox.switches.replace(switches)


@asynccontextmanager
async def open_equipment(
    config: Config,
    *,
    status: Callable[[str], None] | None = None,
    sampler: Sampler | None = None,
    syntaxes: Sequence[str] = (),
    required: bool = False,
    log_in: ShowAddress | None = None,
    tenant: str = "",
) -> AsyncGenerator[Equipment, None]:
    """Connect the servers that ``config`` names; on leaving all of them are gone and everything is written.

    Args:
        config: the configuration.
        status: is told, one line each, which server is connected and which is not, and when nothing can be remembered.
        sampler: our model, for servers that may ask it.
        syntaxes: how the model writes calls.
        required: not being able to remember is an error.
        log_in: shows somebody where to log in to a server; nobody can be shown when None.
        tenant: whose servers they are, the configuration's when not given; each tenant's memory and logins are files of
            their own. Empty for the owner.

    Raises:
        StoreError: remembering is required and cannot be done.
    """
    retention = Retention(config.security.history_days, config.security.history_calls)
    limits = HistoryLimits(config.service.history_days, config.service.history_conversations)

    def clean_result(text: str, tools: Sequence[ToolSpec]) -> str:
        return neutralised(text, tools, syntaxes)

    tenant = tenant or config.tenant
    path = state_file(os.environ, tenant)
    memories = open_memory(path=path, retention=retention, limits=limits, on_problem=status, required=required)
    async with memories as memory:
        safeguards = Safeguards(
            approvals=Approvals(memory.grants, language_of(config.agent.language)),
            recorder=memory.calls,
            switches=Switches(await memory.switches.all() or (), memory.switches.keep),
            clean_result=clean_result,
            clean_words=without_markers,
        )
        folder = memory.database.path.parent
        remembered = await memory.texts(_SERVERS)
        consent = Nobody(tenant) if log_in is None else BrowserConsent(log_in)
        log_wire = config.security.log_wire
        with open_host(folder, remembered=remembered, consent=consent, log_wire=log_wire) as host:
            async with open_toolbox(
                server_specs(config),
                result_chars=config.agent.tool_result_chars,
                on_status=status,
                host=host,
                sampler=sampler,
                safeguards=safeguards,
            ) as toolbox:
                yield Equipment(toolbox, memory)
