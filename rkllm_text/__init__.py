"""Text of unknown encoding and ranges of characters, for the host and the servers."""
