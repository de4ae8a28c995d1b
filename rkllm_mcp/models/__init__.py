"""Model folders and releases of the runtime, and where their files come from."""
