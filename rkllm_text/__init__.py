"""Text of unknown encoding, ranges of characters and the installed program, for the host and the servers."""
