"""``rkllm-mcp service``: the assistant as a unit of systemd, and what it tells systemd about itself."""
