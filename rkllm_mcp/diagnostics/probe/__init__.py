"""Experiments that find how the real runtime behaves."""
