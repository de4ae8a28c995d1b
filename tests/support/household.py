"""A household assistant: its system text and twenty tools, written for this project."""

from __future__ import annotations

import json

from rkllm_mcp.messages import ToolSpec
from tests.support.shared import REPOSITORY

SYSTEM = (
    "You are the assistant of a small household, running on a board in the living room. Answer in the language of the "
    "question, briefly and in plain words. Use a tool when the answer depends on the world; never invent a result."
)
TOOLS = tuple(
    ToolSpec(tool["name"], tool["description"], tool["inputSchema"])
    for tool in json.loads((REPOSITORY / "tests" / "data" / "household_tools.json").read_text("utf-8"))
)
