"""OAuth: how the host logs in to a server."""
