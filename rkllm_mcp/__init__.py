"""An assistant on a Rockchip NPU: from a user's words to an answer, through MCP tools.

The data path, left to right, is the table of contents of this package:

1. ``prompt``     a conversation becomes token ids, each prefilled once
2. ``toolcalls``  generated text becomes events: text, thinking, tool calls
3. ``runtime``    token ids become tokens on the NPU, in a child process that owns librkllmrt.so
4. ``tools``      tool calls become results, on MCP servers
5. ``agent``      the loop: rounds of the model and its tools until there is an answer
6. ``surfaces``   events become a terminal, JSON lines, a service

Beside the path: ``errors``, ``messages``, ``events``, ``generation``, ``calling``, ``records``, ``forms`` and
``offers`` are its values, ``encode`` writes events as JSON, ``config`` reads what a user wrote, ``providers`` joins
prompt, runtime and toolcalls into one model, ``board`` looks at the machine, ``shelf`` keeps the user's models and
fetches their files, ``acquisition`` puts models on it and takes them off, ``availability`` says what this version
does not do, ``assembly`` turns the configuration into the settings of each part, ``store`` remembers from one run to
the next, ``equipment`` opens the tools with their memory and safeguards, ``head_start`` fills the KV cache before the
first question, ``specialists`` are the models that embed and rank, ``core`` is the model that answers, ``app`` an
assistant over it whose answers are ``under_way`` and then in ``keeping``, ``tenancy`` one for everybody,
``completions`` answers programs that send the whole conversation each time, ``abilities`` is what they can do for
others, ``inspection`` looks at them without a model, and ``measurement`` measures and probes them.

The names below are imported on first use, so that importing one of them does not load the others' libraries.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rkllm_mcp.app import open_app
    from rkllm_mcp.config import load_config
    from rkllm_mcp.messages import ToolSpec
    from rkllm_mcp.runtime.engine import Engine
    from rkllm_mcp.toolcalls.detector import Detector
    from rkllm_mcp.tools.client import MCPClient
    from rkllm_mcp.tools.toolbox import Toolbox

__version__ = "0.1.0"

__all__ = ["Detector", "Engine", "MCPClient", "ToolSpec", "Toolbox", "__version__", "load_config", "open_app"]

_HOMES = {
    "open_app": "rkllm_mcp.app",
    "load_config": "rkllm_mcp.config",
    "ToolSpec": "rkllm_mcp.messages",
    "Engine": "rkllm_mcp.runtime.engine",
    "Detector": "rkllm_mcp.toolcalls.detector",
    "MCPClient": "rkllm_mcp.tools.client",
    "Toolbox": "rkllm_mcp.tools.toolbox",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rkllm_mcp' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
