"""Start programs as MCP servers: the allow-list of commands and the sandbox."""
