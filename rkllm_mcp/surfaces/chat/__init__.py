"""The interactive chat, and the events of an answer on a terminal."""
