"""Text of unknown encoding, for the host and the servers, which share nothing else."""
