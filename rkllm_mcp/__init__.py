"""An assistant on a Rockchip NPU: from a user's words to an answer, through MCP tools.

The data path, left to right, is the table of contents of this package:

1. ``prompt``     conversation -> token ids, each prefilled once
2. ``toolcalls``  generated text -> events: text, thinking, tool calls
3. ``runtime``    token ids -> tokens on the NPU, in a child process that owns librkllmrt.so
4. ``tools``      tool calls -> results, over MCP
5. ``agent``      the loop: model rounds and tool rounds until the answer is complete
6. ``surfaces``   events -> terminal, JSON lines, HTTP

Values: ``errors``, ``messages``, ``events``, ``generation``, ``calling``, ``records``, ``forms``, ``offers``;
``encode`` writes events as JSON. ``config`` is the checked configuration, ``providers`` the chat models, ``board``
the machine, ``store`` the SQLite file. ``shelf`` and ``acquisition`` hold and install model folders. Application:
``assembly`` converts the configuration to settings and ``availability`` lists unsupported ones, ``core``,
``equipment`` and ``specialists`` open the model, the tools and the embedding models, ``head_start`` is the warm-up,
``app`` the assistant with its running answers (``under_way``) and stored ones (``keeping``), ``tenancy`` the tenants,
``completions`` the chat completions, ``abilities`` the board's services for other hosts. Diagnostics: ``inspection``,
``measurement``.

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
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rkllm_mcp' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
