"""A REST API as a tool server."""
