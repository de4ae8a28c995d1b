"""MCP server that lets a small model ask a large one at OpenAI, Google or Anthropic.

    server    MCP tool call -> ChatRequest; ChatReply -> MCP result    one tool per configured API key
    client    ChatRequest -> one HTTP request -> ChatReply             settings
    vendors   requests and replies of each vendor's HTTP API, as data

The server calls the vendors' public HTTP APIs directly; three small requests do not need three SDKs. Questions are sent
to the vendor, so no tool is offered until an API key is set. The package does not import the assistant; they
communicate over MCP only.
"""
