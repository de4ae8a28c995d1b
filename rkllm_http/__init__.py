"""The listening side of an HTTP server, for the host and the servers that listen."""
