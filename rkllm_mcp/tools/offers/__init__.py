"""Resources, prompts, completion and resource updates of MCP servers."""
