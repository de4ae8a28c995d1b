"""Starting a program as a server: whether it may be, and what it is allowed to see."""
