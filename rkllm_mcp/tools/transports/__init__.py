"""MCP transports: stdio, HTTP, WebSocket and in-process, each as a ``Channel`` for ``mcp.Client``."""
