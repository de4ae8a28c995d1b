"""The database of one user: calls, approvals, switches, conversations, usage. See ``store.database`` for its rules."""
