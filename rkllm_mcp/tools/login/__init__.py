"""OAuth authorization of the host at MCP servers."""
