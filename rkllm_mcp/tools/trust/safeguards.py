"""What stands between the model and a tool beyond the limits of time and size; each part may be left out.

    Recorded ─▶ Switched ─▶ Approved ─▶ Timed ─▶ Cleaned ─▶ SizeLimited ─▶ TimeLimited ─▶ the server

A call is recorded whatever becomes of it; a person is asked before the clock starts; what comes back is cut before it
is searched.
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

# A tool's text and the tools there are: the text in which none of them is called.
CleanResult: TypeAlias = Callable[[str, Sequence[ToolSpec]], str]


def _as_it_is(text: str, tools: Sequence[ToolSpec] = ()) -> str:
    del tools
    return text


@dataclass(frozen=True)
class Safeguards:
    """The safeguards of a toolbox.

    Args:
        approvals: decides which calls need a yes; every call may be made when None.
        recorder: keeps every call; none is kept when None.
        switches: which tools may be used.
        clean_result: takes out of a result what would be a call if the model repeated it.
        clean_words: takes the markers out of what a server says about a tool.
    """

    approvals: Approvals | None = None
    recorder: Recorder | None = None
    switches: Switches = field(default_factory=Switches)
    clean_result: CleanResult = _as_it_is
    clean_words: Callable[[str], str] = _as_it_is

    def around(self, spec: ServerSpec, caller: Caller) -> Caller:
        """The way to a server's tools with everything that stands before it."""
        if self.approvals is not None:
            caller = Approved(caller, spec, self.approvals)
        caller = Switched(caller, self.switches)
        return caller if self.recorder is None else Recorded(caller, self.recorder)
