"""Ways to a server: pipes, HTTP, WebSocket or this process; an ``mcp.Client`` speaks through its ``Channel``."""
