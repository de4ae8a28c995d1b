"""One MCP server over its whole life: connected, listed, called, started again, ended."""
