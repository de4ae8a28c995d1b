"""Model folders, and where their files come from."""
