"""MCP sessions: connect, list tools, call, reconnect, close."""
