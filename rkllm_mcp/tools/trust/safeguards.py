"""Execution policies of tool calls; each part may be omitted.

    Recorded ─▶ Switched ─▶ Approved ─▶ Timed ─▶ Cleaned ─▶ SizeLimited ─▶ TimeLimited ─▶ the server

Every call is recorded, also a failed or cancelled one; approval happens before the clock starts; a result is truncated
before it is searched for call markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.records import Recorder
from rkllm_mcp.tools.policy import Caller, Switched
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.trust.approval import Approvals, Approved
from rkllm_mcp.tools.trust.recording import Recorded
from rkllm_mcp.tools.trust.switches import Switches

# (text of a tool, all tools) -> the text with call markup of these tools escaped.
CleanResult: TypeAlias = Callable[[str, Sequence[ToolSpec]], str]


def _unchanged(text: str, tools: Sequence[ToolSpec] = ()) -> str:
    del tools
    return text


@dataclass(frozen=True)
class Safeguards:
    """Execution policies of a toolbox."""

    approvals: Approvals | None = None  # None: every call is allowed
    recorder: Recorder | None = None  # None: calls are not recorded
    switches: Switches = field(default_factory=Switches)
    clean_result: CleanResult = _unchanged
    clean_words: Callable[[str], str] = _unchanged  # removes call markup from tool descriptions

    def around(self, spec: ServerSpec, caller: Caller) -> Caller:
        """Return ``caller`` wrapped in the policies of its server."""
        if self.approvals is not None:
            caller = Approved(caller, spec, self.approvals)
        caller = Switched(caller, self.switches)
        return caller if self.recorder is None else Recorded(caller, self.recorder)
