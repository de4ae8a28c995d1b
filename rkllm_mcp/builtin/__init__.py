"""Tools that run in this process."""
