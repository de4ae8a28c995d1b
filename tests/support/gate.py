"""A tool that waits until somebody opens a named pipe for writing: its argument ``cmd`` is ``cat`` and the pipe."""

from __future__ import annotations

GATE = """
[[servers]]
name = "gate"
transport = "builtin"
[[servers.tools]]
name = "wait"
description = "Waits"
entry_point = "subprocess:getoutput"
input_schema = { properties = { cmd = { type = "string" } } }
read_only = true
"""
