"""Real MCP servers for tests, each a program of its own: ``tiny`` behaves, ``hostile`` does not, ``remote`` is on HTTP.

``specs`` says how to start them; ``npm`` installs other people's.
"""
