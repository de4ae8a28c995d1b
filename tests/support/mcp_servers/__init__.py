"""Real MCP servers for tests, each its own program: ``tiny`` behaves, ``hostile`` does not, ``remote`` is on HTTP.

``specs`` says how to start them; ``npm`` installs other people's.
"""
