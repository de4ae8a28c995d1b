"""The file in which this program remembers from one run to the next. See ``store.database`` for its rules."""
