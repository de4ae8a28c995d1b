"""Saved conversations: recorded, given titles, exported and imported."""
