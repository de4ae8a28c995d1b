"""An assistant on a Rockchip NPU: from a user's words to an answer, through MCP tools.

The path of an answer, in the order of its steps:

1. ``prompt``     a conversation becomes token ids, each prefilled once
2. ``toolcalls``  generated text becomes events: text, thinking, tool calls
3. ``runtime``    token ids become tokens on the NPU, in a child process that owns librkllmrt.so
4. ``mcp_client`` tool calls become results, on MCP servers
5. ``agent``      the loop: rounds of model and tools up to the answer
6. ``surfaces``   events become a terminal, JSON lines, a service

Values that every package knows: ``errors``, ``messages``, ``events``, ``generation``, ``sampling``, ``elicitation``,
``protocols``, ``records``, ``text`` and ``catalogue`` (texts by language). ``tasks`` has task groups that raise an
exception itself, ``config`` checks the configuration, ``board`` reads the machine, ``models`` holds model folders and
fetches their files, and ``store`` is one SQLite file. ``openapi`` and ``builtin`` are tool servers in this process, and
``tools`` makes one toolbox of all servers. ``conversations`` records, titles, exports and imports conversations,
``memory`` finds and recalls what a person wants remembered, and ``schedules`` has rules of time and runs what is due.
``speech`` asks the programs that recognise and speak. ``providers`` are the chat models.
``app`` is the composition root, ``completions`` answers clients that send the whole conversation, and ``diagnostics``
checks, probes and measures.

The names below are imported on first use, so that importing one of them does not load the others' libraries.
"""

from __future__ import annotations

import importlib

# As in typing, which takes a while to import: Ctrl-C in the first moment would show a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rkllm_mcp.app.root import open_app
    from rkllm_mcp.config.loading import load_config
    from rkllm_mcp.errors import (
        AbiMismatchError,
        AnswerFormatError,
        ConfigError,
        GenerationError,
        InputRefusedError,
        LibraryNotFoundError,
        MemoryShortError,
        ModelDownloadError,
        ModelExchangeError,
        ModelFileError,
        ModelLoadError,
        ModelNotFoundError,
        NoCallError,
        NotOfferedError,
        PromptTooLongError,
        QueueFullError,
        RkllmMcpError,
        RunRejectedError,
        RuntimeUnusableError,
        SchedulerClosedError,
        ServerRefusedError,
        ServerStartTimeoutError,
        ServerUnavailableError,
        ServiceError,
        ServiceTooLongError,
        StoreError,
        ToolboxError,
        ToolTimeoutError,
        UnknownRuntimeError,
        UnsupportedError,
        UsageError,
        WorkerDiedError,
    )
    from rkllm_mcp.events import (
        Approval,
        Elicitation,
        End,
        Event,
        Prefill,
        QuestionAnswered,
        Queued,
        ResourceRead,
        Source,
        Sources,
        Status,
        Text,
        Thinking,
        ToolCallDetected,
        ToolCallFailed,
        ToolFinished,
        ToolProgress,
        Usage,
    )
    from rkllm_mcp.mcp_client.client import MCPClient
    from rkllm_mcp.messages import ToolSpec
    from rkllm_mcp.runtime.engine import Engine
    from rkllm_mcp.surfaces.library import AskOptions, Assistant, AsyncAssistant, AsyncChat, Chat, tool
    from rkllm_mcp.toolcalls.detector import Detector
    from rkllm_mcp.tools.toolbox import Toolbox


__version__ = "0.1.0"

__all__ = [
    "AbiMismatchError",
    "AnswerFormatError",
    "Approval",
    "AskOptions",
    "Assistant",
    "AsyncAssistant",
    "AsyncChat",
    "Chat",
    "ConfigError",
    "Detector",
    "Elicitation",
    "End",
    "Engine",
    "Event",
    "GenerationError",
    "InputRefusedError",
    "LibraryNotFoundError",
    "MCPClient",
    "MemoryShortError",
    "ModelDownloadError",
    "ModelExchangeError",
    "ModelFileError",
    "ModelLoadError",
    "ModelNotFoundError",
    "NoCallError",
    "NotOfferedError",
    "Prefill",
    "PromptTooLongError",
    "QuestionAnswered",
    "QueueFullError",
    "Queued",
    "ResourceRead",
    "RkllmMcpError",
    "RunRejectedError",
    "RuntimeUnusableError",
    "SchedulerClosedError",
    "ServerRefusedError",
    "ServerStartTimeoutError",
    "ServerUnavailableError",
    "ServiceError",
    "ServiceTooLongError",
    "Source",
    "Sources",
    "Status",
    "StoreError",
    "Text",
    "Thinking",
    "ToolCallDetected",
    "ToolCallFailed",
    "ToolFinished",
    "ToolProgress",
    "ToolSpec",
    "ToolTimeoutError",
    "Toolbox",
    "ToolboxError",
    "UnknownRuntimeError",
    "UnsupportedError",
    "Usage",
    "UsageError",
    "WorkerDiedError",
    "__version__",
    "load_config",
    "open_app",
    "tool",
]

# The names of events and errors are many; their modules import the standard library alone.
_HOMES = {
    "AskOptions": "rkllm_mcp.surfaces.library",
    "open_app": "rkllm_mcp.app.root",
    "load_config": "rkllm_mcp.config.loading",
    "MCPClient": "rkllm_mcp.mcp_client.client",
    "ToolSpec": "rkllm_mcp.messages",
    "Engine": "rkllm_mcp.runtime.engine",
    "Assistant": "rkllm_mcp.surfaces.library",
    "AsyncAssistant": "rkllm_mcp.surfaces.library",
    "AsyncChat": "rkllm_mcp.surfaces.library",
    "Chat": "rkllm_mcp.surfaces.library",
    "tool": "rkllm_mcp.surfaces.library",
    "Detector": "rkllm_mcp.toolcalls.detector",
    "Toolbox": "rkllm_mcp.tools.toolbox",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'rkllm_mcp' has no attribute {name!r}")
    home = _HOMES.get(name) or ("rkllm_mcp.errors" if name.endswith("Error") else "rkllm_mcp.events")
    return getattr(importlib.import_module(home), name)
