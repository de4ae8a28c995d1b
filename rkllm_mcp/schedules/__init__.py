"""Schedules: rules of time and the sentences that hold one (no IO), their runs, the tool, and notices."""
