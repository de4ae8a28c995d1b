"""The cloud server: an MCP program by which a small model asks a large one.

Reading the package in this order is reading the path of one question:

    server      an MCP tool call -> a question, its answer -> an MCP result       a tool for each key that is set
    asking      a question -> one request over HTTP -> an answer                  settings, errors
    interfaces  how OpenAI, Google and Anthropic are asked and read, as data

It speaks the public HTTP interfaces itself: three small requests do not need three SDKs. Whatever is asked leaves the
board; that is what it is for, and why it offers nothing before its owner has set a key. It knows nothing of the
assistant that starts it; they meet over MCP alone.
"""
